// Allocate and update in one pass: the geometry is walked once, and the index is waited for because it is used.
#include "ray.cuh"
#include "update.cuh"

extern "C" __global__ void integrate(Volume volume, const float* points, const unsigned char* colors, int n, float cx,
                                     float cy, float cz) {
  const int i = thread_in_grid();
  if (i >= n) return;
  const Color color = color_of(colors, i);
  LastBlock last;
  walk_band(volume, points, i, Camera{cx, cy, cz}, [&](const Sample& sample) {
    if (!last.holds(sample)) {
      const int x = sample.block_x(), y = sample.block_y(), z = sample.block_z();
      last.set(sample, find_or_insert<Publication::AWAIT>(volume, x, y, z));
    }
    if (last.index < 0) return add(*volume.dropped_points, 1ull);
    const long long voxel = voxel_offset(last.index, sample.local());
    if (volume.cap > 0.0f && plain(volume.weight[voxel]) >= volume.cap) return;
    reduce(volume.weight[voxel], 1.0f);
    reduce(volume.tsdf[voxel], truncated(volume, sample.sdf));
    reduce(volume.r[voxel], color.r);
    reduce(volume.g[voxel], color.g);
    reduce(volume.b[voxel], color.b);
  });
}
