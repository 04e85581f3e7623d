// Floor: update's five additions at the voxels that update touches, in its order, and nothing else. One thread a
// sample. The voxel offsets were recorded before, untimed (record.cu). The values added are constants: what an
// addition costs does not depend on its value, and reading recorded ones (16 bytes a sample) would be traffic that
// update does not have.
#include "update.cuh"

extern "C" __global__ void floor_atomics(Volume volume, const long long* offsets, int n) {
  const int i = thread_in_grid();
  if (i >= n) return;
  accumulate(volume, offsets[i], 0.5f, Color{128.0f, 128.0f, 128.0f});
}
