// Allocate and update in one pass, by runs of neighbouring lanes, packed voxels.
#include "packed.cuh"
#include "run_update.cuh"

extern "C" __global__ void integrate_packed_run(Volume volume, const float* points, const unsigned char* colors, int n,
                                                float cx, float cy, float cz) {
  const int i = thread_in_grid();
  const Color color = color_of(colors, min(i, n - 1));
  LastBlock last;
  walk_in_step(volume, points, i, n, Camera{cx, cy, cz}, [&](const Sample& sample, bool counts) {
    const RunSample summed = sum_run(volume, sample, counts, color);
    if (!summed.run.head) return;
    if (!last.holds(sample)) {
      const int x = sample.block_x(), y = sample.block_y(), z = sample.block_z();
      last.set(sample, find_or_insert<Publication::AWAIT>(volume, x, y, z));
    }
    if (last.index < 0) return count_dropped(volume, summed);
    const long long voxel = voxel_offset(last.index, sample.local());
    if (volume.cap > 0.0f && plain(packed_voxel(volume, voxel)->y) >= volume.cap) return;
    accumulate_packed(volume, voxel, summed.tsdf, summed.weight, summed.color);
  });
}
