"""The GPU's path: over simulated CuPy everywhere, and the same on a GPU where there is one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.archive.verify import check_raw
from harness.archive.write import ArchiveWriter
from harness.build.assemble import Assembler
from harness.build.kernels import KERNELS
from harness.build.manifest import load_manifest, manifest_path
from harness.build.toolchain import find_toolkit
from harness.device.driver import STATIC_SHARED  # noqa: F401  the module must import where no driver is
from harness.environment import ROOT
from harness.errors import IrrError
from harness.measure import tools
from harness.measure.inventory import Built, find_built, take_inventory
from harness.measure.manager import Manager, Request, empty_run
from harness.measure.plan import make_plan
from harness.measure.worker import utc_now
from harness.workload.adversarial import adversarial_cases
from harness.workload.cells import load_cells

SIMULATED = ROOT / "tests" / "simulated"
sys.path.append(str(SIMULATED))

import builds  # noqa: E402
import cupy_on_host  # noqa: E402


def test_volumes_batches_and_resets(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SIMULATED / "gpu_path.py"), str(tmp_path)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0 and "all right" in done.stdout, done.stderr[-2000:]


@pytest.mark.timeout(280)
def test_from_a_build_folder_to_a_verified_archive(tmp_path: Path) -> None:
    """Worker, gates before and after, every regime of a cell, archive: simulated CuPy, the real kernels' code."""
    names = [*builds.HELPERS, *builds.FLOORS]
    build = builds.make_build(tmp_path / "build", names)
    cells = load_cells()
    rows = [KERNELS[n] for n in names if KERNELS[n].matrix and KERNELS[n].stage != "extract"]
    request = Request(
        study="matrix",
        station=f"{SIMULATED / 'stations.py'}:SimulatedGpu",
        devices=[cupy_on_host.UUID],
        plan=make_plan([cells["pts-20k"]], rows),
        passes=1,
        rounds=2,
        seed=1,
        batch=2,
        build=str(build),
        command=["irr", "test"],
        created_utc=utc_now(),
        arch=90,
        manifests=[str(manifest_path(build, 90, name)) for name in names],
    )
    writer = ArchiveWriter.create(tmp_path / "archive", empty_run(request, cells))
    archive = Manager(writer, request, cells, lambda line: None).run()
    found, problems = check_raw(archive)
    assert problems == [] and found is not None
    assert set(found.samples["status"]) == {"ok"}
    assert len(found.samples) == 2 * len(request.plan)
    gates = Counter((gate["when"], gate["ok"]) for gate in json.loads((archive / "raw" / "gates.json").read_text()))
    assert gates["before", True] >= 8 and gates["after", True] >= 8 and not gates["before", False]
    assert (archive / "raw" / "builds" / "sm_90" / "cuda--update--plain.json").is_file()


@pytest.mark.timeout(280)
def test_the_whole_job_on_two_gpus_killed_twice(tmp_path: Path) -> None:
    """Sanitizer, three passes at once on two devices with gates before and after, killed at two points and resumed."""
    root, build = tmp_path / "archive", tmp_path / "build"
    command = [sys.executable, str(SIMULATED / "two_gpus.py"), str(root), str(build), "pts-20k"]

    def passes() -> list[dict[str, Any]]:
        journal = root / "journal.jsonl"
        whole = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
        return [record for record in map(json.loads, whole) if record["what"] == "pass"]

    kept: list[dict[str, Any]] = []
    for wanted in (1, 4):
        with (tmp_path / "words").open("w") as words:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
            end = time.monotonic() + 120
            while len(passes()) < wanted and process.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            process.kill()
            assert process.wait() == -9, (tmp_path / "words").read_text()
        assert passes()[: len(kept)] == kept, "a whole pass was lost"
        kept = passes()
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found, problems = check_raw(root)
    assert problems == [] and found is not None
    devices = sorted({entry.device_uuid for entry in found.run.passes})
    assert len(devices) == 2 and found.run.at_once
    assert {(e.number, e.device_uuid) for e in found.run.passes} == {(n, u) for n in range(3) for u in devices}
    assert set(found.samples["status"]) == {"ok"} and len(found.samples) == 2 * 3 * 2 * len(found.run.plan)
    for uuid in devices:
        here = found.samples[found.samples["device_uuid"] == uuid]
        assert len(here) == len(found.samples) // 2
        timed = [g for g in found.gates if g.device_uuid == uuid and g.tier == "exact" and g.pass_number is not None]
        assert {(g.pass_number, g.when) for g in timed} == {
            (number, when) for number in range(3) for when in ("before", "after")
        }
    # The adversarial cases have a process of their own, which sees no simulated GPU; once for devices and kills.
    apart = [gate for gate in found.gates if gate.cell in adversarial_cases() and gate.arm == "cuda"]
    assert len(apart) == len(adversarial_cases()) and all(gate.skipped for gate in apart)
    assert all(gate.ok or gate.skipped for gate in found.gates) and {g.tier for g in found.gates} >= {
        "sanitizer",
        "exact",
        "table",
    }
    assert sorted(path.name for path in root.iterdir()) == ["SHA256SUMS", "raw"]


