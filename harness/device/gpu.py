"""One GPU: volumes, kernels, graphs, events and clock stamps. CuPy for memory and streams, the driver for launches.

No CuPy operation that would compile something is used (no fills, no arithmetic): a machine that only measures has no
compiler. Tables are emptied by a memset of 0xFF (key -1, index -1), voxels by a memset of 0, a built table is restored
by a copy of the one that cuda/allocate/plain built; all of it is captured once and replayed before every batch.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from harness.build.manifest import Manifest
from harness.device import driver
from harness.device.arguments import ParameterBlock
from harness.device.reading import Counters, Reading
from harness.errors import IrrError
from harness.workload.fused import Fused, RawVolume, gather
from harness.workload.scenes import Scene
from harness.workload.volume import BLOCK_VOXELS, ENTRY_DTYPE, STEPS, VOXEL_FIELDS, VolumeConfig

runtime: Any = cp.cuda.runtime

COUNTER_OFFSETS = {"count": 0, "failed_inserts": 8, "dropped_points": 16}
COUNTERS_DTYPE = np.dtype(
    {
        "names": list(COUNTER_OFFSETS),
        "formats": ["<i4", "<u8", "<u8"],
        "offsets": list(COUNTER_OFFSETS.values()),
        "itemsize": 256,
    }
)
"""One volume's counters. 256 bytes apart, so that the volumes of a batch do not share a cache line of atomics."""

STAMP_FILE = Path(__file__).with_name("stamp.ptx")
STAMP_SLOTS = 256
STAMP_DTYPE = np.dtype([("ns", "<u8"), ("cycles", "<u8")])

HOLD_NS = 100_000
"""How long the first stamp waits. The host needs about 30 us to enqueue a batch; what it needs longer than this would
stand between the events and is counted (`late`)."""

MEMORY_SHARE = 0.85
"""Share of the free device memory that a cell may plan with."""


def _bytes(size: int) -> cp.ndarray:
    return cp.ndarray((max(size, 1),), np.uint8)


def _typed(memory: cp.ndarray, offset: int, shape: tuple[int, ...], dtype: Any) -> cp.ndarray:
    """An array of another type over a part of a byte array."""
    return cp.ndarray(shape, dtype, memory.data + offset)


def upload(array: np.ndarray) -> cp.ndarray:
    """A copy of a host array on the device; at least one element is allocated, so that the address is never null."""
    array = np.ascontiguousarray(array)
    memory = _bytes(array.nbytes)
    target = _typed(memory, 0, array.shape, array.dtype)
    if array.size:
        target.set(array)
        # The copy from pageable memory may still be under way, and our streams do not wait for the default one.
        runtime.deviceSynchronize()
    return target


def _memset(array: cp.ndarray, value: int, size: int | None = None, stream: cp.cuda.Stream | None = None) -> None:
    size = array.nbytes if size is None else size
    if size:
        runtime.memsetAsync(array.data.ptr, value, size, stream.ptr if stream is not None else 0)


def _copy(target: cp.ndarray, source: cp.ndarray, stream: cp.cuda.Stream) -> None:
    runtime.memcpyAsync(target.data.ptr, source.data.ptr, source.nbytes, runtime.memcpyDeviceToDevice, stream.ptr)


@dataclass(frozen=True)
class Inputs:
    """A scene on the device: points (n, 3) f32, colors (n, 3) u8, camera (3,) f32 on the host."""

    points: cp.ndarray
    colors: cp.ndarray
    camera: np.ndarray

    def __len__(self) -> int:
        return len(self.points)

    @staticmethod
    def of(scene: Scene) -> Inputs:
        return Inputs(upload(scene.points), upload(scene.colors), scene.camera)

    def values(self) -> dict[str, Any]:
        """Launch values by parameter name."""
        cx, cy, cz = (np.float32(c) for c in self.camera)
        return {"points": self.points, "colors": self.colors, "n": len(self), "cx": cx, "cy": cy, "cz": cz}


