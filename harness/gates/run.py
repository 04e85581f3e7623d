"""Every gate, for every arm that this machine can run.

`gate_arm` judges one arm's volume of one cell: what the measuring worker calls before and after timing. `run_gates`
runs the arms itself, on the host, in Triton's interpreter and on the GPU, over cells and adversarial cases, and
compares the arms with each other last.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.build.kernels import ARMS, KERNELS, Arm, Kernel
from harness.environment import ROOT
from harness.errors import IrrError, UsageError
from harness.gates import analytic, crossarm, exact, loss, surface, table, thirdparty
from harness.gates.result import GateResult, judge, skip
from harness.workload.adversarial import Case, adversarial_cases
from harness.workload.cells import Cell
from harness.workload.fused import Fused, RawVolume, gather
from harness.workload.reference import Reference, evaluate_frames, skip_mask
from harness.workload.scenes import Scene
from harness.workload.table import block_hash, unpack
from harness.workload.trajectories import all_cells
from harness.workload.volume import KEY_EMPTY, VolumeConfig

if TYPE_CHECKING:  # it imports CuPy
    from harness.device.gpu import LoadedKernel

Gated = Cell | Case

CELLS = "pts-20k,base,r-0.25,plane-320k,lf-508,lf-566,lf-750,lf-918,lf-941"
"""Cells of a plain `irr gate`, beside all adversarial cases: both shapes and every load of the table."""

INTERPRETED_POINTS = 20_000
"""Scenes larger than this are left to the GPU: an interpreted kernel takes seconds for them."""

EXTRACTED_POINTS = 100_000
"""The extract kernel is held against NumPy's crossings up to here; more triangles of the same kind show nothing new."""

THIRD_PARTY_CELLS = ("base", "r-0.25", "plane-320k")
"""Cells of points whose surface Open3D is given as depth images; the others have the same shapes."""

DEADLINE_S = 60.0
"""For one arm on one cell; the slowest takes a second. An arm that is past it is called hung and not run again."""

PLACES = ("host", "interpreter", "gpu")


@dataclass(frozen=True)
class Fusion:
    """What an arm made of a scene.

    Attributes:
        triangles: (t, 3, 3) f32 of the extract kernel, None where it was not run.
        ran: what ran, a library's or a device's own name for itself.
    """

    fused: Fused
    raw: RawVolume
    triangles: np.ndarray | None
    ran: str


# --- one arm, one cell ------------------------------------------------------------------------------------------------


def gate_arm(
    cell: Gated,
    fused: Fused,
    raw: RawVolume,
    reference: Reference,
    kernels: Sequence[Kernel],
    triangles: np.ndarray | None = None,
    scene: Scene | None = None,
    given: bool = False,
) -> list[GateResult]:
    """All gates of one volume that need no second arm, in the paper's order.

    Args:
        fused, raw: the volume in block order, and its memory as it lies.
        reference: `evaluate_frames(frames_of(cell), cell.config)`.
        kernels: rows of the kernels that made it; a bounded one may lose blocks.
        triangles: of the extract kernel, to be held against the crossings that NumPy finds.
        scene: the cell's scene if it is at hand.
        given: the frames before were not the arm's to fuse; they were in the volume when it began.
    """
    subject = f"{fused.arm} on {cell.name}"
    config = cell.config
    if not len(reference.coords):
        return [empty_gate(raw, config, subject)]
    bounded = any(kernel.bounded for kernel in kernels)
    fits = len(reference.coords) <= min(config.capacity, config.slots)
    lost = len(fused.coords) < len(reference.coords)
    may_lose = bounded or not fits
    beyond = unreachable(raw, config, kernels)
    lost |= len(beyond) > 0
    results = []
    shape = analytic.surface_of(cell) if isinstance(cell, Cell) else None
    if shape is not None and not (may_lose and lost):  # holes are the loss gate's to judge, not the surface's
        seen = usable(scene if scene is not None else cell.scene(), config)
        if analytic.extractable(shape, len(seen), config):
            results.append(analytic.surface_gate(surface.crossings(fused), shape, config, subject))
        results.append(analytic.geometric_gate(fused.coords, seen, shape, config, subject))
    if triangles is not None:
        results.append(surface.extract_gate(triangles, fused, subject))
    results += exact.exact_gates(fused, reference, subject, may_lose, beyond)
    results.append(table.table_gate(raw, config, subject))
    results.append(loss.loss_gate(fused, reference, config, bounded, subject, beyond, given))
    return results


