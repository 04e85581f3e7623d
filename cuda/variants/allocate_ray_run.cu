// No block twice along a ray, and one lane for each run of neighbouring lanes that enter the same block.
#include "in_step.cuh"
#include "ray.cuh"

extern "C" __global__ void allocate_ray_run(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  LastBlock last;
  walk_in_step(volume, points, thread_in_grid(), n, Camera{cx, cy, cz}, [&](const Sample& sample, bool counts) {
    const bool fresh = counts && !last.holds(sample);
    if (fresh) last.set(sample);
    if (!__any_sync(WHOLE_WARP, fresh)) return;
    if (run_of(fresh, equals_lane_before(pack_key(last.x, last.y, last.z))).head)
      find_or_insert<Publication::IGNORE>(volume, last.x, last.y, last.z);
  });
}