@dataclass
class LoadedKernel:
    """A kernel in the current context, its parameter list checked against the driver's.

    Attributes:
        name: as samples carry it (with `@twin`, `/fma`). load: `aot` (cubin) or `jit` (PTX through the driver).
    """

    name: str
    manifest: Manifest
    module: int
    function: int
    load: str = "aot"

    @property
    def layout(self) -> str:
        return self.manifest.voxels

    @cached_property
    def parameter_names(self) -> set[str]:
        return {parameter.name for parameter in self.manifest.parameters}

    def block(self, values: Mapping[str, Any]) -> ParameterBlock:
        """The parameter block of one launch; `values` may hold more than the kernel takes."""
        wanted = {key: value for key, value in values.items() if key in self.parameter_names or key == "volume"}
        return ParameterBlock(self.manifest.parameters, self.manifest.trailing_nulls, wanted)

    def enqueue(self, block: ParameterBlock, n: int, stream: cp.cuda.Stream) -> None:
        """Launch over n points (or samples, or voxels); nothing for none, since a grid of 0 is an error."""
        if n > 0:
            grid = math.ceil(n / self.manifest.points)
            driver.launch(self.function, grid, self.manifest.threads, self.manifest.shared, stream.ptr, block)

    def launch(self, volume: GpuVolume, inputs: Inputs | Scene, stream: Any = None) -> None:
        """Run once on a volume and wait for the end. For gates and `fuse`, never timed."""
        stream = volume.stream if stream is None else stream
        inputs = inputs if isinstance(inputs, Inputs) else Inputs.of(inputs)
        values = {**inputs.values(), "volume": volume.struct(), "scratch": volume.scratch(self.manifest.scratch)}
        self.enqueue(self.block(values), len(inputs), stream)
        stream.synchronize()


def load(manifest: Manifest, image: Path | bytes, *, name: str | None = None, load: str = "aot") -> LoadedKernel:
    """Load a cubin (or, with load="jit", PTX) and compare the manifest's parameter list with the driver's.

    Raises:
        IrrError: no code for this device, no such entry, or a list that differs.
    """
    data = image.read_bytes() if isinstance(image, Path) else image
    name = name or manifest.name
    try:
        module = driver.load_module(data)
    except driver.DriverError as error:
        raise IrrError(f"{name} cannot be loaded: {error.what}", error.cure) from None
    function = driver.find_function(module, manifest.entry)
    driver.check_parameters(name, manifest.parameters, driver.parameter_layout(function))
    driver.allow_shared(function, manifest.shared)
    return LoadedKernel(name, manifest, module, function, load)


def volume_bytes(config: VolumeConfig) -> int:
    """Device memory of one volume."""
    return config.slots * ENTRY_DTYPE.itemsize + config.capacity * (12 + 4 * len(VOXEL_FIELDS) * BLOCK_VOXELS)