def unreachable(raw: RawVolume, config: VolumeConfig, kernels: Sequence[Kernel]) -> np.ndarray:
    """Keys of the blocks that lie farther from their hash than a bounded update looks; none for an unbounded one."""
    bounds = [kernel.constants["BOUND"] for kernel in kernels if kernel.bounded and kernel.stage == "update"]
    if not bounds:
        return exact.NO_KEYS
    slots = np.flatnonzero(raw.table["key"] != KEY_EMPTY)
    keys = raw.table["key"][slots]
    distance = (slots - block_hash(unpack(keys), config.mask).astype(np.int64)) & config.mask
    return keys[distance >= min(bounds)]


def empty_gate(raw: RawVolume, config: VolumeConfig, subject: str) -> GateResult:
    """A scene without a sample leaves a volume without a trace; compared: the table's slots and the three counters."""
    used = int((raw.table["key"] != KEY_EMPTY).sum())
    counters = (raw.count, raw.failed_inserts, raw.dropped_points)
    return judge(
        "empty",
        "exact",
        subject,
        len(raw.table) + len(counters),
        {
            "size": (len(raw.table) == config.slots, f"{len(raw.table)} slots, not {config.slots}"),
            "table": (used == 0, f"{used} keys although no sample was given"),
            "counters": (not any(counters), f"count, failed inserts and dropped points are {counters}, not 0"),
        },
        {"keys": used, "count": raw.count},
    )


def frames_of(cell: Gated) -> list[Scene]:
    """What is fused, oldest first: the frames before, and the cell's own."""
    return [*cell.before(), cell.scene()] if isinstance(cell, Cell) else [cell.scene()]


def _extracted(frames: Sequence[Scene]) -> bool:
    return sum(map(len, frames)) <= EXTRACTED_POINTS


# --- places -----------------------------------------------------------------------------------------------------------


class Hung(IrrError):
    """An arm did not end within its deadline."""


def within(seconds: float, what: str, call: Callable[[], Fusion]) -> Fusion:
    """The result of a call, in a thread that is left behind where it does not end (it dies with the process).

    Raises:
        Hung: the deadline passed. Whatever the call raises.
    """
    outcome: list[Fusion] = []
    error: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(call())
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise Hung(f"{what} did not end within {seconds:g} s")
    if error:
        raise error[0]
    return outcome[0]


def usable(scene: Scene, config: VolumeConfig) -> Scene:
    """The scene without the points that the host removes before any arm sees them."""
    keep = ~skip_mask(scene.points, scene.camera, config)
    return scene if keep.all() else Scene(scene.points[keep], scene.colors[keep], scene.camera)


def _rows(arm: Arm) -> list[Kernel]:
    return [KERNELS[name] for name in (arm.allocate, arm.update) if name is not None]


class HostPlace:
    """The host libraries."""

    name = "host"
    libraries: Mapping[str, str] = {"cuda": "libirr-cuda.so", "rust-nvptx": "libirr-rust.so"}

    def takes(self, arm: Arm) -> bool:
        return arm.place == "host"

    def skips(self, arm: Arm, cell: Gated) -> str | None:
        """A tool that is missing. Libraries are built here, so that compiling does not count against a deadline."""
        from harness.build.manifest import ToolMissing
        from harness.device.host import host_library

        try:
            for row in _rows(arm):
                host_library(row.language)
        except ToolMissing as missing:
            return missing.what
        return None

    def expected(self, arm: Arm) -> str:
        return " + ".join(self.libraries[row.language] for row in _rows(arm))

    def fuse(self, arm: Arm, label: str, cell: Gated, frames: Sequence[Scene]) -> Fusion:
        from harness.device.host import HostVolume

        volume = HostVolume(cell.config)
        for scene in frames:
            for row in _rows(arm):
                volume.launch(row, scene)
        ran = " + ".join(volume.library(row).path.name for row in _rows(arm))
        triangles = volume.extract()[0] if _extracted(frames) else None
        return Fusion(volume.fused(label), volume.raw(), triangles, ran)


