// Recorder for the atomics floor, never timed: the voxel offset of every sample, in the order point then sample.
// offsets has n * (2 * steps + 1) slots; the caller fills them with -1 before and drops what is still -1 after
// (samples that the occlusion test or the look-up took out), keeping the order.
#include "update.cuh"

extern "C" __global__ void record_offsets(Volume volume, const float* points, int n, float cx, float cy, float cz,
                                          long long* offsets) {
  const int i = thread_in_grid();
  if (i >= n) return;
  long long* next = offsets + static_cast<long long>(i) * (2 * volume.steps + 1);
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    const int index = find(volume, sample.block_x(), sample.block_y(), sample.block_z());
    if (index >= 0) *next++ = voxel_offset(index, sample.local());
  });
}
