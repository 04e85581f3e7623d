"""Volumes in this machine's memory, and the host libraries (C++ and Rust) that fuse into them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from harness.build.host import build_host
from harness.build.kernels import KERNELS, Kernel
from harness.environment import ROOT
from harness.errors import IrrError
from harness.workload.fused import Fused, RawVolume, gather
from harness.workload.scenes import Scene
from harness.workload.table import block_hash, pack
from harness.workload.volume import BLOCK_VOXELS, ENTRY_DTYPE, STEPS, VOLUME_DTYPE, VOXEL_FIELDS, VolumeConfig


class HostHung(IrrError):
    """A host run did not end within its deadline and was killed."""


def default_threads() -> int:
    """Cores that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


class HostLibrary:
    """A shared library that exports `irr_launch` (cuda/host/launch.h has its contract).

    Raises:
        IrrError: it cannot be loaded, or is not one of ours.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._launch = ctypes.CDLL(str(path)).irr_launch
        except (OSError, AttributeError) as error:
            raise IrrError(f"{path} is not a host library: {error}", "build it again with ./irr build") from error
        self._launch.restype = ctypes.c_int
        self._launch.argtypes = [
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int,
            *[ctypes.c_float] * 3,
            ctypes.c_void_p,
            ctypes.c_int,
        ]
        self.path = path

    def launch(
        self,
        entry: str,
        volume: np.void,
        points: np.ndarray,
        colors: np.ndarray | None,
        n: int,
        camera: np.ndarray,
        scratch: np.ndarray | None = None,
        threads: int | None = None,
    ) -> None:
        """Run kernel `entry` n times; returns when all is done.

        Args:
            points, colors, scratch: C-contiguous arrays of whatever the kernel takes there.

        Raises:
            IrrError: the library has no such kernel.
        """
        struct = np.array(volume, VOLUME_DTYPE)
        x, y, z = (float(c) for c in np.asarray(camera, np.float32))
        pointers = [None if array is None else array.ctypes.data for array in (points, colors, scratch)]
        status = self._launch(
            entry.encode(),
            struct.ctypes.data,
            pointers[0],
            pointers[1],
            n,
            x,
            y,
            z,
            pointers[2],
            threads or default_threads(),
        )
        if status != 0:
            raise IrrError(f"{self.path.name} has no kernel {entry}", "build it again with ./irr build")


def _cuda_library() -> Path:
    return build_host().path


def _rust_library() -> Path:
    from harness.build.cargo import build_host as build_rust_host

    return Path(build_rust_host())


LIBRARIES: dict[str, Callable[[], Path]] = {"cuda": _cuda_library, "rust-nvptx": _rust_library}
"""Language of a kernel's row -> the host library that holds it, built if need be."""

_loaded: dict[Path, HostLibrary] = {}


def host_library(language: str) -> HostLibrary:
    """The host library of a language, built and loaded once a process.

    Raises:
        IrrError: the language has none, or it cannot be built here.
    """
    if language not in LIBRARIES:
        raise IrrError(f"{language} has no host library", f"languages with one: {', '.join(LIBRARIES)}")
    path = LIBRARIES[language]()
    if path not in _loaded:
        _loaded[path] = HostLibrary(path)
    return _loaded[path]


def checked(array: np.ndarray, dtype: type, columns: int, name: str) -> np.ndarray:
    """The array, if a kernel may read it as it lies.

    Raises:
        TypeError: another type, shape or memory order. Nothing is converted: float64 read as float32 is noise.
    """
    if array.dtype != dtype or array.ndim != 2 or array.shape[1] != columns:
        raise TypeError(f"{name} must be ({np.dtype(dtype)}, (n, {columns})), not ({array.dtype}, {array.shape})")
    if not array.flags.c_contiguous:
        raise TypeError(f"{name} must be C-contiguous")
    return array


