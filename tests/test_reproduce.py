"""`reproduce` and `counters` as a user calls them: refusals first, then the run of a machine without a GPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tasks
from harness.archive.read import find, load
from harness.archive.schema import Gate, Note
from harness.archive.verify import check_raw
from harness.archive.write import check_writable
from harness.device import nvml
from harness.environment import RESULTS, ROOT
from harness.errors import IrrError, UsageError
from harness.measure import devices, reproduce, requests, runs, without_gpu
from harness.measure.devices import Found
from harness.measure.manager import empty_run
from harness.measure.requests import Asked
from harness.workload.cells import load_cells
from tests.synthetic import judged, sample_rows, write_archive
from tests.test_doctor import AS_STRANGER, open_python

Irr = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def no_gpu() -> None:
    if devices.driver_cuda() is not None:
        pytest.skip("there is an NVIDIA driver here")


# --- N09: no GPU -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_gpu")
def test_a_gpu_that_is_required_and_absent_is_one_message_and_no_folder(irr: Irr, tmp_path: Path) -> None:
    began = time.monotonic()
    done = irr("reproduce", "--require-gpu", "--out", str(tmp_path / "a"), timeout=60)
    assert done.returncode == 1 and time.monotonic() - began < 10
    assert "--gpus all" in done.stderr and "container toolkit" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "a").exists()


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("words", [("counters",), ("reproduce", "--devices", "GPU-1")])
def test_what_needs_a_gpu_says_so(irr: Irr, words: tuple[str, ...]) -> None:
    done = irr(*words, timeout=60)
    assert done.returncode == 1 and "no NVIDIA GPU here" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.timeout(280)
def test_the_run_without_a_gpu_is_archived_under_a_banner(irr: Irr, tmp_path: Path) -> None:
    words = ("reproduce", "--quick", "--cells", "pts-20k", "--arms", "cpu", "--out", str(tmp_path / "a"))
    done = irr(*words, timeout=270)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "NO NVIDIA GPU" in done.stderr and "--gpus all" in done.stderr
    assert [line[:11] for line in done.stderr.splitlines() if line.startswith("step ")] == [
        f"step {number} of 3" for number in (1, 2, 3)
    ]
    assert f"the page to open in a browser: {tmp_path / 'a' / 'derived' / 'report.html'}" in done.stderr
    assert done.stdout.splitlines() == [f"archive: {tmp_path / 'a'}"]
    found, problems = check_raw(tmp_path / "a")
    assert problems == [] and found is not None
    assert not found.run.gpu and found.run.study == "host" and {p.device_uuid for p in found.run.passes} == {"host"}
    assert any(flag.what == "no GPU" for flag in found.run.flags)
    places = {row["place"] for row in json.loads((tmp_path / "a" / "raw" / "gates.json").read_text())}
    assert "host" in places


def test_a_check_that_failed_is_said_last_and_the_archive_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A red gate, and an archive that would not verify, must not end as a run that went well."""
    monkeypatch.setattr("harness.report.page.report", lambda archive: archive / "derived" / "report.html")
    rows = sample_rows({("cuda/allocate/plain", "base"): 24.0})
    good = judged(rows)
    red = Gate(gate="exact-set", tier="exact", subject="triton on base", ok=False, compared=1160, message="1 missing")
    unjudged = Gate(gate="memcheck", tier="memory", subject="x", ok=False, compared=0, skipped="no compute-sanitizer")
    tasks._finish(write_archive(tmp_path / "good", samples=rows, gates=[*good, unjudged]))
    for name, gates, why in (
        ("red", [*good, red, red], "gate exact-set of triton on base: 1 missing, and 1 more"),
        ("none", [], "raw/gates.json is empty although kernels were timed"),
    ):
        archive = write_archive(tmp_path / name, samples=rows, gates=gates)
        with pytest.raises(IrrError, match=f"a check failed: {re.escape(why)}"):
            tasks._finish(archive)
    assert capsys.readouterr().out.splitlines() == [f"archive: {tmp_path / name}" for name in ("good", "red", "none")]