class InterpreterPlace:
    """Triton's interpreter: the kernels' logic, never their concurrency."""

    name = "interpreter"

    def __init__(self) -> None:
        self._ready: dict[tuple[str, str], RawVolume] = {}

    def prepare(self, arms: Sequence[Arm], cells: Sequence[Gated]) -> None:
        """Run all there is to run in one child process, which takes a second to start. Where that fails nothing is
        ready, and each cell runs by itself, so that the failure finds its cell."""
        from harness.device import interpreter

        wanted = [(arm, cell) for arm in arms if self.takes(arm) for cell in cells if not self.skips(arm, cell)]
        jobs = []
        for arm, cell in wanted:
            first, *others = [usable(scene, cell.config) for scene in frames_of(cell)]
            jobs.append(interpreter.Job(tuple(_rows(arm)), first, cell.config, after=tuple(others)))
        try:
            raws = interpreter.run_jobs(jobs, deadline_s=DEADLINE_S) if jobs else []
        except IrrError:
            return
        self._ready = {(arm.name, cell.name): raw for (arm, cell), raw in zip(wanted, raws, strict=True)}

    def takes(self, arm: Arm) -> bool:
        rows = _rows(arm)
        return bool(rows) and all(row.language == "triton" for row in rows)

    def skips(self, arm: Arm, cell: Gated) -> str | None:
        if importlib.util.find_spec("triton") is None or not (ROOT / "triton").is_dir():
            return "Triton is not installed"
        if isinstance(cell, Cell) and cell.samples > 9 * INTERPRETED_POINTS:
            return f"too large for the interpreter (more than {INTERPRETED_POINTS} points)"
        return None

    def expected(self, arm: Arm) -> str:
        return "interpreter"

    def fuse(self, arm: Arm, label: str, cell: Gated, frames: Sequence[Scene]) -> Fusion:
        from harness.device import interpreter

        config = cell.config
        raw = self._ready.get((arm.name, cell.name))
        if raw is None:
            first, *others = frames
            raw = interpreter.fuse(_rows(arm), first, config, after=others, deadline_s=DEADLINE_S)
        return Fusion(gather(raw, config, label), raw, None, "interpreter")


class GpuPlace:
    """The first visible GPU, with the kernels built for it."""

    name = "gpu"

    def __init__(self, build: Path = ROOT / "build") -> None:
        """
        Args:
            build: folder of built kernels.
        """
        self.missing: str | None = None
        self._build = build
        self._kernels: dict[str, LoadedKernel] = {}
        self._arch = 0
        try:
            from harness.device.gpu import Gpu

            self._arch = Gpu().arch
        except (ImportError, IrrError, OSError):
            self.missing = "no NVIDIA GPU here"

    def takes(self, arm: Arm) -> bool:
        return arm.place == "gpu"

    def skips(self, arm: Arm, cell: Gated) -> str | None:
        if self.missing:
            return self.missing
        try:
            for row in _rows(arm):
                self._kernel(row.name)
        except IrrError as error:
            return str(error).replace("\n", ";")
        return None

    def _kernel(self, name: str) -> LoadedKernel:
        if name not in self._kernels:
            from harness.build.manifest import load_manifest, manifest_path
            from harness.build.sources import current_source_hash
            from harness.device.gpu import load

            path = manifest_path(self._build, self._arch, name)
            if not path.exists():
                raise IrrError(f"{name} is not built for sm_{self._arch}", f"./irr build --arch {self._arch}")
            manifest = load_manifest(path)
            if manifest.status != "ok":
                raise IrrError(f"{name} for sm_{self._arch} is {manifest.status}: {manifest.reason}")
            if manifest.source_hash != current_source_hash(KERNELS[name]):
                raise IrrError(
                    f"{name} for sm_{self._arch} was built from other sources", f"./irr build --arch {self._arch}"
                )
            self._kernels[name] = load(manifest, path.with_suffix(".cubin"))
        return self._kernels[name]

    def expected(self, arm: Arm) -> str:
        return " + ".join(f"{row.name} sm_{self._arch}" for row in _rows(arm))

    def fuse(self, arm: Arm, label: str, cell: Gated, frames: Sequence[Scene]) -> Fusion:
        from harness.device.gpu import GpuVolume

        # Made in this thread, before any launch: the allocation makes the device's context this thread's too.
        volume = GpuVolume(cell.config)
        loaded = [self._kernel(row.name) for row in _rows(arm)]
        for scene in frames:
            for kernel in loaded:
                volume.launch(kernel, scene)
        ran = " + ".join(f"{kernel.manifest.kernel} sm_{kernel.manifest.arch}" for kernel in loaded)
        layout = loaded[-1].layout
        raw = volume.raw(layout=layout)
        triangles = None
        try:
            extract = self._kernel("cuda/extract/plain")
        except IrrError:
            extract = None
        if layout == "arrays" and extract is not None and _extracted(frames):
            triangles = volume.extract(extract).vertices
        return Fusion(gather(raw, cell.config, label), raw, triangles, ran)


