// The hash table (algorithm: Table, Insert): linear probing over 16-byte entries, lock-free.
#pragma once

#include "target.cuh"
#include "volume.cuh"

constexpr long long KEY_EMPTY = -1;
constexpr int INDEX_UNPUBLISHED = -1;
constexpr int INDEX_TOMBSTONE = -2;  // the block was claimed when the pool was full; it has no voxels
constexpr int NO_INDEX = -1;

// Whether an insert that finds the block waits for its index. Allocate never uses the index: the paper's kernel waits
// all the same, and not waiting takes 17.6 instead of 24.8 us at base on an H200, so both are kernels here.
enum class Publication { AWAIT, IGNORE };

__device__ __forceinline__ long long pack_key(int x, int y, int z) {
  constexpr long long BIAS = 1 << 20;
  return ((x + BIAS) << 42) | ((y + BIAS) << 21) | (z + BIAS);
}

__device__ __forceinline__ unsigned hash_block(int x, int y, int z, unsigned mask) {
  return (static_cast<unsigned>(x) * 73856093u ^ static_cast<unsigned>(y) * 19349663u ^
          static_cast<unsigned>(z) * 83492791u) &
         mask;
}

// The first read is plain, because nearly always the index stands there and L1 may serve it; only a waiter pays for
// reads past L1 (a scoped first read: L1 hit rate 28 % instead of 53 %, allocate 30.1 instead of 24.8 us at base).
__device__ __forceinline__ int await_index(const Entry& entry) {
  int index = plain(entry.index);
  while (index == INDEX_UNPUBLISHED) index = reload(entry.index);
  return index;
}

template <Publication publication>
__device__ __forceinline__ int index_of(const Entry& entry) {
  return publication == Publication::AWAIT ? await_index(entry) : plain(entry.index);
}

// The winner of a slot gives the block its place in the pool. The pool full, it publishes the tombstone before it
// gives up, so that every waiter ends: without it a pool smaller than the scene hangs the GPU.
__device__ __forceinline__ int publish(const Volume& volume, Entry& entry, int x, int y, int z) {
  const int index = fetch_add(*volume.count, 1);
  if (index >= volume.capacity) {
    add(*volume.count, -1);
    exchange(entry.index, INDEX_TOMBSTONE);
    add(*volume.failed_inserts, 1ull);
    return INDEX_TOMBSTONE;
  }
  int* coords = volume.coords + 3 * static_cast<long long>(index);
  coords[0] = x;
  coords[1] = y;
  coords[2] = z;
  fence();
  exchange(entry.index, index);
  return index;
}

// Index of block (x, y, z), inserted if absent; negative if it has none (pool or table full). With
// Publication::IGNORE the index of a block that is being inserted may still read as unpublished.
template <Publication publication>
__device__ __forceinline__ int find_or_insert(const Volume& volume, int x, int y, int z) {
  const long long wanted = pack_key(x, y, z);
  const unsigned home = hash_block(x, y, z, volume.mask);
  for (unsigned probe = 0; probe <= volume.mask; ++probe) {
    Entry& entry = volume.table[(home + probe) & volume.mask];
    const long long key = plain(entry.key);
    if (key == wanted) return index_of<publication>(entry);
    if (key == KEY_EMPTY) {
      const long long before = compare_and_swap(entry.key, KEY_EMPTY, wanted);
      if (before == KEY_EMPTY) return publish(volume, entry, x, y, z);
      if (before == wanted) return index_of<publication>(entry);
    }
  }
  add(*volume.failed_inserts, 1ull);  // every slot holds another key
  return NO_INDEX;
}

// Index of block (x, y, z), negative if it has none. For a table that nobody is inserting into.
__device__ __forceinline__ int find(const Volume& volume, int x, int y, int z) {
  const long long wanted = pack_key(x, y, z);
  const unsigned home = hash_block(x, y, z, volume.mask);
  for (unsigned probe = 0; probe <= volume.mask; ++probe) {
    const Entry& entry = volume.table[(home + probe) & volume.mask];
    const long long key = plain(entry.key);
    if (key == wanted) return plain(entry.index);
    if (key == KEY_EMPTY) return NO_INDEX;
  }
  return NO_INDEX;
}
