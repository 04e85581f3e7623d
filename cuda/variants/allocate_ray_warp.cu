// Both: no block twice along a ray, and one lane a warp for each distinct block.
#include "in_step.cuh"
#include "ray.cuh"

extern "C" __global__ void allocate_ray_warp(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  LastBlock last;
  walk_in_step(volume, points, thread_in_grid(), n, Camera{cx, cy, cz}, [&](const Sample& sample, bool counts) {
    const bool fresh = counts && !last.holds(sample);
    if (fresh) last.set(sample);
    // Most steps enter no new block anywhere in the warp: one vote instead of a match.
    if (!__any_sync(WHOLE_WARP, fresh)) return;
    if (first_in_block(fresh, pack_key(last.x, last.y, last.z)))
      find_or_insert<Publication::IGNORE>(volume, last.x, last.y, last.z);
  });
}
