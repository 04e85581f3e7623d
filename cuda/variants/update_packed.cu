// Update of packed voxels, otherwise as update.cu.
#include "packed.cuh"

extern "C" __global__ void update_packed(Volume volume, const float* points, const unsigned char* colors, int n,
                                         float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  const Color color = color_of(colors, i);
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    const int index = find(volume, sample.block_x(), sample.block_y(), sample.block_z());
    update_sample_packed(volume, sample, index, color);
  });
}
