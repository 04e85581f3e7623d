// Update by runs of neighbouring lanes, five arrays.
#include "run_update.cuh"

extern "C" __global__ void update_run(Volume volume, const float* points, const unsigned char* colors, int n, float cx,
                                      float cy, float cz) {
  const int i = thread_in_grid();
  const Color color = color_of(colors, min(i, n - 1));
  LastBlock last;
  walk_in_step(volume, points, i, n, Camera{cx, cy, cz}, [&](const Sample& sample, bool counts) {
    const RunSample summed = sum_run(volume, sample, counts, color);
    if (!summed.run.head) return;
    if (!last.holds(sample)) last.set(sample, find(volume, sample.block_x(), sample.block_y(), sample.block_z()));
    if (last.index < 0) return count_dropped(volume, summed);
    const long long voxel = voxel_offset(last.index, sample.local());
    if (volume.cap > 0.0f && plain(volume.weight[voxel]) >= volume.cap) return;
    add(volume.weight[voxel], summed.weight);
    add(volume.tsdf[voxel], summed.tsdf);
    add(volume.r[voxel], summed.color.r);
    add(volume.g[voxel], summed.color.g);
    add(volume.b[voxel], summed.color.b);
  });
}