def test_an_archived_result_that_does_not_verify_is_a_red_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run without a GPU looks at every archived result; one that was altered ends it with exit 1, archived."""
    rows = sample_rows({("cuda/allocate/plain", "base"): 24.0}, passes=1)
    results = tmp_path / "results"
    for name in ("altered", "whole"):
        write_archive(results / name, samples=rows, gates=judged(rows))
    write_archive(results / "unfinished", samples=rows, gates=judged(rows), finish=False)
    with (results / "altered" / "raw" / "samples.csv").open("a") as stream:
        stream.write(" ")
    notes, red = without_gpu.archived_results(results)
    assert [note.what for note in notes] == ["archived altered", "archived unfinished", "archived whole"]
    assert [(row["gate"], row["subject"], row["ok"]) for row in red] == [("archived-result", "altered", False)]
    monkeypatch.setattr("harness.report.page.report", lambda archive: archive / "derived" / "report.html")
    for name, problem in (("whole", []), ("altered", red)):
        monkeypatch.setattr(without_gpu, "archived_results", lambda bad=problem: ([], bad))
        monkeypatch.setattr(without_gpu, "host_gates", list)
        asked = Asked(command=["irr", "reproduce"], quick=True, cells="pts-20k", arms="cpu")
        archive = without_gpu.reproduce_without_gpu(asked, tmp_path / f"of-{name}")
        capsys.readouterr()
        if problem:
            with pytest.raises(
                IrrError, match=r"check failed: gate archived-result of altered: .*samples\.csv was chan"
            ):
                tasks._finish(archive)
        else:
            tasks._finish(archive)
        assert capsys.readouterr().out == f"archive: {archive}\n" and (archive / "SHA256SUMS").is_file()


@pytest.mark.parametrize("root", find(RESULTS), ids=lambda root: root.name)
def test_every_archived_result_verifies(root: Path) -> None:
    """Byte for byte, and with every batch and gate that its plan asks for."""
    assert check_raw(root)[1] == []


def test_there_are_archived_results_of_the_studies() -> None:
    studies = {load(root).run.study for root in find(RESULTS)}
    assert studies >= {"matrix", "real", "fma", "host", "attribution", "scaling"}


# --- N14: the results folder -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["/proc/x", "/proc/x/y", "/dev/null/x"])
def test_a_place_where_nobody_can_write_is_refused_at_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root has the right to write anywhere, and no folder can be made here."""
    monkeypatch.setattr(reproduce, "find_devices", lambda *_: pytest.fail("looked for devices first"))
    with pytest.raises(IrrError, match=rf"^{place} cannot be written by uid:gid {os.getuid()}:{os.getgid()}"):
        reproduce.reproduce(out=Path(place))


def test_one_device_cannot_run_one_after_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """N02: what is asked of several devices is refused with one, before anything is planned."""
    one = Found(uuids=["GPU-1a2b3c4d"], devices=[], flags=[], driver_cuda="13.0")
    monkeypatch.setattr(reproduce, "find_devices", lambda *_: one)
    monkeypatch.setattr(reproduce, "matrix_request", lambda *_: pytest.fail("planned"))
    with pytest.raises(IrrError, match="two devices are needed"):
        reproduce.reproduce(one_after_another=True, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another uid; the next test is for the others")
def test_a_folder_of_mode_0555_is_refused_to_another_uid_at_once() -> None:
    """N14: before any build or look for a GPU, the path and who asked named; root, which may write anywhere, becomes
    somebody else for it."""
    # Not tmp_path: pytest closes its folders to other users.
    with tempfile.TemporaryDirectory(prefix="irr-test-") as temporary:
        os.chmod(temporary, 0o1777)
        results = Path(temporary) / "results"
        results.mkdir()
        results.chmod(0o555)
        packages = sysconfig.get_path("purelib")
        python = open_python([str(ROOT), temporary, packages])
        if python is None:
            pytest.skip("no interpreter, checkout and packages that another uid can reach")
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{packages}", "TMPDIR": temporary, "HOME": "/"}
        words = [python, "-c", AS_STRANGER, "reproduce", "--quick", "--out", str(results / "new")]
        began = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, env=env, cwd="/", timeout=60)
        seconds = time.monotonic() - began
        assert done.returncode == 1, done.stderr
        assert f"{results / 'new'} cannot be written by uid:gid 12345:12345" in done.stderr
        assert "step 1" not in done.stderr and not list(results.iterdir()) and seconds < 30


@pytest.mark.skipif(os.getuid() == 0, reason="root may write into any folder")
def test_a_folder_without_the_right_to_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir(mode=0o555)
    with pytest.raises(IrrError, match="cannot be written by uid:gid"):
        check_writable(tmp_path / "results" / "new")


def test_a_look_at_a_place_leaves_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("empty", "new", "more/folders/new"):
        check_writable(tmp_path / place)
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]
    (tmp_path / "file").write_text("kept")
    for place in ("file", "file/below"):
        with pytest.raises(IrrError, match=str(tmp_path / place)):
            check_writable(tmp_path / place)
    assert (tmp_path / "file").read_text() == "kept"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "kept").write_text("kept")
    with pytest.raises(IrrError, match="not empty"):
        reproduce.reproduce(out=tmp_path / "a")
    assert (tmp_path / "a" / "kept").read_text() == "kept"


