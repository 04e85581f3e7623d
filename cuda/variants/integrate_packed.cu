// Allocate and update in one pass, packed voxels.
#include "packed.cuh"
#include "ray.cuh"

extern "C" __global__ void integrate_packed(Volume volume, const float* points, const unsigned char* colors, int n,
                                            float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  const Color color = color_of(colors, i);
  LastBlock last;
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    if (!last.holds(sample)) {
      const int x = sample.block_x(), y = sample.block_y(), z = sample.block_z();
      last.set(sample, find_or_insert<Publication::AWAIT>(volume, x, y, z));
    }
    update_sample_packed(volume, sample, last.index, color);
  });
}
