// Packed voxels: tsdf, weight, r, g of a voxel side by side in the memory of the first four arrays, b in its own. One
// four-wide reduction (sm_90 and up) and one scalar instead of five scalars: 70.7 instead of 140 us at base on an H200.
#pragma once

#include "update.cuh"

__device__ __forceinline__ float4* packed_voxel(const Volume& volume, long long voxel) {
  return reinterpret_cast<float4*>(volume.tsdf) + voxel;
}

// `weight` samples at once; tsdf and colour are their sums.
__device__ __forceinline__ void accumulate_packed(const Volume& volume, long long voxel, float tsdf, float weight,
                                                  const Color& color) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                   __cvta_generic_to_global(packed_voxel(volume, voxel))),
               "f"(tsdf), "f"(weight), "f"(color.r), "f"(color.g)
               : "memory");
  reduce(volume.b[voxel], color.b);
}

__device__ __forceinline__ void update_sample_packed(const Volume& volume, const Sample& sample, int index,
                                                     const Color& color) {
  if (index < 0) {
    add(*volume.dropped_points, 1ull);
    return;
  }
  const long long voxel = voxel_offset(index, sample.local());
  if (volume.cap > 0.0f && plain(packed_voxel(volume, voxel)->y) >= volume.cap) return;
  accumulate_packed(volume, voxel, truncated(volume, sample.sdf), 1.0f, color);
}