class GpuVolume:
    """One volume on the device, empty when made.

    The five voxel arrays are one allocation, tsdf | weight | r | g | b, so that a packed kernel may see the first four
    as float4 (voxel i at bytes 16 i; b stays where it is).
    """

    def __init__(
        self, config: VolumeConfig, counters: cp.ndarray | None = None, stream: cp.cuda.Stream | None = None
    ) -> None:
        """
        Args:
            counters: (256,) u8 on the device, one slot of a batch's counters; None for memory of its own.
        """
        self.config = config
        self.stream: Any = stream if stream is not None else cp.cuda.Stream(non_blocking=True)
        self.table = _bytes(config.slots * ENTRY_DTYPE.itemsize)
        self.coords = cp.ndarray((config.capacity, 3), np.int32)
        self.voxels = cp.ndarray((len(VOXEL_FIELDS), config.capacity, BLOCK_VOXELS), np.float32)
        self.counters = counters if counters is not None else _bytes(COUNTERS_DTYPE.itemsize)
        self._scratch: cp.ndarray | None = None
        self.clear_table()
        _memset(self.coords, 0, stream=self.stream)
        _memset(self.voxels, 0, stream=self.stream)
        self.stream.synchronize()

    def struct(self) -> np.void:
        """The volume as kernels get it."""
        base = self.counters.data.ptr
        pointers = {name: base + offset for name, offset in COUNTER_OFFSETS.items()}
        pointers |= {"table": self.table.data.ptr, "coords": self.coords.data.ptr}
        pointers |= {name: self.voxels[i].data.ptr for i, name in enumerate(VOXEL_FIELDS)}
        return self.config.struct(pointers)

    def scratch(self, slots: int) -> cp.ndarray | None:
        """i64 scratch of the static Triton probe, made at first use; None for 0 slots."""
        if not slots:
            return None
        if self._scratch is None or len(self._scratch) < slots:
            self._scratch = cp.ndarray((slots,), np.int64)
            _memset(self._scratch, 0, stream=self.stream)
        return self._scratch

    def clear_table(self, stream: cp.cuda.Stream | None = None) -> None:
        """Empty table, no blocks, counters 0."""
        _memset(self.table, 0xFF, stream=stream or self.stream)
        _memset(self.counters, 0, stream=stream or self.stream)

    def clear_voxels(
        self, blocks: int | None = None, layout: str = "arrays", stream: cp.cuda.Stream | None = None
    ) -> None:
        """Zero the voxels of the first `blocks` blocks (None: those that are built)."""
        stream = stream or self.stream
        if blocks is None:
            blocks = int(self.read_counters()["count"])
        size = blocks * BLOCK_VOXELS * 4
        if layout == "packed":
            _memset(self.voxels, 0, 4 * size, stream)
            _memset(self.voxels[4], 0, size, stream)
        else:
            for array in self.voxels:
                _memset(array, 0, size, stream)

    def set_voxels(self, voxels: Mapping[str, np.ndarray], layout: str = "arrays") -> None:
        """Write the sums (m, 512) f32 of the first m blocks, as `raw` reads them; the others stay as they are."""
        blocks = len(voxels[VOXEL_FIELDS[0]])
        self.stream.synchronize()  # a reset may still be under way, and our streams do not wait for the default one
        if layout == "packed":
            four = np.stack([voxels[name] for name in VOXEL_FIELDS[:4]], axis=-1)
            self.voxels.reshape(-1)[: four.size].set(np.ascontiguousarray(four).reshape(-1))
            self.voxels[4, :blocks].set(np.ascontiguousarray(voxels[VOXEL_FIELDS[4]]))
        else:
            for i, name in enumerate(VOXEL_FIELDS):
                self.voxels[i, :blocks].set(np.ascontiguousarray(voxels[name]))
        runtime.deviceSynchronize()

    def read_counters(self) -> np.void:
        """count, failed_inserts, dropped_points."""
        self.stream.synchronize()
        return self.counters.get().view(COUNTERS_DTYPE)[0]

    def raw(self, voxels: bool = True, layout: str = "arrays") -> RawVolume:
        """The volume's memory on the host.

        Args:
            voxels: False for the table and the coordinates only. layout: how the last update wrote the voxels.
        """
        counters = self.read_counters()
        count = int(counters["count"])
        kept = min(max(count, 0), self.config.capacity)
        arrays: dict[str, np.ndarray] = {}
        if voxels and kept:
            if layout == "packed":
                four = self.voxels.reshape(-1)[: 4 * kept * BLOCK_VOXELS].get().reshape(kept, BLOCK_VOXELS, 4)
                arrays = {name: np.ascontiguousarray(four[..., i]) for i, name in enumerate(VOXEL_FIELDS[:4])}
                arrays[VOXEL_FIELDS[4]] = self.voxels[4, :kept].get()
            else:
                arrays = {name: self.voxels[i, :kept].get() for i, name in enumerate(VOXEL_FIELDS)}
        elif voxels:
            arrays = {name: np.empty((0, BLOCK_VOXELS), np.float32) for name in VOXEL_FIELDS}
        return RawVolume(
            table=self.table.get().view(ENTRY_DTYPE),
            count=count,
            failed_inserts=int(counters["failed_inserts"]),
            dropped_points=int(counters["dropped_points"]),
            coords=self.coords.get(),
            voxels=arrays,
        )

    def launch(self, kernel: LoadedKernel, scene: Inputs | Scene) -> None:
        """Run a kernel once on this volume and wait."""
        kernel.launch(self, scene)

    def fused(self, arm: str, *, skipped: int = 0, layout: str = "arrays") -> Fused:
        """The volume in lexicographic order of its blocks, as gates and `fuse` want it."""
        return gather(self.raw(layout=layout), self.config, arm, skipped)

    def extract(self, kernel: LoadedKernel) -> Extraction:
        """Triangles of the zero surface: a counting pass, buffers of that size, a writing pass, a copy to the host."""
        count = int(self.read_counters()["count"])
        state = cp.ndarray((2,), np.uint64)
        nothing = {"vertices": cp.ndarray((1,), np.float32), "colors": _bytes(1)}
        marks = [cp.cuda.Event() for _ in range(5)]

        def go(buffers: Mapping[str, Any], room: int) -> None:
            state.set(np.array([0, room], np.uint64), stream=self.stream)
            values = {"volume": self.struct(), "n": count * BLOCK_VOXELS, "triangles": state, **buffers}
            kernel.enqueue(kernel.block(values), count * BLOCK_VOXELS, self.stream)

        marks[0].record(self.stream)
        go(nothing, 0)
        marks[1].record(self.stream)
        triangles = int(state.get(stream=self.stream)[0])
        buffers = {"vertices": cp.ndarray((max(9 * triangles, 1),), np.float32), "colors": _bytes(9 * triangles)}
        marks[2].record(self.stream)
        go(buffers, triangles)
        marks[3].record(self.stream)
        # Only what was written: without a triangle the buffers hold one element that nobody wrote.
        vertices = buffers["vertices"][: 9 * triangles].get(stream=self.stream).reshape(-1, 3, 3)
        colors = buffers["colors"][: 9 * triangles].get(stream=self.stream).reshape(-1, 3, 3)
        marks[4].record(self.stream)
        marks[4].synchronize()
        count_us, allocate_us, kernel_us, copy_us = (
            1e3 * cp.cuda.get_elapsed_time(a, b) for a, b in itertools.pairwise(marks)
        )
        used = [buffer[: 9 * triangles] for buffer in buffers.values()]
        pinned_us = _pinned_copy_us(used, self.stream)
        return Extraction(vertices, colors, count_us, allocate_us, kernel_us, copy_us, pinned_us)


