// The blocks of a ray by their walls, and one lane for each run of neighbouring lanes that come to the same block.
#include "in_step.cuh"
#include "walls.cuh"

extern "C" __global__ void allocate_walls_run(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  const int i = thread_in_grid();
  RayBlocks blocks;
  blocks.seen = 0;
  if (i < n && !blocks_of_ray(volume, points, i, Camera{cx, cy, cz}, blocks)) {
    walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
      find_or_insert<Publication::IGNORE>(volume, sample.block_x(), sample.block_y(), sample.block_z());
    });
    blocks.seen = 0;
  }
  while (__any_sync(WHOLE_WARP, blocks.seen != 0)) {
    const bool counts = blocks.seen != 0;
    int x = 0, y = 0, z = 0;
    if (counts) next_block(blocks, x, y, z);
    if (run_of(counts, equals_lane_before(pack_key(x, y, z))).head)
      find_or_insert<Publication::IGNORE>(volume, x, y, z);
  }
}
