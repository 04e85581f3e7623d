"""Runs that hang, fail, are killed or told to stop; each on a device that obeys a script, in real processes."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.archive.schema import PlanEntry
from harness.archive.verify import check_raw
from harness.archive.write import JOURNAL, SUMS, WORK, ArchiveWriter
from harness.environment import ROOT
from harness.errors import IrrError
from harness.measure import heartbeat, manager
from harness.measure.manager import Manager, Request, empty_run, read_request, spread_failures
from harness.measure.worker import utc_now
from harness.workload.cells import load_cells

STATIONS = ROOT / "tests" / "simulated" / "stations.py"
UUIDS = ["GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"]
CELLS = ("pts-20k", "r-0.25")
KERNELS = ("cuda/allocate/plain", "cuda/update/plain", "cuda/allocate/nowait")
ROUNDS = 3


def request(**changes: Any) -> Request:
    plan = [
        PlanEntry(cell=cell, kernel=k, stage=k.split("/")[1], launch="serial", table="fresh", l2="asreset", load="aot")
        for cell in CELLS
        for k in KERNELS
    ]
    usual: dict[str, Any] = {
        "study": "matrix",
        "station": f"{STATIONS}:Scripted",
        "devices": UUIDS[:1],
        "plan": plan,
        "passes": 2,
        "rounds": ROUNDS,
        "seed": 1,
        "batch": 4,
        "build": "build",
        "command": ["irr", "test"],
        "created_utc": utc_now(),
        "gates": False,
        "deadlines": (30.0, 30.0, 1.5),
    }
    return Request(**{**usual, **changes})


def run(folder: Path, asked: Request) -> Path:
    cells = load_cells()
    writer = ArchiveWriter.create(folder, empty_run(asked, cells))
    return Manager(writer, asked, cells, lambda line: None).run()


def samples(archive: Path) -> list[dict[str, str]]:
    with (archive / "raw" / "samples.csv").open() as stream:
        return list(csv.DictReader(stream))


def run_json(archive: Path) -> dict[str, Any]:
    def constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads((archive / "raw" / "run.json").read_text(), parse_constant=constant)


def whole(rows: list[dict[str, str]], passes: int, devices: list[str]) -> None:
    """Every batch of every pass on every device, once."""
    counted = Counter((r["pass"], r["device_uuid"], r["cell"], r["kernel"], r["round"]) for r in rows)
    assert set(counted.values()) == {1}
    assert len(counted) == passes * len(devices) * len(CELLS) * len(KERNELS) * ROUNDS


def test_two_devices_and_two_passes(tmp_path: Path) -> None:
    archive = run(tmp_path / "a", request(devices=UUIDS, options={"batch_s": 0.001}))
    assert check_raw(archive)[1] == []
    whole(samples(archive), 2, UUIDS)
    told = run_json(archive)
    assert told["state"] == "complete"
    assert {(p["pass"], p["device_uuid"]) for p in told["passes"]} == {(n, u) for n in (0, 1) for u in UUIDS}
    assert any("at once" in flag["what"] for flag in told["flags"])
    assert not (archive / WORK).exists() and not (archive / JOURNAL).exists()
    assert (archive / "raw" / "warmup.csv").read_text().count("\n") == 1 + 2 * 4 * len(CELLS) * len(KERNELS)
    fingerprint = json.loads((archive / "raw" / "fingerprint.json").read_text())
    assert [device["uuid"] for device in fingerprint["run_on"]["devices"]] == UUIDS
    assert any("scripted" in null["why"] for null in fingerprint["nulls"])


@pytest.mark.parametrize("at_once", [True, False])
def test_devices_run_at_once_or_one_after_another_and_it_is_recorded(tmp_path: Path, at_once: bool) -> None:
    log = tmp_path / "log"
    options = {"batch_s": 0.1, "log": str(log)}
    archive = run(tmp_path / "a", request(devices=UUIDS, passes=1, at_once=at_once, options=options))
    times = {uuid: (float(began), float(ended)) for uuid, began, ended in map(str.split, log.read_text().splitlines())}
    (a0, a1), (b0, b1) = (times[uuid] for uuid in UUIDS)
    assert (max(a0, b0) < min(a1, b1)) == at_once and (at_once or a1 < b0)
    told = run_json(archive)
    assert told["at_once"] is at_once
    assert any(("at once" if at_once else "one after another") in flag["what"] for flag in told["flags"])
    whole(samples(archive), 1, UUIDS)


def test_one_device_is_neither_at_once_nor_one_after_another(tmp_path: Path) -> None:
    told = run_json(run(tmp_path / "a", request(passes=1)))
    assert told["at_once"] is None and not any("devices ran" in flag["what"] for flag in told["flags"])


def test_a_worker_sees_its_device_alone_whatever_the_manager_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N08: exactly one device, by UUID, in bus order; the station refuses anything else, as the planted fault shows."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    whole(samples(run(tmp_path / "a", request(devices=UUIDS, passes=1))), 1, UUIDS)
    monkeypatch.setattr(manager, "child_environment", lambda environ, uuid: dict(environ))
    with pytest.raises(IrrError, match="sees 0,1 in order FASTEST_FIRST"):
        run(tmp_path / "b", request(devices=UUIDS, passes=1))


def test_a_device_that_is_lost_costs_its_own_passes(tmp_path: Path) -> None:
    """The other device goes on to its end; the run says which is lost, and goes on when it is back."""
    asked = request(devices=UUIDS, passes=3, options={"gone": [UUIDS[1], 1]})
    lines: list[str] = []
    root, cells = tmp_path / "a", load_cells()
    with pytest.raises(IrrError, match=f"pass 1 on {UUIDS[1]}: GPU is lost"):
        Manager(ArchiveWriter.create(root, empty_run(asked, cells)), asked, cells, lines.append).run()
    assert any(UUIDS[1] in line and "other devices go on" in line for line in lines)
    told = run_json(root)
    assert told["state"] == "incomplete"
    assert [(p["pass"], p["device_uuid"]) for p in told["passes"]] == [
        (0, UUIDS[0]), (0, UUIDS[1]), (1, UUIDS[0]), (2, UUIDS[0]),
    ]  # fmt: skip
    first = [row for row in samples(root) if row["device_uuid"] == UUIDS[0]]
    again = msgspec.structs.replace(read_request(root), options={})
    archive = Manager(ArchiveWriter.resume(root), again, cells, lines.append).run()
    whole(samples(archive), 3, UUIDS)
    assert check_raw(archive)[1] == []
    assert [row for row in samples(archive) if row["device_uuid"] == UUIDS[0]] == first


def test_two_processes_do_not_write_one_archive(tmp_path: Path) -> None:
    asked, root, cells = request(passes=1, options={"batch_s": 0.1}), tmp_path / "a", load_cells()
    first = Manager(ArchiveWriter.create(root, empty_run(asked, cells)), asked, cells, lambda line: None)
    thread = threading.Thread(target=first.run)
    thread.start()
    end = time.monotonic() + 30
    while not list(root.glob("work/pass-*.beat")) and time.monotonic() < end:
        time.sleep(0.02)
    with pytest.raises(IrrError, match="being written by another process"):
        Manager(ArchiveWriter.resume(root), asked, cells, lambda line: None).run()
    thread.join(60)
    assert check_raw(root)[1] == []
    whole(samples(root), 1, UUIDS[:1])


def test_a_scene_that_cannot_be_evaluated_ends_the_run_at_once(tmp_path: Path) -> None:
    """Its workers would wait for it for minutes."""
    asked = request(devices=UUIDS, passes=1, gates=True, deadlines=(100.0, 100.0, 10.0))
    cells = {name: dataclasses.replace(cell, kind="nowhere") for name, cell in load_cells().items() if name in CELLS}
    writer = ArchiveWriter.create(tmp_path / "a", empty_run(asked, load_cells()))
    began = time.monotonic()
    with pytest.raises(Exception, match="nowhere"):
        Manager(writer, asked, cells, lambda line: None).run()
    assert time.monotonic() - began < 60
    assert workers_of(tmp_path / "a") == [] and not list((tmp_path / "a" / WORK).glob("references/*"))


def test_a_hung_batch_costs_its_kernel_on_its_cell(tmp_path: Path) -> None:
    began = time.monotonic()
    hung = ["pts-20k", "cuda/allocate/nowait"]
    archive = run(tmp_path / "a", request(options={"hang": hung}))
    assert time.monotonic() - began < 40
    assert check_raw(archive)[1] == []
    rows = samples(archive)
    (lost,) = [row for row in rows if row["status"] == "hung"]
    assert [lost["cell"], lost["kernel"]] == hung and lost["us"] == ""
    rest = Counter((r["pass"], r["cell"], r["kernel"]) for r in rows if r["status"] == "ok")
    assert set(rest.values()) == {ROUNDS}
    assert len(rest) == 2 * (len(CELLS) * len(KERNELS) - 1)
    assert any("hung on pts-20k" in flag["what"] for flag in run_json(archive)["flags"])


def test_a_kernel_that_breaks_the_device_costs_itself(tmp_path: Path) -> None:
    failed = ["r-0.25", "cuda/update/plain"]
    archive = run(tmp_path / "a", request(passes=1, options={"fail": failed}))
    rows = samples(archive)
    assert not any([row["cell"], row["kernel"]] == failed for row in rows)
    assert len(rows) == ROUNDS * (len(CELLS) * len(KERNELS) - 1)
    assert any("illegal memory access" in flag["why"] for flag in run_json(archive)["flags"])


def test_a_worker_that_ends_for_no_kernels_fault_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(IrrError, match="pass 0"):
        run(tmp_path / "a", request(options={"crash": "r-0.25"}))
    assert run_json(tmp_path / "a")["state"] == "incomplete"
    assert not (tmp_path / "a" / SUMS).exists()


def test_statuses_throttling_and_memory(tmp_path: Path) -> None:
    options = {"lossy": "cuda/allocate/nowait", "clock": [1400, 820], "throttle": 0x40, "fits": 2}
    archive = run(tmp_path / "a", request(options=options))
    rows = samples(archive)
    assert {row["status"] for row in rows if row["kernel"] == "cuda/allocate/nowait"} == {"lossy"}
    assert {row["status"] for row in rows if row["kernel"] != "cuda/allocate/nowait"} == {"ok"}
    whole(rows, 2, UUIDS[:1])  # throttled ones are all there
    told = run_json(archive)
    what = [flag["what"] for flag in told["flags"]]
    assert sum("throttled" in text for text in what) == 2 and any("drift" in text for text in what)
    assert {r["cell"]: r["batch"] for r in told["reductions"]} == dict.fromkeys(CELLS, 2)
    assert {row["launches"] for row in rows} == {"2"}


def test_what_fails_where_it_is_judged_is_failed_where_it_is_not() -> None:
    """Judged in the first pass only: of the second the same kernel's samples were ok, and a ratio of theirs held."""

    def row(number: int, kernel: str, status: str, cell: str = "base", uuid: str = UUIDS[0]) -> dict[str, Any]:
        return {"pass": number, "device_uuid": uuid, "cell": cell, "kernel": kernel, "status": status}

    wrong, right = "cuda/allocate/nowait", "cuda/allocate/plain"
    rows = [
        row(0, wrong, "failed"),
        row(1, wrong, "ok"),
        row(1, f"{wrong}@twin", "lossy"),
        row(1, wrong, "hung"),
        row(1, wrong, "ok", cell="r-0.25"),
        row(1, wrong, "ok", uuid=UUIDS[1]),
        row(0, right, "ok"),
        row(1, right, "lossy"),
    ]
    spread_failures(rows)
    assert [r["status"] for r in rows] == ["failed", "failed", "failed", "hung", "ok", "ok", "ok", "lossy"]


