"""CuPy and the driver as far as harness/device/gpu.py uses them, over this machine's memory: for hardware not here.

Memory is real (addresses are this process's), work is done when it is enqueued, a captured graph is the list of what
was enqueued and is done again at each launch, and a kernel is run by the host library of the same sources. So resets,
captured state, parameter blocks, read-back and the harness above are exercised for what they compute; times, clocks,
concurrency and the driver itself are not. What was enqueued on which stream, in which order and of what size can be
recorded (`recorded`), since no result shows it here. tests/gpu runs the same calls on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

UUID_BYTES = bytes(range(16))
UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
ARCH = 90
SMS = 4
FREE = 4 << 30

_capturing: list[Any] | None = None

OCCUPIED: dict[int, tuple[int, int]] = {}
"""Stream -> (multiprocessors that harness/device/occupy.py's kernel holds there, address of its flag)."""


@dataclass(frozen=True)
class Step:
    """One thing that a stream was given to do.

    Attributes:
        what: `launch`, `memset`, `copy`, `record` or `wait`. stream: its pointer.
        of: the kernel's entry, the address that is written, or the event. size: bytes written.
        points: where a launch's kernel reads its points, 0 where it reads none.
    """

    what: str
    stream: int
    of: Any = None
    size: int = 0
    points: int = 0


_steps: list[Step] | None = None


@contextlib.contextmanager
def recorded() -> Iterator[list[Step]]:
    """What is done inside the block, graphs that are launched there included, in order."""
    global _steps
    _steps = []
    try:
        yield _steps
    finally:
        _steps = None


def _do(work: Any, step: Step) -> None:
    """Enqueue: into the graph that is being captured, else at once."""

    def both() -> None:
        if _steps is not None:
            _steps.append(step)
        work()

    if _capturing is None:
        both()
    else:
        _capturing.append(both)


class MemoryPointer:
    def __init__(self, buffer: np.ndarray, offset: int = 0) -> None:
        self.buffer, self.offset = buffer, offset

    @property
    def ptr(self) -> int:
        return self.buffer.ctypes.data + self.offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.buffer, self.offset + int(offset))


class ndarray:
    """A device array; its elements are poisoned when made, as memory from a pool is not zero."""

    def __init__(
        self, shape: Any, dtype: Any = np.float32, memptr: MemoryPointer | None = None, _view: Any = None
    ) -> None:
        if _view is not None:
            self._a = _view
        elif memptr is None:
            count = int(np.prod(shape)) * np.dtype(dtype).itemsize
            self._a = np.full(count, 0xA5, np.uint8).view(dtype).reshape(shape)
        else:
            count = int(np.prod(shape)) * np.dtype(dtype).itemsize
            part = memptr.buffer.reshape(-1).view(np.uint8)[memptr.offset : memptr.offset + count]
            assert len(part) == count, "beyond the allocation"
            self._a = part.view(dtype).reshape(shape)

    dtype = property(lambda self: self._a.dtype)
    shape = property(lambda self: self._a.shape)
    nbytes = property(lambda self: self._a.nbytes)
    size = property(lambda self: self._a.size)
    flags = property(lambda self: self._a.flags)

    @property
    def data(self) -> MemoryPointer:
        return (
            MemoryPointer(self._a.reshape(-1).view(np.uint8)) if self._a.size else MemoryPointer(np.zeros(1, np.uint8))
        )

    def __len__(self) -> int:
        return len(self._a)

    def __iter__(self) -> Any:
        return (ndarray(None, _view=row) for row in self._a)

    def __getitem__(self, key: Any) -> ndarray:
        view = self._a[key]
        assert isinstance(view, np.ndarray), "a scalar would be a copy"
        assert view.size == 0 or np.shares_memory(view, self._a), "fancy indexing compiles a kernel"
        return ndarray(None, _view=view)

    def reshape(self, *shape: Any) -> ndarray:
        return ndarray(None, _view=self._a.reshape(*shape))

    def set(self, values: np.ndarray, stream: Any = None) -> None:
        assert values.dtype == self.dtype and values.shape == self.shape
        assert _capturing is None, "a synchronous copy cannot be captured"
        self._a[...] = values

    def get(self, stream: Any = None) -> np.ndarray:
        assert _capturing is None, "a synchronous copy cannot be captured"
        assert self._a.flags.c_contiguous, "a copy of a strided array compiles a kernel"
        return self._a.copy()


