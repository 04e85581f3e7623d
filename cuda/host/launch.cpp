// Runs the CUDA sources on the CPU: a launch is one call of the kernel a point, the points spread over threads.
//
// Points that follow each other add to the same voxels, and sixteen voxels share a cache line. So every thread has a
// strip of the points to itself: threads that take blocks in turn are at neighbouring rows of a depth image all the
// time and pull each other's lines away. A thread that is through helps the others, from the far ends of their strips.
#include "launch.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "registry.h"

thread_local int host_thread_in_grid = 0;

namespace {

// Points a thread takes at a time: one CUDA block.
constexpr long long BLOCK = 256;

// The blocks [first, end) of a strip that nobody has taken: one word, so that no block is taken twice. A cache line
// each, as its owner writes it all the time.
struct alignas(64) Strip {
  std::atomic<std::uint64_t> left;

  static std::uint64_t pack(std::uint64_t first, std::uint64_t end) { return first << 32 | end; }

  // The next block for the owner, the last one for a helper; -1: none is left.
  long long take(bool owner) {
    std::uint64_t seen = left.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t first = seen >> 32, end = seen & 0xffffffffu;
      if (first >= end) return -1;
      const std::uint64_t rest = owner ? pack(first + 1, end) : pack(first, end - 1);
      if (left.compare_exchange_weak(seen, rest, std::memory_order_relaxed))
        return static_cast<long long>(owner ? first : end - 1);
    }
  }
};

void run_strips(const HostKernel& kernel, const HostCall& call, std::vector<Strip>& strips, std::size_t own) {
  for (std::size_t k = 0; k < strips.size(); ++k) {
    Strip& strip = strips[(own + k) % strips.size()];
    for (long long block = strip.take(k == 0); block >= 0; block = strip.take(k == 0)) {
      const long long end = std::min<long long>((block + 1) * BLOCK, call.n);
      for (long long i = block * BLOCK; i < end; ++i) {
        host_thread_in_grid = static_cast<int>(i);
        kernel.thread(call);
      }
    }
  }
}

void launch(const HostKernel& kernel, const HostCall& call, int threads) {
  const std::uint64_t blocks = call.n > 0 ? (call.n + BLOCK - 1) / BLOCK : 0;
  const std::uint64_t count = std::min<std::uint64_t>(std::max(threads, 1), blocks);
  std::vector<Strip> strips(count);
  for (std::uint64_t k = 0; k < count; ++k)
    strips[k].left.store(Strip::pack(k * blocks / count, (k + 1) * blocks / count), std::memory_order_relaxed);
  std::vector<std::thread> others;
  others.reserve(count);
  try {
    for (std::size_t k = 1; k < count; ++k)
      others.emplace_back([&kernel, &call, &strips, k] { run_strips(kernel, call, strips, k); });
  } catch (const std::system_error&) {
    // No more threads to be had: those that run take the strips of those that do not.
  }
  run_strips(kernel, call, strips, 0);
  for (std::thread& other : others) other.join();
}

}  // namespace

extern "C" int irr_launch(const char* entry, const Volume* volume, const float* points, const unsigned char* colors,
                          int n, float cx, float cy, float cz, void* scratch, int threads) {
  for (const HostKernel& kernel : HOST_KERNELS) {
    if (std::strcmp(kernel.entry, entry) != 0) continue;
    launch(kernel, HostCall{*volume, points, colors, n, cx, cy, cz, scratch}, threads);
    return 0;
  }
  return -1;
}
