// What the kernels ask of the machine, on a GPU. cuda/host/target.cuh is the same list for the CPU; the include path
// chooses, so that no kernel carries an #ifdef. Square root and division are correctly rounded (algorithm: one IEEE
// operation each); additions and products stay plain operators, so that contraction is the compiler's switch alone.
#pragma once

#include <cstddef>

// The thread's place in the grid, one point (or sample, or cube) a thread.
__device__ __forceinline__ int thread_in_grid() {
  return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

__device__ __forceinline__ float square_root(float x) { return __fsqrt_rn(x); }
__device__ __forceinline__ float divide(float a, float b) { return __fdiv_rn(a, b); }

// A read that may race with an atomic on the same word and may be served from L1. A stale value is harmless where this
// stands: keys and indices only ever go from empty to final, and a stale `empty` is settled by the compare-and-swap.
template <class T>
__device__ __forceinline__ T plain(const T& word) {
  return word;
}

// A read that must see other threads' writes in the end: volatile, hence past L1.
template <class T>
__device__ __forceinline__ T reload(const T& word) {
  return *static_cast<const volatile T*>(&word);
}

// Returns what was there; the swap took place iff that equals `expected`.
__device__ __forceinline__ long long compare_and_swap(long long& word, long long expected, long long desired) {
  return static_cast<long long>(atomicCAS(reinterpret_cast<unsigned long long*>(&word),
                                          static_cast<unsigned long long>(expected),
                                          static_cast<unsigned long long>(desired)));
}

template <class T>
__device__ __forceinline__ T fetch_add(T& word, T amount) {
  return atomicAdd(&word, amount);
}

// Addition whose result nobody reads: ptxas makes RED of it where fetch_add is ATOM, if the kernel has no fence.
template <class T>
__device__ __forceinline__ void add(T& word, T amount) {
  atomicAdd(&word, amount);
}

// The same as RED in any case, for kernels that insert (so fence) and add to voxels: there add() would be five ATOMG.
// Not for the others: the compiler does not look into it, and update.cu would no longer be specialised for cap = 0.
__device__ __forceinline__ void reduce(float& word, float amount) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(&word)), "f"(amount)
               : "memory");
}

__device__ __forceinline__ void exchange(int& word, int value) { atomicExch(&word, value); }

// Writes before it are seen by whoever sees a write after it.
__device__ __forceinline__ void fence() { __threadfence(); }