class Graph:
    def __init__(self, work: list[Any]) -> None:
        self.work = work

    def launch(self, stream: Any = None) -> None:
        assert _capturing is None
        for step in self.work:
            step()

    def upload(self, stream: Any = None) -> None:
        pass


class Stream:
    _next = 1

    def __init__(self, non_blocking: bool = False) -> None:
        self.ptr = Stream._next
        Stream._next += 1

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin_capture(self) -> None:
        global _capturing
        assert _capturing is None
        _capturing = []

    def end_capture(self) -> Graph:
        global _capturing
        assert _capturing is not None
        work, _capturing = _capturing, None
        return Graph(work)

    def synchronize(self) -> None:
        assert _capturing is None, "a capture cannot wait"
        if self.ptr in OCCUPIED:
            assert ctypes.c_uint32.from_address(OCCUPIED.pop(self.ptr)[1]).value, "the flag was not raised: no end"

    def wait_event(self, event: Event) -> None:
        _do(lambda: None, Step("wait", self.ptr, event))

    @property
    def done(self) -> bool:
        """What was enqueued is done at once; only an occupying kernel goes on."""
        return self.ptr not in OCCUPIED


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.at = 0.0
        self.done = False

    def record(self, stream: Any = None) -> None:
        def work() -> None:
            self.at = time.perf_counter()

        _do(work, Step("record", stream.ptr if stream is not None else 0, self))

    def synchronize(self) -> None:
        pass


class Runtime:
    class CUDARuntimeError(Exception):
        pass

    memcpyDeviceToDevice, memcpyDeviceToHost, memcpyHostToDevice = 3, 2, 1

    @staticmethod
    def getDeviceCount() -> int:
        return 1

    @staticmethod
    def deviceSynchronize() -> None:
        assert _capturing is None

    @staticmethod
    def memsetAsync(pointer: int, value: int, size: int, stream: int) -> None:
        _do(lambda: ctypes.memset(pointer, value, size), Step("memset", stream, pointer, size))

    @staticmethod
    def memcpyAsync(target: int, source: int, size: int, kind: int, stream: int) -> None:
        _do(lambda: ctypes.memmove(target, source, size), Step("copy", stream, target, size))

    @staticmethod
    def memGetInfo() -> tuple[int, int]:
        return FREE, FREE

    @staticmethod
    def deviceGetPCIBusId(device: int) -> str:
        return "0000:65:00.0"

    @staticmethod
    def runtimeGetVersion() -> int:
        return 13000


class _Pool:
    def free_all_blocks(self) -> None:
        pass


class _Device:
    def __init__(self, index: int = 0) -> None:
        assert index == 0

    def use(self) -> None:
        pass


class Pinned(bytearray):
    """Memory with an address, for np.frombuffer."""

    @property
    def ptr(self) -> int:
        return np.frombuffer(self, np.uint8).ctypes.data


def make_module() -> types.ModuleType:
    """A module to stand as `cupy`."""
    cupy = types.ModuleType("cupy")
    cuda: Any = types.SimpleNamespace(
        Stream=Stream,
        Event=Event,
        Graph=Graph,
        Device=_Device,
        runtime=Runtime,
        alloc_pinned_memory=lambda size: Pinned(size),
        get_elapsed_time=lambda a, b: 1e3 * (b.at - a.at),
    )
    for name, value in {
        "ndarray": ndarray,
        "cuda": cuda,
        "get_default_memory_pool": _Pool,
        "__version__": "0 (simulated)",
    }.items():
        setattr(cupy, name, value)
    return cupy


