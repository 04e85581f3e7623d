// Allocate with another hash: the finalizer of MurmurHash3 over the packed key, which mixes every bit, in place of three
// products. It breaks look-ups, which know the paper's hash only.
#include "band.cuh"
#include "insert.cuh"

__device__ __forceinline__ unsigned mixed_hash(long long key, unsigned mask) {
  unsigned long long h = static_cast<unsigned long long>(key);
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return static_cast<unsigned>(h ^ (h >> 33)) & mask;
}

extern "C" __global__ void allocate_otherhash(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    const int x = sample.block_x(), y = sample.block_y(), z = sample.block_z();
    const long long wanted = pack_key(x, y, z);
    const unsigned home = mixed_hash(wanted, volume.mask);
    for (unsigned probe = 0; probe <= volume.mask; ++probe) {  // as in find_or_insert
      Entry& entry = volume.table[(home + probe) & volume.mask];
      const long long key = plain(entry.key);
      if (key == wanted) return void(await_index(entry));
      if (key == KEY_EMPTY) {
        const long long before = compare_and_swap(entry.key, KEY_EMPTY, wanted);
        if (before == KEY_EMPTY) return void(publish(volume, entry, x, y, z));
        if (before == wanted) return void(await_index(entry));
      }
    }
    add(*volume.failed_inserts, 1ull);
  });
}
