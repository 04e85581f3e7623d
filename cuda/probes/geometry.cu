// Floor: allocate's walk without the table. The block coordinates are folded into a value, so that the compiler keeps
// the walk, and the store that would need it never happens.
#include "band.cuh"

extern "C" __global__ void floor_geometry(Volume volume, const float* points, int n, float cx, float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  int folded = 0;
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    folded ^= sample.block_x() * 3 + sample.block_y() * 5 + sample.block_z() * 7;
  });
  // Within 15 * 2^20 of zero every term repeats its sign in bits 24 to 31, and so does their exclusive or.
  if (folded == 0x7fffffff) *volume.count = folded;
}
