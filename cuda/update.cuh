// The update of one sample (algorithm: Update of a sample), and its five additions, which the atomics floor repeats.
#pragma once

#include "band.cuh"
#include "insert.cuh"

struct Color {
  float r, g, b;
};

__device__ __forceinline__ Color color_of(const unsigned char* colors, int i) {
  const unsigned char* color = colors + 3 * static_cast<long long>(i);
  return {static_cast<float>(color[0]), static_cast<float>(color[1]), static_cast<float>(color[2])};
}

__device__ __forceinline__ void accumulate(const Volume& volume, long long voxel, float tsdf, const Color& color) {
  add(volume.weight[voxel], 1.0f);
  add(volume.tsdf[voxel], tsdf);
  add(volume.r[voxel], color.r);
  add(volume.g[voxel], color.g);
  add(volume.b[voxel], color.b);
}

__device__ __forceinline__ float truncated(const Volume& volume, float sdf) {
  return fminf(fmaxf(sdf * volume.inv_trunc, -1.0f), 1.0f);
}

__device__ __forceinline__ void update_sample(const Volume& volume, const Sample& sample, int index,
                                              const Color& color) {
  if (index < 0) {
    add(*volume.dropped_points, 1ull);
    return;
  }
  const long long voxel = voxel_offset(index, sample.local());
  // A plain read: with the cap on, how many samples land beyond it depends on the order of the threads.
  if (volume.cap > 0.0f && plain(volume.weight[voxel]) >= volume.cap) return;
  accumulate(volume, voxel, truncated(volume, sample.sdf), color);
}
