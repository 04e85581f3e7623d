"""What is asked of a run, made a request: cells, kernels and plan, checked before anything is timed."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.archive.schema import Note, PlanEntry, Skipped
from harness.build.build import BUILD
from harness.build.contraction import loop_findings
from harness.build.kernels import ARMS, Kernel, select_kernels
from harness.build.manifest import FLAVOURS
from harness.device import preflight
from harness.device.driver import NO_GPU
from harness.device.host import host_library
from harness.errors import IrrError
from harness.measure import plan as planning
from harness.measure import probe
from harness.measure.building import build_missing
from harness.measure.devices import Found, multiprocessors
from harness.measure.inventory import Built, built_architectures, deviations, take_inventory
from harness.measure.manager import Request
from harness.measure.studies import find_study
from harness.measure.tools import COUNTED_CELLS
from harness.measure.worker import utc_now
from harness.output import say
from harness.workload.cells import STUDY_CELLS_FILE, Cell, load_cells, match_cells, select_cells
from harness.workload.programs import load_programs
from harness.workload.trajectories import NeedsData, all_cells, frame_evidence

NO_JIT = "PTX through the driver's compiler (load = jit)"

NOT_EXACTLY = "kernels /fma are timed, compared with their uncontracted twins, and not judged exactly"
WHY_NOT_EXACTLY = "contraction may move a sample across a face of a voxel or over the bound of the occlusion test"

HOST_CELLS = ("pts-20k", "plane-320k")
HOST_ROUNDS, HOST_BATCH = 5, 2
"""Without a GPU: enough to show that the harness works, in seconds; these times say nothing about a GPU."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks of a run.

    Attributes:
        passes: walks a device; None for the usual number. cells, arms: globs and names; None for all of the matrix.
        at_once: several devices at the same time. command: the words that were typed.
    """

    command: Sequence[str]
    quick: bool = False
    passes: int | None = None
    cells: str | None = None
    arms: str | None = None
    allow_missing: bool = False
    allow_shared: bool = False
    at_once: bool = True

    def request(self, *, study: str, passes: int, build: Path = BUILD, **fields: Any) -> Request:
        """A request with everything that is the same for every run; `fields` are what differs."""
        commit, dirty = probe.commit()
        return Request(
            study=study,
            passes=self.passes or passes,
            seed=planning.SEED,
            build=str(build),
            command=list(self.command),
            created_utc=utc_now(),
            commit=commit,
            dirty=dirty,
            quick=self.quick,
            at_once=self.at_once,
            shared=self.allow_shared,
            **fields,
        )


# ------------------------------------------------------------------------------------------------- kernels and cells


def chosen_rows(arms: str | None) -> list[Kernel]:
    """Kernels of the matrix, or those that --arms names (then studies' kernels too)."""
    rows = select_kernels(arms)
    if arms is None:
        return planning.matrix_kernels(rows)
    return [
        row
        for row in rows
        if row.stage in ("allocate", "update", "integrate", "floor") and row.name != "cuda/floor/record"
    ]


@dataclass(frozen=True)
class Chosen:
    """Cells to run.

    Attributes:
        trajectories: those that data/cells.toml does not have. missing: those whose frames are not here.
    """

    cells: list[Cell]
    trajectories: dict[str, Cell]
    missing: list[Skipped]

    @property
    def study(self) -> str:
        return "real" if self.trajectories else "matrix"


def check_cells(cells: str | None, quick: bool) -> None:
    """Whether --cells names anything, before the work of counting blocks.

    Raises:
        UsageError: nothing matches.
    """
    if cells is None or quick:
        chosen_cells(cells, quick)
    else:
        match_cells(cells, all_cells())


def chosen_cells(cells: str | None, quick: bool) -> Chosen:
    """The cells of the matrix, or those that --cells names, trajectories among them.

    Raises:
        UsageError: nothing matches. IrrError: no cell is left, since no frames are here; or damaged or changed frames.
    """
    if cells is None or quick:
        chosen = select_cells(cells) if cells else list(load_cells().values())
        return Chosen(planning.quick_cells(chosen) if quick else chosen, {}, [])
    every, missing = all_cells(), []
    found: dict[str, Cell] = {}
    for name in match_cells(cells, every):
        if name in every.recipes:
            say(f"counting {name}")
        try:
            found[name] = every[name]
        except NeedsData as error:
            missing.append(Skipped(kernel="*", cell=name, status="needs-data", why=error.what))
    if not found:
        raise IrrError(missing[0].why, "irr data says where frames come from")
    return Chosen(list(found.values()), {k: v for k, v in found.items() if k in every.recipes}, missing)


# -------------------------------------------------------------------------------------------------------------- GPUs


@dataclass(frozen=True)
class Ready:
    """Devices and kernels of a run on GPUs, found to go together.

    Attributes:
        there: kernels that are built, by name, the helpers among them. rows: those that were asked for and are there.
    """

    found: Found
    build: Path
    arch: int
    there: dict[str, Built]
    rows: list[Kernel]
    skipped: list[Skipped]
    refusals: list[Note]
    flags: list[Note]

    def request(self, asked: Asked, plan: Sequence[PlanEntry], **fields: Any) -> Request:
        """The request for this plan; what it skips, refuses and flags is said in the archive."""
        if any(note.what == NO_JIT for note in self.refusals):
            plan = [entry for entry in plan if entry.load == "aot"]
        usual: dict[str, Any] = {
            "passes": planning.PASSES,
            "rounds": planning.ROUNDS,
            "batch": planning.BATCH,
            "skipped": self.skipped,
            "flags": self.flags,
        }
        return asked.request(
            station="gpu",
            build=self.build,
            devices=self.found.uuids,
            plan=list(plan),
            refusals=self.refusals,
            arch=self.arch,
            manifests=sorted(str(entry.cubin.with_suffix(".json")) for entry in self.there.values()),
            device_facts=self.found.used,
            **{**usual, **fields},
        )


def make_ready(
    found: Found, asked: Asked, rows: Sequence[Kernel], *, build: Path = BUILD, controls: Sequence[str] = ()
) -> Ready:
    """Build what is not built, where that can be done here; check devices, driver and kernels against each other.

    Args:
        controls: further builds of the rows, taken if they are there.

    Raises:
        IrrError: a driver older than the toolkit, an architecture without code, a stale or a missing kernel, devices of
            several kinds (one archive holds one).
    """
    kinds = {(device.get("name"), device.get("arch")) for device in found.used}
    if len(kinds) > 1:
        names = ", ".join(f"{name} (sm_{arch})" for name, arch in sorted(kinds, key=str))
        raise IrrError(f"the devices are of several kinds ({names})", "one archive a kind: choose with --devices")
    arch = int(found.used[0].get("arch") or 0)
    build_missing(build, arch, rows)
    there, skipped = take_inventory(build, arch, rows, allow_missing=asked.allow_missing, controls=controls)
    flags = list(found.flags)
    refusals: list[Note] = []
    toolkit = next((b.manifest.compiler.get("version") for b in there.values() if b.manifest.language == "cuda"), None)
    if toolkit and found.driver_cuda:
        serves = preflight.driver_serves(str(toolkit), found.driver_cuda)
        if not serves.cubin:
            raise IrrError(serves.reason, "install a newer driver, or use an image with an older toolkit")
        if not serves.ptx:
            refusals.append(Note(what=NO_JIT, why=serves.reason))
    flags += [Note(what="toolchain", why=text) for text in deviations(there.values())]
    if asked.allow_shared:
        flags.append(Note(what="--allow-shared", why="other processes were allowed on the device"))
    refusals += [Note(what=f"{entry.kernel} is {entry.status}", why=entry.why) for entry in skipped]
    present = [row for row in rows if row.name in there]
    return Ready(found, build, arch, there, present, skipped, refusals, flags)


def arms_of(there: Collection[str]) -> list[str]:
    """The GPU's arms whose kernels are all there."""
    return [arm.name for arm in ARMS.values() if arm.place == "gpu" and {arm.allocate, arm.update} <= set(there)]


def matrix_request(found: Found, asked: Asked, *, build: Path = BUILD) -> Request:
    """The matrix, or what --quick, --cells and --arms leave of it; real frames where --cells names them.

    Raises:
        IrrError: as `make_ready`, or no frames are here. UsageError: --cells or --arms names nothing.
    """
    ready = make_ready(found, asked, chosen_rows(asked.arms), build=build)
    chosen = chosen_cells(asked.cells, asked.quick)
    # Frames cost seconds of gates each, and their question is the ratio: serial, from fresh and filled tables.
    short = asked.quick or chosen.study == "real"
    plan = planning.make_plan(chosen.cells, ready.rows, planning.QUICK if short else planning.MATRIX)
    watched: dict[str, Any] = {}
    if chosen.study == "matrix" and not asked.quick:
        watched = {
            "controls": planning.control_plan(plan, together=asked.at_once and len(found.uuids) > 1),
            "sanitized": sorted(ready.there),
            "counted": [row.name for row in ready.rows],
            "counted_cells": [name for name in COUNTED_CELLS if any(entry.cell == name for entry in plan)],
        }
    return ready.request(
        asked,
        plan,
        study=chosen.study,
        trajectories=chosen.trajectories,
        skipped=[*ready.skipped, *chosen.missing],
        evidence=frame_evidence(chosen.trajectories.values()),
        **({"rounds": planning.QUICK_ROUNDS, "passes": 1} if asked.quick else {"adversarial": arms_of(ready.there)}),
        **watched,
    )


def counters_request(found: Found, asked: Asked, cells: Sequence[str], *, build: Path = BUILD) -> Request:
    """Nsight Compute's counters of the matrix kernels on these cells, and nothing timed.

    Raises:
        IrrError: as `make_ready`.
    """
    ready = make_ready(found, asked, chosen_rows(asked.arms), build=build)
    counted = sorted(row.name for row in ready.rows)
    return ready.request(asked, [], study="counters", passes=0, gates=False, counted=counted, counted_cells=list(cells))


def contraction_request(found: Found, asked: Asked) -> Request:
    """The contraction study on GPUs: the blog's method (ten rounds of 300 launches in turns, A/A) in the same harness.

    Raises:
        IrrError: as `make_ready`.
    """
    rows = [row for row in select_kernels(None) if row.stage == "fma"]
    strict = [f"{row.name}{FLAVOURS['nofmad']}" for row in rows if row.contract and "mandelbrot-default" in row.name]
    ready = make_ready(found, asked, rows, controls=strict)
    programs = list(load_programs().values())
    return ready.request(
        asked,
        planning.program_plan(programs, list(ready.there)),
        study="fma",
        rounds=planning.PROGRAM_ROUNDS,
        batch=programs[0].launches,
        gates=False,
        evidence=loop_findings(BUILD, sorted(built_architectures(BUILD)), ready.arch or None),
    )


def frame_cells(globs: Sequence[str]) -> tuple[dict[str, Cell], list[Skipped]]:
    """Cells of trajectories that match, counted; and those whose frames are not here."""
    every, found, missing = all_cells(), {}, []
    for name in every.recipes:
        if not any(fnmatch.fnmatchcase(name, glob) for glob in globs):
            continue
        try:
            found[name] = every[name]
        except NeedsData as error:
            missing.append(Skipped(kernel="*", cell=name, status="needs-data", why=error.what))
    return found, missing


def study_request(found: Found, asked: Asked, name: str, *, build: Path = BUILD) -> Request:
    """A study of the table (harness/measure/studies.py) on GPUs.

    Raises:
        UsageError: no study has that name. IrrError: as `make_ready`.
    """
    study = find_study(name)
    controls = study.controls()
    ready = make_ready(found, asked, study.rows(), build=build, controls=controls)
    frames, missing = frame_cells(study.frames())
    labels = [*(row.name for row in ready.rows), *(name for name in controls if name in ready.there)]
    plan = study.plan(labels, multiprocessors(), frames)
    here = {**load_cells(), **load_cells(STUDY_CELLS_FILE), **frames}
    names = {planning.variant_of(entry.cell)[0] for entry in plan}
    broken = {row.name: row.breaks for row in study.rows() if row.breaks}
    once = Note(what="gates", why="every kernel is judged once a cell and device, in the first pass, before timing")
    unjudged = [Note(what=f"{kernel} is timed and never judged", why=why) for kernel, why in broken.items()]
    if any(label.endswith(planning.CONTRACTED) for label in labels):
        unjudged.append(Note(what=NOT_EXACTLY, why=WHY_NOT_EXACTLY))
    return ready.request(
        asked,
        plan,
        study=name,
        flags=[*ready.flags, once, *unjudged],
        skipped=[*ready.skipped, *missing],
        evidence=frame_evidence(frames.values()),
        rounds=study.rounds,
        gates_once=True,
        adversarial=arms_of(ready.there),
        trajectories={n: here[n] for n in here if n in names and n not in load_cells()},
        sanitized=study.judged(list(ready.there)),
        sanitizer_s=study.sanitizer_s,
        counted=study.counted(plan),
        counted_cells=list(study.counted_cells),
    )


# -------------------------------------------------------------------------------------------------------------- host


def host_request(asked: Asked, **fields: Any) -> Request:
    """A run on this machine's processor: the same harness, from plan to archive, where no GPU is.

    Args:
        fields: `flags`, `extra_gates` and `evidence` of what was found before.
    """
    rows = [row for row in chosen_rows(asked.arms) if row.host]
    skipped = [
        Skipped(kernel=row.name, cell="*", status="unavailable", why=NO_GPU[0])
        for row in chosen_rows(asked.arms)
        if not row.host
    ]
    able, unable = _host_languages(rows)
    chosen = chosen_cells(asked.cells or ",".join(HOST_CELLS), False)
    return asked.request(
        study="host",
        station="host",
        devices=["host"],
        plan=planning.make_plan(chosen.cells, able, planning.HOST),
        passes=1,
        trajectories=chosen.trajectories,
        skipped=[*skipped, *unable, *chosen.missing],
        **{
            "rounds": HOST_ROUNDS,
            "batch": HOST_BATCH,
            **fields,
            "evidence": [*fields.get("evidence", []), *frame_evidence(chosen.trajectories.values())],
        },
    )


def _host_languages(rows: Sequence[Kernel]) -> tuple[list[Kernel], list[Skipped]]:
    """Rows whose host library can be had here, and the others with the reason."""
    reasons: dict[str, str | None] = {}
    for row in rows:
        if row.language not in reasons:
            try:
                host_library(row.language)
                reasons[row.language] = None
            except IrrError as error:
                reasons[row.language] = error.what
    able = [row for row in rows if reasons[row.language] is None]
    unable = [
        Skipped(kernel=row.name, cell="*", status="unavailable", why=str(reasons[row.language]))
        for row in rows
        if reasons[row.language] is not None
    ]
    return able, unable
