"""Drives the host runner (cuda/host/run.cpp): a scene into its file, its memory dump out, under a deadline."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.build.kernels import KERNELS, Kernel
from harness.device.host import HostHung
from harness.errors import IrrError
from harness.workload.fused import RawVolume
from harness.workload.scenes import Scene
from harness.workload.volume import BLOCK_VOXELS, ENTRY_DTYPE, FIELDS, VOXEL_FIELDS, VolumeConfig

RACE = "WARNING: ThreadSanitizer: data race"


@dataclass(frozen=True)
class RunnerResult:
    """What one run left: the volume, and ThreadSanitizer's words (empty without it)."""

    raw: RawVolume
    reports: str

    @property
    def races(self) -> int:
        """Data races that ThreadSanitizer reported."""
        return self.reports.count(RACE)


def _scene_bytes(scene: Scene, config: VolumeConfig) -> bytes:
    pointers = {field.name: 0 for field in FIELDS if field.numpy == "<u8"}
    parts = [config.struct(pointers).tobytes(), np.int32(len(scene)).tobytes()]
    parts += [np.ascontiguousarray(array).tobytes() for array in (scene.camera, scene.points, scene.colors)]
    return b"".join(parts)


def _parse(dump: bytes, config: VolumeConfig) -> RawVolume:
    at = 0

    def take(dtype: np.dtype | type, count: int) -> np.ndarray:
        nonlocal at
        array = np.frombuffer(dump, dtype, count, at)
        at += array.nbytes
        return array

    table = take(ENTRY_DTYPE, config.slots)
    count = int(take(np.int32, 1)[0])
    failed, dropped = (int(v) for v in take(np.uint64, 2))
    coords = np.zeros((config.capacity, 3), np.int32)
    coords[:count] = take(np.int32, 3 * count).reshape(-1, 3)
    voxels = {name: take(np.float32, count * BLOCK_VOXELS).reshape(-1, BLOCK_VOXELS) for name in VOXEL_FIELDS}
    return RawVolume(table, count, failed, dropped, coords, voxels)


def run(
    program: Path,
    kernels: Iterable[Kernel | str],
    scene: Scene,
    config: VolumeConfig,
    threads: int,
    deadline_s: float,
) -> RunnerResult:
    """Run kernels one after another on a fresh volume, with `build_runner`'s program.

    Args:
        program: built by harness.build.host.build_runner.
        kernels: rows or names. threads: host threads, more than there are cores if need be.

    Raises:
        HostHung: not done within `deadline_s`; killed.
        IrrError: the program failed, or ThreadSanitizer cannot run here.
    """
    entries = [(KERNELS[k] if isinstance(k, str) else k).entry for k in kernels]
    # ThreadSanitizer lays out memory at fixed addresses, which a randomised address space may have taken.
    fixed = [shutil.which("setarch") or "", "-R"]
    with tempfile.TemporaryDirectory(prefix="irr-run-") as folder:
        given, result = Path(folder) / "scene", Path(folder) / "volume"
        given.write_bytes(_scene_bytes(scene, config))
        command = [*(fixed if fixed[0] else []), str(program), str(given), str(result), str(threads), *entries]
        environ = {**os.environ, "TSAN_OPTIONS": "exitcode=0 report_bugs=1"}
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=environ,
                timeout=deadline_s,
            )
        except subprocess.TimeoutExpired:
            raise HostHung(f"{', '.join(entries)} did not end within {deadline_s:g} s") from None
        if done.returncode != 0 or not result.exists():
            words = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
            raise IrrError(f"{program.name} failed: {words[0]}")
        return RunnerResult(_parse(result.read_bytes(), config), done.stderr)
