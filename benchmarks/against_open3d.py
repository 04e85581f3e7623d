"""The integrate stage of irr's arms against Open3D's CPU grid, on the same frames, in one run on one machine.

    python benchmarks/against_open3d.py [FOLDER] [--frames 10] [--rounds 5] [--out FILE.json]

FOLDER holds depth frames (7-Scenes or TartanAir V2 layout); without one the synthetic room is used. Each round fuses
all frames into an empty volume with every arm in turn, and a ratio is taken within a round. What is timed: allocate and
update of every frame, points and frames being in memory already (on the card for `cuda`, host clock round a wait);
Open3D's `compute_unique_block_coordinates` and `integrate`. It gathers where our arms scatter with atomics: two
algorithms, so the ratios say what a user pays, not which code is better.

Limits: `cuda` at least 10 times as fast as Open3D's CPU grid, `cpu` at most 3.5 times its time; exit 1 if one is
missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.build.kernels import KERNELS
from harness.device import open3d_arm
from harness.device.host import HostVolume, default_threads, host_library
from harness.errors import IrrError
from harness.workload import room
from harness.workload.frames import Frame, Intrinsics, open_folder, to_scene
from harness.workload.reference import block_keys
from harness.workload.scenes import Scene
from harness.workload.volume import VolumeConfig

CUDA_LEAST, CPU_MOST = 10.0, 3.5
ALLOCATE, UPDATE = "cuda/allocate/plain", "cuda/update/plain"

Run = Callable[[], float]


def host_run(scenes: Sequence[Scene], config: VolumeConfig, kernels: tuple[str, str]) -> Run:
    """Seconds of fusing all scenes on this machine's processor."""
    # The library is looked up once: asking whether it is current costs milliseconds.
    volume = HostVolume(config, host_library(KERNELS[kernels[0]].language))

    def run() -> float:
        volume.clear_table()
        began = time.perf_counter()
        for scene in scenes:
            for kernel in kernels:
                volume.launch(kernel, scene)
        return time.perf_counter() - began

    return run


def gpu_run(scenes: Sequence[Scene], config: VolumeConfig, build: Path) -> Run:
    """Seconds of fusing all scenes on the first GPU; the points are on the card."""
    from harness.device.gpu import Gpu, GpuVolume, Inputs, load
    from harness.measure.inventory import Built, find_built

    gpu = Gpu()
    kernels = []
    for name in (ALLOCATE, UPDATE):
        found = find_built(build, gpu.arch, name)
        if not isinstance(found, Built):
            raise IrrError(f"{name}: {found.why}")
        kernels.append(load(found.manifest, found.cubin))
    volume = GpuVolume(config)
    inputs = [Inputs.of(scene) for scene in scenes]
    blocks = [[kernel.block({**given.values(), "volume": volume.struct()}) for kernel in kernels] for given in inputs]

    def run() -> float:
        volume.clear_voxels()
        volume.clear_table()
        volume.stream.synchronize()
        began = time.perf_counter()
        for given, pair in zip(inputs, blocks, strict=True):
            for kernel, block in zip(kernels, pair, strict=True):
                kernel.enqueue(block, len(given), volume.stream)
        volume.stream.synchronize()
        return time.perf_counter() - began

    return run


def open3d_run(frames: Sequence[Frame], camera: Intrinsics, voxel: float, device: str) -> Run:
    """Seconds of Open3D's touching and integrating."""

    def run() -> float:
        grid = open3d_arm.integrate(frames, camera, voxel, device=device, surface=False)
        assert grid.device.lower().startswith(device)
        return sum(grid.seconds)

    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--voxel", type=float, default=0.01)
    parser.add_argument("--build", type=Path, default=Path(__file__).resolve().parents[1] / "build")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.folder is not None:
        found = open_folder(given.folder)
        frames, camera = [read() for read in found.frames[: given.frames]], found.intrinsics
    else:
        frames, camera = [room.frame(number) for number in range(given.frames)], room.INTRINSICS
    scenes = [to_scene(frame, camera) for frame in frames]
    keys: set[int] = set()
    for scene in scenes:
        keys.update(block_keys(scene, VolumeConfig(1, given.voxel))[0].tolist())
    config = VolumeConfig(-(-5 * len(keys) // 4), given.voxel)

    runs: dict[str, Run] = {}
    reasons: dict[str, str] = {}
    makers: dict[str, Callable[[], Run]] = {
        "open3d CPU": lambda: open3d_run(frames, camera, given.voxel, "cpu"),
        "open3d CUDA": lambda: open3d_run(frames, camera, given.voxel, "cuda"),
        "cpu": lambda: host_run(scenes, config, (ALLOCATE, UPDATE)),
        "rust-cpu": lambda: host_run(scenes, config, ("rust-nvptx/allocate/plain", "rust-nvptx/update/plain")),
        "cuda": lambda: gpu_run(scenes, config, given.build),
    }
    for name, make in makers.items():
        try:
            run = make()
            run()  # warm: libraries, pages, and whatever a first call compiles
            runs[name] = run
        except (IrrError, ImportError) as error:
            reasons[name] = str(error).splitlines()[0]
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.rounds):
        for name, run in runs.items():
            seconds[name].append(run())
    report: dict[str, Any] = {
        "frames": len(frames),
        "points": sum(map(len, scenes)),
        "blocks": len(keys),
        "threads": default_threads(),
        "rounds": given.rounds,
        "seconds": seconds,
        "unavailable": reasons,
        "ratios": {},
    }
    print(f"{len(frames)} frames, {report['points']} points, {len(keys)} blocks, {default_threads()} threads")
    for name, values in seconds.items():
        print(
            f"{name:12} {1e3 * statistics.median(values):9.3f} ms  ({1e3 * min(values):.3f} to {1e3 * max(values):.3f})"
        )
    for name, why in reasons.items():
        print(f"{name:12} unavailable: {why}")
    missed = []
    if "open3d CPU" in seconds:
        for name, limit, says in (
            ("cuda", CUDA_LEAST, "at least"),
            ("cpu", CPU_MOST, "at most"),
            ("rust-cpu", None, ""),
        ):
            if name not in seconds:
                continue
            pairs = zip(seconds[name], seconds["open3d CPU"], strict=True)
            ratio = statistics.median(theirs / ours if says == "at least" else ours / theirs for ours, theirs in pairs)
            report["ratios"][name] = ratio
            what = "times as fast as" if says == "at least" else "times the time of"
            print(
                f"{name}: {ratio:.3g} {what} Open3D on the CPU" + (f" ({says} {limit:g} is asked for)" if limit else "")
            )
            if limit and (ratio < limit if says == "at least" else ratio > limit):
                missed.append(name)
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
