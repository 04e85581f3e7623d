"""The integrate stage of irr's arms against Open3D's CPU grid, on the same frames, in one run on one machine.

    python benchmarks/against_open3d.py [FOLDER] [--frames 10] [--rounds 15] [--out FILE.json]

FOLDER holds depth frames (7-Scenes or TartanAir V2 layout); without one the synthetic room is used. Each round fuses
all frames into an empty volume with every arm, in an order shuffled by a recorded seed, and a ratio is taken within a
round. What is timed: allocate and update of every frame, points and frames being in memory already (on the card for
`cuda`, host clock round a wait); Open3D's `compute_unique_block_coordinates` and `integrate`. It gathers where our arms
scatter with atomics: two algorithms, so the ratios say what a user pays, not which code is better. Open3D's run stands
twice in every round: the ratio of the two is the noise of this machine at this time.

An arm that is not here is named with its reason and the others run. Limits: `cuda` at least 10 times as fast as
Open3D's CPU grid, `cpu` at most 3.5 times its time. Exit 1 if one is missed, if an arm built other blocks than the
exact ones, or if no limit could be decided.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from harness.build.kernels import ARMS, KERNELS
from harness.device import open3d_arm
from harness.device.host import HostLibrary, HostVolume, default_threads, host_library
from harness.errors import IrrError
from harness.measure import probe
from harness.whole import check_target, whole_file
from harness.workload import room
from harness.workload.frames import Frame, Intrinsics, open_folder, to_scene
from harness.workload.reference import block_keys
from harness.workload.scenes import Scene
from harness.workload.volume import VolumeConfig

CUDA_LEAST, CPU_MOST = 10.0, 3.5

THEIRS, TWIN = "open3d CPU", "open3d CPU twin"

LIBRARIES = {"cpu": "libirr-cuda.so", "rust-cpu": "libirr-rust.so"}
"""File of a host arm in --libraries."""

SEED = 3055


@dataclass(frozen=True)
class Limit:
    """What is asked of an arm: at least `value` times as fast as Open3D (`least`), or at most that times its time."""

    value: float
    least: bool


LIMITS = {"cuda": Limit(CUDA_LEAST, True), "cpu": Limit(CPU_MOST, False)}


class WrongBlocks(IrrError):
    """An arm's volume is not the exact one, so its time is no result."""


@dataclass
class Arm:
    """One arm, ready to run.

    Attributes:
        run: fuses all frames into an empty volume; seconds.
        facts: what it ran on. seconds: a value a round.
        busy: cores that each round kept busy, its untimed set-up included: processor seconds a second.
    """

    run: Callable[[], float]
    facts: dict[str, Any]
    seconds: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    def round(self) -> None:
        """One run, with the share of the processor that it took."""
        wall, used = time.perf_counter(), time.process_time()
        self.seconds.append(self.run())
        self.busy.append((time.process_time() - used) / (time.perf_counter() - wall))


def check_blocks(name: str, built: int, dropped: int, exact: int) -> None:
    """
    Raises:
        WrongBlocks: blocks or samples are missing.
    """
    if (built, dropped) != (exact, 0):
        raise WrongBlocks(f"{name} built {built} of {exact} blocks and dropped {dropped} samples")


def host_arm(name: str, scenes: Sequence[Scene], config: VolumeConfig, exact: int, libraries: Path | None) -> Arm:
    """An arm on this machine's processor, its library built here or taken from `libraries`."""
    kernels = [KERNELS[kernel] for kernel in (ARMS[name].allocate, ARMS[name].update) if kernel is not None]
    # The library is looked up once: asking whether it is current costs milliseconds.
    if libraries is None:
        library = host_library(kernels[0].language)
    else:
        library = HostLibrary(libraries / LIBRARIES[name])
    volume = HostVolume(config, library)

    def run() -> float:
        volume.clear_table()
        began = time.perf_counter()
        for scene in scenes:
            for kernel in kernels:
                volume.launch(kernel, scene)
        seconds = time.perf_counter() - began
        check_blocks(name, volume.count, int(volume.counters["dropped_points"][0]), exact)
        return seconds

    digest = hashlib.sha256(library.path.read_bytes()).hexdigest()
    source = "built here" if libraries is None else "given by --libraries"
    return Arm(run, {"threads": default_threads(), "library": source, "library_sha256": digest})


def gpu_arm(scenes: Sequence[Scene], config: VolumeConfig, exact: int, build: Path) -> Arm:
    """The arm `cuda` on the first GPU of this process; the points are on the card."""
    from harness.device import driver
    from harness.device.gpu import Gpu, GpuVolume, Inputs, load
    from harness.measure.inventory import Built, find_built

    gpu = Gpu()
    kernels = []
    for name in (ARMS["cuda"].allocate, ARMS["cuda"].update):
        found = find_built(build, gpu.arch, str(name))
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
        seconds = time.perf_counter() - began
        counters = volume.read_counters()
        check_blocks("cuda", int(counters["count"]), int(counters["dropped_points"]), exact)
        return seconds

    facts: dict[str, Any] = {"uuid": gpu.uuid, "arch": gpu.arch}
    with contextlib.suppress(IrrError, AttributeError):  # a name is for people: the UUID says which
        text = ctypes.create_string_buffer(256)
        driver.check("cuDeviceGetName", driver.library().cuDeviceGetName(text, 256, 0))
        facts["device"] = text.value.decode(errors="replace")
    with contextlib.suppress(IrrError, AttributeError):
        facts["driver_cuda"] = driver.driver_cuda_version()
    return Arm(run, facts)