class HostVolume:
    """A volume in host memory.

    Args:
        config: pool, table, voxel, cap.
        library: the library to run; None for the one of each kernel's language.
        threads: host threads, None for all cores.
    """

    def __init__(self, config: VolumeConfig, library: HostLibrary | None = None, threads: int | None = None) -> None:
        self.config = config
        self.threads = threads
        self._library = library
        self.table = np.empty(config.slots, ENTRY_DTYPE)
        self.counters = {
            "count": np.zeros(1, np.int32),
            "failed_inserts": np.zeros(1, np.uint64),
            "dropped_points": np.zeros(1, np.uint64),
        }
        self.coords = np.zeros((config.capacity, 3), np.int32)
        # One allocation, as on the GPU; pages that no block touches are never there.
        self.voxels = np.zeros((len(VOXEL_FIELDS), config.capacity, BLOCK_VOXELS), np.float32)
        pointers = {name: array.ctypes.data for name, array in self.counters.items()}
        pointers |= {"table": self.table.ctypes.data, "coords": self.coords.ctypes.data}
        pointers |= {name: self.voxels[k].ctypes.data for k, name in enumerate(VOXEL_FIELDS)}
        self.struct = config.struct(pointers)
        self.clear_table()

    @property
    def count(self) -> int:
        """Blocks built."""
        return int(self.counters["count"][0])

    def clear_voxels(self) -> None:
        """Zero the sums of the built blocks."""
        self.voxels[:, : self.count] = 0

    def clear_table(self) -> None:
        """Forget every block; voxels and counters with them."""
        self.clear_voxels()
        self.table["key"] = -1
        self.table["index"] = -1
        self.table["pad"] = 0
        for counter in self.counters.values():
            counter[0] = 0

    def library(self, kernel: Kernel) -> HostLibrary:
        return self._library if self._library is not None else host_library(kernel.language)

    def launch(self, kernel: Kernel | str, scene: Scene) -> None:
        """Run an allocate, update or floor kernel on a scene.

        Args:
            kernel: a row of the kernel table, or its name.

        Raises:
            TypeError: the scene's arrays are not what a kernel reads (Scene). IrrError: no such kernel on the host.
        """
        kernel = KERNELS[kernel] if isinstance(kernel, str) else kernel
        points = checked(scene.points, np.float32, 3, "points")
        colors = checked(scene.colors, np.uint8, 3, "colors")
        if len(colors) != len(points):
            raise TypeError(f"{len(points)} points have {len(colors)} colors")
        library = self.library(kernel)
        library.launch(kernel.entry, self.struct, points, colors, len(scene), scene.camera, None, self.threads)

    def record_offsets(self, scene: Scene) -> np.ndarray:
        """Voxel offset (samples,) i64 of every sample that update accumulates, in the order point then sample."""
        kernel = KERNELS["cuda/floor/record"]
        recorded = np.full((len(scene), 2 * STEPS + 1), -1, np.int64)
        points = checked(scene.points, np.float32, 3, "points")
        self.library(kernel).launch(
            kernel.entry, self.struct, points, None, len(scene), scene.camera, recorded, self.threads
        )
        return recorded[recorded >= 0]

    def extract(self) -> tuple[np.ndarray, np.ndarray]:
        """The zero surface as triangles: corners (t, 3, 3) f32 in metres, colours (t, 3, 3) u8; order not fixed."""
        kernel = KERNELS["cuda/extract/plain"]
        library, origin = self.library(kernel), np.zeros(3, np.float32)
        cubes = self.count * BLOCK_VOXELS
        triangles = np.zeros(2, np.uint64)
        vertices, colors = np.empty((0, 3, 3), np.float32), np.empty((0, 3, 3), np.uint8)
        library.launch(kernel.entry, self.struct, vertices, colors, cubes, origin, triangles, self.threads)
        total = int(triangles[0])
        vertices, colors = np.empty((total, 3, 3), np.float32), np.empty((total, 3, 3), np.uint8)
        triangles[:] = 0, total
        library.launch(kernel.entry, self.struct, vertices, colors, cubes, origin, triangles, self.threads)
        return vertices, colors

    def raw(self, layout: str = "arrays") -> RawVolume:
        """A copy of the memory as it lies.

        Args:
            layout: how the last update wrote the voxels (`voxels` of a kernel's row).
        """
        count = self.count
        voxels = {name: self.voxels[k, :count].copy() for k, name in enumerate(VOXEL_FIELDS)}
        if layout == "packed":
            four = self.voxels.reshape(-1)[: 4 * count * BLOCK_VOXELS].reshape(count, BLOCK_VOXELS, 4)
            voxels |= {name: np.ascontiguousarray(four[..., k]) for k, name in enumerate(VOXEL_FIELDS[:4])}
        failed, dropped = (int(self.counters[name][0]) for name in ("failed_inserts", "dropped_points"))
        return RawVolume(self.table.copy(), count, failed, dropped, self.coords.copy(), voxels)

    def fused(self, arm: str, layout: str = "arrays") -> Fused:
        """The blocks in lexicographic order; `lost_blocks` and `skipped_points` are for the caller to fill in."""
        return gather(self.raw(layout), self.config, arm)

    def load(self, fused: Fused) -> None:
        """Fill the empty volume from a fused one, index = lexicographic order.

        Raises:
            ValueError: more blocks than the pool holds.
        """
        blocks = len(fused.coords)
        if blocks > self.config.capacity:
            raise ValueError(f"{blocks} blocks do not fit into a pool of {self.config.capacity}")
        self.clear_table()
        keys, slots = pack(fused.coords), block_hash(fused.coords, self.config.mask)
        for index in range(blocks):
            slot = int(slots[index])
            while self.table["key"][slot] != -1:
                slot = (slot + 1) & self.config.mask
            self.table[slot] = (keys[index], index, 0)
        self.coords[:blocks] = fused.coords
        for k, name in enumerate(VOXEL_FIELDS):
            self.voxels[k, :blocks] = getattr(fused, name)
        self.counters["count"][0] = blocks


