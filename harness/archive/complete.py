"""Whether an archive holds what its run.json says was planned: every batch of every whole pass, and the gates round it.

Checksums show that a file is the one that was written; these checks show that nothing was taken out before they were.
A run leaves out what it says it leaves out: a kernel that hung or broke the device on a cell (a flag, and no batches
from then on), a control that the device does not allow (a flag), what could not be had (`skipped`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from harness.archive.read import Archive
from harness.archive.schema import EVERY_PASS, PlanEntry
from harness.build.kernels import ARMS, KERNELS

ROUND_THE_TIMING = ("matrix", "real", "host")
"""Studies that judge a cell before and after timing, in every pass; the others judge it once a device."""

UNJUDGED_STUDIES = ("fma",)
"""A program of the contraction study has no volume to judge."""

JUDGED_STAGES = ("allocate", "update", "integrate")

KEY = ("cell", "kernel", "stage", "launch", "table", "l2", "load")

Walk: TypeAlias = tuple[int, str]
"""(pass, device UUID)."""


def missing(archive: Archive) -> list[str]:
    """What is missing of the plan, one sentence each; nothing is asked of a pass that run.json does not call whole."""
    return [*_passes(archive), *_batches(archive)]


def _passes(archive: Archive) -> list[str]:
    """Passes that a finished run has and this one does not: every device walks the plan equally often."""
    run = archive.run
    if run.state != "complete" or not run.passes:
        return []
    numbers = {p.number for p in run.passes}
    devices = {p.device_uuid for p in run.passes}
    if run.gpu:
        devices |= {str(device.get("uuid")) for device in archive.fingerprint.run_on.get("devices") or []}
    whole = {(p.number, p.device_uuid) for p in run.passes if p.complete}
    return [
        f"raw/run.json: pass {number} on {uuid[:60]} is missing"
        for uuid in sorted(devices)
        for number in range(max(numbers) + 1)
        if (number, uuid) not in whole
    ]


def _where(walk: Walk) -> str:
    return f"pass {walk[0]} on {walk[1][:60]}"


def _named(entry: PlanEntry) -> str:
    return f"{entry.kernel} on {entry.cell} ({entry.launch}, {entry.table}, {entry.l2}, {entry.load})"[:200]


def _batches(archive: Archive) -> list[str]:
    """Entries of the plan without all their rounds, and batches that no entry planned."""
    run, samples = archive.run, archive.samples
    told = {flag.what for flag in run.flags}
    skipped = {(s.kernel, s.cell) for s in run.skipped}

    def lost(entry: PlanEntry) -> bool:
        return any(f"{entry.kernel} {status} on {entry.cell}" in told for status in ("hung", "failed"))

    def left_out(entry: PlanEntry) -> bool:
        return f"{entry.cell} did not run" in told or any(
            (kernel, cell) in skipped for kernel in (entry.kernel, "*") for cell in (entry.cell, "*")
        )

    back = samples[samples["status"] != "hung"]
    rounds: dict[tuple[str, ...], dict[Walk, tuple[int, int]]] = defaultdict(dict)
    for (number, uuid, *key), found in back.groupby(["pass", "device_uuid", *KEY], sort=False)["round"]:
        rounds[tuple(map(str, key))][int(number), str(uuid)] = len(found), int(found.max())
    planned = {tuple(getattr(entry, name) for name in KEY): entry for entry in run.plan}
    problems = [
        f"raw/samples.csv: {key[1][:80]} on {key[0][:60]} was not planned" for key in rounds if key not in planned
    ]
    walks = [(p.number, p.device_uuid) for p in run.passes if p.complete]
    for key, entry in planned.items():
        there = rounds.get(key, {})
        needed = walks
        _, plus, variant = entry.cell.partition("+")
        if plus and not variant.startswith(EVERY_PASS):
            # A control: the first device's, after the last pass or as often as there are passes, with a pass's number.
            needed = list(there)
            if not there and run.state == "complete" and not lost(entry) and not left_out(entry):
                problems.append(f"raw/samples.csv: {_named(entry)} was planned and has no batch")
        for walk in needed:
            count, last = there.get(walk, (0, -1))
            if (count, last) == (run.rounds, run.rounds - 1) or (count == 0 and (lost(entry) or left_out(entry))):
                continue
            problems.append(f"raw/samples.csv: {_where(walk)} has {count} of {run.rounds} rounds of {_named(entry)}")
    return problems


def _judgeable(kernels: Iterable[str]) -> set[str]:
    """Those that a gate judges: a twin is the same cubin, and what gives something up has no gate to pass."""
    plain = {kernel for kernel in kernels if not kernel.endswith("@twin")}
    return {k for k in plain if k.split("/")[1:2] and k.split("/")[1] in JUDGED_STAGES and not _breaks(k)}


def _breaks(kernel: str) -> bool:
    row = KERNELS.get(kernel.split("@")[0].removesuffix("/fma"))
    return row is not None and bool(row.breaks)


def _covers(arm: str) -> set[str]:
    """Kernels that a gate of this arm judges; one that no arm covers is an arm of its own name."""
    row = ARMS.get(arm)
    return {arm} if row is None else {name for name in (row.allocate, row.update) if name is not None}


def unjudged(archive: Archive) -> list[str]:
    """Kernels that were timed on a cell and not judged there as their study judges, one sentence a cell and pass."""
    run = archive.run
    if run.study in UNJUDGED_STUDIES or not (run.gpu or run.study == "host" or any(g.when for g in archive.gates)):
        return []
    everywhere = run.study in ROUND_THE_TIMING
    whole = {(p.number, p.device_uuid) for p in run.passes if p.complete}
    judged: dict[tuple[str, Walk | str, str], set[str]] = defaultdict(set)
    for gate in archive.gates:
        if gate.when and gate.pass_number is not None and gate.device_uuid is not None:
            walk = (gate.pass_number, gate.device_uuid) if everywhere else gate.device_uuid
            judged[gate.cell, walk, gate.when if everywhere else ""] |= _covers(gate.arm)
    timed: dict[tuple[str, Walk | str], set[str]] = defaultdict(set)
    back = archive.samples[archive.samples["status"] != "hung"]
    for number, uuid, cell, kernel in (
        back[["pass", "device_uuid", "cell", "kernel"]].drop_duplicates().itertuples(index=False)
    ):
        walk = int(number), str(uuid)
        if "+" not in cell and walk in whole:
            timed[str(cell), walk if everywhere else walk[1]].add(str(kernel))
    problems = []
    for (cell, walk), kernels in timed.items():
        for when in ("before", "after") if everywhere else ("",):
            bare = sorted(_judgeable(kernels) - judged[cell, walk, when])
            if bare:
                more = f" and {len(bare) - 1} more" if len(bare) > 1 else ""
                place = _where(walk) if isinstance(walk, tuple) else walk[:60]
                when = f" {when} timing" if when else ""
                problems.append(f"raw/gates.json: {bare[0][:80]}{more} on {cell[:60]} was not judged{when} in {place}")
    return problems
