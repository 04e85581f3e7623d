"""`reproduce` where there is no GPU: everything that needs none, under a banner that says so.

The host's gates, on real frames too where some are here, the contraction study on the CPU, the host arms through the
whole harness, a look at every archived result. The archive's study is `host`: nothing in it passes for a measurement of
a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.archive.schema import Note, gate_record
from harness.archive.verify import check_raw
from harness.archive.write import SUMS
from harness.build import lowering
from harness.device.driver import NO_GPU
from harness.environment import RESULTS, scratch
from harness.errors import IrrError
from harness.gates.faults import evidence as planted_evidence
from harness.gates.result import GateResult
from harness.gates.run import run_gates
from harness.measure.progress import Steps
from harness.measure.requests import Asked, host_request
from harness.measure.runs import archive_path, start
from harness.measure.surface import host_surface
from harness.output import say
from harness.workload.cells import Cell, load_cells
from harness.workload.trajectories import all_cells, frame_evidence, widest_cells

BANNER = """\
==================================================================================================
 NO NVIDIA GPU HERE: nothing below is a GPU measurement.
 What needs none runs: the host's gates, the contraction study on the CPU, the archived results.
 In a container, give it the GPU: docker run --gpus all (with the NVIDIA container toolkit).
==================================================================================================\
"""

STEPS = {
    "gates": 24,
    "frames": 35,
    "contraction": 82,
    "probes": 5,
    "Triton": 60,
    "faults": 30,
    "archived results": 10,
    "timing": 68,
}
"""Steps of the run in order -> seconds on a machine of two cores with other work, `frames` a trajectory; the relation
is what counts."""

QUICK_STEPS = ("gates", "archived results", "timing")

LIBRARY_ARM = "open3d"
GATED_CELLS = "pts-20k,plane-320k,r-0.25"
NO_FRAMES = "no real frames were judged"


def reproduce_without_gpu(asked: Asked, out: Path | None) -> Path:
    """Everything that needs no GPU; the archive's path.

    A gate that failed and an archived result that does not verify stand in its gates, red: who archives says so last.
    """
    say(BANNER)
    frames = [] if asked.quick else widest_cells()
    steps = Steps(_shares(asked.quick, len(frames)), say)
    flags = [Note(what="no GPU", why=f"{NO_GPU[0]}; {NO_GPU[1]}")]
    steps.begin("gates", f"host arms and Triton's interpreter on {GATED_CELLS}")
    gates = host_gates()
    evidence: list[dict[str, Any]] = []
    if frames:
        steps.begin("frames", f"host arms and Open3D on {', '.join(frames)}")
        found, whole, notes = frame_gates(frames)
        gates += found
        evidence += frame_evidence(whole)
        flags += notes
    else:
        why = "--quick leaves them out" if asked.quick else "none are here; irr data says where they are looked for"
        flags.append(Note(what=NO_FRAMES, why=why))
        say(f"{NO_FRAMES}: {why}")
    if not asked.quick:
        steps.begin("contraction", "images of five ways to contract, emulated pixel by pixel")
        found, images, why = contraction()
        evidence += found
        gates += images
        if why:
            flags.append(Note(what="the contraction study did not run", why=why))
        steps.begin("probes", "the protocol step by step, with the key in one word and in three")
        evidence += probes()
        evidence += lowering.evidence()
        flags.append(Note(what="findings on cuda-oxide's lowering", why="recorded where it was, not run here"))
        steps.begin("Triton", "what a tile leaves idle, what the compiler accepts, the bounded probe at 8, 16 and 32")
        found, why = language()
        evidence += found
        if why:
            flags.append(Note(what="Triton was not asked what it accepts", why=why))
        steps.begin("faults", "planting the two that the paper tells of")
        found, why = planted_evidence()
        evidence += found
        if why:
            flags.append(Note(what="the faults that the paper tells of were not planted", why=why))
        try:
            evidence += host_surface(load_cells()["base"])
        except IrrError as error:
            flags.append(Note(what="no fused surface for the page", why=error.what))
    steps.begin("archived results", "every byte against SHA256SUMS")
    notes, broken = archived_results()
    flags += notes
    gates += broken
    request = host_request(asked, flags=flags, extra_gates=gates, evidence=evidence)
    # Frames that are timed as well have one finding, and it is theirs: a resumed run is held against it.
    request.evidence = list({row["name"]: row for row in request.evidence}.values())
    if not request.plan:
        raise IrrError(
            "no host library can be built here, so nothing is left to run",
            request.skipped[-1].why if request.skipped else None,
        )
    steps.begin("timing", "host arms through the whole harness")
    path = start(request, archive_path(out, "host"))
    say(BANNER)
    return path


def _shares(quick: bool, trajectories: int) -> dict[str, float]:
    """The steps that this run has, with their shares."""
    shares = {name: STEPS[name] * (trajectories if name == "frames" else 1) for name in STEPS}
    return {name: share for name, share in shares.items() if share and (not quick or name in QUICK_STEPS)}


def frame_gates(names: Sequence[str]) -> tuple[list[dict[str, Any]], list[Cell], list[Note]]:
    """The gates of cells of real frames: exact, cross-arm, and Open3D's surface beside ours.

    Args:
        names: of cells whose frames are here.

    Returns:
        rows of gates.json, the cells that were judged, and a note on each whose frames are damaged: they are no fault
        of an arm.
    """
    cells, whole, notes = all_cells(), [], []
    for name in names:
        try:
            whole.append(cells[name])
        except IrrError as error:
            notes.append(Note(what=f"{name} was not judged", why=error.what))
            say(f"{notes[-1].what}: {error.what}")
    if not whole:
        return [], [], notes
    return host_gates(",".join(cell.name for cell in whole)), whole, notes


def host_gates(cells: str = GATED_CELLS) -> list[dict[str, Any]]:
    """Rows of gates.json of the host arms and of Triton's interpreter."""
    results = run_gates(cells=cells, places=("host", "interpreter"), say=lambda cell: say(f"gates: {cell}"))
    rows = [_row(result) for result in results]
    passed = sum(result.ok for result in results)
    skipped = sum(result.skipped is not None for result in results)
    say(f"gates: {passed} passed, {sum(r.failed for r in results)} failed, {skipped} not run here")
    return rows


