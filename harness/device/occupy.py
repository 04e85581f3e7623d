"""Keep some multiprocessors busy, so that what is timed meanwhile has the others (claim P23: the number of them).

One block fills a multiprocessor: 1,024 threads of 64 registers are all the registers that it has, so no block of
another kernel fits beside it. Its first thread sleeps and reads a flag in host memory a hundred times a second; the
others wait for it at a barrier. It matters that they do: when every warp read the flag each microsecond, the reads of
76 blocks over PCIe held up the memory of the other 56 multiprocessors and a batch of 0.2 ms took 0.5 s (H200).
The blocks end when the flag is raised, or by themselves after a limit; what they take is their multiprocessor.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.device import driver
from harness.errors import IrrError

THREADS = 1024
LIVE = 54
"""Values that every thread keeps: ptxas then gives it 57 to 64 registers, which the hardware rounds up to 64."""

SLEEP_NS, SLEEPS = 1_000_000, 10
"""Between two readings of the flag: the longest sleep that the hardware knows, so many times."""

FEWEST_REGISTERS = 57
LIMIT_S = 20.0
"""The blocks end by themselves after this, should the host never raise the flag."""

START_S = 2.0
SEEN = 1024


def source() -> str:
    """The kernel's PTX: (flag, seen, limit in ns). `seen[m]` becomes 1 where a block runs on multiprocessor m."""
    # A value of its own for every thread, or uniform registers would hold them.
    keep = "\n".join(f"    mov.u32 %k{i}, %clock;\n    mad.lo.u32 %k{i}, %k{i}, %k{i}, %r4;" for i in range(LIVE))
    sleep = "\n".join([f"    nanosleep.u32 {SLEEP_NS};"] * SLEEPS)
    # By what the barrier says, or they could be folded into one before it.
    change = "\n".join(f"    mad.lo.u32 %k{i}, %k{i}, %k{i}, %r3;" for i in range(LIVE))
    fold = "\n".join(f"    xor.b32 %r1, %r1, %k{i};" for i in range(LIVE))
    return f"""\
.version 7.0
.target sm_75
.address_size 64

.visible .entry irr_occupy(.param .u64 flag, .param .u64 seen, .param .u64 limit)
.maxntid {THREADS}, 1, 1
{{
    .reg .pred %p<4>;
    .reg .b32 %r<5>;
    .reg .b32 %k<{LIVE}>;
    .reg .b64 %rd<8>;

    ld.param.u64 %rd1, [flag];
    ld.param.u64 %rd2, [seen];
    ld.param.u64 %rd3, [limit];
    mov.u32 %r1, %smid;
    mul.wide.u32 %rd4, %r1, 4;
    add.u64 %rd4, %rd2, %rd4;
    mov.u32 %r4, %tid.x;
{keep}
    setp.ne.u32 %p2, %r4, 0;
    @%p2 bra together;
    mov.u32 %r2, 1;
    st.volatile.global.u32 [%rd4], %r2;
    mov.u64 %rd5, %globaltimer;
again:
{sleep}
    ld.volatile.global.u32 %r3, [%rd1];
    mov.u64 %rd6, %globaltimer;
    sub.u64 %rd7, %rd6, %rd5;
    setp.lt.u64 %p1, %rd7, %rd3;
    setp.eq.u32 %p2, %r3, 0;
    and.pred %p3, %p1, %p2;
    @%p3 bra again;
together:
    barrier.red.popc.u32 %r3, 0, %p2;
{change}
    mov.u32 %r1, 0;
{fold}
    setp.ne.u32 %p1, %r1, 305419896;
    @%p1 bra done;
    st.volatile.global.u32 [%rd4], %r1;
done:
    ret;
}}
"""


class _Parameters:
    """flag u64, seen u64, limit u64."""

    def __init__(self, flag: int, seen: int, limit_ns: int) -> None:
        self.values = (ctypes.c_uint64(flag), ctypes.c_uint64(seen), ctypes.c_uint64(limit_ns))
        self.pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in self.values))


@contextlib.contextmanager
def occupied(count: int) -> Iterator[None]:
    """Hold `count` multiprocessors of the current device for as long as the block lasts.

    Raises:
        IrrError: they could not be held, or were not held to the end.
    """
    if count <= 0:
        yield
        return
    import cupy as cp

    function = driver.find_function(driver.load_module(source().encode()), "irr_occupy")
    registers = driver.function_attribute(function, driver.REGISTERS)
    if registers < FEWEST_REGISTERS:
        raise IrrError(f"the occupying kernel has {registers} registers a thread and leaves room beside it")
    memory = cp.cuda.alloc_pinned_memory(4 * (SEEN + 1))
    words = np.frombuffer(memory, np.uint32, SEEN + 1)
    words[:] = 0
    stream = cp.cuda.Stream(non_blocking=True)
    parameters: Any = _Parameters(memory.ptr, memory.ptr + 4, int(LIMIT_S * 1e9))
    began = time.monotonic()
    driver.launch(function, count, THREADS, 0, stream.ptr, parameters)
    try:
        while (held := int(np.count_nonzero(words[1:]))) < count:
            if time.monotonic() - began > START_S:
                raise IrrError(f"{held} of {count} multiprocessors could be held")
            time.sleep(0.001)
        yield
        if time.monotonic() - began > LIMIT_S or stream.done:
            raise IrrError(f"the multiprocessors were held for {LIMIT_S:g} s and were needed for longer")
    finally:
        words[0] = 1
        stream.synchronize()
