"""Runs that hang, fail, are killed or told to stop; each on a device that obeys a script, in real processes."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.archive.schema import PlanEntry
from harness.archive.verify import check_raw
from harness.archive.write import JOURNAL, SUMS, ArchiveWriter
from harness.environment import ROOT
from harness.errors import IrrError
from harness.measure import heartbeat
from harness.measure.manager import WORK, Manager, Request, empty_run, read_request
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


def test_one_after_another_is_recorded(tmp_path: Path) -> None:
    archive = run(tmp_path / "a", request(devices=UUIDS, passes=1, at_once=False))
    assert any("one after another" in flag["what"] for flag in run_json(archive)["flags"])


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


# --- stopping and going on --------------------------------------------------------------------------------------------

DRIVER = """
import sys
from pathlib import Path
import msgspec
from harness import cli
from harness.archive.write import ArchiveWriter
from harness.measure.manager import Manager, Request, empty_run, read_request
from harness.workload.cells import load_cells
import signal
signal.signal(signal.SIGTERM, cli._stop)
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


def start(root: Path, asked: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
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
    """kill -9 of the manager at any time: at most the passes in flight are lost, nothing is corrupt, no worker left."""
    asked = tmp_path / "request.json"
    wanted = request(passes=3, options={"batch_s": 0.05})
    asked.write_bytes(msgspec.json.encode(wanted))
    root = tmp_path / "archive"
    chance = random.Random(5)
    kept: list[tuple[int, str]] = []
    kills = 0
    for _ in range(40):
        process = start(root, asked)
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
            now = [(record["pass"], record["device_uuid"]) for record in records]
            assert now[: len(kept)] == kept, "a whole pass was lost"
            kept = now
    assert kills >= 3
    assert check_raw(root)[1] == []
    whole(samples(root), 3, UUIDS[:1])
    told = run_json(root)
    assert [msgspec.to_builtins(entry) for entry in wanted.plan] == told["plan"]
    assert told["seed"] == wanted.seed and {p["device_uuid"] for p in told["passes"]} == {UUIDS[0]}


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
