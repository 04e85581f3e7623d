"""The scaling study: multiprocessors held by a kernel, points from 2 thousand to 20 million, what its archive says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.archive.read import load
from harness.archive.verify import check_raw
from harness.archive.write import ArchiveWriter
from harness.build.manifest import manifest_path
from harness.build.toolchain import find_toolkit
from harness.claims import evaluate
from harness.claims.registry import REGISTRY, View
from harness.device import occupy
from harness.environment import ROOT
from harness.errors import IrrError
from harness.measure.manager import Manager, Request, empty_run
from harness.measure.runs import every_cell
from harness.measure.studies import STUDIES
from harness.measure.worker import utc_now
from harness.report import scaling
from harness.report.drawing import Missing, render
from harness.workload.cells import STUDY_CELLS_FILE, load_cells
from tests.synthetic import sample_rows, write_archive

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


# ------------------------------------------------------------------------------------------------------------- figures

CA, CU, TA = "cuda/allocate/plain", "cuda/update/plain", "triton/allocate/static8"
TIGHT, GEOMETRY, NULL = f"{TA}-s256", "cuda/floor/geometry", "cuda/floor/null"


def scaling_view(root: Path, **faster: float) -> View:
    """An archive of the study with invented times: so many times as fast on 132 multiprocessors as on 56."""
    here = {**load_cells(), **load_cells(STUDY_CELLS_FILE)}
    cells = ("pts-2k", "pts-20k", "base", "pts-1280k", "pts-20m")
    number = {cell: len(here[cell].scene()) if cell != "pts-20m" else 20_480_000 for cell in cells}
    times: dict[tuple[str, ...], float] = {}
    for kernel, (fixed, per_thousand) in {
        CA: (18.0, 0.03), CU: (13.0, 0.6), "triton/allocate/while": (16.0, 0.05), GEOMETRY: (2.0, 0.02),
        NULL: (0.8, 0.0024),
    }.items():  # fmt: skip
        times |= {(kernel, cell): fixed + per_thousand * number[cell] / 1000 for cell in cells}
    speed = {
        CA: 1.5,
        TA: 2.0,
        TIGHT: 1.0,
        GEOMETRY: 2.3,
        CU: 1.2,
        **{k.replace("_", "/"): v for k, v in faster.items()},
    }
    for kernel, us in {CA: 27.6, TA: 166.0, TIGHT: 1800.0, GEOMETRY: 8.4, CU: 205.0}.items():
        times |= {(kernel, "base"): us, (kernel, "base+sms132"): us, (kernel, "base+sms56"): us * speed[kernel]}
    write_archive(root, samples=sample_rows(times), study="scaling", finish=False)
    document = json.loads((root / "raw" / "run.json").read_text())
    for cell in cells:
        document["cells"][cell] |= {"points": number[cell], "axis": here[cell].axis}
    (root / "raw" / "run.json").write_text(json.dumps(document))
    return View(load(root))


def test_time_by_points_goes_over_every_cell_beside_the_floors(tmp_path: Path) -> None:
    plot = scaling.points(scaling_view(tmp_path / "a"))
    svg, pdf = render(plot)
    assert svg.startswith(b"<?xml") and pdf.startswith(b"%PDF")
    line = [row for row in plot.table.rows if row["kernel"] == CA]
    assert [row["points"] for row in line] == [2048, 20_000, 320_000, 1_280_000, 20_480_000]
    assert {row["kernel"] for row in plot.table.rows} >= {NULL, GEOMETRY, "triton/allocate/while", CU}
    assert not any(row["kernel"] in (TA, TIGHT) for row in plot.table.rows), "timed on base alone: the other question"
    assert "CUDA C++'s allocate takes 18.1 us for 2,048 points and 632 us for 20,480,000" in plot.answer
    assert "the last 16.0 times the points" in plot.answer


def test_time_by_multiprocessors_stands_beside_the_papers_ranges(tmp_path: Path) -> None:
    plot = scaling.multiprocessors(scaling_view(tmp_path / "a"))
    render(plot)
    rows = {str(row["kernel"]): row for row in plot.table.rows}
    assert rows[CA]["scaling"] == pytest.approx(1.5, rel=0.01) and (rows[CA]["few"], rows[CA]["many"]) == (56, 132)
    assert "2.36 times as many" in plot.answer and "Triton with 256 shared slots 1.00 (0.89 to 1.07)" in plot.answer
    assert "decide nothing" not in plot.answer and "With none held, base itself takes the same to" in plot.answer
    held = scaling.multiprocessors(scaling_view(tmp_path / "b", cuda_floor_geometry=2000.0))
    assert "these times decide nothing" in held.answer


def test_an_archive_of_another_study_has_neither_figure(tmp_path: Path) -> None:
    write_archive(tmp_path / "a", samples=sample_rows({(CA, "base"): 24.0, (CA, "pts-20k"): 19.0, (CA, "r-2.0"): 30.0}))
    for make in (scaling.points, scaling.multiprocessors):
        with pytest.raises(Missing):
            make(View(load(tmp_path / "a")))


def test_p23_turns_with_what_the_multiprocessors_bring(tmp_path: Path) -> None:
    claim = REGISTRY.claims["P23"]
    found = evaluate.judge(claim, scaling_view(tmp_path / "a"))
    assert found.verdict == "reproduced" and "From 56 to 132 multiprocessors, 2.36x of them" in found.reason
    more = evaluate.judge(claim, scaling_view(tmp_path / "b", **{TIGHT.replace("/", "_"): 2.0}))
    assert more.verdict == "differs" and "256 slots" in more.reason and more.measured == pytest.approx(2.0, rel=0.01)
    none = evaluate.judge(claim, scaling_view(tmp_path / "c", cuda_allocate_plain=1.0))
    assert none.verdict == "differs" and "cuda" in none.reason
    held = evaluate.judge(claim, scaling_view(tmp_path / "d", cuda_floor_geometry=2000.0))
    assert held.verdict == "undecided" and "more than multiprocessors was taken away" in held.reason
