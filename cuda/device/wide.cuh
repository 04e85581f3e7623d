// One exchange of a whole table entry: 128 bits, sm_90 and up.
#pragma once

#include "insert.cuh"

// Stores (key, index) if the entry is still as cleared, every byte 0xff; the key found there.
__device__ __forceinline__ long long compare_and_swap_entry(Entry& entry, long long key, int index) {
  long long before, rest;
  asm volatile(
      "{\n\t.reg .b128 expected, desired, found;\n\t"
      "mov.b128 expected, {%3, %3};\n\tmov.b128 desired, {%4, %5};\n\t"
      "atom.relaxed.gpu.global.cas.b128 found, [%2], expected, desired;\n\t"
      "mov.b128 {%0, %1}, found;\n\t}"
      : "=l"(before), "=l"(rest)
      : "l"(__cvta_generic_to_global(&entry)), "l"(KEY_EMPTY), "l"(key),
        "l"(static_cast<long long>(static_cast<unsigned>(index)))
      : "memory");
  return before;
}
