// The blocks of a ray without its samples, for allocate alone, which needs no more.
//
// Along a ray each coordinate only grows or only falls, rounded operations included, and the band of 2 k steps is one
// block edge long at k = 4. So between its first and its last sample a coordinate meets at most one wall between
// blocks, and one comparison with that wall tells a sample's block: no conversion to an integer, no voxel centre, no
// root. Only the last sample can be occluded: the centre of a voxel is within 0.867 voxels of the sample in it, so the
// one of step s lies at most (s + 0.867) voxels behind the surface, less than the truncation if s < k.
#pragma once

#include "band.cuh"

// Below this many voxels from the origin and from the camera, rounding errors (at most 8 units in the last place of
// 2^15 voxels, 0.02 voxels) are well below the 0.133 voxels that the argument leaves.
constexpr float NEAR_VOXELS = 16384.0f;

// Blocks of a ray: bit c of `seen` stands for block (x + (c & 1), y + (c >> 1 & 1), z + (c >> 2)).
struct RayBlocks {
  int x, y, z;
  unsigned seen;
};

// The wall between two neighbouring blocks, in voxels, and out of reach where both are the same block.
__device__ __forceinline__ float wall_between(int a, int b) {
  return a == b ? INFINITY : static_cast<float>(8 * (a > b ? a : b));
}

__device__ __forceinline__ int lower(int a, int b) { return a < b ? a : b; }

// False where the argument does not hold, far away or with a block edge in between: then every sample must be walked.
__device__ __forceinline__ bool blocks_of_ray(const Volume& volume, const float* points, int i, Camera camera,
                                              RayBlocks& blocks) {
  const float* point = points + 3 * static_cast<long long>(i);
  const float px = point[0], py = point[1], pz = point[2];
  const float dx = px - camera.x, dy = py - camera.y, dz = pz - camera.z;
  const float distance = length(dx, dy, dz);
  blocks.seen = 0;
  if (!(distance > 1e-6f)) return true;
  const float reach = NEAR_VOXELS * volume.voxel;
  if (!(distance < reach && fabsf(camera.x) < reach && fabsf(camera.y) < reach && fabsf(camera.z) < reach))
    return false;
  const float ux = divide(dx, distance), uy = divide(dy, distance), uz = divide(dz, distance);
  const auto along = [&](float p, float u, int s) {
    return (p + u * (static_cast<float>(s) * volume.voxel)) * volume.inv_voxel;
  };
  const int first = -volume.steps;
  int last = volume.steps;
  int vx = floor_to_int(along(px, ux, last)), vy = floor_to_int(along(py, uy, last));
  int vz = floor_to_int(along(pz, uz, last));
  const float ex = (static_cast<float>(vx) + 0.5f) * volume.voxel - camera.x;
  const float ey = (static_cast<float>(vy) + 0.5f) * volume.voxel - camera.y;
  const float ez = (static_cast<float>(vz) + 0.5f) * volume.voxel - camera.z;
  if (distance - length(ex, ey, ez) < -volume.trunc) --last;
  if (last < first) return true;
  const int ax = floor_to_int(along(px, ux, first)) >> BLOCK_SHIFT, bx = vx >> BLOCK_SHIFT;
  const int ay = floor_to_int(along(py, uy, first)) >> BLOCK_SHIFT, by = vy >> BLOCK_SHIFT;
  const int az = floor_to_int(along(pz, uz, first)) >> BLOCK_SHIFT, bz = vz >> BLOCK_SHIFT;
  blocks.x = lower(ax, bx), blocks.y = lower(ay, by), blocks.z = lower(az, bz);
  if (ax + bx - 2 * blocks.x > 1 || ay + by - 2 * blocks.y > 1 || az + bz - 2 * blocks.z > 1) return false;
  const float wx = wall_between(ax, bx), wy = wall_between(ay, by), wz = wall_between(az, bz);
  for (int s = first; s <= last; ++s) {
    const unsigned code = (along(px, ux, s) >= wx ? 1u : 0u) | (along(py, uy, s) >= wy ? 2u : 0u) |
                          (along(pz, uz, s) >= wz ? 4u : 0u);
    blocks.seen |= 1u << code;
  }
  return true;
}

// Takes the next block out of `blocks`.
__device__ __forceinline__ void next_block(RayBlocks& blocks, int& x, int& y, int& z) {
  const unsigned bit = blocks.seen & (0u - blocks.seen);
  blocks.seen ^= bit;
  x = blocks.x + ((bit & 0xaau) != 0);  // codes 1, 3, 5, 7
  y = blocks.y + ((bit & 0xccu) != 0);
  z = blocks.z + ((bit & 0xf0u) != 0);
}
