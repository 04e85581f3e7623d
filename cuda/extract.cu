// Extract: the zero surface of tsdf / weight by marching tetrahedra (algorithm: Extract), as a soup of triangles.
//
// One thread a voxel of a built block; its cube has the voxel as its lowest corner and reaches into up to seven other
// blocks. A cube counts only if all eight voxels were seen. The same kernel counts and writes: triangles[0] counts,
// triangles[1] says how many fit into the buffers (0 for the counting pass), and a triangle is written only if it fits.
#include "band.cuh"
#include "insert.cuh"

namespace {

struct Corner {
  float x, y, z;  // metres
  float value;    // signed distance over truncation; negative behind the surface
  float r, g, b;
};

// Corner c of a cube lies at (c & 1, c >> 1 & 1, c >> 2 & 1). Six tetrahedra {0, 7, a, b} round the diagonal 0-7 fill
// the cube, each with the same orientation, and meet those of the neighbouring cubes in the same face diagonals.
__device__ constexpr int RING[7] = {1, 3, 2, 6, 4, 5, 1};

// Always from the negative end, whichever cube or tetrahedron asks: an edge has one crossing, to the last bit, so that
// the triangles of neighbours share their vertices exactly.
__device__ Corner crossing(const Corner& behind, const Corner& front) {
  const float t = divide(behind.value, behind.value - front.value);
  Corner at;
  at.x = behind.x + (front.x - behind.x) * t;
  at.y = behind.y + (front.y - behind.y) * t;
  at.z = behind.z + (front.z - behind.z) * t;
  at.value = 0.0f;
  at.r = behind.r + (front.r - behind.r) * t;
  at.g = behind.g + (front.g - behind.g) * t;
  at.b = behind.b + (front.b - behind.b) * t;
  return at;
}

// Where triangles go: nine floats and nine bytes each.
struct Soup {
  float* vertices;
  unsigned char* colors;
  unsigned long long* triangles;

  __device__ void put(const Corner& p, const Corner& q, const Corner& r) const {
    const unsigned long long place = fetch_add(triangles[0], 1ull);
    if (place >= triangles[1]) return;
    const Corner* corners[3] = {&p, &q, &r};
    for (int k = 0; k < 3; ++k) {
      float* vertex = vertices + 9 * place + 3 * k;
      vertex[0] = corners[k]->x;
      vertex[1] = corners[k]->y;
      vertex[2] = corners[k]->z;
      unsigned char* color = colors + 9 * place + 3 * k;
      color[0] = static_cast<unsigned char>(corners[k]->r + 0.5f);
      color[1] = static_cast<unsigned char>(corners[k]->g + 0.5f);
      color[2] = static_cast<unsigned char>(corners[k]->b + 0.5f);
    }
  }

  // One tetrahedron, positively oriented; normals point out of the surface, towards the camera.
  __device__ void tetrahedron(const Corner& a, const Corner& b, const Corner& c, const Corner& d) const {
    const Corner* corners[4] = {&a, &b, &c, &d};
    int behind = 0;
    for (int k = 0; k < 4; ++k) behind += corners[k]->value < 0.0f;
    if (behind == 0 || behind == 4) return;
    // An even permutation brings the lone corner to the front, or the two that are behind.
    if (behind == 2) {
      constexpr int EVEN[6][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}, {1, 2, 0, 3}, {1, 3, 2, 0}, {2, 3, 0, 1}};
      for (const auto& order : EVEN) {
        const Corner &p = *corners[order[0]], &q = *corners[order[1]], &r = *corners[order[2]], &s = *corners[order[3]];
        if (!(p.value < 0.0f && q.value < 0.0f)) continue;
        const Corner pr = crossing(p, r), ps = crossing(p, s), qr = crossing(q, r), qs = crossing(q, s);
        put(pr, ps, qs);
        put(pr, qs, qr);
        return;
      }
    }
    constexpr int EVEN[4][4] = {{0, 1, 2, 3}, {1, 0, 3, 2}, {2, 0, 1, 3}, {3, 0, 2, 1}};
    for (const auto& order : EVEN) {
      const Corner &p = *corners[order[0]], &q = *corners[order[1]], &r = *corners[order[2]], &s = *corners[order[3]];
      const bool lone = p.value < 0.0f;
      if (lone != (behind == 1)) continue;
      if (lone)
        put(crossing(p, q), crossing(p, r), crossing(p, s));
      else
        put(crossing(q, p), crossing(s, p), crossing(r, p));
      return;
    }
  }
};

// Reads voxel (x, y, z); false if it was never seen.
__device__ bool read_voxel(const Volume& volume, int index, int x, int y, int z, Corner& corner) {
  const long long voxel = voxel_offset(index, (x & LOCAL_MASK) + 8 * (y & LOCAL_MASK) + 64 * (z & LOCAL_MASK));
  const float weight = volume.weight[voxel];
  if (!(weight > 0.0f)) return false;
  corner.x = (static_cast<float>(x) + 0.5f) * volume.voxel;
  corner.y = (static_cast<float>(y) + 0.5f) * volume.voxel;
  corner.z = (static_cast<float>(z) + 0.5f) * volume.voxel;
  corner.value = divide(volume.tsdf[voxel], weight);
  corner.r = divide(volume.r[voxel], weight);
  corner.g = divide(volume.g[voxel], weight);
  corner.b = divide(volume.b[voxel], weight);
  return true;
}

}  // namespace

// n: voxels of the built blocks, 512 each.
extern "C" __global__ void extract(Volume volume, float* vertices, unsigned char* colors, int n,
                                   unsigned long long* triangles) {
  const int i = thread_in_grid();
  if (i >= n) return;
  const int home = i / BLOCK_VOXELS, local = i % BLOCK_VOXELS;
  const int* coords = volume.coords + 3 * static_cast<long long>(home);
  const int x = 8 * coords[0] + (local & LOCAL_MASK);
  const int y = 8 * coords[1] + (local >> 3 & LOCAL_MASK);
  const int z = 8 * coords[2] + (local >> 6);

  Corner corners[8];
  int behind = 0;
  for (int c = 0; c < 8; ++c) {
    const int vx = x + (c & 1), vy = y + (c >> 1 & 1), vz = z + (c >> 2);
    const int bx = vx >> BLOCK_SHIFT, by = vy >> BLOCK_SHIFT, bz = vz >> BLOCK_SHIFT;
    const bool inside = bx == coords[0] && by == coords[1] && bz == coords[2];
    const int index = inside ? home : find(volume, bx, by, bz);
    if (index < 0 || !read_voxel(volume, index, vx, vy, vz, corners[c])) return;
    behind += corners[c].value < 0.0f;
  }
  if (behind == 0 || behind == 8) return;

  const Soup soup{vertices, colors, triangles};
  for (int k = 0; k < 6; ++k) soup.tetrahedron(corners[0], corners[RING[k]], corners[RING[k + 1]], corners[7]);
}