def library_arm(frames: Sequence[Frame], camera: Intrinsics, voxel: float, device: str) -> Arm:
    """Open3D's touching and integrating. Its threads are TBB's: a thread for each core that the process may use."""
    facts: dict[str, Any] = {"threads": default_threads()} if device == "cpu" else {}

    def run() -> float:
        grid = open3d_arm.integrate(frames, camera, voxel, device=device, surface=False)
        facts.update(device=grid.device, version=grid.version, blocks=len(grid.coords))
        return sum(grid.seconds)

    return Arm(run, facts)


def exact_block_count(scenes: Sequence[Scene], voxel: float) -> int:
    """Blocks of all scenes together, by the oracle."""
    keys = np.empty(0, np.int64)
    for scene in scenes:
        keys = np.union1d(keys, block_keys(scene, VolumeConfig(1, voxel))[0])
    return len(keys)


def prepare(makers: Mapping[str, Callable[[], Arm]]) -> tuple[dict[str, Arm], dict[str, str], dict[str, str]]:
    """Every arm made and run once, for libraries, pages and whatever a first call compiles.

    Returns:
        The arms; reasons of those that are not here; reasons of those that are here and wrong.
    """
    arms: dict[str, Arm] = {}
    absent: dict[str, str] = {}
    wrong: dict[str, str] = {}
    for name, make in makers.items():
        try:
            arm = make()
            arm.run()
            arms[name] = arm
        except WrongBlocks as error:
            wrong[name] = error.what
        except (IrrError, ImportError, OSError) as error:
            absent[name] = str(error).splitlines()[0]
    return arms, absent, wrong


