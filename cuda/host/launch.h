// The host launcher's interface, the same in every host library of the project (C++ and Rust).
#pragma once

#include "target.cuh"
#include "volume.cuh"

// A launch's arguments by their names in the kernel table; a kernel takes those that its stage has.
struct HostCall {
  Volume volume;
  const float* points;
  const unsigned char* colors;
  int n;
  float cx, cy, cz;
  void* scratch;
};

struct HostKernel {
  const char* entry;
  void (*thread)(const HostCall&);
};

// Runs `entry` on n points. 0: done, -1: there is no such kernel. `scratch` is the kernel's last pointer (extract:
// triangles[2]; record_offsets: the offsets). Blocks until every thread is done: there is no deadline here.
extern "C" int irr_launch(const char* entry, const Volume* volume, const float* points, const unsigned char* colors,
                          int n, float cx, float cy, float cz, void* scratch, int threads);
