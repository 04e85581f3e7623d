"""Runs the passes: spawns a worker for each, watches its deadlines, keeps whole passes, writes the archive.

The manager never imports CuPy and never times. What stands on the disk while a run goes on:

    ARCHIVE/raw/run.json         incomplete
    ARCHIVE/journal.jsonl        one record a whole pass: what `resume` keeps
    ARCHIVE/work/request.json    how the run was asked for: what `resume` repeats
    ARCHIVE/work/pass-*          orders, journal, heartbeat and words of the workers in flight: thrown away by `resume`
    ARCHIVE/work/references      the exact evaluations of the scenes: made anew by `resume`
    ARCHIVE/work/lock            held by the one process that writes here

So a kill at any moment loses the passes in flight and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from harness import __version__
from harness.archive import fingerprint
from harness.archive.schema import (
    CSV_FILES,
    SAMPLES,
    TELEMETRY,
    CellFacts,
    Note,
    Null,
    Pass,
    PlanEntry,
    Reduction,
    Run,
    Skipped,
    csv_bytes,
)
from harness.archive.write import WORK, ArchiveWriter, Journal, write_whole
from harness.build.manifest import Manifest
from harness.device.identity import child_environment
from harness.environment import ROOT
from harness.errors import IrrError
from harness.measure import health, probe, studies, tools
from harness.measure.fma import write_images
from harness.measure.gating import reference_name, write_reference
from harness.measure.heartbeat import Beat, Heartbeat
from harness.measure.plan import ALONE, CONTROL_CELL, variant_of
from harness.measure.progress import Progress
from harness.measure.worker import BATCH_S, COLUMNS, FAILED, GATE_S, SETUP_S, Orders
from harness.output import say
from harness.workload.cells import Cell
from harness.workload.programs import Program

POLL_S = 0.05
RESTARTS = 12
"""Fresh workers within one pass; each costs one kernel on one cell, so more than this means that nothing works."""

PASS, CONTROLS = "pass", "controls"
ADVERSARIAL, SANITIZER, COUNTERS = "adversarial", "sanitizer", "counters"
WATCHED = (ADVERSARIAL, SANITIZER, COUNTERS)
"""What a record of the journal is; those of processes of their own."""

REQUEST = "request.json"
REFERENCE_BYTES = 3 << 30
"""Memory that one exact evaluation may take on the way; bounds how many run at once."""


class Request(msgspec.Struct, kw_only=True):
    """A run, as it was asked for and planned; `resume` goes on from it.

    Attributes:
        station: `gpu`, `host` or FILE:CLASS. devices: UUIDs. passes: walks a device.
        at_once: devices run at the same time, or one after another.
        manifests: the kernels' records by sample name, for fingerprint and builds/.
        clocks: `free`, or what they were locked to.
        controls: entries of the controls, run after the passes in a worker of their own; none for no controls.
        gates_once: judge in the first pass only, before timing, instead of before and after in every pass.
        adversarial: arms that run the adversarial cases, before all else on the first device.
        sanitized, counted: kernels for compute-sanitizer before the passes and for Nsight Compute after them.
        sanitizer_s: limit of all sanitizers together.
        counted_cells: where they are counted, of a plan those kernels that it times there.
        device_facts: what NVML said of the devices, for a run without passes.
        trajectories: cells that data/cells.toml does not have, counts included.
        extra_gates, evidence: what was found before the passes (the host's gates, the contraction study).
    """

    study: str
    station: str
    devices: list[str]
    plan: list[PlanEntry]
    passes: int
    rounds: int
    seed: int
    batch: int
    build: str
    command: list[str]
    created_utc: str
    commit: str = ""
    dirty: bool = False
    quick: bool = False
    at_once: bool = True
    shared: bool = False
    clocks: str = "free"
    gates: bool = True
    gates_once: bool = False
    controls: list[PlanEntry] = []
    adversarial: list[str] = []
    sanitized: list[str] = []
    sanitizer_s: float = tools.SANITIZER_S
    counted: list[str] = []
    counted_cells: list[str] = []
    trajectories: dict[str, Cell] = {}
    extra_gates: list[dict[str, Any]] = []
    evidence: list[dict[str, Any]] = []
    hold_ns: int | None = None
    deadlines: tuple[float, float, float] = (SETUP_S, GATE_S, BATCH_S)
    skipped: list[Skipped] = []
    refusals: list[Note] = []
    flags: list[Note] = []
    arch: int = 0
    manifests: list[str] = []
    device_facts: list[dict[str, Any]] = []
    options: dict[str, Any] = {}


@dataclass
class _PassResult:
    """A pass as it went: cell records in order, devices' words, what hung or failed."""

    number: int
    uuid: str
    start: dict[str, Any] = field(default_factory=dict)
    cells: list[dict[str, Any]] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)
    flags: list[dict[str, str]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    controls: bool = False
    evidence: list[dict[str, Any]] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        return {
            "what": CONTROLS if self.controls else PASS,
            "evidence": self.evidence,
            "pass": self.number,
            "device_uuid": self.uuid,
            "start": self.start,
            "cells": self.cells,
            "lost": self.lost,
            "flags": self.flags,
            "end": self.end,
        }


LOST_KEYS = ("cell", "kernel", "stage", "launch", "table", "l2", "load", "round", "position")
"""What a heartbeat says of a batch: enough for the row of one that never came back."""


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Stopped(Exception):
    """The run was told to stop."""


class Manager:
    """One run of a request into an archive.

    Args:
        cells: every cell of the plan by name.
        say: told one line at a time (stderr).
    """

    def __init__(
        self,
        writer: ArchiveWriter,
        request: Request,
        cells: Mapping[str, Cell | Program],
        say: Callable[[str], None] = say,
    ) -> None:
        self.writer, self.request, self.cells, self.say = writer, request, cells, say
        self.work = writer.root / WORK
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.banned: set[tuple[str, str]] = set()
        self.unevaluated: BaseException | None = None
        self.references = self.work / "references"

    # ------------------------------------------------------------------------------------------------------------ run

    def run(self) -> Path:
        """All passes that are not done yet, then the finished archive.

        Raises:
            IrrError: a worker cannot work. The archive stays, resumable.
        """
        with self._alone():
            path = self._run()
        shutil.rmtree(self.work, ignore_errors=True)
        return path

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Two processes that write one archive would do every pass twice."""
        self.work.mkdir(exist_ok=True)
        with (self.work / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise IrrError(f"{self.writer.root} is being written by another process", "wait for its end") from None
            except OSError:
                pass  # a file system without locks
            yield

    def _run(self) -> Path:
        request = self.request
        for old in self.work.glob("pass-*"):
            old.unlink()
        shutil.rmtree(self.references, ignore_errors=True)
        write_whole(self.work / REQUEST, msgspec.json.encode(request))
        done = self.journal_records()
        for record in done:
            self.banned |= {(entry["cell"], entry["kernel"]) for entry in record["lost"]}
        finished = {(record["pass"], record["device_uuid"]) for record in done if record["what"] == PASS}
        there = {record["what"] for record in self._journal()} - {CONTROLS}
        phases = [
            what
            for what, wanted in (
                (ADVERSARIAL, request.adversarial),
                (SANITIZER, request.sanitized),
                (CONTROLS, self.controls_left()),
                (COUNTERS, request.counted),
            )
            if wanted and what not in there
        ]
        todo = {
            uuid: [number for number in range(request.passes) if (number, uuid) not in finished]
            for uuid in request.devices
        }
        if any(todo.values()) or phases:
            self.references.mkdir()
            try:
                self._passes(todo, phases)
            finally:
                shutil.rmtree(self.references, ignore_errors=True)
        return self._write(complete=True)

    def _passes(self, todo: Mapping[str, list[int]], phases: Sequence[str]) -> None:
        request = self.request
        errors: dict[str, BaseException] = {}
        with Progress(sum(map(len, todo.values())), self.say) as progress, self._evaluating(todo, phases):

            def walk(uuid: str, ended: threading.Event) -> None:
                try:
                    for number in todo[uuid]:
                        self._one_pass(number, uuid, progress)
                except Stopped:
                    pass
                except BaseException as error:
                    errors[uuid] = error
                    if len(todo) > 1 and not self.stop.is_set():
                        self.say(f"{uuid} has no more passes: {error}".splitlines()[0] + "; other devices go on")
                finally:
                    ended.set()

            groups = [list(todo)] if request.at_once else [[uuid] for uuid in todo]
            # Events, not Thread.join: up to Python 3.12 a signal in a join with a time limit marks the thread as ended,
            # so that nobody waited until it had killed its worker.
            ends: list[threading.Event] = []
            try:
                for what in (ADVERSARIAL, SANITIZER):
                    if what in phases:
                        self._watch(what)
                for group in groups:
                    for uuid in group:
                        ended = threading.Event()
                        threading.Thread(target=walk, args=(uuid, ended)).start()
                        ends.append(ended)
                    for ended in ends:
                        while not ended.wait(0.2):  # a wait without end would not let signals in
                            pass
                if self.unevaluated is not None:
                    raise self.unevaluated
                if errors:
                    raise next(iter(errors.values()))
                if CONTROLS in phases:
                    self.say("controls")
                    for number in self.controls_left():
                        self._one_pass(number, request.devices[0], progress, controls=True)
                if COUNTERS in phases:
                    self._watch(COUNTERS)
            except BaseException:
                self.stop.set()
                for ended in ends:
                    ended.wait(10)
                self._write(complete=False)
                raise

    def control_passes(self) -> dict[int, list[PlanEntry]]:
        """Entries of the controls by the pass whose number they carry: all of them after the last, and alone as often
        as there are passes, since a kernel's passes differ by themselves."""
        entries = self.request.controls
        alone = [entry for entry in entries if variant_of(entry.cell)[1] == ALONE]
        last = self.request.passes - 1
        return {**{number: alone for number in range(last) if alone}, **({last: entries} if entries else {})}

    def controls_left(self) -> list[int]:
        """The passes' numbers whose controls are not in the journal yet."""
        done = {record["pass"] for record in self._journal() if record["what"] == CONTROLS}
        return sorted(self.control_passes().keys() - done)

    @contextlib.contextmanager
    def _evaluating(self, todo: Mapping[str, list[int]], phases: Sequence[str]) -> Iterator[None]:
        """Evaluate every scene that is still needed exactly, in processes of their own, in the order in which cells
        need them."""
        wanted: dict[str, Cell] = {}
        needed = [entry.cell for entry in self.request.plan] if any(todo.values()) else []
        needed += [CONTROL_CELL] if CONTROLS in phases else []
        for name in dict.fromkeys(needed):
            cell = self.cells[name]
            if isinstance(cell, Program):
                write_images(cell, self.references)  # before the workers: it takes every core for seconds
            elif self.request.gates or name == CONTROL_CELL:
                wanted.setdefault(reference_name(cell), cell)
        if not wanted:
            yield
            return
        cores = len(os.sched_getaffinity(0))
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        at_once = max(1, min(len(wanted), cores // 2, free // REFERENCE_BYTES))
        pool = get_context("spawn").Pool(at_once, _ignore_interrupts)
        try:
            pending = [
                pool.apply_async(write_reference, (cell, self.references), error_callback=self._not_evaluated)
                for cell in wanted.values()
            ]
            yield
            for result in pending:
                result.get()
        finally:
            pool.terminate()

    def _not_evaluated(self, error: BaseException) -> None:
        """A scene that cannot be evaluated ends the run at once: its workers would wait for it until their deadline."""
        self.unevaluated = error
        self.stop.set()

    def _watch(self, what: str) -> None:
        """Run what has a process of its own, on the first device, into the journal."""
        request = self.request
        uuid = request.devices[0]
        if what == ADVERSARIAL:
            self.say(f"adversarial cases on {', '.join(request.adversarial)}")
            found = tools.judge_adversarial(uuid, request.build, request.adversarial, self.stop)
        elif what == SANITIZER:
            self.say(f"compute-sanitizer on {len(request.sanitized)} kernels")
            found = tools.sanitize(uuid, request.build, request.sanitized, self.stop, seconds=request.sanitizer_s)
        else:
            self.say(f"Nsight Compute on {', '.join(request.counted_cells)}")
            timed = {(entry.cell, entry.kernel) for entry in request.plan}
            kernels = {
                cell: [name for name in request.counted if not timed or (cell, name) in timed]
                for cell in request.counted_cells
            }
            found = tools.count(uuid, request.build, kernels, self.stop)
        bad = [gate for gate in found.gates if not gate["ok"] and gate["skipped"] is None]
        for gate in bad:
            self.say(f"{gate['gate']} found something in {gate['arm']}: {gate['message']}")
        self.writer.journal.append(
            {"what": what, "gates": found.gates, "counters": found.counters, "flags": found.flags}
        )

    # ----------------------------------------------------------------------------------------------------------- pass

    def _one_pass(self, number: int, uuid: str, progress: Progress, controls: bool = False) -> None:
        """One pass on one device, in as many workers as it takes, into the journal; or the controls after the last."""
        result = _PassResult(number, uuid, controls=controls)
        for attempt in range(RESTARTS + 1):
            name = f"pass-{number}-{uuid}-{'controls-' if controls else ''}{attempt}"
            journal = Journal(self.work / f"{name}.jsonl")
            beat, code = self._worker(name, result, journal, progress)
            ended = self._collect(result, journal)
            if code == 0 and ended:
                with self.lock:
                    self.writer.journal.append(result.record())
                if not controls:
                    progress.finished(number, uuid)
                return
            self._lose(result, beat, code, name)
        raise IrrError(
            f"pass {number} on {uuid}: {RESTARTS} workers hung or failed one after another",
            f"see {self.work} for their last words",
        )

    def _collect(self, result: _PassResult, journal: Journal) -> bool:
        """Take whole records of a worker's journal over; whether it came to its end."""
        ended = False
        for record in journal.read():
            if record["event"] == "start" and not result.start:
                result.start = record
            elif record["event"] == "cell":
                result.cells.append(record)
            elif record["event"] == "failed":
                result.lost.append({**record, "status": "failed"})
                self._ban(record["cell"], record["kernel"])
            elif record["event"] == "flag":
                result.flags.append({"what": record["what"], "why": record["why"]})
            elif record["event"] == "evidence":
                result.evidence += record["evidence"]
            elif record["event"] == "end":
                result.end, ended = record, True
        return ended

    def _ban(self, cell: str, kernel: str) -> None:
        with self.lock:
            self.banned.add((cell, kernel))

    def _lose(self, result: _PassResult, beat: Beat | None, code: int, name: str) -> None:
        """Decide what a worker that did not end well means: a hung batch, a kernel that failed, or an error of ours."""
        if beat is None:
            if code == FAILED and result.lost and result.lost[-1]["status"] == "failed":
                lost = result.lost[-1]
                self.say(f"{lost['kernel']} failed on {lost['cell']}: {lost['why']}; going on without it")
                return
            words = (self.work / f"{name}.log").read_text(errors="replace").strip().splitlines()
            last = [line for line in words if line.strip()][-2:]
            text = " ".join(line.removeprefix("irr worker: ").strip() for line in last) or f"ended with code {code}"
            raise IrrError(f"pass {result.number} on {result.uuid}: {text}", f"details in {self.work / name}.log")
        label = json.loads(beat.label)
        entry: dict[str, Any] = {}
        if len(label) == len(LOST_KEYS):
            entry.update(zip(LOST_KEYS, label, strict=True))
            why = "the batch did not end within its deadline"
        else:
            cell, what, suspect = label
            if not suspect:
                where = f" on {cell}" if cell else ""
                raise IrrError(
                    f"pass {result.number} on {result.uuid}: {what}{where} did not end in time",
                    f"details in {self.work / name}.log",
                )
            entry, why = {"cell": cell, "kernel": suspect}, f"{what} did not end within their deadline"
        result.lost.append({**entry, "status": "hung", "why": why})
        self._ban(entry["cell"], entry["kernel"])
        self.say(f"{entry['kernel']} hung on {entry['cell']}; its worker was killed, going on without it")

    def _worker(self, name: str, result: _PassResult, journal: Journal, progress: Progress) -> tuple[Beat | None, int]:
        """Run one worker to its end.

        Returns:
            (the beat at which it was overdue and killed, or None; its exit code).

        Raises:
            Stopped: the run is stopping; the worker was killed.
        """
        request = self.request
        with self.lock:
            banned = sorted(self.banned)  # another device's thread may add to it meanwhile
        heartbeat = self.work / f"{name}.beat"
        heart = Heartbeat(heartbeat, create=True)
        heart.expect(request.deadlines[0], json.dumps(["", "the worker's start", ""]))
        orders = Orders(
            station=request.station,
            uuid=result.uuid,
            pass_number=result.number,
            plan=self.control_passes()[result.number] if result.controls else request.plan,
            rounds=request.rounds,
            seed=request.seed,
            batch=request.batch,
            build=request.build,
            references=str(self.references),
            journal=str(journal.path),
            heartbeat=str(heartbeat),
            parent=os.getpid(),
            done=[record["cell"] for record in result.cells],
            banned=banned,
            gates=request.gates and (result.number == 0 or not request.gates_once),
            gates_after=not request.gates_once,
            controls=result.controls and result.number == request.passes - 1,
            trajectories=request.trajectories,
            hold_ns=request.hold_ns,
            deadlines=request.deadlines,
            options={**request.options, "arms_kernels": sorted({entry.kernel for entry in request.plan})},
        )
        path = self.work / f"{name}.json"
        write_whole(path, msgspec.json.encode(orders))
        environment = dict(os.environ)
        if request.station != "host":
            environment = child_environment(environment, result.uuid)
            # Code of a kernel must be on the device before its first launch is captured.
            environment["CUDA_MODULE_LOADING"] = "EAGER"
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
        with (self.work / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "harness.measure.worker", str(path)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is the manager's to handle
            )
        try:
            while True:
                try:
                    return None, process.wait(POLL_S)
                except subprocess.TimeoutExpired:
                    pass
                beat = heart.read()
                progress.update(result.number, result.uuid, beat, CONTROLS if result.controls else "")
                if self.stop.is_set():
                    raise Stopped
                if beat.overdue:
                    return beat, -9
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            heart.close()

    # -------------------------------------------------------------------------------------------------------- archive

    def _journal(self) -> list[dict[str, Any]]:
        """Every record. Reading cuts a torn last line off, which must not be one that a thread is just writing."""
        with self.lock:
            return self.writer.journal.read()

    def journal_records(self) -> list[dict[str, Any]]:
        """Whole passes and the controls, by pass and device."""
        records = [record for record in self._journal() if record["what"] in (PASS, CONTROLS)]
        return sorted(records, key=lambda record: (record["pass"], self.request.devices.index(record["device_uuid"])))

    def _write(self, complete: bool) -> Path:
        """Write raw/ from the journal's whole passes; close it when complete."""
        request, writer = self.request, self.writer
        records = self.journal_records()
        watched = [record for record in self._journal() if record["what"] in WATCHED]
        samples = [row for record in records for row in _rows(record, "samples")]
        if request.gates_once:
            spread_failures(samples)
        lost_rows = [_lost_row(record, entry) for record in records for entry in record["lost"] if entry.get("stage")]
        gates = [row for record in records for cell in record["cells"] for row in cell["gates"]]
        telemetry = [
            {"pass": record["pass"], "device_uuid": record["device_uuid"], **row}
            for record in records
            for cell in record["cells"]
            for row in cell.get("telemetry", [])
        ]
        run = describe(request, records, samples + lost_rows, self.cells)
        run.flags += [Note(**flag) for record in watched for flag in record["flags"]]
        counters = [row for record in watched for row in record["counters"]]
        evidence, apart = _evidence(records)
        run.flags += apart
        evidence = [*request.evidence, *evidence]
        evidence += studies.findings(request.study, samples)
        writer.run(run)
        writer.rows("samples.csv", samples + lost_rows)
        writer.file("warmup.csv", csv_bytes(SAMPLES, [row for record in records for row in _rows(record, "warmup")]))
        writer.rows("telemetry.csv", [{c.name: row.get(c.name) for c in TELEMETRY} for row in telemetry])
        gates = [*request.extra_gates, *(gate for record in watched for gate in record["gates"]), *gates]
        writer.json("gates.json", gates)
        if counters:
            writer.rows("counters.csv", counters)
        if evidence:
            writer.json("evidence.json", evidence)
        writer.json("fingerprint.json", self._fingerprint(records))
        for entry in {Path(manifest).parent / Path(manifest).stem for manifest in request.manifests}:
            for suffix in (".json", ".ptx", ".sass"):
                source = entry.with_name(entry.name + suffix)
                if source.is_file():
                    writer.file(f"builds/{source.parent.name}/{source.name}", source.read_bytes())
        if not complete:
            return writer.root
        return writer.finish(run)

    def _fingerprint(self, records: Sequence[Mapping[str, Any]]) -> fingerprint.Fingerprint:
        from harness.build.manifest import load_manifest

        request = self.request
        manifests: list[Manifest] = [load_manifest(Path(path)) for path in request.manifests if Path(path).is_file()]
        built, why = probe.built_on(manifests)
        devices: dict[str, dict[str, Any]] = {}
        worker: dict[str, Any] = {}
        for record in records:
            start = record["start"]
            if record["device_uuid"] not in devices:
                place = len(devices)
                devices[record["device_uuid"]] = {
                    key: value for key, value in start["device"].items() if key in fingerprint.keys("device")
                }
                why |= {f"run_on.devices[{place}].{key}": text for key, text in start.get("nulls", {}).items()}
            worker = start.get("run_on", {}) or worker
        for facts in request.device_facts if not records else []:
            known = {key: value for key, value in facts.items() if key in fingerprint.keys("device")}
            devices[str(facts.get("uuid"))] = known
        found, more = probe.run_on(worker, shared=request.shared, clocks=request.clocks, gpu=request.station == "gpu")
        host = "the host is no GPU"
        if request.station == "host":
            why |= dict.fromkeys(fingerprint.keys("device"), host)
        return fingerprint.make(built, found, list(devices.values()), {**more, **why})


def _rows(record: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, row, strict=True)) for cell in record["cells"] for row in cell[kind]]


def spread_failures(samples: Sequence[dict[str, Any]]) -> None:
    """Where cells are judged in the first pass only, what failed there failed: a kernel that is wrong in one pass is
    the same cubin in the others, whose samples nobody judged."""

    def subject(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["device_uuid"], row["cell"], str(row["kernel"]).split("@")[0]

    failed = {subject(row) for row in samples if row["status"] == "failed"}
    for row in samples:
        if subject(row) in failed and row["status"] in ("ok", "lossy"):
            row["status"] = "failed"


def _lost_row(record: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a batch that never came back."""
    device = record["start"].get("device", {})
    return {
        "pass": record["pass"],
        "device_uuid": record["device_uuid"],
        "arch": device.get("arch", 0),
        **{key: entry[key] for key in LOST_KEYS},
        "t_s": 0.0,
        "launches": 0,
        "status": entry["status"],
    }


def _evidence(records: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[Note]]:
    """The findings of all passes, each name once, and a note on those that devices do not agree in: every device makes
    the same findings in its first pass, and the first device's stand."""
    first: dict[str, tuple[str, dict[str, Any]]] = {}
    apart: dict[str, list[str]] = {}
    for record in records:
        for owner in (record, *record["cells"]):
            for item in owner.get("evidence", []):
                uuid, kept = first.setdefault(item["name"], (record["device_uuid"], item))
                if kept["value"] != item["value"]:
                    apart.setdefault(f"{record['device_uuid']} differs from {uuid}, whose stand", []).append(
                        item["name"]
                    )
    notes = [Note(what="findings by device", why=f"{who}: {', '.join(names)}") for who, names in apart.items()]
    return [item for _, item in first.values()], notes


NULLS: tuple[tuple[str, str], ...] = (
    ("blocks", "floors build nothing"),
    ("lost_blocks", "floors build nothing"),
    ("failed_inserts", "floors build nothing"),
    ("dropped_points", "floors build nothing"),
    ("us", "a batch that hung has no time"),
)


@functools.cache
def _points(cell: Cell) -> int:
    return len(cell.scene())


def describe(
    request: Request,
    records: Sequence[Mapping[str, Any]],
    samples: Sequence[Mapping[str, Any]],
    cells: Mapping[str, Cell | Program],
) -> Run:
    """run.json of what is there."""
    names = list(dict.fromkeys([*(entry.cell for entry in request.plan), *request.counted_cells]))
    reasons = dict(NULLS)
    no_clock = "the host has no SM clock" if request.station == "host" else "the clock stamps could not be read"
    reasons["cycles"] = no_clock
    for record in records:
        reasons |= record["end"].get("telemetry_reasons", {})
    names_of = {table: {column.name for column in columns} for table, columns in CSV_FILES.items()}
    empty = {key for row in samples for key in reasons if key in names_of["samples.csv"] and row.get(key) is None}
    nulls = [Null(field=f"samples.{key}", why=reasons[key]) for key in sorted(empty)]
    nulls += [
        Null(field=f"telemetry.{key}", why=why)
        for key, why in sorted(reasons.items())
        if key in names_of["telemetry.csv"]
    ]
    flags = list(request.flags)
    skipped = list(request.skipped)
    reductions: dict[str, Reduction] = {}
    late: dict[tuple[int, str], int] = {}
    for record in records:
        key = record["pass"], record["device_uuid"]
        flags += [Note(**flag) for flag in record["flags"]]
        for entry in record["lost"]:
            what = f"{entry['kernel']} {entry['status']} on {entry['cell']}"
            flags.append(Note(what=what, why=f"pass {key[0]} on {key[1]}: {entry['why']}"))
        for cell in record["cells"]:
            late[key] = late.get(key, 0) + int(cell["late"])
            if cell["reduced"]:
                reductions[cell["cell"]] = Reduction(cell=cell["cell"], batch=cell["size"], why=cell["reduced"])
        if record["what"] == CONTROLS:
            why = f"in a worker of their own after pass {key[0]} on {key[1]}; their samples carry its number"
            flags.append(Note(what="controls", why=why))
    for (number, uuid), count in late.items():
        if count:
            flags.append(
                Note(
                    what=f"host latency in pass {number} on {uuid}",
                    why=f"{count} batches began before the host had enqueued them whole; kept",
                )
            )
    clocks = {record["device_uuid"]: record["start"].get("device", {}).get("sm_clock_max_mhz") for record in records}
    flags += health.throttle_flags(samples, clocks) + health.drift_flags(samples)
    several = len(request.devices) > 1
    if several:
        together = "at once" if request.at_once else "one after another"
        why = "as asked for: --one-after-another" if not request.at_once else "all of them unless asked otherwise"
        flags.append(Note(what=f"{len(request.devices)} devices ran {together}", why=why))
    return Run(
        schema=1,
        irr=__version__,
        commit=request.commit,
        dirty=request.dirty,
        study=request.study,
        quick=request.quick,
        gpu=request.station == "gpu",
        created_utc=request.created_utc,
        command=request.command,
        seed=request.seed,
        rounds=request.rounds,
        batch=request.batch,
        at_once=request.at_once if several else None,
        plan=[*request.plan, *request.controls],
        passes=[
            Pass(
                number=record["pass"],
                device_uuid=record["device_uuid"],
                device_name=str(record["start"]["device"].get("name") or ""),
                arch=int(record["start"]["device"].get("arch") or 0),
                started_utc=record["start"]["started_utc"],
                ended_utc=record["end"]["ended_utc"],
                complete=True,
            )
            for record in records
            if record["what"] == PASS
        ],
        refusals=request.refusals,
        reductions=list(reductions.values()),
        skipped=skipped,
        nulls=nulls,
        flags=flags,
        cells={name: _facts(cells[name]) for name in names},
    )


def _facts(cell: Cell | Program) -> CellFacts:
    if isinstance(cell, Program):
        return CellFacts(blocks=0, samples=0, pool=0, table=0, points=cell.elements, load_factor=0.0, axis=cell.axis)
    return CellFacts(
        blocks=cell.blocks,
        samples=cell.samples,
        pool=cell.config.capacity,
        table=cell.config.slots,
        points=_points(cell),
        load_factor=cell.load_factor,
        axis=cell.axis,
    )


def empty_run(request: Request, cells: Mapping[str, Cell | Program]) -> Run:
    """run.json before anything ran."""
    return describe(request, [], [], cells)


def read_request(root: Path) -> Request:
    """The request of a run that was stopped.

    Raises:
        IrrError: none is there, or it is damaged.
    """
    path = root / WORK / REQUEST
    try:
        return msgspec.json.decode(path.read_bytes(), type=Request)
    except OSError:
        raise IrrError(f"{root} cannot be resumed: {WORK}/{REQUEST} is missing", "start a new run") from None
    except msgspec.DecodeError as error:
        raise IrrError(f"{path} is damaged: {error}", "start a new run") from None