# --- what is built ----------------------------------------------------------------------------------------------------


def test_inventory(tmp_path: Path) -> None:
    build = builds.make_build(tmp_path, builds.HELPERS)
    rows = [KERNELS[name] for name in ("cuda/allocate/plain", "cuda/update/plain")]
    there, skipped = take_inventory(build, 90, rows)
    assert set(there) == set(builds.HELPERS) and skipped == []
    more = [*rows, KERNELS["cuda/allocate/nowait"], KERNELS["triton/allocate/static32"]]
    with pytest.raises(IrrError, match=r"1 kernels are missing for sm_90: cuda/allocate/nowait"):
        take_inventory(build, 90, more)
    _, skipped = take_inventory(build, 90, more, allow_missing=True)
    assert {entry.kernel: entry.status for entry in skipped} == {
        "cuda/allocate/nowait": "unavailable",
        "triton/allocate/static32": "unavailable",
    }


def test_another_architecture_is_refused_before_anything_runs(tmp_path: Path) -> None:
    build = builds.make_build(tmp_path, builds.HELPERS)
    with pytest.raises(IrrError, match="rebuild for sm_120"):
        take_inventory(build, 120, [])
    with pytest.raises(IrrError, match=r"unsupported.*>= 7\.5"):
        take_inventory(build, 70, [])


def test_a_stale_kernel_and_a_missing_helper_are_refused(tmp_path: Path) -> None:
    build = builds.make_build(tmp_path, builds.HELPERS)
    path = manifest_path(build, 90, "cuda/update/plain")
    manifest = load_manifest(path)
    manifest.source_hash = "0" * 64
    manifest.save(path)
    with pytest.raises(IrrError, match="other sources"):
        take_inventory(build, 90, [])
    path.unlink()
    with pytest.raises(IrrError, match="needed by every cell"):
        take_inventory(build, 90, [], allow_missing=True)


def test_a_kernel_whose_toolchain_is_missing_is_no_failure(tmp_path: Path) -> None:
    build = builds.make_build(tmp_path, [*builds.HELPERS, "cuda/allocate/nowait"])
    path = manifest_path(build, 90, "cuda/allocate/nowait")
    manifest = load_manifest(path)
    manifest.status, manifest.reason = "needs-toolchain", "cargo-oxide is not here"
    manifest.save(path)
    found = find_built(build, 90, "cuda/allocate/nowait")
    assert not isinstance(found, Built) and found.status == "needs-toolchain" and "cargo-oxide" in found.why
    there, skipped = take_inventory(build, 90, [KERNELS["cuda/allocate/plain"], KERNELS["cuda/allocate/nowait"]])
    assert "cuda/allocate/plain" in there and [entry.status for entry in skipped] == ["needs-toolchain"]


