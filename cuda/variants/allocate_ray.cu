// Allocate without waiting, and without asking again for the block that the ray is still in.
#include "insert.cuh"
#include "ray.cuh"

extern "C" __global__ void allocate_ray(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  LastBlock last;
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    if (last.holds(sample)) return;
    last.set(sample);
    find_or_insert<Publication::IGNORE>(volume, sample.block_x(), sample.block_y(), sample.block_z());
  });
}
