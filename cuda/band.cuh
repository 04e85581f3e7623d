// The walk through the truncation band (algorithm: Point, Sample), shared by allocate, update and the floors.
#pragma once

#include "target.cuh"
#include "volume.cuh"

constexpr int BLOCK_SHIFT = 3;  // 8 voxels a block edge
constexpr int LOCAL_MASK = 7;
constexpr int BLOCK_VOXELS = 512;

struct Camera {
  float x, y, z;
};

// One sample of a point's ray: its voxel and the signed distance of the voxel's centre to the surface, along the ray.
struct Sample {
  int x, y, z;
  float sdf;

  // Arithmetic shift: block -1 holds voxels -8..-1, where a division would put -7..-1 into block 0.
  __device__ __forceinline__ int block_x() const { return x >> BLOCK_SHIFT; }
  __device__ __forceinline__ int block_y() const { return y >> BLOCK_SHIFT; }
  __device__ __forceinline__ int block_z() const { return z >> BLOCK_SHIFT; }
  __device__ __forceinline__ int local() const {
    return (x & LOCAL_MASK) + 8 * (y & LOCAL_MASK) + 64 * (z & LOCAL_MASK);
  }
};

// i64 in every arm: with 32 bits a pool beyond 4,194,304 blocks would wrap.
__device__ __forceinline__ long long voxel_offset(int index, int local) {
  return static_cast<long long>(index) * BLOCK_VOXELS + local;
}

__device__ __forceinline__ int floor_to_int(float x) { return static_cast<int>(floorf(x)); }

__device__ __forceinline__ float length(float x, float y, float z) { return square_root((x * x + y * y) + z * z); }

// Calls visit(sample) for each of point i's samples that the occlusion test keeps. Allocate and update must walk the
// same samples, or blocks are allocated that update never touches, and the other way round. NEVER_EARLY is for walks in
// step (device/in_step.cuh), which sort out points at the camera themselves.
template <bool NEVER_EARLY = false, class Visit>
__device__ __forceinline__ void walk_band(const Volume& volume, const float* points, int i, Camera camera,
                                          Visit visit) {
  const float* point = points + 3 * static_cast<long long>(i);
  const float px = point[0], py = point[1], pz = point[2];
  const float dx = px - camera.x, dy = py - camera.y, dz = pz - camera.z;
  const float distance = length(dx, dy, dz);
  if (!NEVER_EARLY && !(distance > 1e-6f)) return;
  const float ux = divide(dx, distance), uy = divide(dy, distance), uz = divide(dz, distance);
  for (int s = -volume.steps; s <= volume.steps; ++s) {
    const float t = static_cast<float>(s) * volume.voxel;
    Sample sample;
    sample.x = floor_to_int((px + ux * t) * volume.inv_voxel);
    sample.y = floor_to_int((py + uy * t) * volume.inv_voxel);
    sample.z = floor_to_int((pz + uz * t) * volume.inv_voxel);
    const float ex = (static_cast<float>(sample.x) + 0.5f) * volume.voxel - camera.x;
    const float ey = (static_cast<float>(sample.y) + 0.5f) * volume.voxel - camera.y;
    const float ez = (static_cast<float>(sample.z) + 0.5f) * volume.voxel - camera.z;
    sample.sdf = distance - length(ex, ey, ez);
    if (sample.sdf < -volume.trunc) continue;  // occluded: further behind the surface than the truncation
    visit(sample);
  }
}