@dataclass(frozen=True)
class Extraction:
    """A surface: vertices (t, 3, 3) f32 metres, colors (t, 3, 3) u8; and where its time went, microseconds: the copy
    into pageable memory, and beside it the same bytes into pinned memory."""

    vertices: np.ndarray
    colors: np.ndarray
    count_us: float
    allocate_us: float
    kernel_us: float
    copy_us: float
    pinned_us: float


def _pinned_copy_us(arrays: Sequence[cp.ndarray], stream: cp.cuda.Stream) -> float:
    """Time of copying arrays into pinned memory that is there already, microseconds."""
    targets = [cp.cuda.alloc_pinned_memory(max(array.nbytes, 1)) for array in arrays]
    before, after = cp.cuda.Event(), cp.cuda.Event()
    before.record(stream)
    for target, array in zip(targets, arrays, strict=True):
        if array.nbytes:
            runtime.memcpyAsync(target.ptr, array.data.ptr, array.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
    after.record(stream)
    after.synchronize()
    return 1e3 * cp.cuda.get_elapsed_time(before, after)


def record_offsets(kernel: LoadedKernel, volume: GpuVolume, inputs: Inputs) -> cp.ndarray:
    """Voxel offsets (m,) i64 that update touches, in the order point then sample, for the atomics floor. Untimed."""
    slots = cp.ndarray((max(len(inputs), 1) * (2 * STEPS + 1),), np.int64)
    _memset(slots, 0xFF, stream=volume.stream)
    values = {**inputs.values(), "volume": volume.struct(), "offsets": slots}
    kernel.enqueue(kernel.block(values), len(inputs), volume.stream)
    volume.stream.synchronize()
    found = slots.get()
    return upload(found[found >= 0])


# ------------------------------------------------------------------------------------------------------------ device


def clock_mhz(before: np.ndarray, after: np.ndarray) -> float | None:
    """SM clock between two stamps, over the multiprocessors that wrote both; None where none did.

    Args:
        before, after: (slots,) STAMP_DTYPE, zero where no block ran.
    """
    both = (before["ns"] > 0) & (after["ns"] > before["ns"]) & (after["cycles"] > before["cycles"])
    if not both.any():
        return None
    ns = (after["ns"][both] - before["ns"][both]).astype(np.float64)
    cycles = (after["cycles"][both] - before["cycles"][both]).astype(np.float64)
    return float(np.median(cycles / ns) * 1e3)


class Gpu:
    """The one device this process sees.

    Attributes:
        uuid: as the driver says it (`GPU-...`, `MIG-...` for a slice is NVML's business). arch: 90 for 9.0.
    """

    _ATTRIBUTES: Mapping[str, int] = {"sms": 16, "compute_mode": 20, "l2_bytes": 38, "major": 75, "minor": 76}

    def __init__(self, hold_ns: int = HOLD_NS) -> None:
        try:
            found = runtime.getDeviceCount()
        except runtime.CUDARuntimeError as error:
            try:
                driver.library()
            except IrrError:  # CUDA calls no driver at all one that is too old
                raise IrrError(*driver.NO_GPU) from None
            raise IrrError(f"no usable GPU: {error}", "see `irr doctor`") from None
        if found == 0:
            raise IrrError("no GPU is visible to this process", "see `irr doctor`; CUDA_VISIBLE_DEVICES may hide it")
        cp.cuda.Device(0).use()
        runtime.deviceSynchronize()  # makes the context current
        self.hold_ns = hold_ns
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.sides: list[cp.cuda.Stream] = []
        attributes = {name: self.attribute(number) for name, number in self._ATTRIBUTES.items()}
        self.sms = attributes["sms"]
        self.l2_bytes = attributes["l2_bytes"]
        self.compute_mode = attributes["compute_mode"]
        self.arch = 10 * attributes["major"] + attributes["minor"]
        self.uuid = self._uuid()
        self.pci_bus = str(runtime.deviceGetPCIBusId(0))
        module = driver.load_module(STAMP_FILE.read_bytes())
        self._stamp = driver.find_function(module, "irr_stamp")
        self._flush: cp.ndarray | None = None

    @staticmethod
    def attribute(number: int) -> int:
        value = ctypes.c_int()
        code = driver.library().cuDeviceGetAttribute(ctypes.byref(value), ctypes.c_int(number), ctypes.c_int(0))
        driver.check("cuDeviceGetAttribute", code)
        return value.value

    @staticmethod
    def _uuid() -> str:
        raw = (ctypes.c_ubyte * 16)()
        driver.check("cuDeviceGetUuid", driver.library().cuDeviceGetUuid_v2(ctypes.byref(raw), ctypes.c_int(0)))
        text = bytes(raw).hex()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def free_bytes(self) -> int:
        cp.get_default_memory_pool().free_all_blocks()
        return int(runtime.memGetInfo()[0])

    def stamp(self, slots: cp.ndarray, hold_ns: int) -> None:
        """Enqueue one clock stamp into (STAMP_SLOTS * 16,) bytes."""
        block = self._stamp_block(slots.data.ptr, hold_ns)
        driver.launch(self._stamp, self.sms, 1, 0, self.stream.ptr, block)

    def _stamp_block(self, pointer: int, hold_ns: int) -> Any:
        key = (pointer, hold_ns)
        cache = self.__dict__.setdefault("_stamp_blocks", {})
        if key not in cache:
            cache[key] = _StampBlock(pointer, hold_ns)
        return cache[key]

    def flush_l2(self) -> None:
        """Enqueue a write of twice the L2, so that nothing the next kernel reads is still there."""
        if self._flush is None:
            self._flush = _bytes(2 * max(self.l2_bytes, 1 << 20))
        _memset(self._flush, 0, stream=self.stream)

    def capture(self, work: Callable[[], None]) -> cp.cuda.Graph:
        """What `work` enqueues on the stream, as a graph."""
        with self.stream:
            self.stream.begin_capture()
            try:
                work()
            except BaseException:
                _end_broken_capture(self.stream)
                raise
            graph = self.stream.end_capture()
        graph.upload(self.stream)
        return graph

    def branches(self, count: int) -> list[cp.cuda.Stream]:
        while len(self.sides) < count:
            self.sides.append(cp.cuda.Stream(non_blocking=True))
        return self.sides[:count]


class _StampBlock:
    """Parameters of the stamp kernel: out u64, hold u64, slots u32."""

    def __init__(self, pointer: int, hold_ns: int) -> None:
        self.values = (ctypes.c_uint64(pointer), ctypes.c_uint64(hold_ns), ctypes.c_uint32(STAMP_SLOTS))
        self.pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in self.values))


