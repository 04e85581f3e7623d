// The Mandelbrot loop of study.cu on the CPU, once for every fusion pattern that a compiler may choose.
//
// A pattern says which of the loop's three multiply-add pairs round once (fmaf) instead of twice. The compiler's own
// contraction is off (-ffp-contract=off), so a pattern fuses what it names and nothing else; the build checks that in
// the object code. Lanes are plain GCC vectors: sixteen pixels advance together until all of them have ended, which
// changes no pixel's arithmetic.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int LANES = 16;
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int Ints __attribute__((vector_size(4 * LANES)));

// Through plain arrays: GCC turns this loop into vector instructions (-fopenmp-simd), but not one over subscripts.
__attribute__((always_inline)) inline Floats fused(Floats a, Floats b, Floats c) {
  float x[LANES], y[LANES], z[LANES];
  std::memcpy(x, &a, sizeof x);
  std::memcpy(y, &b, sizeof y);
  std::memcpy(z, &c, sizeof z);
#pragma omp simd
  for (int lane = 0; lane < LANES; ++lane) z[lane] = __builtin_fmaf(x[lane], y[lane], z[lane]);
  std::memcpy(&c, z, sizeof z);
  return c;
}

__attribute__((always_inline)) inline bool any(Ints mask) {
  int result = 0;
  for (int lane = 0; lane < LANES; ++lane) result |= mask[lane];
  return result != 0;
}

// zy: 2 zx zy + cy.  difference: zx zx - zy zy.  escape: zx zx + zy zy.
template <bool FuseZy, bool FuseDifference, bool FuseEscape>
__attribute__((always_inline)) inline void row(int width, int height, int limit, int y, int* out) {
  const float cy = -1.5f + 3.0f * (float)y / (float)height;
  for (int x = 0; x < width; x += LANES) {
    Floats cx;
    for (int lane = 0; lane < LANES; ++lane) cx[lane] = -2.0f + 3.0f * (float)(x + lane) / (float)width;
    Floats zx = {}, zy = {};
    const Floats cys = zy + cy;
    Ints n = {};
    Ints alive = n == 0;
    for (int step = 0; step < limit; ++step) {
      const Floats zy2 = zy * zy;
      const Floats radius2 = FuseEscape ? fused(zx, zx, zy2) : zx * zx + zy2;
      alive &= radius2 <= 4.0f;
      if (!any(alive)) break;
      n -= alive;  // a true lane is -1
      const Floats difference = FuseDifference ? fused(zx, zx, -zy2) : zx * zx - zy2;
      const Floats twice = 2.0f * zx;
      zy = FuseZy ? fused(twice, zy, cys) : twice * zy + cys;
      zx = difference + cx;
    }
    const int end = std::min(LANES, width - x);
    for (int lane = 0; lane < end; ++lane) out[x + lane] = n[lane];
  }
}

using Row = void (*)(int, int, int, int, int*);

void image(Row row, int width, int height, int limit, int threads, int* out) {
  std::atomic<int> next{0};
  auto work = [&] {
    for (int y; (y = next.fetch_add(1, std::memory_order_relaxed)) < height;)
      row(width, height, limit, y, out + (long)y * width);
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  for (auto& thread : pool) thread.join();
}

}  // namespace

// One row function a pattern, with a name of its own, so that the object-code check can count each one's fused
// operations.
#define PATTERN(name, zy, difference, escape)                                                      \
  extern "C" __attribute__((noinline)) void row_##name(int w, int h, int limit, int y, int* out) { \
    row<zy, difference, escape>(w, h, limit, y, out);                                              \
  }                                                                                                \
  extern "C" void image_##name(int w, int h, int limit, int threads, int* out) {                   \
    image(row_##name, w, h, limit, threads, out);                                                  \
  }

PATTERN(strict, false, false, false)
PATTERN(nvcc, true, false, false)
PATTERN(oxide, true, true, false)
PATTERN(nvcc_escape, true, false, true)
PATTERN(oxide_escape, true, true, true)
