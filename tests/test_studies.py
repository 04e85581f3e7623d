"""The studies' table: what is asked is there to be run, and what is found comes from samples."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Any

import pytest
from test_manager import request, run_json, samples

from harness.archive.write import ArchiveWriter
from harness.build.kernels import KERNELS
from harness.claims.evaluate import registered
from harness.errors import UsageError
from harness.measure import studies, tools
from harness.measure.gating import subjects
from harness.measure.manager import Manager, empty_run
from harness.measure.plan import TWIN, matrix_kernels
from harness.measure.runs import every_cell
from harness.measure.studies import CAUSES, STUDIES
from harness.workload.cells import STUDY_CELLS_FILE, load_cells
from harness.workload.reference import evaluate

BROKEN = [kernel for kernel in KERNELS.values() if kernel.breaks]


@pytest.mark.parametrize("name", STUDIES)
def test_every_question_has_kernels_cells_and_claims(name: str) -> None:
    cells = {**load_cells(), **load_cells(STUDY_CELLS_FILE)}
    for question in STUDIES[name].questions:
        for pattern in question.kernels:
            assert any(fnmatch.fnmatchcase(kernel, pattern) for kernel in KERNELS), pattern
        assert {cell.removesuffix(studies.SMS) for cell in question.cells} <= cells.keys()
        assert set(question.decides) <= {claim.id for claim in registered()}


@pytest.mark.parametrize("name", STUDIES)
def test_a_plan_has_every_entry_once_with_its_bases_and_their_twins(name: str) -> None:
    plan = STUDIES[name].plan([row.name for row in STUDIES[name].rows()], 132)
    keys = [(e.cell, e.kernel, e.launch, e.table) for e in plan]
    assert len(set(keys)) == len(keys)
    for cell, kernel, launch, table in keys:
        if kernel.split("/")[1] in ("allocate", "update"):
            base = f"cuda/{kernel.split('/')[1]}/plain"
            assert {(cell, base, launch, table), (cell, base + TWIN, launch, table)} <= set(keys)
    if name == "scaling":
        assert {"base+sms56", "base+sms132"} <= {cell for cell, *_ in keys}
        assert not any("+" in e.cell for e in STUDIES[name].plan(["cuda/allocate/plain"]))


def test_unknown_studies_are_refused() -> None:
    with pytest.raises(UsageError, match="attribution"):
        studies.find_study("attributoin")


def test_study_cells_hold_exact_counts() -> None:
    cell = load_cells(STUDY_CELLS_FILE)["pts-2k"]
    exact = evaluate(cell.scene(), cell.config)
    assert (len(exact.coords), exact.samples) == (cell.blocks, cell.samples)


def row(kernel: str, us: float, number: int, **changes: Any) -> dict[str, Any]:
    usual = {
        "device_uuid": "GPU-a",
        "cell": "base",
        "launch": "serial",
        "table": "fresh",
        "l2": "asreset",
        "load": "aot",
        "status": "ok",
    }
    return {**usual, "kernel": f"rust-oxide/allocate/{kernel}", "us": us, "pass": number, **changes}


def test_causes_are_ratios_of_the_passes_medians() -> None:
    rows = [row("plain", 10.0, 0), row("plain", 10.0, 1), row("nowait", 8.0, 0), row("nowait", 6.0, 1)]
    rows += [row("nocounter", 9.0, n, status="lossy") for n in (0, 1)]
    rows += [row("clamp", 99.0, 0, status="failed"), row("volatile", 99.0, 0, table="filled")]
    found = {finding["name"]: finding for finding in studies.findings("attribution", rows)}
    assert found["hypothesis.wait.ratio"]["value"] == pytest.approx(0.7)
    assert found["hypothesis.wait.range"]["value"] == pytest.approx([0.6, 0.8])
    assert found["hypothesis.counter.ratio"]["value"] == pytest.approx(0.9)
    assert "breaks: blocks are neither" in found["hypothesis.counter.ratio"]["how"]
    assert set(found) == {f"hypothesis.{cause}.{key}" for cause in ("wait", "counter") for key in ("ratio", "range")}
    assert studies.findings("matrix", rows) == []
    # A second device has passes of the same numbers; none of its times stands in the first one's median.
    rows += [row("plain", 20.0, n, device_uuid="GPU-b") for n in (0, 1)]
    rows += [row("nowait", 14.0, n, device_uuid="GPU-b") for n in (0, 1)]
    found = {finding["name"]: finding for finding in studies.findings("attribution", rows)}
    assert found["hypothesis.wait.ratio"]["value"] == pytest.approx(0.7)
    assert "4 passes" in found["hypothesis.wait.ratio"]["how"]


def test_every_cause_is_a_kernel() -> None:
    for variant, against, _ in CAUSES.values():
        assert {f"rust-oxide/allocate/{name}" for name in (variant, against)} <= KERNELS.keys()


@pytest.mark.parametrize("kernel", BROKEN, ids=lambda kernel: kernel.name)
def test_what_breaks_something_is_never_judged_nor_in_the_matrix(kernel: Any) -> None:
    assert not kernel.matrix and not kernel.host
    assert subjects([kernel.name, "cuda/allocate/plain", "cuda/update/plain"], "gpu")[0].arm == "cuda"
    assert all(kernel.name not in (s.allocate, s.update) for s in subjects([kernel.name], "gpu"))


def test_a_study_without_its_multiprocessors_says_so(tmp_path: Path) -> None:
    plan = STUDIES["scaling"].plan(["cuda/allocate/plain"], 132)
    plan = [entry for entry in plan if entry.cell.startswith("base")]
    asked = request(plan=plan, passes=1, study="scaling")
    cells = every_cell(asked)
    assert cells["base+sms56"] == load_cells()["base"]
    archive = Manager(
        ArchiveWriter.create(tmp_path / "a", empty_run(asked, cells)), asked, cells, lambda line: None
    ).run()
    assert {row["cell"] for row in samples(archive)} == {"base"}
    assert sum("base+sms" in flag["what"] for flag in run_json(archive)["flags"]) == 2


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_times_only_what_is_launched_on_points_or_offsets(name: str) -> None:
    # A glob that took the extract kernel along stopped a run on the GPU: it wants buffers that no batch has.
    plan = STUDIES[name].plan(list(KERNELS), 132)
    assert plan and {KERNELS[e.kernel.removesuffix("@twin")].stage for e in plan} <= {
        "allocate", "update", "integrate", "floor",
    }  # fmt: skip


def test_the_attribution_study_sanitizes_all_that_it_times() -> None:
    study = STUDIES["attribution"]
    names = [row.name for row in study.rows()]
    timed = {entry.kernel.removesuffix(TWIN) for entry in study.plan(names, 132)}
    assert timed <= set(study.judged(names)) and {kernel.name for kernel in BROKEN if kernel.name in names} <= timed


def test_kernels_are_counted_where_they_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = STUDIES["attribution"]
    plan = study.plan([row.name for row in study.rows()], 132)
    asked = request(
        plan=plan, passes=0, study="attribution", sanitized=["cuda/allocate/plain"], sanitizer_s=study.sanitizer_s,
        counted=study.counted(plan), counted_cells=list(study.counted_cells),
    )  # fmt: skip
    said: dict[str, Any] = {}
    monkeypatch.setattr(tools, "count", lambda uuid, build, kernels, stop: said.update(kernels) or tools.ToolRun())
    monkeypatch.setattr(tools, "sanitize", lambda *_, seconds: said.update(limit=seconds) or tools.ToolRun())
    cells = every_cell(asked)
    Manager(ArchiveWriter.create(tmp_path / "a", empty_run(asked, cells)), asked, cells, lambda line: None).run()
    assert said["limit"] == study.sanitizer_s
    assert "rust-oxide/allocate/nofence" in said["base"] and "rust-oxide/allocate/nofence" not in said["lf-918"]
    assert {"cuda/allocate/walls", "triton/allocate/while", "cuda/allocate/otherhash"} <= set(said["lf-918"])
    assert not any("while-w" in name for names in (said["base"], said["lf-918"]) for name in names)


@pytest.mark.parametrize("name", STUDIES)
def test_no_kernel_of_a_study_is_published_without_a_sanitizer(name: str) -> None:
    rows = STUDIES[name].rows()
    elsewhere = {kernel.name for kernel in matrix_kernels(KERNELS.values())}
    for study in STUDIES.values():
        elsewhere |= set(study.judged([row.name for row in study.rows()]))
    assert {row.name for row in rows} <= elsewhere