Place = HostPlace | InterpreterPlace | GpuPlace

MAKE_PLACE: dict[str, Callable[[], Place]] = {"host": HostPlace, "interpreter": InterpreterPlace, "gpu": GpuPlace}


# --- all of it --------------------------------------------------------------------------------------------------------


def _chosen_arms(arms: str | None) -> list[Arm]:
    if arms is None:
        return list(ARMS.values())
    globs = [part.strip() for part in arms.split(",") if part.strip()]
    for glob in globs:
        if not any(fnmatch.fnmatchcase(name, glob) for name in ARMS):
            raise UsageError(f"no arm is named {glob!r}", f"arms: {', '.join(ARMS)}")
    return [arm for name, arm in ARMS.items() if any(fnmatch.fnmatchcase(name, glob) for glob in globs)]


def _chosen_cells(cells: str | None) -> list[Gated]:
    cases, every = adversarial_cases(), all_cells()
    known = [*every, *cases]
    pattern = cells if cells is not None else f"{CELLS},{','.join(adversarial_cases())}"
    globs = [part.strip() for part in pattern.split(",") if part.strip()]
    for glob in globs:
        if not any(fnmatch.fnmatchcase(name, glob) for name in known):
            raise UsageError(f"no cell matches {glob!r}", f"cells: {', '.join(known)}")
    chosen = [name for name in known if any(fnmatch.fnmatchcase(name, glob) for glob in globs)]
    return [cases[name] if name in cases else every[name] for name in chosen]


def _label(arm: Arm, place: str) -> str:
    return f"{arm.name} interpreted" if place == "interpreter" else arm.name


