// The host launcher's interface, the same in every host library of the project (C++ and Rust).
#pragma once

#include "target.cuh"
#include "volume.cuh"

// What a launch carries. Which of the pointers a kernel's parameter is stands in harness/build/host.py.
struct HostCall {
  Volume volume;
  const float* points;
  const unsigned char* colors;
  int n;
  float cx, cy, cz;
  void* scratch;
};

// A kernel under its name, called once a point: made by harness/build/host.py from the kernel table (registry.h).
struct HostKernel {
  const char* entry;
  void (*thread)(const HostCall&);
};

// One of a call's pointers as whatever pointer type the kernel's parameter has.
struct Pointer {
  const void* address;

  template <class T>
  operator T*() const {
    return static_cast<T*>(const_cast<void*>(address));
  }
};

// Runs `entry` on n points with that many threads. 0: done, -1: there is no such kernel. `scratch` is the pointer that
// only some kernels have (extract: triangles[2]; record_offsets: its output). Returns when every thread is done: there
// is no deadline here, the caller's process has it.
extern "C" int irr_launch(const char* entry, const Volume* volume, const float* points, const unsigned char* colors,
                          int n, float cx, float cy, float cz, void* scratch, int threads);
