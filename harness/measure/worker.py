"""One pass on one device, in a process of its own: sets up, judges, times, judges again, writes its journal.

    python -m harness.measure.worker ORDERS.json

The worker never schedules: cells, entries, seed and rounds come with its orders. It sees exactly one device, chosen by
UUID. Exit codes: 0 the pass is done; FAILED a kernel broke the device, the journal says which; 1 anything else, said in
one line on stderr.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from harness.archive.schema import SAMPLES, PlanEntry, gate_record
from harness.archive.write import Journal
from harness.device.reading import Reading
from harness.errors import IrrError
from harness.measure import controls
from harness.measure.controls import surroundings, variant_cell
from harness.measure.gating import (
    Outcome,
    Subject,
    judge_cell,
    read_reference,
    record_json,
    reference_name,
    subjects,
)
from harness.measure.heartbeat import Heartbeat, die_with
from harness.measure.plan import (
    BLOCKED,
    CONTROL_CELL,
    NO_GRAPH,
    SHARED,
    WARMUPS,
    blocked,
    row_of,
    shuffled,
    variant_of,
)
from harness.measure.sampler import Batch, measure
from harness.measure.stations import Rig, Station, make_station
from harness.workload.cells import Cell, load_cells
from harness.workload.programs import Program, load_programs
from harness.workload.reference import Reference

FAILED = 3
"""Exit code: a kernel failed in a way that leaves the device unusable for this process."""

TELEMETRY_INTERVAL = 0.05
"""Seconds between NVML readings. A reading takes up to some milliseconds, so batches share one; never while timing."""

SHARED_PAUSE_S = 0.02
"""Rest before each batch beside another process, so that batches begin at any point of the device's time slices."""

SETUP_S, GATE_S, BATCH_S = 300.0, 120.0, 20.0
"""Deadlines: a cell's set-up (scene, volumes, reference), one arm's gates, one batch. The slowest batch takes 50 ms."""

COLUMNS = [column.name for column in SAMPLES]


class Orders(msgspec.Struct, kw_only=True):
    """What the manager hands over.

    Attributes:
        station: `gpu`, `host`, or FILE:CLASS. uuid: the device. pass_number: from 0.
        plan: every entry of the pass. done: cells that an earlier worker of this pass has finished.
        banned: [cell, kernel] that hung or broke the device.
        gates: whether to judge before timing; gates_after: and after it. Variants of a cell are never judged.
        controls: take the controls' findings after the cells.
        trajectories: cells that data/cells.toml does not have, with the counts that the manager's oracle found.
        parent: process id of the manager; the worker ends with it.
    """

    station: str
    uuid: str
    pass_number: int
    plan: list[PlanEntry]
    rounds: int
    seed: int
    batch: int
    build: str
    references: str
    journal: str
    heartbeat: str
    parent: int
    warmups: int = WARMUPS
    done: list[str] = []
    banned: list[tuple[str, str]] = []
    gates: bool = True
    gates_after: bool = True
    controls: bool = False
    trajectories: dict[str, Cell] = {}
    hold_ns: int | None = None
    deadlines: tuple[float, float, float] = (SETUP_S, GATE_S, BATCH_S)
    options: dict[str, Any] = {}


def utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class KernelFailed(IrrError):
    """A kernel ended in an error of the device."""

    def __init__(self, cell: str, kernel: str, why: str) -> None:
        super().__init__(f"{kernel} failed on {cell}: {why}")
        self.cell, self.kernel, self.why = cell, kernel, why


@dataclass
class Telemetry:
    """The device's state, read between batches and never more often than the interval."""

    station: Station
    began: float
    rows: list[dict[str, Any]] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    _last: float = -1.0
    _values: dict[str, Any] = field(default_factory=dict)

    def latest(self) -> Mapping[str, Any]:
        now = time.perf_counter() - self.began
        if self._last < 0 or now - self._last >= TELEMETRY_INTERVAL:
            found = self.station.telemetry()
            self._last, self._values = now, found.values
            self.reasons.update(found.reasons)
            self.rows.append({"t_s": round(now, 4), **found.values})
        return self._values