def run_gates(
    arms: str | None = None,
    cells: str | None = None,
    places: Sequence[str | Place] = PLACES,
    deadline_s: float = DEADLINE_S,
    say: Callable[[str], None] = lambda line: None,
) -> list[GateResult]:
    """Run arms on cells, and judge them.

    Args:
        arms: globs of arm names, None for all. cells: globs of cells and adversarial cases, None for the usual ones.
        places: names of places, or places already made.
        say: told each cell as it begins.

    Returns:
        Every gate's result. An arm that is not run has one result that says why, skipped and not passed. The last
        one, `coverage`, fails if an arm is neither judged nor listed as skipped on every cell.

    Raises:
        UsageError: no such arm or cell.
    """
    chosen, gated = _chosen_arms(arms), _chosen_cells(cells)
    where = [MAKE_PLACE[place]() if isinstance(place, str) else place for place in places]
    names = [place.name for place in where]
    results: list[GateResult] = []
    dead: dict[tuple[str, str], str] = {}
    for place in where:
        if isinstance(place, InterpreterPlace):
            say("Triton's interpreter")
            place.prepare(chosen, gated)
    for cell in gated:
        say(cell.name)
        given = frames_of(cell)
        reference = evaluate_frames(given, cell.config)
        frames = [usable(scene, cell.config) for scene in given]
        skipped = sum(map(len, given)) - sum(map(len, frames))
        counts = (len(reference.coords), getattr(cell, "samples", reference.samples))
        results.append(_counts_gate(cell, reference, counts))
        volumes: list[Fused] = []
        for arm in chosen:
            taken = [place for place in where if place.takes(arm)]
            if not taken and arm.place != "library":  # a library's turn comes last, against what the arms made
                results.append(skip("arm", "exact", f"{arm.name} on {cell.name}", _untaken(names)))
            for place in taken:
                label = _label(arm, place.name)
                subject = f"{label} on {cell.name}"
                try:
                    why = dead.get((arm.name, place.name)) or place.skips(arm, cell)
                    if why:
                        results.append(skip("arm", "exact", subject, why))
                        continue
                    fusion = within(deadline_s, subject, lambda: place.fuse(arm, label, cell, frames))  # noqa: B023
                except IrrError as error:
                    hung = isinstance(error, Hung) or type(error).__name__ == "HostHung"
                    if hung:
                        dead[arm.name, place.name] = f"it hung on {cell.name}"
                    results.append(
                        GateResult("deadline" if hung else "runs", "exact", subject, False, 0, {}, error.what)
                    )
                    continue
                fused = dataclasses.replace(fusion.fused, skipped_points=skipped)
                expected = place.expected(arm)
                results.append(
                    judge(
                        "provenance",
                        "exact",
                        subject,
                        1,
                        {"ran": (fusion.ran == expected, f"{fusion.ran} ran, not {expected}")},
                        {"ran": fusion.ran},
                    )
                )
                results += gate_arm(cell, fused, fusion.raw, reference, _rows(arm), fusion.triangles, frames[-1])
                # What a bounded look-up drops is its loss gate's to judge, as blocks are.
                if len(fused.coords) == len(reference.coords) and not fused.dropped_points:
                    volumes.append(fused)
        results += _cross(cell, volumes, bool(len(reference.coords)))
        if any(arm.place == "library" for arm in chosen):
            results.append(_third_party(cell, volumes))
    results.append(coverage_gate(results, chosen, gated))
    return results


def _counts_gate(cell: Gated, reference: Reference, counts: tuple[int, int]) -> GateResult:
    """The oracle itself against the counts that stand in the table of cells."""
    blocks, samples = len(reference.coords), reference.samples
    return judge(
        "counts",
        "exact",
        f"oracle on {cell.name}",
        1,
        {
            "blocks": (blocks == cell.blocks, f"{blocks} blocks, not {cell.blocks}"),
            "samples": (samples == counts[1], f"{samples} samples, not {counts[1]}"),
        },
        {"blocks": blocks, "samples": samples, "skipped_points": reference.skipped},
    )


def _cross(cell: Gated, volumes: list[Fused], expected: bool) -> list[GateResult]:
    if not expected:
        return []
    if len(volumes) < 2:
        who = f"{volumes[0].arm} on {cell.name}" if volumes else cell.name
        return [skip("cross-arm", "cross-arm", who, "fewer than two arms hold the whole scene")]
    first, *others = volumes
    return [crossarm.cross_gate(first, other, f"{other.arm} against {first.arm} on {cell.name}") for other in others]


def _third_party(cell: Gated, volumes: list[Fused]) -> GateResult:
    """Open3D on the cell's frames, against the first arm that holds the whole scene."""
    subject = f"open3d on {cell.name}"
    if not isinstance(cell, Cell) or not (cell.name in THIRD_PARTY_CELLS or cell.kind in ("room", "folder")):
        why = f"the surfaces of {', '.join(THIRD_PARTY_CELLS)} and of depth frames are what it is held against"
        return skip("third-party", thirdparty.TIER, subject, why)
    if not volumes:
        return skip("third-party", thirdparty.TIER, subject, "no arm holds the whole scene")
    return thirdparty.judge_cell(cell, volumes[0])