@pytest.mark.parametrize("once", [True, False])
def test_a_run_judged_once_spreads_what_failed(once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "harness.measure.manager.spread_failures", lambda rows: [r.update(status="failed") for r in rows]
    )
    rows = samples(run(tmp_path / "a", request(gates_once=once, passes=1)))
    assert {row["status"] for row in rows} == ({"failed"} if once else {"ok"})


# --- stopping and going on --------------------------------------------------------------------------------------------

DRIVER = """
import sys
from pathlib import Path
import msgspec
from harness import cli
from harness.archive.write import ArchiveWriter
from harness.measure.manager import Manager, Request, empty_run, read_request, spread_failures
from harness.workload.cells import load_cells
import signal
signal.signal(signal.SIGTERM, cli._stop)
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in a script's background
root, asked = Path(sys.argv[1]), sys.argv[2]
cells = load_cells()
if (root / "raw" / "run.json").exists():
    writer = ArchiveWriter.resume(root)
    request = read_request(root)
else:
    request = msgspec.json.decode(Path(asked).read_bytes(), type=Request)
    writer = ArchiveWriter.create(root, empty_run(request, cells))
try:
    Manager(writer, request, cells, lambda line: None).run()
except KeyboardInterrupt:
    sys.exit(130)
"""


def start(root: Path, asked: Path, tools: Path | None = None) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([*([str(tools)] if tools else []), os.environ["PATH"]])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(root), str(asked)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def workers_of(root: Path) -> list[int]:
    """Processes whose orders lie in this archive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"harness.measure.worker" in words and any(word.startswith(str(root).encode()) for word in words):
                found.append(int(entry.name))
    return found


@pytest.mark.timeout(240)
def test_killed_at_random_points_and_resumed_to_the_same_plan(tmp_path: Path) -> None:
    """kill -9 of the manager at any time, two devices at once: at most the passes in flight are lost, nothing is
    corrupt, no worker is left; what runs before and after the passes runs once."""
    asked = tmp_path / "request.json"
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("compute-sanitizer", "ncu"):
        (tools / name).write_text(f"#!/bin/sh\necho once >> {tmp_path}/{name}.log\nexit 1\n")
        (tools / name).chmod(0o755)
    phases = {"sanitized": [KERNELS[0]], "counted": [KERNELS[0]], "counted_cells": [CELLS[0]]}
    wanted = request(devices=UUIDS, passes=3, options={"batch_s": 0.05}, **phases)
    asked.write_bytes(msgspec.json.encode(wanted))
    root = tmp_path / "archive"
    chance = random.Random(5)
    kept: list[tuple[int, str]] = []
    kills = 0
    for _ in range(40):
        process = start(root, asked, tools)
        try:
            if kills < 3:  # for sure, at some point of a pass; a run has three of 1.5 s and more
                end = time.monotonic() + 30
                while not list(root.glob("work/pass-*.beat")) and time.monotonic() < end:
                    time.sleep(0.02)
                seconds = chance.uniform(0.1, 1.8)
            else:  # then as chance has it
                seconds = chance.uniform(3, 12)
            code = process.wait(seconds)
            assert code == 0, (process.stderr.read() if process.stderr else b"").decode()
            break
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
        end = time.monotonic() + 10
        while workers_of(root) and time.monotonic() < end:
            time.sleep(0.05)
        assert workers_of(root) == [], "a worker outlived its manager"
        if (root / "raw" / "run.json").exists():
            assert run_json(root)["state"] == "incomplete" and not (root / SUMS).exists()
            records = ArchiveWriter.resume(root).journal.read()
            now = [(record["pass"], record["device_uuid"]) for record in records if record["what"] == "pass"]
            assert now[: len(kept)] == kept, "a whole pass was lost"
            kept = now
    assert kills >= 3
    assert check_raw(root)[1] == []
    whole(samples(root), 3, UUIDS)
    told = run_json(root)
    assert [msgspec.to_builtins(entry) for entry in wanted.plan] == told["plan"]
    assert told["seed"] == wanted.seed and {p["device_uuid"] for p in told["passes"]} == set(UUIDS)
    assert sorted(path.name for path in root.iterdir()) == ["SHA256SUMS", "raw"]
    assert (tmp_path / "compute-sanitizer.log").read_text().count("once") == 3  # a tool, each once
    assert any(flag["what"].startswith("compute-sanitizer") for flag in told["flags"])
    assert any(flag["what"].startswith("ncu") for flag in told["flags"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_leaves_valid_files_and_a_way_on(tmp_path: Path, number: int, code: int) -> None:
    asked = tmp_path / "request.json"
    asked.write_bytes(msgspec.json.encode(request(passes=2, options={"batch_s": 0.1})))
    root = tmp_path / "archive"
    process = start(root, asked)
    end = time.monotonic() + 60
    while time.monotonic() < end and not (root / JOURNAL).exists():
        time.sleep(0.05)
    assert (root / JOURNAL).exists(), "no pass was ever whole"
    os.kill(process.pid, number)
    assert process.wait(30) == code
    assert workers_of(root) == []
    assert run_json(root)["state"] == "incomplete" and len(run_json(root)["passes"]) >= 1
    first = [row for row in samples(root) if row["pass"] == "0"]
    assert len(first) == ROUNDS * len(CELLS) * len(KERNELS)
    assert "incomplete" in check_raw(root)[1][0]
    assert start(root, asked).wait(120) == 0
    assert check_raw(root)[1] == []
    whole(samples(root), 2, UUIDS[:1])
    assert [row for row in samples(root) if row["pass"] == "0"] == first, "a whole pass was done again"


def test_a_torn_last_record_is_a_pass_to_do_again(tmp_path: Path) -> None:
    """Two whole passes and a torn third: resume keeps two and does one."""
    asked = request(passes=3)
    cells = load_cells()
    root = tmp_path / "a"
    writer = ArchiveWriter.create(root, empty_run(asked, cells))
    manager = Manager(writer, asked, cells, lambda line: None)
    manager._write = lambda complete: root  # type: ignore[method-assign]  the journal is what this is about
    manager.run()
    lines = (root / JOURNAL).read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    (root / JOURNAL).write_bytes(b"".join(lines[:2]) + b'{"pass":2,"dev')
    archive = Manager(ArchiveWriter.resume(root), asked, cells, lambda line: None).run()
    whole(samples(archive), 3, UUIDS[:1])
    first = [row for row in samples(archive) if row["pass"] in "01"]
    assert len(first) == 2 * ROUNDS * len(CELLS) * len(KERNELS)


def test_what_cannot_be_resumed_says_so(tmp_path: Path) -> None:
    with pytest.raises(IrrError, match="not an archive"):
        ArchiveWriter.resume(tmp_path)
    with pytest.raises(IrrError, match=r"request\.json is missing"):
        read_request(tmp_path)
    (tmp_path / WORK).mkdir()
    (tmp_path / WORK / "request.json").write_text("{")
    with pytest.raises(IrrError, match="damaged"):
        read_request(tmp_path)


def test_heartbeat(tmp_path: Path) -> None:
    ours = heartbeat.Heartbeat(tmp_path / "beat", create=True)
    theirs = heartbeat.Heartbeat(tmp_path / "beat")
    assert not theirs.read().overdue
    ours.done, ours.total = 3, 7
    ours.expect(60, "x" * 1000)
    beat = theirs.read()
    assert (beat.done, beat.total, len(beat.label), beat.overdue) == (3, 7, 480, False)
    ours.expect(-1, "late")
    assert theirs.read().overdue and theirs.read().label == "late"


def test_findings_of_several_devices_stand_once() -> None:
    def finding(name: str, value: float) -> dict[str, Any]:
        return {"name": name, "value": value, "unit": "ms", "how": ""}

    records = [
        {"device_uuid": UUIDS[0], "evidence": [], "cells": [{"evidence": [finding("jit", 3.0), finding("pixels", 7)]}]},
        {"device_uuid": UUIDS[1], "evidence": [], "cells": [{"evidence": [finding("jit", 4.0), finding("pixels", 7)]}]},
        {"device_uuid": UUIDS[0], "evidence": [finding("copy", 1.0)], "cells": [{}]},
    ]
    found, notes = manager._evidence(records)
    assert found == [finding("jit", 3.0), finding("pixels", 7), finding("copy", 1.0)]
    (note,) = notes
    assert note.why == f"{UUIDS[1]} differs from {UUIDS[0]}, whose stand: jit"
