// Runs one kernel, warp after warp, each by 32 threads. KERNEL is its source, CALL its call.
#include "target.cuh"
#include "volume.cuh"
#include KERNEL

#include <barrier>
#include <thread>
#include <vector>

thread_local ThreadIndex threadIdx;
thread_local int host_thread_in_grid;

namespace {

constexpr int WARPS_A_BLOCK = 8;
std::barrier<> meeting(LANES);
Warp shared;

}  // namespace

Warp exchange_in_warp(unsigned long long mine) {
  shared.lane[threadIdx.x] = mine;
  meeting.arrive_and_wait();
  const Warp seen = shared;
  meeting.arrive_and_wait();  // nobody writes the next value before all have read this one
  return seen;
}

extern "C" void emulate(const Volume* volume, const float* points, [[maybe_unused]] const unsigned char* colors, int n,
                        float cx, float cy, float cz) {
  const int warps = (n + LANES * WARPS_A_BLOCK - 1) / (LANES * WARPS_A_BLOCK) * WARPS_A_BLOCK;
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < LANES; ++lane)
    lanes.emplace_back([=] {
      threadIdx.x = lane;
      for (int warp = 0; warp < warps; ++warp) {
        host_thread_in_grid = warp * LANES + lane;
        CALL;
        meeting.arrive_and_wait();
      }
    });
  for (std::thread& lane : lanes) lane.join();
}