def _untaken(places: Sequence[str]) -> str:
    return f"it does not run on {', '.join(places)}"


def coverage_gate(results: Sequence[GateResult], arms: Sequence[Arm], cells: Sequence[Gated]) -> GateResult:
    """Nobody was forgotten: every arm on every cell was judged, failed, or is listed as skipped with its reason; no
    skipped gate counts as passed, and nothing passed by comparing nothing."""
    named = {result.subject for result in results}
    forgotten = [
        f"{arm.name} on {cell.name}"
        for arm in arms
        for cell in cells
        if not {f"{arm.name} on {cell.name}", f"{_label(arm, 'interpreter')} on {cell.name}"} & named
    ]
    hollow = [
        result.subject for result in results if result.ok and (result.skipped is not None or result.compared <= 0)
    ]
    judged = {result.subject for result in results if result.gate == "provenance"}
    unjudged = sorted(judged - {result.subject for result in results if result.gate in ("table", "empty")})
    return judge(
        "coverage",
        "exact",
        "all arms",
        len(arms) * len(cells),
        {
            "forgotten": (not forgotten, f"neither judged nor listed as skipped: {', '.join(forgotten[:5])}"),
            "hollow": (not hollow, f"passed without comparing anything: {', '.join(hollow[:5])}"),
            "unjudged": (not unjudged, f"ran and was not judged: {', '.join(unjudged[:5])}"),
        },
        {"forgotten": len(forgotten), "hollow": len(hollow), "unjudged": len(unjudged), "judged": len(judged)},
    )


# --- a table of results -----------------------------------------------------------------------------------------------


def summary(results: Sequence[GateResult]) -> str:
    """A person's view: what failed, what was skipped and why, and how much passed in which tier."""
    lines = []
    for result in results:
        if result.failed:
            lines.append(f"FAILED  {result.gate}: {result.subject}: {result.message}")
    reasons: dict[str, list[str]] = {}
    for result in results:
        if result.skipped is not None:
            reasons.setdefault(result.skipped, []).append(result.subject.split(" on ")[0])
    for reason, subjects in reasons.items():
        lines.append(f"skipped {', '.join(dict.fromkeys(subjects))} ({len(subjects)} times): {reason}")
    counts: dict[str, int] = {}
    for result in results:
        if result.ok:
            counts[result.gate] = counts.get(result.gate, 0) + 1
    lines.append("passed  " + (", ".join(f"{gate} {n}" for gate, n in counts.items()) or "nothing"))
    return "\n".join(lines)


def gate_task(arms: str | None = None, cells: str | None = None) -> tuple[list[GateResult], bool]:
    """The task `gate`: the results, and whether all is well. An arm asked for by name that could not run at all is not
    well: it was to be judged and was not."""
    import sys

    results = run_gates(arms, cells, say=lambda line: print(f"gate: {line}", file=sys.stderr, flush=True))
    fine = any(r.ok and r.gate == "provenance" for r in results) and not any(r.failed for r in results)
    if arms is not None:
        judged = {r.subject.split(" on ")[0].removesuffix(" interpreted") for r in results if r.gate == "provenance"}
        fine = fine and all(arm.name in judged for arm in _chosen_arms(arms))
    return results, fine


def _main() -> None:
    """Run by the fault catalogue in a copy of the sources: results as JSON on stdout."""
    import argparse
    import json
    import os
    import sys

    parser = argparse.ArgumentParser()
    parser.add_argument("--arms")
    parser.add_argument("--cells")
    parser.add_argument("--deadline", type=float, default=DEADLINE_S)
    given = parser.parse_args()
    results = run_gates(given.arms, given.cells, deadline_s=given.deadline)
    print(json.dumps([result.to_json() for result in results], allow_nan=False))
    sys.stdout.flush()
    os._exit(0)  # a hung arm's threads would otherwise be waited for


if __name__ == "__main__":
    _main()
