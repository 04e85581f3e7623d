// Update of packed voxels that looks a block up once while the ray stays in it.
#include "packed.cuh"
#include "ray.cuh"

extern "C" __global__ void update_packed_ray(Volume volume, const float* points, const unsigned char* colors, int n,
                                             float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  const Color color = color_of(colors, i);
  LastBlock last;
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    if (!last.holds(sample)) last.set(sample, find(volume, sample.block_x(), sample.block_y(), sample.block_z()));
    update_sample_packed(volume, sample, last.index, color);
  });
}