def _row(result: GateResult) -> dict[str, Any]:
    arm, _, cell = result.subject.partition(" on ")
    place = "interpreter" if arm.endswith(" interpreted") else "library" if arm == LIBRARY_ARM else "host"
    return msgspec.to_builtins(gate_record(result.to_json(), arm=arm, place=place, cell=cell))


def contraction() -> tuple[list[dict[str, Any]], list[dict[str, Any]], str | None]:
    """(findings, gates, why it did not run) of the contraction study's CPU part."""
    from harness.measure import fma

    try:
        found, gates = fma.study(fma.SIZE, fma.LIMIT, lambda line: say(f"contraction: {line}"))
    except IrrError as error:
        say(f"contraction: not run: {error.what}")
        return [], [], error.what
    rows = [msgspec.to_builtins(gate_record(gate.to_json(), arm=gate.subject, place="host", cell="")) for gate in gates]
    return found, rows, None


TILE_CELLS = "base,lf-508,lf-918"
PROBED_CELL = "pts-20k"
"""All its points are threads that a GPU holds at once."""


def probes() -> list[dict[str, Any]]:
    """Findings on the table's protocol: one key word against three, and another hash (P1, P5)."""
    from harness.workload.probing import probe_evidence

    cell = load_cells()[PROBED_CELL]
    return probe_evidence(cell.name, cell.scene(), cell.config)


def language() -> tuple[list[dict[str, Any]], str | None]:
    """(findings, why there are none) about Triton: what it accepts, what its bound costs, what a tile leaves idle."""
    from harness.build import triton_facts
    from harness.build.build import BUILD
    from harness.workload.cells import select_cells
    from harness.workload.tiles import tile_evidence

    found = [row for cell in select_cells(TILE_CELLS) for row in tile_evidence(cell.name, cell.scene(), cell.config)]
    try:
        return found + triton_facts.gather(scratch(BUILD / "work"), say=lambda line: say(f"Triton: {line}")), None
    except IrrError as error:
        say(f"Triton: not asked: {error.what}")
        return found, error.what


def archived_results(folder: Path = RESULTS) -> tuple[list[Note], list[dict[str, Any]]]:
    """Every archived run: a note that it is whole and untouched, or what is wrong with it; the latter is a red gate
    too (a row of gates.json), for a result that does not verify is no result."""
    notes, red = [], []
    for root in sorted(path for path in folder.iterdir() if (path / "raw").is_dir()) if folder.is_dir() else []:
        if not (root / SUMS).exists():
            notes.append(Note(what=f"archived {root.name}", why="incomplete: irr resume goes on with it"))
            continue
        archive, problems = check_raw(root)
        told = summary(problems)
        notes.append(Note(what=f"archived {root.name}", why=told))
        say(f"archived results: {root.name}: {told}")
        if problems:
            files = len(archive.files) if archive is not None else 0
            found = GateResult("archived-result", "archive", root.name, False, files, message=told)
            red.append(msgspec.to_builtins(gate_record(found.to_json(), arm="", place="host", cell="")))
    return notes, red


def summary(problems: Sequence[str]) -> str:
    if not problems:
        return "verified: every byte is what SHA256SUMS says"
    return f"{len(problems)} problems: {problems[0]}"