def test_the_clock_stamp_assembles_for_every_architecture(tmp_path: Path) -> None:
    """The driver assembles it when measuring; here the pinned ptxas says that it is PTX."""
    try:
        assembler = Assembler(find_toolkit().ptxas, "pinned")
    except (IrrError, TypeError) as error:
        pytest.skip(f"no ptxas: {error}")
    program = getattr(assembler, "path", None) or find_toolkit().ptxas
    for arch in (75, 90, 120):
        done = subprocess.run(
            [str(program), f"-arch=sm_{arch}", str(ROOT / "harness/device/stamp.ptx"), "-o", str(tmp_path / "stamp")],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr


# --- tools that watch a process ---------------------------------------------------------------------------------------

NCU = """==PROF== Connected to process 12
==PROF== Profiling "allocate" - 0: 0%....50%....100% - 4 passes
"ID","Process ID","Process Name","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","12","python3","allocate","gpu__time_duration.sum","ns","24,500"
"0","12","python3","allocate","l1tex__t_sector_hit_rate.pct","%","51.5"
"1","12","python3","allocate","gpu__time_duration.sum","ns","24,800"
"1","12","python3","allocate","l1tex__t_sector_hit_rate.pct","%","n/a"
"""


def test_counters_belong_to_kernels_by_their_order() -> None:
    """Two languages may call their entry the same; the n-th launch is the n-th kernel. n/a is no number."""
    names = ["cuda/allocate/plain", "rust-nvptx/allocate/plain"]
    rows, why = tools.parse_counters(NCU, names, "base", "GPU-a")
    assert why is None
    assert [(row["kernel"], row["value"]) for row in rows] == [
        (names[0], 24500.0),
        (names[0], 51.5),
        (names[1], 24800.0),
        (names[1], None),
    ]
    assert rows[0]["unit"] == "ns"
    _, why = tools.parse_counters(NCU, [*names, "cuda/update/plain"], "base", "GPU-a")
    assert why == "2 of 3 launches were profiled"
    assert tools.parse_counters("==ERROR== ERR_NVGPUCTRPERM", names, "base", "u")[1]


def test_a_sanitizer_gate_needs_a_launch_and_no_finding() -> None:
    clean = "cuda/allocate/plain\n========= ERROR SUMMARY: 0 errors\n"
    gate = tools.sanitizer_gate("memcheck", "cuda/allocate/plain", 0, clean, "u")
    assert gate["ok"] and gate["compared"] == 1 and gate["message"] == ""
    assert not tools.sanitizer_gate("memcheck", "cuda/update/plain", 0, clean, "u")["ok"]
    bad = (
        "========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 4 bytes\n"
        "=========     at allocate+0x10\ncuda/allocate/plain\n========= ERROR SUMMARY: 3 errors\n"
    )
    gate = tools.sanitizer_gate("memcheck", "cuda/allocate/plain", tools.FOUND, bad, "u")
    assert not gate["ok"] and gate["message"] == "Invalid __global__ write of size 4 bytes; ERROR SUMMARY: 3 errors"


def test_absent_tools_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_tool", lambda name: None)
    for found in (
        tools.sanitize("u", "build", ["cuda/allocate/plain"], threading.Event()),
        tools.count("u", "build", {"base": ["cuda/allocate/plain"]}, threading.Event()),
    ):
        assert found.gates == found.counters == [] and "not on this machine" in found.flags[0]["why"]


class Sanitizer:
    """Stands for compute-sanitizer: what it says of the kernels of one process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **of: int) -> None:
        self.of = {f"cuda/allocate/{name}": code for name, code in of.items()}
        self.processes: list[list[str]] = []
        monkeypatch.setattr(tools, "find_tool", lambda name: Path("/usr/bin/compute-sanitizer"))
        monkeypatch.setattr(tools, "run_tool", self.run)

    def run(self, command: list[str], environment: dict[str, str], seconds: float, stop: object) -> tuple[int, str]:
        assert seconds <= tools.PROCESS_S
        names = json.loads(Path(command[-1]).read_text())["kernels"]
        self.processes.append(names)
        codes = [self.of.get(name, 0) for name in names]
        return next((code for code in codes if code), 0), "\n".join([*names, "========= Invalid read", "last words"])


MANY = [f"cuda/allocate/{name}" for name in "abcdefgh"]


def test_what_a_sanitizer_finds_gets_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Sanitizer(monkeypatch, c=tools.FOUND)
    found = tools.sanitize("u", "build", MANY, threading.Event(), ["memcheck"])
    assert {gate["arm"]: gate["ok"] for gate in found.gates} == {name: not name.endswith("/c") for name in MANY}
    assert found.flags == [] and len(seen.processes) == 7, "halved: 8, 4 and 4, 2 and 2, 1 and 1"


def test_a_kernel_that_ends_its_sanitizer_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    Sanitizer(monkeypatch, g=-9)
    found = tools.sanitize("u", "build", MANY, threading.Event(), ["memcheck"])
    assert {gate["arm"] for gate in found.gates if gate["ok"]} == {*MANY} - {"cuda/allocate/g"}
    [flag] = found.flags
    assert flag["what"] == "compute-sanitizer memcheck on cuda/allocate/g" and "did not end in time" in flag["why"]


def test_a_sanitizer_that_cannot_work_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Sanitizer(monkeypatch, **dict.fromkeys("abcdefgh", 1))
    found = tools.sanitize("u", "build", MANY, threading.Event(), ["synccheck"])
    assert found.gates == [] and [flag["what"] for flag in found.flags] == ["compute-sanitizer synccheck"]
    assert len(seen.processes) == 2


def test_what_no_sanitizer_judged_in_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    Sanitizer(monkeypatch)
    found = tools.sanitize("u", "build", MANY, threading.Event(), ["memcheck"], seconds=-1)
    assert found.gates == []
    [flag] = found.flags
    assert flag["what"] == "compute-sanitizer memcheck judged 0 of 8 kernels" and "cuda/allocate/h" in flag["why"]


def test_adversarial_cases_run_in_a_process_of_their_own(tmp_path: Path) -> None:
    """Rows for gates.json; without a GPU each says so and none has passed by it, and a process that fails is a flag."""
    found = tools.judge_adversarial("GPU-x", str(tmp_path), ["cuda", "triton"], threading.Event())
    arms = [gate for gate in found.gates if gate["arm"] in ("cuda", "triton")]
    assert found.flags == [] and {gate["cell"] for gate in arms} == set(adversarial_cases())
    # Nothing is built in that folder: said with its reason, with a GPU as without one, and never passed.
    assert all(gate["skipped"] for gate in arms) and not any(gate["ok"] for gate in arms)
    broken = tools.judge_adversarial("GPU-x", str(tmp_path), ["nobody"], threading.Event())
    assert broken.gates == [] and broken.flags[0]["what"] == "adversarial cases" and "exit 1" in broken.flags[0]["why"]


# --- the same on a GPU ------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_smoke_on_a_gpu() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.smoke"], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.gpu
@pytest.mark.timeout(280)
def test_quick_run_on_a_gpu(tmp_path: Path, irr) -> None:
    done = irr("reproduce", "--quick", "--require-gpu", "--allow-missing", "--out", str(tmp_path / "a"), timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"archive: {tmp_path / 'a'}"
    found, problems = check_raw(tmp_path / "a")
    assert problems == [] and found is not None and found.run.quick
    assert found.samples["us"].notna().all() and found.samples["cycles"].notna().all()