def _end_broken_capture(stream: cp.cuda.Stream) -> None:
    with contextlib.suppress(Exception):  # the first error is the one to show
        stream.end_capture()


# -------------------------------------------------------------------------------------------------------------- cell


def fitting_batch(config: VolumeConfig, wanted: int, free: int, scene_bytes: int, snapshots: int = 1) -> int:
    """Volumes of a batch that fit into `free` bytes beside the scene, the snapshots and the offsets; 0 if not even one.

    Each volume comes with its own copy of the points (flushed regime); a snapshot is one more table (a warm cell has
    two).
    """
    snapshot = config.slots * ENTRY_DTYPE.itemsize + 12 * config.capacity
    fixed = (
        snapshots * snapshot + 8 * scene_bytes
    )  # recorded offsets: 72 bytes a point against 15, before and after compaction
    room = int(free * MEMORY_SHARE) - fixed
    return max(0, min(wanted, room // (volume_bytes(config) + scene_bytes)))


@dataclass(frozen=True)
class Snapshot:
    """A table as it was built, to be given to every volume of a batch by a copy.

    Attributes:
        blocks: built. counters: of the whole batch, with that count and no losses.
    """

    blocks: int
    table: cp.ndarray
    coords: cp.ndarray
    counters: cp.ndarray


@dataclass
class GpuCell:
    """A cell on the device: its scene, a batch of volumes, and the table that cuda/allocate/plain builds.

    Frames fused before are fused once, by the builder and the updater, whatever arm is then timed: `fresh` is the table
    that they leave behind, empty where there are none. Their voxels are given back for gates only, since no time
    depends on a voxel's value while the cap is off.

    Args:
        builder: cuda/allocate/plain. recorder: the recorder of the atomics floor, or None.
        size: volumes of the batch.
        earlier: frames fused before, oldest first. updater: cuda/update/plain, needed where there are any.
    """

    gpu: Gpu
    config: VolumeConfig
    scene: Scene
    builder: LoadedKernel
    size: int
    recorder: LoadedKernel | None = None
    earlier: Sequence[Scene] = ()
    updater: LoadedKernel | None = None
    _resets: dict[tuple[str, str], cp.cuda.Graph] = field(default_factory=dict)
    _copies: list[Inputs] = field(default_factory=list)
    _offsets: cp.ndarray | None = None

    def __post_init__(self) -> None:
        gpu = self.gpu
        self.inputs = Inputs.of(self.scene)
        stamps = STAMP_SLOTS * STAMP_DTYPE.itemsize
        self.readback = _bytes(2 * stamps + self.size * COUNTERS_DTYPE.itemsize)
        self.before = self.readback[:stamps]
        self.after = self.readback[stamps : 2 * stamps]
        self.counters = self.readback[2 * stamps :]
        self.pinned = cp.cuda.alloc_pinned_memory(self.readback.nbytes)
        self.host = np.frombuffer(self.pinned, np.uint8, self.readback.nbytes)
        step = COUNTERS_DTYPE.itemsize
        self.volumes = [
            GpuVolume(self.config, self.counters[i * step : (i + 1) * step], gpu.stream) for i in range(self.size)
        ]
        self._build()

    def _build(self) -> None:
        """Fill volume 0 and keep its tables, so that every volume can be given a built one by a copy."""
        first = self.volumes[0]
        self.warm: Snapshot | None = None
        self.warm_voxels: dict[str, np.ndarray] = {}
        if self.earlier:
            if self.updater is None:
                raise IrrError("frames fused before need cuda/update/plain", "./irr build makes it")
            for scene in self.earlier:
                inputs = Inputs.of(scene)
                self.builder.launch(first, inputs)
                self.updater.launch(first, inputs)
            self.warm = self._keep(first)
            self.warm_voxels = first.raw().voxels
        self.builder.launch(first, self.inputs)
        self.filled = self._keep(first)
        self.built = self.filled.blocks

    def _keep(self, volume: GpuVolume) -> Snapshot:
        stream = self.gpu.stream
        blocks = int(volume.read_counters()["count"])
        table, coords = _bytes(volume.table.nbytes), cp.ndarray(volume.coords.shape, np.int32)
        _copy(table, volume.table, stream)
        _copy(coords, volume.coords, stream)
        counters = np.zeros(self.size, COUNTERS_DTYPE)
        counters["count"] = blocks
        stream.synchronize()
        return Snapshot(blocks, table, coords, upload(np.frombuffer(counters.tobytes(), np.uint8)))

    def _give(self, kept: Snapshot) -> None:
        """Enqueue a kept table into every volume."""
        stream = self.gpu.stream
        _copy(self.counters, kept.counters, stream)
        for volume in self.volumes:
            _copy(volume.table, kept.table, stream)
            _copy(volume.coords, kept.coords, stream)

    def _restore(self, kind: str, layout: str) -> None:
        """Enqueue the start state: `fresh`, `filled`, and with voxels zero `update` (filled), `integrate` (fresh)."""
        stream = self.gpu.stream
        _memset(self.before, 0, stream=stream)
        _memset(self.after, 0, stream=stream)
        if kind in ("filled", "update"):
            self._give(self.filled)
        elif self.warm is not None:
            self._give(self.warm)
        else:
            _memset(self.counters, 0, stream=stream)
            for volume in self.volumes:
                _memset(volume.table, 0xFF, stream=stream)
        if kind in ("update", "integrate"):
            for volume in self.volumes:
                volume.clear_voxels(self.built, layout, stream)

    def reset(self, kind: str, layout: str = "arrays") -> cp.cuda.Graph:
        """The captured reset of a kind of start state."""
        key = (kind, layout if kind in ("update", "integrate") else "arrays")
        if key not in self._resets:
            self._resets[key] = self.gpu.capture(lambda: self._restore(*key))
        return self._resets[key]

    def copies(self) -> list[Inputs]:
        """One copy of the scene per volume, for the flushed regime: points of another launch must not be in L2."""
        while len(self._copies) < self.size:
            self._copies.append(Inputs.of(self.scene))
        return self._copies

    def offsets(self) -> cp.ndarray:
        """Recorded voxel offsets of the atomics floor; every volume has the same table, so one recording serves all."""
        if self._offsets is None:
            if self.recorder is None:
                raise IrrError("the atomics floor needs cuda/floor/record", "./irr build makes it")
            self.reset("update").launch(self.gpu.stream)
            self._offsets = record_offsets(self.recorder, self.volumes[0], self.inputs)
        return self._offsets

    def values(self, kernel: LoadedKernel, volume: GpuVolume, inputs: Inputs) -> tuple[dict[str, Any], int]:
        """Launch values and the number of threads' worth of work of one launch."""
        values = {**inputs.values(), "volume": volume.struct(), "scratch": volume.scratch(kernel.manifest.scratch)}
        if "offsets" in kernel.parameter_names and "points" not in kernel.parameter_names:
            values["offsets"] = self.offsets()
            values["n"] = len(values["offsets"])
        return values, int(values["n"])

    def batch(
        self,
        kernel: LoadedKernel,
        launch: str = "serial",
        table: str = "fresh",
        l2: str = "asreset",
        graph: bool = True,
    ) -> GpuBatch:
        """A kernel in a regime; graph=False launches from the host, one by one, as a control only."""
        return GpuBatch(self, kernel, launch, table, l2, graph)

    def close(self) -> None:
        """Let go of graphs and memory; a graph must not outlive the memory that it touches."""
        self.gpu.stream.synchronize()
        self._resets.clear()
        self._copies.clear()
        self.volumes.clear()
        self._offsets = None

    def run_once(self, allocate: LoadedKernel | None, update: LoadedKernel | None) -> GpuVolume:
        """Volume 0 after one allocate (None: the built table) and one update (None: none), for gates. Untimed."""
        layout = update.layout if update is not None else "arrays"
        stream = self.gpu.stream
        volume = self.volumes[0]
        if allocate is None:
            self.reset("update", layout).launch(stream)
        elif allocate is update:  # one kernel does both
            self.reset("integrate", layout).launch(stream)
        else:
            self.reset("fresh").launch(stream)
            allocate.launch(volume, self.inputs, stream)
            volume.clear_voxels(None, layout, stream)
        if self.warm_voxels:
            volume.set_voxels(self.warm_voxels, layout)
        if update is not None:
            update.launch(volume, self.inputs, stream)
        stream.synchronize()
        return volume


class GpuBatch:
    """One kernel in one regime on a cell: captured once, replayed every round. The sampler calls its steps in order."""

    def __init__(
        self, cell: GpuCell, kernel: LoadedKernel, launch: str, table: str, l2: str, graph: bool = True
    ) -> None:
        self.cell, self.kernel, self.gpu = cell, kernel, cell.gpu
        self.launches = cell.size
        self.flushed = l2 == "flushed"
        self.stage = kernel.manifest.stage
        # The atomics floor adds where update adds, so it starts from the same state.
        kind = "update" if self.stage == "update" or "offsets" in kernel.parameter_names else table
        kind = "integrate" if self.stage == "integrate" else kind
        self._reset = cell.reset(kind, kernel.layout)
        inputs = cell.copies() if self.flushed else [cell.inputs] * cell.size
        self._blocks: list[tuple[ParameterBlock, int]] = []
        for volume, scene in zip(cell.volumes, inputs, strict=True):
            values, n = cell.values(kernel, volume, scene)
            self._blocks.append((kernel.block(values), n))
        self._launch = launch
        self._graph = self.gpu.capture(self._enqueue) if graph else None
        # What a host loop costs is hidden where the device waits for the host.
        self._hold_ns = self.gpu.hold_ns if graph else 0
        self._begin, self._end = cp.cuda.Event(), cp.cuda.Event()

    def _enqueue(self) -> None:
        if self._launch == "concurrent":
            self._concurrent()
        else:
            self._serial()

    def _serial(self) -> None:
        for block, n in self._blocks:
            self.kernel.enqueue(block, n, self.gpu.stream)

    def _concurrent(self) -> None:
        stream = self.gpu.stream
        start = cp.cuda.Event(disable_timing=True)
        start.record(stream)
        for side, (block, n) in zip(self.gpu.branches(len(self._blocks)), self._blocks, strict=True):
            side.wait_event(start)
            self.kernel.enqueue(block, n, side)
            done = cp.cuda.Event(disable_timing=True)
            done.record(side)
            stream.wait_event(done)

    def reset(self) -> None:
        self._reset.launch(self.gpu.stream)

    def flush(self) -> None:
        self.gpu.flush_l2()

    def stamp(self) -> None:
        self.gpu.stamp(self.cell.before, self._hold_ns)

    def start(self) -> None:
        self._begin.record(self.gpu.stream)

    def launch(self) -> None:
        if self._graph is None:
            self._enqueue()
        else:
            self._graph.launch(self.gpu.stream)

    def stop(self) -> None:
        self._end.record(self.gpu.stream)
        self._late = self._graph is not None and bool(self._begin.done)

    def stamp_again(self) -> None:
        self.gpu.stamp(self.cell.after, 0)

    def collect(self) -> Reading:
        """Wait for the end and read events, stamps and counters: one copy."""
        cell, stream = self.cell, self.gpu.stream
        runtime.memcpyAsync(
            cell.pinned.ptr, cell.readback.data.ptr, cell.readback.nbytes, runtime.memcpyDeviceToHost, stream.ptr
        )
        stream.synchronize()
        us = 1e3 * cp.cuda.get_elapsed_time(self._begin, self._end) / self.launches
        stamps = STAMP_SLOTS * STAMP_DTYPE.itemsize
        before = cell.host[:stamps].view(STAMP_DTYPE)
        after = cell.host[stamps : 2 * stamps].view(STAMP_DTYPE)
        counters = None
        if self.stage in ("allocate", "update", "integrate"):
            found = cell.host[2 * stamps :].view(COUNTERS_DTYPE)
            counters = Counters(
                int(found["count"].min()), int(found["failed_inserts"].max()), int(found["dropped_points"].max())
            )
        return Reading(us, clock_mhz(before, after), counters, self._late)