def status_of(lost: int | None, reading: Reading) -> str:
    """`ok` or `lossy`: any of the three loss figures makes a sample lossy (a failed gate makes it `failed` later)."""
    counters = reading.counters
    if counters is None:
        return "ok"
    return "lossy" if lost or counters.failed_inserts or counters.dropped_points else "ok"


class GuardedRig:
    """A rig whose device errors name the kernel to blame (Subject.suspect)."""

    def __init__(self, rig: Rig, guard: Callable[[str, Callable[[], Any]], Any]) -> None:
        self.rig, self.guard = rig, guard

    def outcome(self, allocate: str, update: str, arm: str, extract: bool) -> Outcome:
        return self.guard(
            Subject(arm, allocate, update).suspect, lambda: self.rig.outcome(allocate, update, arm, extract)
        )


class CellRun:
    """One cell of a pass."""

    def __init__(
        self, orders: Orders, name: str, cell: Cell | Program, station: Station, heart: Heartbeat, telemetry: Telemetry
    ) -> None:
        self.orders, self.station, self.heart, self.telemetry = orders, station, heart, telemetry
        self.name, self.variant = name, variant_of(name)[1]
        self.cell = variant_cell(cell, self.variant) if isinstance(cell, Cell) else cell
        banned = {tuple(pair) for pair in orders.banned}
        self.entries = [e for e in orders.plan if e.cell == name and (e.cell, e.kernel) not in banned]
        self.late = 0
        self._reference: Reference | None = None

    def run(self) -> dict[str, Any]:
        """Everything about the cell, as one journal record."""
        orders, cell = self.orders, self.cell
        setup_s = orders.deadlines[0]
        self.heart.expect(setup_s, json.dumps([self.name, "set-up", ""]))
        began = time.perf_counter()
        rig = self.station.open(cell, orders.batch)
        gates: list[dict[str, Any]] = []
        failed: set[str] = set()
        try:
            batches = self._prepare(rig)
            gates, failed = self._judge(rig, "before")
            ready = time.perf_counter()
            warmup = self._warm(batches)
            with surroundings(self.variant, orders.uuid, orders.build, self.station):
                samples = self._rounds(batches)
            timed = time.perf_counter()
            evidence, compared = self._findings(rig)
            gates += compared
            failed |= {gate["arm"] for gate in compared if not gate["ok"]}
            more, failed_after = self._judge(rig, "after") if orders.gates_after else ([], set())
        finally:
            batches = {}
            rig.close()
        failed |= failed_after
        for row in samples:
            if row["kernel"].split("@")[0] in failed:
                row["status"] = "failed"
        return {
            "event": "cell",
            "cell": self.name,
            "size": rig.size,
            "reduced": rig.reduced,
            "late": self.late,
            "samples": [[row[name] for name in COLUMNS] for row in samples],
            "warmup": [[row[name] for name in COLUMNS] for row in warmup],
            "gates": gates + more,
            "evidence": evidence,
            "seconds": {
                "set-up": round(ready - began, 3),
                "timing": round(timed - ready, 3),
                "gates after": round(time.perf_counter() - timed, 3),
            },
        }

    def _guard(self, kernel: str, call: Any) -> Any:
        """Run a step on the device; an error of the device names the kernel."""
        try:
            return call()
        except IrrError as error:
            if type(error).__name__ == "DriverError":
                raise KernelFailed(self.name, kernel, error.what) from None
            raise
        except Exception as error:
            if type(error).__module__.startswith(("cupy", "cupy_backends")):
                raise KernelFailed(self.name, kernel, str(error)) from None
            raise

    def _prepare(self, rig: Rig) -> dict[int, Batch]:
        """Every entry's batch: captured once, used in every round."""
        graph = self.variant != NO_GRAPH
        return {
            id(entry): self._guard(
                entry.kernel, lambda e=entry: rig.batch(e.kernel, e.launch, e.table, e.l2, graph, e.load)
            )
            for entry in self.entries
        }

    def _judge(self, rig: Rig, when: str) -> tuple[list[dict[str, Any]], set[str]]:
        orders, cell = self.orders, self.cell
        if not orders.gates or self.variant or not isinstance(cell, Cell):
            return [], set()
        gate_s = orders.deadlines[1]
        folder = Path(orders.references)
        if self._reference is None:
            wait_for(folder / reference_name(cell), orders.deadlines[0])
            self._reference = read_reference(cell, folder)
        labels = {entry.kernel for entry in self.entries}
        judged = subjects(labels, self.station.place)
        return judge_cell(
            GuardedRig(rig, self._guard),
            cell,
            self._reference,
            judged,
            place=self.station.place,
            when=when,
            pass_number=orders.pass_number,
            device_uuid=str(self.station.facts["uuid"]),
            beat=lambda what, suspect: self.heart.expect(gate_s, json.dumps([self.name, what, suspect])),
        )

    def _findings(self, rig: Rig) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What a program's images and clocks, or contracted volumes show, and rows of gates.json: once a device, they
        repeat in every pass."""
        if self.variant or self.orders.pass_number:
            return [], []
        self.heart.expect(self.orders.deadlines[0], json.dumps([self.name, "the findings", ""]))
        found, gates = rig.findings([entry.kernel for entry in self.entries], Path(self.orders.references))
        uuid = str(self.station.facts["uuid"])
        records = [
            gate_record(
                gate.to_json(),
                arm=gate.subject.split(" on ")[0],
                place="gpu",
                cell=self.name,
                when="after",
                pass_number=0,
                device_uuid=uuid,
            )
            for gate in gates
        ]
        return found, [record_json(record) for record in records]

    def _warm(self, batches: Mapping[int, Batch]) -> list[dict[str, Any]]:
        rows = []
        if self.variant == BLOCKED:  # the ramp from idle clocks is what this control is about
            return rows
        for number in range(self.orders.warmups):
            for position, entry in enumerate(self.entries):
                rows.append(self._sample(batches, entry, number - self.orders.warmups, position))
        self.late = 0  # a first launch may load or compile something; only timed batches count
        return rows

    def _rounds(self, batches: Mapping[int, Batch]) -> list[dict[str, Any]]:
        orders = self.orders
        rows = []
        if self.variant == BLOCKED:
            for position, run in enumerate(blocked(self.entries, orders.rounds)):
                rows += [self._sample(batches, entry, number, position) for number, entry in enumerate(run)]
            return rows
        for number in range(orders.rounds):
            order = shuffled(self.entries, orders.seed, orders.pass_number, orders.uuid, number)
            for position, entry in enumerate(order):
                if self.variant == SHARED:
                    time.sleep(SHARED_PAUSE_S)
                rows.append(self._sample(batches, entry, number, position))
        return rows

    def _sample(self, batches: Mapping[int, Batch], entry: PlanEntry, number: int, position: int) -> dict[str, Any]:
        batch = batches[id(entry)]
        self.heart.expect(self.orders.deadlines[2], _label(entry, number, position))
        t = time.perf_counter() - self.telemetry.began
        reading = self._guard(entry.kernel, lambda: measure(batch))
        self.heart.done += 1
        state = self.telemetry.latest()
        counters = reading.counters
        lost = None
        if counters is not None and isinstance(self.cell, Cell):
            lost = max(0, self.cell.blocks - counters.blocks)
        self.late += reading.late
        return {
            "pass": self.orders.pass_number,
            "device_uuid": str(self.station.facts["uuid"]),
            "arch": self.station.facts["arch"],
            "cell": entry.cell,
            "kernel": entry.kernel,
            "stage": entry.stage,
            "launch": entry.launch,
            "table": entry.table,
            "l2": entry.l2,
            "load": entry.load,
            "round": number,
            "position": position,
            "t_s": round(t, 4),
            "launches": batch.launches,
            "us": reading.us,
            "cycles": reading.cycles,
            "blocks": None if counters is None else counters.blocks,
            "lost_blocks": lost,
            "failed_inserts": None if counters is None else counters.failed_inserts,
            "dropped_points": None if counters is None else counters.dropped_points,
            "sm_clock_mhz": state.get("sm_clock_mhz"),
            "temperature_c": state.get("temperature_c"),
            "power_w": state.get("power_w"),
            "throttle": state.get("throttle"),
            "status": status_of(lost, reading),
        }


def _label(entry: PlanEntry, number: int, position: int) -> str:
    """What the manager needs to write a row for a batch that never came back."""
    return json.dumps(
        [entry.cell, entry.kernel, entry.stage, entry.launch, entry.table, entry.l2, entry.load, number, position]
    )


def wait_for(path: Path, seconds: float) -> None:
    """Until the manager has evaluated the scene (it does so while the first cells run)."""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise IrrError(f"{path.name} was not evaluated in {seconds:g} s")
        time.sleep(0.02)


def run_pass(orders: Orders) -> None:
    """Every cell that is not done yet, one journal record each."""
    journal = Journal(Path(orders.journal))
    heart = Heartbeat(Path(orders.heartbeat))
    heart.expect(orders.deadlines[0], json.dumps(["", "the device's start", ""]))
    spec = {
        **orders.options,
        "station": orders.station,
        "uuid": orders.uuid,
        "build": orders.build,
        "pass_number": orders.pass_number,
    }
    if orders.hold_ns is not None:
        spec["hold_ns"] = orders.hold_ns
    station = make_station(spec)
    began = time.perf_counter()
    telemetry = Telemetry(station, began)
    facts = {key: value for key, value in station.facts.items() if key != "nulls"}
    journal.append(
        {
            "event": "start",
            "pass": orders.pass_number,
            "device": facts,
            "nulls": station.facts.get("nulls", {}),
            "run_on": station.run_on,
            "started_utc": utc_now(),
        }
    )
    cells: dict[str, Cell | Program] = {**load_cells(), **load_programs(), **orders.trajectories}
    names = list(dict.fromkeys(entry.cell for entry in orders.plan))
    todo = [name for name in names if name not in orders.done]
    banned = {kernel for _, kernel in orders.banned}
    ahead = {entry.kernel for entry in orders.plan if entry.cell in todo and entry.load == "aot"}
    station.load(sorted(ahead - banned))
    per_round = orders.rounds + orders.warmups
    heart.total = sum(entry.cell in todo for entry in orders.plan) * per_round
    for name in todo:
        run = CellRun(orders, name, cells[variant_of(name)[0]], station, heart, telemetry)
        if not run.entries:
            continue
        try:
            record = run.run()
        except controls.ControlUnavailable as error:
            journal.append({"event": "flag", "what": f"{name} did not run", "why": error.what})
            continue
        except KernelFailed as error:
            journal.append({"event": "failed", "cell": error.cell, "kernel": error.kernel, "why": error.why})
            raise
        record["telemetry"], telemetry.rows = telemetry.rows, []
        journal.append(record)
    if orders.controls:
        heart.expect(orders.deadlines[0], json.dumps(["", "the controls", ""]))
        journal.append({"event": "evidence", "evidence": _control_findings(orders, station)})
    heart.expect(orders.deadlines[0], json.dumps(["", "the end", ""]))
    journal.append({"event": "end", "ended_utc": utc_now(), "telemetry_reasons": telemetry.reasons})
    station.close()


def _control_findings(orders: Orders, station: Station) -> list[dict[str, Any]]:
    """The controls' findings; arms without a bounded kernel are tried in pools that are too small."""
    cell = load_cells()[CONTROL_CELL]
    folder = Path(orders.references)
    wait_for(folder / reference_name(cell), orders.deadlines[0])
    unbounded = [
        (subject.arm, subject.allocate, subject.update)
        for subject in subjects(orders.options.get("arms_kernels", []), station.place)
        if not row_of(subject.allocate).bounded and not row_of(subject.update).bounded
    ]
    station.load([name for _, *pair in unbounded for name in pair])
    return controls.findings(station, read_reference(cell, folder), unbounded)


def main(arguments: Sequence[str]) -> int:
    orders = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Orders)
    die_with(orders.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the manager, which ends its workers
    try:
        run_pass(orders)
    except KernelFailed as error:
        print(f"irr worker: {error.what}", file=sys.stderr)
        # The context is broken; tidying up would only raise again.
        sys.stderr.flush()
        os._exit(FAILED)
    except IrrError as error:
        print(f"irr worker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
