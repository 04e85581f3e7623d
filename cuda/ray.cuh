// Along a ray the samples of a block follow each other: nine samples of base's rays lie in 2.3 blocks on average.
#pragma once

#include "band.cuh"

// The block of the sample before on this ray, and its index.
struct LastBlock {
  int x = 1 << 30, y = 0, z = 0;  // no block has this x: a key holds -2^20 .. 2^20 - 1
  int index = -1;

  __device__ __forceinline__ bool holds(const Sample& sample) const {
    return sample.block_x() == x && sample.block_y() == y && sample.block_z() == z;
  }

  __device__ __forceinline__ void set(const Sample& sample, int new_index = -1) {
    x = sample.block_x();
    y = sample.block_y();
    z = sample.block_z();
    index = new_index;
  }
};
