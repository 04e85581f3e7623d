// Allocate without waiting, one lane a warp for each distinct block.
#include "in_step.cuh"

extern "C" __global__ void allocate_warp(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  walk_in_step(volume, points, thread_in_grid(), n, Camera{cx, cy, cz}, [&](const Sample& sample, bool counts) {
    const int x = sample.block_x(), y = sample.block_y(), z = sample.block_z();
    if (first_in_block(counts, pack_key(x, y, z))) find_or_insert<Publication::IGNORE>(volume, x, y, z);
  });
}
