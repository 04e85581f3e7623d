"""The scaling study: multiprocessors held by a kernel, points from 2 thousand to 20 million, what its archive says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.archive.verify import check_raw
from harness.archive.write import ArchiveWriter
from harness.build.manifest import manifest_path
from harness.build.toolchain import find_toolkit
from harness.device import occupy
from harness.environment import ROOT
from harness.errors import IrrError
from harness.measure.manager import Manager, Request, empty_run
from harness.measure.runs import every_cell
from harness.measure.studies import STUDIES
from harness.measure.worker import utc_now
from harness.workload.cells import STUDY_CELLS_FILE, load_cells

SIMULATED = ROOT / "tests" / "simulated"
sys.path.append(str(SIMULATED))

import builds  # noqa: E402
import cupy_on_host  # noqa: E402

SCALING = STUDIES["scaling"]


# ----------------------------------------------------------------------------------------------------------- occupying


@pytest.mark.parametrize("arch", [75, 80, 86, 89, 90, 100, 120])
def test_the_occupying_kernel_fills_a_multiprocessor_and_leaves_memory_alone(arch: int, tmp_path: Path) -> None:
    try:
        toolkit = find_toolkit()
    except IrrError as error:
        pytest.skip(str(error))
    (tmp_path / "occupy.ptx").write_text(occupy.source())
    words = [str(toolkit.ptxas), "-v", f"-arch=sm_{arch}", "occupy.ptx", "-o", "occupy.cubin"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    used = re.search(r"Used (\d+) registers", done.stderr)
    assert used is not None and occupy.FEWEST_REGISTERS <= int(used[1]) <= 65_536 // occupy.THREADS
    words = [str(toolkit.nvdisasm), "-c", "occupy.cubin"]
    sass = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout
    code = [line for line in sass.splitlines() if re.search(r"^\s*/\*[0-9a-f]{4}\*/", line)]
    load, sleep, barrier = (
        [i for i, line in enumerate(code) if word in line] for word in ("LDG", "NANOSLEEP", "BAR.RED")
    )
    # One load, by the one thread that did not branch to the barrier, after its sleep.
    assert len(load) == 1 and len(sleep) == occupy.SLEEPS and barrier
    branch = next(i for i, line in enumerate(code) if re.search(r"@P\d BRA", line))
    assert branch < min(sleep) < max(sleep) < load[0] < min(barrier)


# ---------------------------------------------------------------------------------------------- over simulated CuPy


@pytest.mark.timeout(280)
def test_the_study_from_its_plan_to_a_verified_archive(tmp_path: Path) -> None:
    """Cells with fewer multiprocessors, cells of the study's own file, loss figures: the worker over simulated CuPy."""
    names = [*builds.HELPERS, "cuda/floor/null", "cuda/floor/geometry"]
    build = builds.make_build(tmp_path / "build", names)
    here = {**load_cells(), **load_cells(STUDY_CELLS_FILE)}
    plan = SCALING.plan(names, cupy_on_host.SMS)
    assert {"base+sms1", "base+sms4"} <= {entry.cell for entry in plan}
    plan = [entry for entry in plan if entry.cell in ("base+sms1", "base+sms4", "pts-2k")]
    request = Request(
        study="scaling",
        station=f"{SIMULATED / 'stations.py'}:SimulatedGpu",
        devices=[cupy_on_host.UUID],
        plan=plan,
        passes=1,
        rounds=1,
        seed=1,
        batch=2,
        build=str(build),
        command=["irr", "test"],
        created_utc=utc_now(),
        gates=SCALING.gates,
        gates_once=True,
        trajectories={name: cell for name, cell in here.items() if name not in load_cells()},
        arch=90,
        manifests=[str(manifest_path(build, 90, name)) for name in names],
    )
    cells = every_cell(request)
    writer = ArchiveWriter.create(tmp_path / "archive", empty_run(request, cells))
    archive = Manager(writer, request, cells, lambda line: None).run()
    found, problems = check_raw(archive)
    assert problems == [] and found is not None
    assert found.run.flags == [], "a held multiprocessor is let go, and a cell that could not be held would be flagged"
    assert len(found.samples) == len(plan) and set(found.samples["status"]) == {"ok"}
    built = found.samples[found.samples["kernel"] == "cuda/allocate/plain"]
    assert dict(zip(built["cell"], built["blocks"], strict=True)) == {
        "base+sms1": 1160, "base+sms4": 1160, "pts-2k": 968,
    }  # fmt: skip
    facts = json.loads((archive / "raw" / "run.json").read_text())["cells"]
    assert facts["base+sms1"]["points"] == 320_000 and facts["pts-2k"]["axis"] == "scale"