class Driver:
    """What stands for harness/device/driver.py's calls: kernels by entry, run by the host libraries."""

    def __init__(self) -> None:
        self.entries: dict[int, str] = {}
        self.languages: dict[int, str] = {}
        self.broken: set[str] = set()

    def install(self) -> None:
        from harness.device import driver

        real: Any = driver
        real.library = lambda: self
        real.check = _check
        real.driver_cuda_version = lambda: 13000
        real.load_module = self.load_module
        real.find_function = self.find_function
        real.parameter_layout = lambda function: None
        real.allow_shared = lambda function, size: None
        real.function_attribute = lambda function, attribute: {real.REGISTERS: 64}[attribute]
        real.launch = self.launch

    # ---- attributes of the device, as the C calls give them
    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetAttribute(self, value: Any, number: ctypes.c_int, device: Any) -> int:
        value._obj.value = {16: SMS, 20: 0, 38: 1 << 20, 75: ARCH // 10, 76: ARCH % 10}[number.value]
        return 0

    def cuDeviceGetUuid_v2(self, raw: Any, device: Any) -> int:
        for i, byte in enumerate(UUID_BYTES):
            raw._obj[i] = byte
        return 0

    # ---- modules
    def load_module(self, image: bytes) -> int:
        handle = len(self.languages) + 1
        self.languages[handle] = image.decode() if len(image) < 40 else "cuda"  # see builds.py; the stamp is PTX
        return handle

    def find_function(self, module: int, entry: str) -> int:
        handle = 1000 + len(self.entries)
        self.entries[handle] = entry
        self.languages[handle] = self.languages[module]
        return handle

    # ---- launches
    def launch(self, function: int, grid: int, threads: int, shared: int, stream: int, block: Any) -> None:
        assert grid > 0 and threads > 0
        entry = self.entries[function]
        if entry == "irr_stamp":
            out = block.values[0].value
            _do(lambda: self._stamp(out), Step("launch", stream, entry))
            return
        if entry == "irr_occupy":
            flag, seen, limit = (value.value for value in block.values)
            assert grid < SMS and threads == 1024 and limit > 0, "at least one multiprocessor must be left"
            (ctypes.c_uint32 * grid).from_address(seen)[:] = [1] * grid
            OCCUPIED[stream] = (grid, flag)
            return
        places = {parameter.name: parameter.offset for parameter in block.parameters}
        points = int(block.bytes[places["points"] :][:8].view("<u8")[0]) if "points" in places else 0
        _do(lambda: self._run(function, entry, block), Step("launch", stream, entry, points=points))

    @staticmethod
    def _stamp(out: int) -> None:
        now = time.perf_counter_ns()
        (ctypes.c_uint64 * 2).from_address(out)[:] = [now, 2 * now]  # two cycles a nanosecond: 2000 MHz

    def _run(self, function: int, entry: str, block: Any) -> None:
        from harness.device.host import default_threads, host_library
        from harness.workload.volume import VOLUME_DTYPE

        at = {parameter.name: (parameter.offset, parameter.size) for parameter in block.parameters}

        def number(name: str, kind: str) -> Any:
            offset, size = at[name]
            return np.frombuffer(block.bytes[offset : offset + size].tobytes(), kind)[0]

        offset, size = at["volume"]
        struct = np.frombuffer(block.bytes[offset : offset + size].tobytes(), VOLUME_DTYPE)
        pointers = [int(number(key, "<u8")) if key in at else 0 for key in ("points", "colors")]
        if "offsets" in at and "points" not in at:  # the atomics floor takes the offsets where others take the points
            pointers[0] = int(number("offsets", "<u8"))
        if "vertices" in at:
            pointers[0] = int(number("vertices", "<u8"))
        last = next((int(number(key, "<u8")) for key in ("offsets", "triangles") if key in at), 0)
        camera = [float(number(key, "<f4")) if key in at else 0.0 for key in ("cx", "cy", "cz")]
        library = host_library(self.languages[function])
        code = library._launch(
            entry.encode(),
            struct.ctypes.data,
            pointers[0],
            pointers[1],
            int(number("n", "<i4")),
            *camera,
            last,
            default_threads(),
        )
        assert code == 0, f"the host library has no {entry}"


def _check(call: str, code: int, cure: str | None = None) -> None:
    assert code == 0, call


def install() -> Driver:
    """Put both in place, in this process only."""
    sys.modules["cupy"] = make_module()
    driver = Driver()
    driver.install()
    return driver
