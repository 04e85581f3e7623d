// What the kernels ask of the machine, on a CPU: the list of cuda/device/target.cuh, made of compiler builtins.
// plain() and reload() are relaxed atomic loads, the same instruction as an ordinary load, so that ThreadSanitizer
// knows the three intended racy reads (key, index, weight under the cap) from a mistake.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <thread>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))

// Set by the launcher (cuda/host/launch.cpp) before each call of a kernel.
extern thread_local int host_thread_in_grid;

inline int thread_in_grid() { return host_thread_in_grid; }

inline float square_root(float x) { return std::sqrt(x); }
inline float divide(float a, float b) { return a / b; }

template <class T>
inline T plain(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}

// GCC's integer builtins take no float.
inline float plain(const float& word) {
  unsigned bits = __atomic_load_n(reinterpret_cast<const unsigned*>(&word), __ATOMIC_RELAXED);
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// With more threads than cores the thread that is waited for may not be running: let it.
template <class T>
inline T reload(const T& word) {
  std::this_thread::yield();
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}

inline long long compare_and_swap(long long& word, long long expected, long long desired) {
  __atomic_compare_exchange_n(&word, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

template <class T>
inline T fetch_add(T& word, T amount) {
  return __atomic_fetch_add(&word, amount, __ATOMIC_RELAXED);
}

template <class T>
inline void add(T& word, T amount) {
  __atomic_fetch_add(&word, amount, __ATOMIC_RELAXED);
}

// No x86 instruction adds a float atomically: compare and swap of its bits until nobody came between.
inline void add(float& word, float amount) {
  auto* bits = reinterpret_cast<unsigned*>(&word);
  unsigned seen = __atomic_load_n(bits, __ATOMIC_RELAXED);
  unsigned wanted;
  do {
    float value;
    std::memcpy(&value, &seen, sizeof value);
    value += amount;
    std::memcpy(&wanted, &value, sizeof wanted);
  } while (!__atomic_compare_exchange_n(bits, &seen, wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

inline void reduce(float& word, float amount) { add(word, amount); }

inline void exchange(int& word, int value) { __atomic_exchange_n(&word, value, __ATOMIC_RELEASE); }

// The release of exchange() orders the coordinates on the host; a fence builtin is what ThreadSanitizer cannot model.
inline void fence() {}