def measure(arms: Mapping[str, Arm], rounds: int, seed: int = SEED) -> list[list[str]]:
    """All arms in turn in each round; the order of every round."""
    shuffle = random.Random(seed)
    orders = []
    for number in range(rounds):
        order = list(arms)
        shuffle.shuffle(order)
        for name in order:
            arms[name].round()
        orders.append(order)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return orders


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def judge(seconds: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Each arm's time over Open3D's on the CPU, within a round: median and range, and what is asked of it.

    `times_as_fast` is the same the other way round. `limit` and `met` stand where something is asked; `met` is by the
    median, and `clear` says whether every round agrees.
    """
    if THEIRS not in seconds:
        return {}
    rows: dict[str, dict[str, Any]] = {}
    for name, values in seconds.items():
        if name == THEIRS:
            continue
        pairs = list(zip(values, seconds[THEIRS], strict=True))
        row: dict[str, Any] = {
            "times_the_time": spread([mine / theirs for mine, theirs in pairs]),
            "times_as_fast": spread([theirs / mine for mine, theirs in pairs]),
        }
        limit = LIMITS.get(name)
        if limit:
            asked = row["times_as_fast" if limit.least else "times_the_time"]
            fine = {key: value >= limit.value if limit.least else value <= limit.value for key, value in asked.items()}
            row["limit"] = f"{'at least' if limit.least else 'at most'} {limit.value:g}"
            row["met"], row["clear"] = fine["median"], len(set(fine.values())) == 1
        rows[name] = row
    return rows


def undecided(ratios: Mapping[str, Mapping[str, Any]], absent: Mapping[str, str]) -> dict[str, str]:
    """Limits that this run cannot decide, with the reason."""
    if not ratios:
        return dict.fromkeys(LIMITS, absent.get(THEIRS, f"{THEIRS} was not run"))
    return {name: absent.get(name, f"{name} was not run") for name in LIMITS if name not in ratios}


def show(report: Mapping[str, Any]) -> None:
    """The report as a table for people."""
    headings = ("arm", "median ms", "range ms", "threads", "busy cores", "x Open3D's time", "x as fast", "asked")
    rows = []
    for name, arm in report["arms"].items():
        times, ratio = arm["seconds"], report["ratios"].get(name, {})
        within = ratio.get("times_the_time")
        asked = ratio.get("limit", "")
        if asked:
            asked += ": met" if ratio["met"] else ": MISSED"
            asked += "" if ratio["clear"] else " (not in every round)"
        rows.append(
            (
                name,
                f"{1e3 * times['median']:.3f}",
                f"{1e3 * times['low']:.3f} to {1e3 * times['high']:.3f}",
                str(arm.get("threads", arm.get("device", ""))),
                f"{arm['busy_cores']['median']:.2f}",
                f"{within['median']:.3g} ({within['low']:.3g} to {within['high']:.3g})" if within else "1",
                f"{ratio['times_as_fast']['median']:.3g}" if within else "1",
                asked,
            )
        )
    machine = report["machine"]
    title = (
        f"{report['frames']} frames, {report['points']} points, {report['blocks']} blocks, {report['rounds']} rounds; "
        f"{machine['cpu']}, {machine['usable_cores']} cores, load {machine['load_before'][0]:.2f} before and "
        f"{machine['load_after'][0]:.2f} after"
    )
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:  # a machine that has the kernels' packages only
        print(title)
        for row in (headings, *rows):
            print("  ".join(f"{text:>18}" if place else f"{text:16}" for place, text in enumerate(row)).rstrip())
    else:
        table = Table(title=title)
        for place, text in enumerate(headings):
            table.add_column(text, justify="right" if place in (1, 2, 4, 5, 6) else "left", no_wrap=place == 0)
        for row in rows:
            table.add_row(*row)
        Console(width=None if sys.stdout.isatty() else 140).print(table)
    for name, why in report["unavailable"].items():
        print(f"{name}: unavailable, {why}")
    for name, why in report["wrong"].items():
        print(f"{name}: WRONG, {why}")
    for name, why in report["undecided"].items():
        print(f"limit of {name}: not decided, {why}")


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Strict JSON, whole or not at all."""
    with whole_file(path) as stream:
        stream.write((json.dumps(report, indent=1, allow_nan=False) + "\n").encode())


def run(given: argparse.Namespace) -> int:
    """The whole benchmark; the exit code."""
    if given.out:
        check_target(given.out)
    if given.folder is not None:
        found = open_folder(given.folder, depth_scale=given.depth_scale)
        for name, why in found.skipped:
            print(f"skipped {name}: {why}", file=sys.stderr)
        frames, camera = [read() for read in found.frames[: given.frames]], found.intrinsics
        source = f"a folder of {found.layout} frames"
    else:
        source = "the synthetic room"
        frames, camera = [room.frame(number) for number in range(given.frames)], room.INTRINSICS
    scenes = [to_scene(frame, camera) for frame in frames]
    exact = exact_block_count(scenes, given.voxel)
    config = VolumeConfig(max(1, -(-5 * exact // 4)), given.voxel)
    before = os.getloadavg()
    arms, absent, wrong = prepare(
        {
            THEIRS: lambda: library_arm(frames, camera, given.voxel, "cpu"),
            TWIN: lambda: library_arm(frames, camera, given.voxel, "cpu"),
            "open3d CUDA": lambda: library_arm(frames, camera, given.voxel, "cuda"),
            "cpu": lambda: host_arm("cpu", scenes, config, exact, given.libraries),
            "rust-cpu": lambda: host_arm("rust-cpu", scenes, config, exact, given.libraries),
            "cuda": lambda: gpu_arm(scenes, config, exact, given.build),
        }
    )
    orders = measure(arms, given.rounds)
    ratios = judge({name: arm.seconds for name, arm in arms.items()})
    commit, dirty = probe.commit()
    report: dict[str, Any] = {
        "frames": len(frames),
        "of": source,
        "points": sum(map(len, scenes)),
        "blocks": exact,
        "voxel_m": given.voxel,
        "pool": config.capacity,
        "table": config.slots,
        "rounds": given.rounds,
        "seed": SEED,
        "orders": orders,
        "machine": {
            "cpu": probe.processor(),
            "cores": os.cpu_count(),
            "usable_cores": default_threads(),
            "load_before": list(before),
            "load_after": list(os.getloadavg()),
        },
        "commit": commit,
        "dirty": dirty,
        "arms": {
            name: {
                **arm.facts,
                "seconds": spread(arm.seconds),
                "rounds_seconds": arm.seconds,
                "busy_cores": spread(arm.busy),
            }
            for name, arm in arms.items()
        },
        "ratios": ratios,
        "unavailable": absent,
        "wrong": wrong,
        "undecided": undecided(ratios, {**absent, **wrong}),
    }
    show(report)
    if given.out:
        write(given.out, report)
    decided = [row["met"] for row in ratios.values() if "met" in row]
    return 0 if decided and all(decided) and not wrong else 1


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="depth frames; without it the synthetic room")
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--voxel", type=float, default=0.01, help="metres")
    parser.add_argument("--depth-scale", type=float, default=1000.0, help="units a metre of 16-bit depth")
    parser.add_argument("--build", type=Path, default=Path(__file__).resolve().parents[1] / "build")
    parser.add_argument(
        "--libraries", type=Path, help=f"folder with {' and '.join(LIBRARIES.values())}, where no compiler is"
    )
    parser.add_argument("--out", type=Path, help="the report as JSON")
    given = parser.parse_args(words)
    if given.frames < 1 or given.rounds < 1:
        parser.error("--frames and --rounds must be at least 1")
    return given


def main(words: Sequence[str] | None = None) -> int:
    try:
        return run(parse(words))
    except IrrError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