# --- in a process of its own, which can be killed ---------------------------------------------------------------------


def run_with_deadline(
    library: Path,
    kernels: Iterable[Kernel | str],
    scene: Scene,
    config: VolumeConfig,
    deadline_s: float,
    threads: int | None = None,
) -> RawVolume:
    """Run kernels on a fresh volume in another process, for kernels that may spin: a process can be killed.

    Args:
        library: a host library, C++ or Rust, with a planted fault for instance.
        kernels: rows or names, run one after another.

    Raises:
        HostHung: not done after `deadline_s` seconds; the process was killed.
        IrrError: it failed.
    """
    entries = [(KERNELS[k] if isinstance(k, str) else k).entry for k in kernels]
    with tempfile.TemporaryDirectory(prefix="irr-host-") as folder:
        given, result = Path(folder) / "given.npz", Path(folder) / "result.npz"
        np.savez(
            given,
            points=scene.points,
            colors=scene.colors,
            camera=scene.camera,
            config=np.array([config.capacity, config.slots], np.int64),
            scalars=np.array([config.voxel, config.cap], np.float64),
        )
        words = [str(library), str(given), str(result), str(threads or default_threads()), *entries]
        command = [sys.executable, "-m", "harness.device.host", *words]
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=deadline_s
            )
        except subprocess.TimeoutExpired:
            raise HostHung(f"{', '.join(entries)} in {library.name} did not end within {deadline_s:g} s") from None
        if done.returncode != 0:
            words = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
            raise IrrError(f"{', '.join(entries)} in {library.name} failed: {words[-1]}")
        with np.load(result, allow_pickle=False) as data:
            voxels = {name: data[name] for name in VOXEL_FIELDS}
            count, failed, dropped = (int(v) for v in data["counters"])
            return RawVolume(data["table"], count, failed, dropped, data["coords"], voxels)


def _main(library: str, given: str, result: str, threads: str, *entries: str) -> None:
    with np.load(given, allow_pickle=False) as data:
        scene = Scene(data["points"], data["colors"], data["camera"])
        (capacity, slots), (voxel, cap) = data["config"].tolist(), data["scalars"].tolist()
    loaded = HostLibrary(Path(library))
    volume = HostVolume(VolumeConfig(capacity, voxel, slots, cap), loaded, int(threads))
    for entry in entries:
        loaded.launch(entry, volume.struct, scene.points, scene.colors, len(scene), scene.camera, None, int(threads))
    raw = volume.raw()
    counters = np.array([raw.count, raw.failed_inserts, raw.dropped_points], np.int64)
    arrays = {"table": raw.table, "coords": raw.coords, "counters": counters, **raw.voxels}
    np.savez(result, allow_pickle=False, **arrays)


if __name__ == "__main__":
    _main(*sys.argv[1:])
