// Warps that walk in step, for kernels that exist on GPUs only (host = False in the kernel table).
//
// Warp operations name the lanes that take part. With __activemask() the compiler must find out at run time who is
// there (MATCH and REDUX before every ballot on sm_90); so here all 32 lanes take every step, and carry a flag that says
// whether their sample counts.
#pragma once

#include "band.cuh"
#include "insert.cuh"

constexpr unsigned WHOLE_WARP = 0xffffffffu;

__device__ __forceinline__ int lane_in_warp() { return static_cast<int>(threadIdx.x & 31); }

// Calls visit(sample, counts) for every step of every lane's ray. A warp's lanes all come here, those beyond the last
// point too: they walk the last point's ray and count nothing. n > 0.
template <class Visit>
__device__ __forceinline__ void walk_in_step(const Volume& volume, const float* points, int i, int n, Camera camera,
                                             Visit visit) {
  const int mine = min(i, n - 1);
  const float* point = points + 3 * static_cast<long long>(mine);
  const bool aimed = length(point[0] - camera.x, point[1] - camera.y, point[2] - camera.z) > 1e-6f;
  Volume open = volume;
  open.trunc = INFINITY;  // nothing is behind it: the walk leaves no sample out, the flag does
  walk_band<true>(open, points, mine, camera, [&](const Sample& sample) {
    visit(sample, i < n && aimed && !(sample.sdf < -volume.trunc));
  });
}

// Whether this lane is the first of those that count and hold the same block.
__device__ __forceinline__ bool first_in_block(bool counts, long long key) {
  // No key is negative, and a lane that does not count shares its value with none.
  const long long value = counts ? key : -1 - lane_in_warp();
  const unsigned peers = __match_any_sync(WHOLE_WARP, static_cast<unsigned long long>(value));
  return counts && __ffs(static_cast<int>(peers)) - 1 == lane_in_warp();
}

template <class T>
__device__ __forceinline__ bool equals_lane_before(T value) {
  return __shfl_up_sync(WHOLE_WARP, value, 1) == value;
}

// A run: neighbouring lanes that count and stand for the same thing. Cheaper to find than all equal lanes (shuffles and
// ballots instead of MATCH), and a sum over it is a few more shuffles.
struct Run {
  bool head;  // first of its run, and counts
  int last;   // lane of the last member

  __device__ __forceinline__ int length() const { return last - lane_in_warp() + 1; }  // at the head
};

__device__ __forceinline__ Run run_of(bool counts, bool same_as_before) {
  const int lane = lane_in_warp();
  const unsigned counting = __ballot_sync(WHOLE_WARP, counts);
  const bool follows = counts && lane > 0 && (counting >> (lane - 1) & 1) != 0 && same_as_before;
  const unsigned starts = __ballot_sync(WHOLE_WARP, !follows);
  const unsigned next = starts & (~0u << lane << 1);
  return {counts && !follows, next != 0 ? __ffs(static_cast<int>(next)) - 2 : 31};
}

// Sums of four values over each run, complete at its head; as many rounds as log2 of the longest run.
__device__ __forceinline__ void sum_over_run(const Run& run, float (&values)[4]) {
  const int lane = lane_in_warp();
  for (int distance = 1; __any_sync(WHOLE_WARP, lane + distance <= run.last); distance *= 2) {
    for (float& value : values) {
      const float other = __shfl_down_sync(WHOLE_WARP, value, distance);
      if (lane + distance <= run.last) value += other;
    }
  }
}
