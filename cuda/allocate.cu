// Allocate: every block that a sample of the band falls into gets a table entry and a place in the pool.
#include "band.cuh"
#include "insert.cuh"

extern "C" __global__ void allocate(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    find_or_insert<Publication::AWAIT>(volume, sample.block_x(), sample.block_y(), sample.block_z());
  });
}
