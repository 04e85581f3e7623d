"""Triton's interpreter on this machine's memory: the kernels' logic without a GPU and without PyTorch.

The interpreter runs programs one after another, and a program's lanes together, in NumPy. So it proves what a kernel
computes, never that it may run concurrently, and it certifies no timed kernel. Its cost is per program and operation:
32 lanes take 2,000 points in 7.5 s, programs of 65,536 lanes the whole base scene in 2 s; the same source serves both.

TRITON_INTERPRET must be set before triton is imported, so every run is a child process, which can also be killed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.build.kernels import KERNELS, Kernel
from harness.build.triton_aot import Volume, child_environment, constants, load_function, row_from_json, row_to_json
from harness.device.host import HostHung, HostVolume, checked
from harness.environment import ROOT
from harness.errors import IrrError
from harness.workload.fused import RawVolume
from harness.workload.scenes import Scene
from harness.workload.volume import FIELDS, VOXEL_FIELDS, VolumeConfig

WIDE = 65_536
"""Lanes of a wide program: base then takes five programs a kernel instead of ten thousand."""

DEADLINE_S = 600.0


@dataclass(frozen=True)
class Job:
    """Kernels to run one after another on a fresh volume.

    Attributes:
        kernels: rows of the kernel table, or their names; Triton's only.
        after: scenes that the same kernels run on afterwards, frame after frame into the same volume.
        lanes: lanes of a program, a power of two; None for the row's own (as the GPU runs it).
    """

    kernels: tuple[Kernel | str, ...]
    scene: Scene
    config: VolumeConfig
    lanes: int | None = WIDE
    after: tuple[Scene, ...] = ()

    def rows(self) -> list[Kernel]:
        """The rows with the lanes asked for, no more of them than the points fill.

        Raises:
            IrrError: a kernel of another language.
        """
        rows = [KERNELS[kernel] if isinstance(kernel, str) else kernel for kernel in self.kernels]
        for row in rows:
            if row.language != "triton":
                raise IrrError(f"{row.name} is not a Triton kernel: the interpreter cannot run it")
        if self.lanes is None:
            return rows
        enough = 1 << max(0, max(map(len, (self.scene, *self.after))) - 1).bit_length()
        return [dataclasses.replace(row, points=min(self.lanes, enough)) for row in rows]


def run_jobs(jobs: Sequence[Job], *, root: Path = ROOT, deadline_s: float = DEADLINE_S) -> list[RawVolume]:
    """Run jobs in one child process.

    Args:
        root: checkout whose triton/ is run (tests plant faults in a copy).
        deadline_s: seconds for all jobs together.

    Raises:
        HostHung: not done in time; the child was killed.
        IrrError: a kernel failed, or Triton is missing.
    """
    with tempfile.TemporaryDirectory(prefix="irr-interpreter-") as name:
        folder = Path(name)
        listed = []
        for number, job in enumerate(jobs):
            frames = (job.scene, *job.after)
            for place, scene in enumerate(frames):
                path = folder / f"scene{number}-{place}.npz"
                np.savez(path, points=scene.points, colors=scene.colors, camera=scene.camera)
            rows, config = [row_to_json(row) for row in job.rows()], dataclasses.asdict(job.config)
            listed.append({"kernels": rows, "config": config, "frames": len(frames)})
        (folder / "jobs.json").write_text(json.dumps({"root": str(root), "jobs": listed}), encoding="utf-8")
        names = ", ".join(dict.fromkeys(row.name for job in jobs for row in job.rows()))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "harness.device.interpreter", str(folder)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=deadline_s,
                check=False, cwd=folder, env=child_environment(folder) | {"TRITON_INTERPRET": "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise HostHung(f"{names}, interpreted, did not end within {deadline_s:g} s") from None
        if done.returncode != 0:
            words = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit {done.returncode}"]
            cure = "run ./irr setup, which installs it" if "ModuleNotFoundError" in words[-1] else None
            raise IrrError(f"{names}, interpreted: {words[-1].strip()[:300]}", cure)
        return [_read(folder / f"raw{number}.npz") for number in range(len(jobs))]


def fuse(
    kernels: Sequence[Kernel | str],
    scene: Scene,
    config: VolumeConfig,
    *,
    lanes: int | None = WIDE,
    after: Sequence[Scene] = (),
    root: Path = ROOT,
    deadline_s: float = DEADLINE_S,
) -> RawVolume:
    """Run kernels (allocate, then update) on a scene, and those `after` it, in a fresh volume; see `run_jobs`."""
    return run_jobs([Job(tuple(kernels), scene, config, lanes, tuple(after))], root=root, deadline_s=deadline_s)[0]


def _write(path: Path, raw: RawVolume) -> None:
    counters = np.array([raw.count, raw.failed_inserts, raw.dropped_points], np.int64)
    np.savez(path, table=raw.table, counters=counters, coords=raw.coords, **raw.voxels)  # pyright: ignore[reportArgumentType]


def _read(path: Path) -> RawVolume:
    with np.load(path, allow_pickle=False) as data:
        count, failed, dropped = (int(value) for value in data["counters"])
        voxels = {name: data[name] for name in VOXEL_FIELDS}
        return RawVolume(data["table"], count, failed, dropped, data["coords"], voxels)


# --- in the child ---------------------------------------------------------------------------------------------------


class Memory:
    """Host memory as the interpreter wants its arguments: like a tensor that is already where it belongs.

    It asks for a tensor's storage, copies that to the host and back; every step of it is this object itself.
    """

    def __init__(self, address: int, dtype: np.dtype) -> None:
        self.address = address
        self.dtype = dtype

    def data_ptr(self) -> int:
        return self.address

    def untyped_storage(self) -> Memory:
        return self

    def cpu(self) -> Memory:
        return self

    def new_empty(self, *_size: int, device: str) -> Memory:
        return self

    def set_(self, *_where: Any) -> None: ...

    def copy_(self, _source: Memory) -> None: ...

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return ()

    def stride(self) -> tuple[int, ...]:
        return ()


_POINTEES = {"*i64": np.dtype(np.int64), "*i32": np.dtype(np.int32), "*fp32": np.dtype(np.float32)}


def volume_arguments(memory: HostVolume) -> Any:
    """The volume of the interpreter's kernels: pointers into `memory`, scalars as Python numbers.

    A Python float that is a float32 value stays exact: it is rounded to float32 where it meets a tensor.
    """
    values = []
    for field in FIELDS:
        value = memory.struct[field.name].item()
        values.append(Memory(value, _POINTEES[field.triton]) if field.triton in _POINTEES else value)
    return Volume(*values)


_patched: set[int] = set()


def patch_once() -> None:
    """Spare the interpreter half its time: it re-patches the language at every call of a helper, once is enough.

    Once a launch and module, that is: the end of a launch takes some of it back.
    """
    from triton.runtime import interpreter

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if id(self.fn.__globals__) not in _patched:
            _patched.add(id(self.fn.__globals__))
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*arguments, **named)

    interpreter.InterpretedFunction.__call__ = call


def launch(row: Kernel, memory: HostVolume, scene: Scene, root: Path) -> None:
    """Run one kernel over the scene's points, in this process (TRITON_INTERPRET is set)."""
    points = checked(scene.points, np.float32, 3, "points")
    colors = checked(scene.colors, np.uint8, 3, "colors")
    scratch = np.zeros(max(row.scratch, 1), np.int64)
    camera = np.asarray(scene.camera, np.float32)
    given = {
        "points": Memory(points.ctypes.data, points.dtype), "colors": Memory(colors.ctypes.data, colors.dtype),
        "n": len(scene), "cx": float(camera[0]), "cy": float(camera[1]), "cz": float(camera[2]),
        "scratch": Memory(scratch.ctypes.data, scratch.dtype),
    }  # fmt: skip
    function = load_function(row, root)
    declared = ["volume", *(name for name, _ in row.parameters)]
    fixed = constants(row, [name for name in function.arg_names if name not in declared])
    programs = -(-len(scene) // row.points)
    _patched.clear()
    # Lanes without a point compute with whatever is there: 0 / 0 is theirs, and masked.
    with np.errstate(all="ignore"):
        if programs:
            values = [given[name] for name, _ in row.parameters]
            function[(programs,)](volume_arguments(memory), *values, **fixed)


def main(folder: Path) -> None:
    """Run the jobs of `folder`/jobs.json; one line on stderr a job says what it took."""
    patch_once()
    told = json.loads((folder / "jobs.json").read_text(encoding="utf-8"))
    for number, job in enumerate(told["jobs"]):
        memory, rows = HostVolume(VolumeConfig(**job["config"])), [row_from_json(value) for value in job["kernels"]]
        started = time.perf_counter()
        for place in range(job["frames"]):
            with np.load(folder / f"scene{number}-{place}.npz", allow_pickle=False) as data:
                scene = Scene(data["points"], data["colors"], data["camera"])
            for row in rows:
                launch(row, memory, scene, Path(told["root"]))
        print(f"job {number}: {time.perf_counter() - started:.2f} s", file=sys.stderr)
        _write(folder / f"raw{number}.npz", memory.raw(rows[-1].voxels))


if __name__ == "__main__":
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise SystemExit("harness.device.interpreter is run by run_jobs")
    main(Path(sys.argv[1]))
