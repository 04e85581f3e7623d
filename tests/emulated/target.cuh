// A warp of the emulation: 32 host threads that meet at every warp operation. For kernels that walk in step, whose warp
// operations all name the whole warp; how lanes that part and meet again behave on a GPU, this does not show.
#pragma once

#include "../../cuda/host/target.cuh"

#include <algorithm>
#include <cstring>

using std::min;

constexpr int LANES = 32;

struct float4 {
  float x, y, z, w;
};

struct ThreadIndex {
  int x;
};

extern thread_local ThreadIndex threadIdx;

// Every lane's 8 bytes, once all 32 have come (warp.cpp).
struct Warp {
  unsigned long long lane[LANES];
};
Warp exchange_in_warp(unsigned long long mine);

template <class T>
Warp exchange_values(T value) {
  unsigned long long bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return exchange_in_warp(bits);
}

template <class T>
T value_of(unsigned long long bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline unsigned __ballot_sync(unsigned, bool vote) {
  const Warp warp = exchange_values<int>(vote);
  unsigned ballot = 0;
  for (int k = 0; k < LANES; ++k) ballot |= static_cast<unsigned>(warp.lane[k] != 0) << k;
  return ballot;
}

inline bool __any_sync(unsigned mask, bool vote) { return __ballot_sync(mask, vote) != 0; }

// A lane whose source is outside the warp gets its own value back.
template <class T>
T __shfl_up_sync(unsigned, T value, int distance) {
  const int from = threadIdx.x - distance;
  return value_of<T>(exchange_values(value).lane[from < 0 ? threadIdx.x : from]);
}

template <class T>
T __shfl_down_sync(unsigned, T value, int distance) {
  const int from = threadIdx.x + distance;
  return value_of<T>(exchange_values(value).lane[from >= LANES ? threadIdx.x : from]);
}

inline unsigned __match_any_sync(unsigned, unsigned long long value) {
  const Warp warp = exchange_values(value);
  unsigned peers = 0;
  for (int k = 0; k < LANES; ++k) peers |= static_cast<unsigned>(warp.lane[k] == value) << k;
  return peers;
}

inline int __ffs(int bits) { return __builtin_ffs(bits); }
