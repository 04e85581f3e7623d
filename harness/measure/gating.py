"""Gates round the timing of a cell: which arms are judged, and what a failed one means for its kernels' samples."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness.archive.schema import gate_record
from harness.build.kernels import ARMS
from harness.gates.crossarm import cross_gate
from harness.gates.loss import lost_blocks
from harness.gates.result import GateResult
from harness.gates.run import gate_arm
from harness.measure.plan import CONTRACTED, TWIN, row_of
from harness.workload.cells import Cell
from harness.workload.fused import Fused, RawVolume
from harness.workload.reference import Reference, evaluate_frames
from harness.workload.volume import BLOCK_VOXELS, VOXEL_FIELDS

ALLOCATE, UPDATE = "cuda/allocate/plain", "cuda/update/plain"
"""What completes a kernel that has no arm of its own."""

EXTRACTED = ("cuda", "pts-20k")
"""The arm and the cell whose triangles are held against NumPy's: once a pass, since it costs seconds."""

MOST_AT_ONCE = 12


def gates_at_once(cell: Cell) -> int:
    """Gates that run side by side: the arrays are NumPy's, so threads do run together, on half of the cores, since
    another device's worker may need the rest, and in an eighth of the free memory for each volume's own bytes."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    volume = max(cell.blocks, 1) * BLOCK_VOXELS * len(VOXEL_FIELDS) * 4
    return max(2, min(len(os.sched_getaffinity(0)) // 2, MOST_AT_ONCE, free // (8 * volume)))


@dataclass(frozen=True)
class Subject:
    """What is judged: an arm, or one kernel completed by CUDA's other half; one that does both stands twice."""

    arm: str
    allocate: str
    update: str

    @property
    def suspect(self) -> str:
        """Which of the two an error of the device is blamed on: the one that is not CUDA's, if any."""
        return self.update if self.allocate == ALLOCATE else self.allocate


@dataclass(frozen=True)
class Outcome:
    """A fused volume, its memory, and triangles where the extract kernel ran."""

    fused: Fused
    raw: RawVolume
    triangles: np.ndarray | None = None


class Rig(Protocol):
    """What a cell must offer to be judged."""

    def outcome(self, allocate: str, update: str, arm: str, extract: bool) -> Outcome: ...


def subjects(labels: Collection[str], place: str) -> list[Subject]:
    """Arms whose kernels are all here, then every kernel that no arm covers. A twin is the same cubin: not twice.
    A variant that breaks something (its row says what) has no gate to pass; a contracted one is compared with its own
    uncontracted build instead."""
    here = {label for label in labels if not label.endswith((TWIN, CONTRACTED)) and not row_of(label).breaks}
    found = [
        Subject(arm.name, arm.allocate, arm.update)
        for arm in ARMS.values()
        if arm.place == place and arm.allocate in here and arm.update in here
        if arm.allocate is not None and arm.update is not None
    ]
    covered = {name for subject in found for name in (subject.allocate, subject.update)}
    for label in sorted(here - covered):
        stage = row_of(label).stage
        if stage == "allocate":
            found.append(Subject(label, label, UPDATE))
        elif stage == "update":
            found.append(Subject(label, ALLOCATE, label))
        elif stage == "integrate":
            found.append(Subject(label, label, label))
    return found


def judge_cell(
    rig: Rig,
    cell: Cell,
    reference: Reference,
    judged: Sequence[Subject],
    *,
    place: str,
    when: str,
    pass_number: int,
    device_uuid: str,
    beat: Callable[[str, str], None] = lambda what, suspect: None,
) -> tuple[list[dict[str, Any]], set[str]]:
    """Run every subject once, judge it, and compare the arms.

    Args:
        beat: told what runs next on the device, and the kernel to blame if it never ends.

    Returns:
        Rows of gates.json, and the kernels whose samples are `failed`.
    """
    scene = cell.scene()
    rows: list[dict[str, Any]] = []
    failed: set[str] = set()
    sound: set[str] = set()

    def keep(results: Sequence[GateResult], subject: Subject) -> None:
        for result in results:
            record = gate_record(
                result.to_json(),
                arm=subject.arm,
                place=place,
                cell=cell.name,
                when=when,
                pass_number=pass_number,
                device_uuid=device_uuid,
            )
            if record.ok:
                record.message = ""  # "n compared" stands in `compared` already
            rows.append(record_json(record))
        kernels = {subject.allocate, subject.update}
        if any(result.failed for result in results):
            failed.update(kernels)
        else:
            sound.update(kernels)

    def judge(outcome: Outcome, subject: Subject) -> list[GateResult]:
        kernels = [row_of(subject.allocate), row_of(subject.update)]
        return gate_arm(cell, outcome.fused, outcome.raw, reference, kernels, outcome.triangles, scene, cell.warm > 0)

    at_once = gates_at_once(cell)
    base: Fused | None = None
    pending: list[tuple[Subject, Future[list[GateResult]]]] = []
    with ThreadPoolExecutor(at_once) as pool:
        for subject in judged:
            while sum(not future.done() for _, future in pending) >= at_once:  # volumes wait in memory otherwise
                next(future for _, future in pending if not future.done()).result()
            beat(f"gates of {subject.arm}", subject.suspect)
            outcome = rig.outcome(subject.allocate, subject.update, subject.arm, (subject.arm, cell.name) == EXTRACTED)
            lost = lost_blocks(outcome.fused.coords, reference.coords)
            outcome = dataclasses.replace(outcome, fused=dataclasses.replace(outcome.fused, lost_blocks=lost))
            pending.append((subject, pool.submit(judge, outcome, subject)))
            if base is None:
                base = outcome.fused
            elif subject.arm in ARMS and not any((lost, base.lost_blocks, outcome.fused.dropped_points)):
                name = f"{subject.arm} against {base.arm} on {cell.name}"
                pending.append((subject, pool.submit(lambda a, b, n: [cross_gate(a, b, n)], base, outcome.fused, name)))
        beat("gates", "")
        for subject, future in pending:
            keep(future.result(), subject)
    # An arm that fails through one kernel must not taint the other where that one passes elsewhere.
    return rows, {name for name in failed if name not in sound} or failed


def record_json(record: Any) -> dict[str, Any]:
    import msgspec

    return msgspec.to_builtins(record)


# ---------------------------------------------------------------------------------------------------------- references


def reference_name(cell: Cell) -> str:
    """File name of a cell's exact evaluation: cells of the same frames and voxel share it."""
    words = repr((cell.kind, cell.arguments, cell.warm, cell.config.voxel))
    return f"{cell.kind}-{hashlib.sha256(words.encode()).hexdigest()[:16]}.npz"


def write_reference(cell: Cell, folder: Path) -> Path:
    """Evaluate a cell's frames exactly, once for every worker of a run; whole or not at all."""
    path = folder / reference_name(cell)
    if not path.exists():
        reference = evaluate_frames([*cell.before(), cell.scene()], cell.config)
        values: dict[str, Any] = {f.name: np.asarray(getattr(reference, f.name)) for f in dataclasses.fields(reference)}
        part = path.with_name(path.name + ".part")
        with part.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **values)
        part.replace(path)
    return path


def read_reference(cell: Cell, folder: Path) -> Reference:
    """What `write_reference` wrote."""
    with np.load(folder / reference_name(cell), allow_pickle=False) as data:
        values: dict[str, Any] = {name: data[name] for name in data.files}
    for name in ("samples", "skipped"):
        values[name] = int(values[name])
    return Reference(**values)
