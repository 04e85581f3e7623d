"""The contraction study's programs on a GPU: buffers, launch values, images; timed by the batch of every kernel."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cupy as cp
import numpy as np

from harness.device.gpu import STAMP_DTYPE, STAMP_SLOTS, Gpu, GpuBatch, LoadedKernel, upload
from harness.workload.programs import A, Program, X, Y

runtime: Any = cp.cuda.runtime

MEMORY_CLOCK_KHZ, BUS_WIDTH_BITS = 36, 37
"""Device attributes of the driver's interface."""


@dataclass
class ProgramCell:
    """One program's buffers, with the surface that `GpuBatch` times: a batch is `size` launches on the same buffers.

    Args:
        size: launches of a batch.
    """

    gpu: Gpu
    program: Program
    size: int
    _resets: dict[str, cp.cuda.Graph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stamps = STAMP_SLOTS * STAMP_DTYPE.itemsize
        self.readback = cp.ndarray((2 * stamps,), np.uint8)
        self.before, self.after = self.readback[:stamps], self.readback[stamps:]
        self.pinned = cp.cuda.alloc_pinned_memory(self.readback.nbytes)
        self.host = np.frombuffer(self.pinned, np.uint8, self.readback.nbytes)
        self.volumes: list[None] = [None] * self.size
        self.inputs: dict[str, Any] = {}
        n = self.program.elements
        if self.program.edge:
            self.out = cp.ndarray((n,), np.int32)
            self.inputs = {
                "width": self.program.edge,
                "height": self.program.edge,
                "limit": self.program.limit,
                "out": self.out,
            }
        else:
            # Values below 1, so that 300 additions stay far from overflow; the same on every machine.
            x = np.random.default_rng(22).random(n, np.float32)
            self.out = cp.ndarray((n,), np.float32)
            self.inputs = {"n": n, "a": np.float32(2.0), "x": upload(x), "y": self.out}

    def reset(self, kind: str = "fresh", layout: str = "arrays") -> cp.cuda.Graph:
        """Stamps and output back to 0xFF or 0, so that an output left unwritten shows."""
        if kind not in self._resets:
            self._resets[kind] = self.gpu.capture(self._restore)
        return self._resets[kind]

    def _restore(self) -> None:
        stream = self.gpu.stream.ptr
        runtime.memsetAsync(self.readback.data.ptr, 0, self.readback.nbytes, stream)
        runtime.memsetAsync(self.out.data.ptr, 0xFF if self.program.edge else 0, self.out.nbytes, stream)

    def copies(self) -> list[dict[str, Any]]:
        """No launch here has another's data in L2 to fear: saxpy's 192 MB exceed it, an image is only written."""
        return [self.inputs] * self.size

    def values(self, kernel: LoadedKernel, volume: None, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Launch values and the number of points of one launch."""
        return dict(inputs), self.program.elements

    def batch(self, kernel: LoadedKernel) -> GpuBatch:
        """The program's launches in one graph."""
        return GpuBatch(self, kernel, "serial", "fresh", "asreset")  # pyright: ignore[reportArgumentType]

    def image(self, kernel: LoadedKernel) -> np.ndarray:
        """What one launch writes: iterations (edge, edge) i32, or y (n,) f32 of y = a x + 0."""
        self.reset().launch(self.gpu.stream)
        kernel.enqueue(kernel.block(self.inputs), self.program.elements, self.gpu.stream)
        self.gpu.stream.synchronize()
        found = self.out.get()
        return found.reshape(self.program.edge, self.program.edge) if self.program.edge else found

    def rounding(self, kernel: LoadedKernel) -> np.float32:
        """a x + y of the value that tells one rounding from two, as this saxpy kernel computes it."""
        x, y = upload(np.full(1, X)), upload(np.full(1, Y))
        kernel.enqueue(kernel.block({"n": 1, "a": A, "x": x, "y": y}), 1, self.gpu.stream)
        self.gpu.stream.synchronize()
        return np.float32(y.get()[0])

    def wall_bias(self, kernel: LoadedKernel, repeats: int = 5) -> float:
        """Median of (wall clock / events) - 1 over one batch: whether the events measure what a user would."""
        graph = self.batch(kernel)
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        ratios = []
        for _ in range(repeats):
            self.gpu.stream.synchronize()
            started = time.perf_counter()
            begin.record(self.gpu.stream)
            graph.launch()
            end.record(self.gpu.stream)
            end.synchronize()
            wall = time.perf_counter() - started
            ratios.append(wall / (1e-3 * cp.cuda.get_elapsed_time(begin, end)) - 1)
        return float(np.median(ratios))


def theoretical_bandwidth(gpu: Gpu) -> float:
    """GB/s: two transfers a memory clock over the whole bus, as the driver states them."""
    khz, bits = gpu.attribute(MEMORY_CLOCK_KHZ), gpu.attribute(BUS_WIDTH_BITS)
    return 2 * khz * 1e3 * bits / 8 / 1e9


def copy_bandwidth(gpu: Gpu, size: int = 1 << 30, repeats: int = 20) -> float:
    """Device-to-device copy in GB/s, bytes read plus bytes written: the ceiling that saxpy is held against."""
    source, target = cp.ndarray((size,), np.uint8), cp.ndarray((size,), np.uint8)
    runtime.memsetAsync(source.data.ptr, 1, size, gpu.stream.ptr)
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    times = []
    for _ in range(repeats):
        begin.record(gpu.stream)
        runtime.memcpyAsync(target.data.ptr, source.data.ptr, size, runtime.memcpyDeviceToDevice, gpu.stream.ptr)
        end.record(gpu.stream)
        end.synchronize()
        times.append(1e-3 * cp.cuda.get_elapsed_time(begin, end))
    return float(2 * size / np.median(times) / 1e9)
