// Allocate without waiting for the index that another thread is about to publish: allocate does not use it.
#include "band.cuh"
#include "insert.cuh"

extern "C" __global__ void allocate_nowait(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    find_or_insert<Publication::IGNORE>(volume, sample.block_x(), sample.block_y(), sample.block_z());
  });
}
