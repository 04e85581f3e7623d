// Runs the CUDA sources on the CPU: a launch is one call of the kernel a point, spread over threads block by block.
#include "launch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "registry.h"

thread_local int host_thread_in_grid = 0;

namespace {

// Points a thread takes at a time: one CUDA block.
constexpr long long BLOCK = 256;

void run_blocks(const HostKernel& kernel, const HostCall& call, std::atomic<long long>& next) {
  for (long long begin = next.fetch_add(BLOCK, std::memory_order_relaxed); begin < call.n;
       begin = next.fetch_add(BLOCK, std::memory_order_relaxed)) {
    const long long end = std::min<long long>(begin + BLOCK, call.n);
    for (long long i = begin; i < end; ++i) {
      host_thread_in_grid = static_cast<int>(i);
      kernel.thread(call);
    }
  }
}

}  // namespace

extern "C" int irr_launch(const char* entry, const Volume* volume, const float* points, const unsigned char* colors,
                          int n, float cx, float cy, float cz, void* scratch, int threads) {
  for (const HostKernel& kernel : HOST_KERNELS) {
    if (std::strcmp(kernel.entry, entry) != 0) continue;
    const HostCall call{*volume, points, colors, n, cx, cy, cz, scratch};
    std::atomic<long long> next{0};
    std::vector<std::thread> others;
    for (int k = 1; k < threads; ++k) others.emplace_back([&] { run_blocks(kernel, call, next); });
    run_blocks(kernel, call, next);
    for (std::thread& other : others) other.join();
    return 0;
  }
  return -1;
}
