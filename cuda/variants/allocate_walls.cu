// Allocate that asks once for every block of a ray, found by the walls between blocks instead of sample by sample.
#include "insert.cuh"
#include "walls.cuh"

extern "C" __global__ void allocate_walls(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  RayBlocks blocks;
  if (!blocks_of_ray(volume, points, i, Camera{cx, cy, cz}, blocks)) {
    walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
      find_or_insert<Publication::IGNORE>(volume, sample.block_x(), sample.block_y(), sample.block_z());
    });
    return;
  }
  while (blocks.seen != 0) {
    int x, y, z;
    next_block(blocks, x, y, z);
    find_or_insert<Publication::IGNORE>(volume, x, y, z);
  }
}
