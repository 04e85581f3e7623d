// What the paper's two failed designs share (claim P41).
#pragma once

#include "insert.cuh"

// Coordinates of a block whose index may lie beyond the pool.
__device__ __forceinline__ void store_coords(const Volume& volume, int index, int x, int y, int z) {
  if (index >= volume.capacity) return;
  int* coords = volume.coords + 3 * static_cast<long long>(index);
  coords[0] = x;
  coords[1] = y;
  coords[2] = z;
}
