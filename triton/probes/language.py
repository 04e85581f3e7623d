"""What this Triton accepts: one small kernel a question, compiled by harness/build/triton_facts.py, never launched."""

import triton
import triton.language as tl


@triton.jit
def scalar_add(pointer):
    tl.atomic_add(pointer, 1)


@triton.jit
def scalar_exchange(pointer):
    tl.atomic_xchg(pointer, 1)


@triton.jit
def scalar_cas(pointer):
    tl.atomic_cas(pointer, -1, 1)


@triton.jit
def scalar_add_of_a_tile(pointer):
    tl.atomic_add(pointer, tl.arange(0, 32))


@triton.jit
def scalar_cas_of_a_tile(pointer):
    tl.atomic_cas(pointer, tl.full((32,), -1, tl.int32), tl.arange(0, 32))


@triton.jit
def masked_cas(pointer):
    lane = tl.arange(0, 32)
    tl.atomic_cas(pointer + lane, tl.full((32,), -1, tl.int32), lane, mask=lane < 8)


@triton.jit
def runtime_bound(pointer, n):
    for i in tl.static_range(n):
        tl.store(pointer + i, i)


@triton.jit
def unbounded(pointer):
    lane = tl.arange(0, 32)
    value = tl.load(pointer + lane)
    while tl.max(value, 0) > 0:
        value = tl.load(pointer + lane, volatile=True)
    tl.store(pointer + lane, value)