@pytest.mark.parametrize(
    "wrong", [{"cells": "nowhere"}, {"arms": "nobody"}, {"passes": 0}, {"quick": True, "cells": "r-2.0"}]
)
def test_wrong_use_is_said_before_anything_is_made(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        reproduce.reproduce(out=tmp_path / "a", **wrong)
    assert not (tmp_path / "a").exists()


def test_archive_names_carry_the_card() -> None:
    name = runs.archive_path(None, "NVIDIA H200").name
    assert name.startswith("h200-2") and len(name.split("-")) == 3
    assert runs.archive_path(Path("x"), "NVIDIA H200") == Path("x")


# --- devices ---------------------------------------------------------------------------------------------------------


class Session:
    """An NVML session with one card whose state changes with every look."""

    def __init__(self, use: list[float], processes: list[nvml.Process]) -> None:
        self.use, self._processes = use, processes

    def telemetry(self, handle: Any) -> nvml.Values:
        return nvml.Values({"utilisation": self.use.pop(0) if len(self.use) > 1 else self.use[0]})

    def processes(self, handle: Any) -> list[nvml.Process]:
        return self._processes


def test_the_echo_of_a_process_that_has_ended_is_waited_for() -> None:
    assert devices.settled(Session([100, 60, 0], []), None)["utilisation"] == 0
    busy = Session([100], [nvml.Process(1, "x", 5.0)])
    began = time.monotonic()
    assert devices.settled(busy, None)["utilisation"] == 100 and time.monotonic() - began < 0.2


def found(**device: Any) -> devices.Found:
    card = {"uuid": "GPU-a", "name": "NVIDIA H200", "arch": 90, **device}
    return devices.Found(["GPU-a"], [card], [Note(what="x", why="y")], "13.0")


def ask(found: devices.Found, build: Path, **changes: Any) -> Any:
    usual: dict[str, Any] = {"quick": True, "arms": "cuda", "command": ["irr"]}
    return requests.matrix_request(found, requests.Asked(**{**usual, **changes}), build=build)


@pytest.fixture
def build(tmp_path: Path) -> Path:
    sys.path.append(str(Path(__file__).parent / "simulated"))
    import builds

    return builds.make_build(tmp_path / "build", [*builds.HELPERS, *builds.FLOORS])


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that runs what was built elsewhere; what is built where a compiler is: tests/test_building.py."""
    monkeypatch.setattr(requests, "build_missing", lambda *_: [])


@pytest.mark.usefixtures("no_compiler")
def test_a_request_is_checked_before_anything_runs(build: Path) -> None:
    request = ask(found(), build)
    assert request.quick and request.passes == 1 and request.rounds == 5 and request.controls == []
    whole = ask(found(), build, quick=False, allow_shared=True)
    assert whole.passes == 3 and whole.rounds == 30 and whole.batch == 8
    assert whole.controls and whole.counted_cells == ["base", "lf-918"] and whole.sanitized
    assert {"x", "--allow-shared"} <= {flag.what for flag in whole.flags}
    with pytest.raises(IrrError, match="rebuild for sm_86"):
        ask(found(arch=86), build)
    with pytest.raises(IrrError, match="kernels are missing"):
        ask(found(), build, arms="cuda,triton-while")
    more = ask(found(), build, arms="cuda,triton-while", allow_missing=True)
    assert {entry.kernel for entry in more.skipped} == {"triton/allocate/while", "triton/update/while"}
    assert any("triton/allocate/while" in refusal.what for refusal in more.refusals)


def test_an_old_driver_stops_the_run_or_its_jit_part(build: Path) -> None:
    old = devices.Found(["GPU-a"], found().devices, [], "12.4")
    with pytest.raises(IrrError, match="needs a driver for CUDA 13"):
        ask(old, build)
    assert ask(found(), build).refusals == []


def test_two_kinds_of_card_are_two_archives(build: Path) -> None:
    cards = [{"uuid": "GPU-a", "name": "A", "arch": 90}, {"uuid": "GPU-b", "name": "B", "arch": 90}]
    with pytest.raises(IrrError, match="several kinds"):
        ask(devices.Found(["GPU-a", "GPU-b"], cards, [], "13.0"), build)


def test_counters_alone_time_nothing(build: Path) -> None:
    asked = requests.Asked(command=["irr"], arms="cuda", allow_missing=True)
    request = requests.counters_request(found(), asked, ["base"], build=build)
    assert request.study == "counters" and request.plan == request.controls == [] and request.sanitized == []
    assert request.passes == 0 and request.counted_cells == ["base"] and "cuda/update/plain" in request.counted


def test_run_json_before_anything_ran_is_incomplete_and_has_the_plan(build: Path) -> None:
    request = ask(found(), build)
    run = empty_run(request, load_cells())
    assert run.state == "incomplete" and run.passes == [] and len(run.plan) == len(request.plan)
    assert set(run.cells) == {"base", "pts-20k", "plane-320k"}


def test_the_manager_never_imports_cupy() -> None:
    code = "import harness.measure.reproduce, harness.measure.worker, sys; sys.exit('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], timeout=60).returncode == 0
