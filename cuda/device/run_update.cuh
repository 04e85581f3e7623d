// Update by runs: neighbouring lanes whose samples fall into the same voxel are summed in registers first, and only the
// run's head touches memory. The sum's order differs from plain's, its addends do not: weights and colours stay exact,
// tsdf stays within the bound of any order. With the cap on, a run is added whole or not at all.
#pragma once

#include "in_step.cuh"
#include "ray.cuh"
#include "update.cuh"

// The samples of one run as one: sums, and how many there are.
struct RunSample {
  Run run;
  float tsdf, weight;
  Color color;
};

__device__ __forceinline__ RunSample sum_run(const Volume& volume, const Sample& sample, bool counts,
                                             const Color& color) {
  // All three in any case: every lane must come to every shuffle.
  const bool x = equals_lane_before(sample.x), y = equals_lane_before(sample.y), z = equals_lane_before(sample.z);
  RunSample summed;
  summed.run = run_of(counts, x && y && z);
  float values[4] = {truncated(volume, sample.sdf), color.r, color.g, color.b};
  sum_over_run(summed.run, values);
  summed.tsdf = values[0];
  summed.weight = static_cast<float>(summed.run.length());
  summed.color = {values[1], values[2], values[3]};
  return summed;
}

__device__ __forceinline__ void count_dropped(const Volume& volume, const RunSample& summed) {
  add(*volume.dropped_points, static_cast<unsigned long long>(summed.run.length()));
}
