// A block's index is the number of its slot: no counter, no publication, no wait. It breaks the pool: indices go up to
// the mask, so the pool must be as large as the table. The count is kept by an addition that nobody waits for.
#include "band.cuh"
#include "designs.cuh"

extern "C" __global__ void allocate_slotindex(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    const int x = sample.block_x(), y = sample.block_y(), z = sample.block_z();
    const long long wanted = pack_key(x, y, z);
    const unsigned home = hash_block(x, y, z, volume.mask);
    for (unsigned probe = 0; probe <= volume.mask; ++probe) {
      const unsigned slot = (home + probe) & volume.mask;
      Entry& entry = volume.table[slot];
      long long key = plain(entry.key);
      if (key == KEY_EMPTY) {
        key = compare_and_swap(entry.key, KEY_EMPTY, wanted);
        if (key == KEY_EMPTY) {
          store_coords(volume, static_cast<int>(slot), x, y, z);
          entry.index = static_cast<int>(slot);
          add(*volume.count, 1);
          return;
        }
      }
      if (key == wanted) return;
    }
    add(*volume.failed_inserts, 1ull);
  });
}
