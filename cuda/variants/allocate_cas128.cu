// Key and index published by one 128-bit exchange: nobody waits. It breaks the pool: the index must be taken before it
// is known who wins, and what a loser still holds at the end of its ray is lost.
#include "band.cuh"
#include "designs.cuh"
#include "wide.cuh"

extern "C" __global__ void allocate_cas128(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  int spare = NO_INDEX;
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    const int x = sample.block_x(), y = sample.block_y(), z = sample.block_z();
    const long long wanted = pack_key(x, y, z);
    const unsigned home = hash_block(x, y, z, volume.mask);
    for (unsigned probe = 0; probe <= volume.mask; ++probe) {
      Entry& entry = volume.table[(home + probe) & volume.mask];
      long long key = plain(entry.key);
      if (key == KEY_EMPTY) {
        if (spare == NO_INDEX) spare = fetch_add(*volume.count, 1);
        key = compare_and_swap_entry(entry, wanted, spare);
        if (key == KEY_EMPTY) {
          store_coords(volume, spare, x, y, z);
          spare = NO_INDEX;
          return;
        }
      }
      if (key == wanted) return;
    }
    add(*volume.failed_inserts, 1ull);
  });
}
