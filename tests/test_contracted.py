"""The study of contraction: from its plan to a verified archive, what the comparison sees, and what stops it."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.archive.read import load
from harness.archive.verify import check_new, check_raw
from harness.build.manifest import load_manifest, manifest_path
from harness.claims.evaluate import judge
from harness.claims.registry import REGISTRY, View
from harness.device.host import HostVolume
from harness.environment import ROOT
from harness.measure import requests, runs
from harness.measure.contracted import arms_with_twins, compare_volumes, contraction_gate
from harness.measure.devices import Found
from harness.measure.gating import subjects
from harness.measure.plan import CONTRACTED, TWIN
from harness.measure.studies import STUDIES
from harness.report import contracted as report
from harness.report.drawing import Missing, render
from harness.workload.fused import RawVolume
from harness.workload.scenes import sphere
from harness.workload.volume import VolumeConfig
from tests.synthetic import sample_rows, write_archive

SIMULATED = ROOT / "tests" / "simulated"
sys.path.append(str(SIMULATED))

import builds  # noqa: E402
import cupy_on_host  # noqa: E402

STUDY = STUDIES["contracted"]
CA, CU = "cuda/allocate/plain", "cuda/update/plain"
RA, RU = "rust-nvptx/allocate/plain", "rust-nvptx/update/plain"


def test_every_kernel_stands_beside_its_contracted_build() -> None:
    rows = [row.name for row in STUDY.rows()]
    assert STUDY.controls() == [name + CONTRACTED for name in rows]
    plan = STUDY.plan([*rows, *STUDY.controls()], 132, ["room-cold", "room-dense"])
    timed = {(entry.cell, entry.kernel) for entry in plan}
    assert {cell for cell, _ in timed} == {"base", "plane-320k", "r-2.0", "room-cold"}
    for cell, kernel in timed:
        if not kernel.endswith((TWIN, CONTRACTED)):
            assert (cell, kernel + CONTRACTED) in timed
    assert {arm.name for arm in arms_with_twins({kernel for _, kernel in timed})} == {
        "cuda", "rust-nvptx", "rust-oxide", "rust-global", "triton", "triton-while",
    }  # fmt: skip


def test_no_exact_gate_judges_a_contracted_kernel() -> None:
    judged = subjects([*STUDY.controls(), CA, CU, CA + TWIN], "gpu")
    assert [(subject.allocate, subject.update) for subject in judged] == [(CA, CU)]


# --------------------------------------------------------------------------------------------------------- comparison


@pytest.fixture(scope="module")
def volume() -> RawVolume:
    host = HostVolume(VolumeConfig(512))
    for kernel in (CA, CU):
        host.launch(kernel, sphere(0.2, 50, 100))
    return host.raw()


def changed(volume: RawVolume, change: Any) -> RawVolume:
    copy = dataclasses.replace(volume, voxels={name: array.copy() for name, array in volume.voxels.items()})
    change(copy.voxels)
    return copy


def move_one(voxels: dict[str, np.ndarray]) -> None:
    """One sample from a voxel that has one into the next."""
    block, voxel = np.argwhere(voxels["weight"][:, :-1] > 0)[0]
    voxels["weight"][block, voxel] -= 1
    voxels["weight"][block, voxel + 1] += 1


def test_a_moved_sample_and_one_that_only_one_takes_are_told_apart(volume: RawVolume) -> None:
    same = compare_volumes(volume, volume)
    assert (same.blocks_one, same.voxels, same.moved, same.single, same.tsdf) == (0, 0, 0, 0, 0.0)
    assert same.samples == int(volume.voxels["weight"].sum())
    moved = compare_volumes(volume, changed(volume, move_one))
    assert (moved.blocks_one, moved.voxels, moved.moved, moved.single) == (0, 2, 1, 0)

    def lose(voxels: dict[str, np.ndarray]) -> None:
        voxels["weight"][tuple(np.argwhere(voxels["weight"] > 0)[0])] -= 1

    lost = compare_volumes(volume, changed(volume, lose))
    assert (lost.voxels, lost.moved, lost.single) == (1, 0, 1)

    def nudge(voxels: dict[str, np.ndarray]) -> None:
        voxels["tsdf"][tuple(np.argwhere(voxels["weight"] > 0)[0])] += np.float32(0.25)

    nudged = compare_volumes(volume, changed(volume, nudge))
    assert nudged.voxels == 0 and nudged.tsdf == pytest.approx(0.25)


def test_blocks_are_matched_by_coordinates_and_one_alone_is_counted(volume: RawVolume) -> None:
    order = np.random.default_rng(1).permutation(volume.count)
    shuffled = dataclasses.replace(
        volume, coords=volume.coords[order], voxels={name: array[order] for name, array in volume.voxels.items()}
    )
    assert compare_volumes(volume, shuffled).voxels == 0
    last = shuffled.voxels["weight"][-1]
    fewer = dataclasses.replace(
        shuffled, count=volume.count - 1, voxels={name: array[:-1] for name, array in shuffled.voxels.items()}
    )
    one = compare_volumes(volume, fewer)
    assert (one.blocks_one, one.voxels) == (1, int((last != 0).sum()))
    assert (one.moved, one.single) == (0, int(last.sum()))
    back = compare_volumes(fewer, volume)
    assert (back.blocks_one, back.voxels, back.single) == (1, one.voxels, one.single)


def test_the_gate_takes_a_rounding_and_refuses_another_program(volume: RawVolume) -> None:
    same = compare_volumes(volume, volume)

    def gate(fused: RawVolume, noise: Any = same, bounded: bool = False) -> Any:
        return contraction_gate(volume, fused, noise, compare_volumes(volume, fused), bounded, "x on y")

    assert gate(volume).ok and gate(changed(volume, move_one)).ok

    def roll(voxels: dict[str, np.ndarray]) -> None:
        voxels["weight"] = np.roll(voxels["weight"], 1, axis=1)

    assert "moved" in gate(changed(volume, roll)).message and not gate(changed(volume, roll), bounded=True).ok
    nothing = changed(volume, lambda voxels: voxels["weight"].fill(0))
    assert "in one of the two only" in gate(nothing).message
    assert gate(nothing, bounded=True).ok, "what a bounded probe loses is told by its samples"
    assert "two runs without contraction differ" in gate(volume, dataclasses.replace(same, voxels=3)).message
    assert "7 failed inserts" in gate(dataclasses.replace(volume, failed_inserts=7)).message
    empty = dataclasses.replace(volume, count=0, voxels={name: array[:0] for name, array in volume.voxels.items()})
    assert not gate(empty).ok


# ----------------------------------------------------------------------------------------------- over simulated CuPy


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Two languages' kernels, each beside its contracted build: the same code, so that nothing may differ."""
    folder = builds.make_build(tmp_path / "build", [*builds.HELPERS, RA, RU])
    builds.make_flavour(folder, [CA, CU, RA, RU], "fma")
    for name in (RA, RU, RA + CONTRACTED, RU + CONTRACTED):  # stock rustc contracts nothing
        manifest = load_manifest(manifest_path(folder, 90, name))
        manifest.code_sha256 = "a" * 64
        manifest.save(manifest_path(folder, 90, name))
    return folder


def run(build: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """From the request to the archive, on one cell."""
    monkeypatch.setattr(requests, "build_missing", lambda *_: [])
    monkeypatch.setattr(requests, "multiprocessors", lambda: cupy_on_host.SMS)
    small = dataclasses.replace(STUDY.questions[0], cells=("pts-20k",), frames=())
    monkeypatch.setitem(STUDIES, "contracted", dataclasses.replace(STUDY, questions=(small,), rounds=1, sanitized=()))
    card = {"uuid": cupy_on_host.UUID, "name": "Simulated", "arch": 90}
    asked = requests.Asked(command=["irr", "test"], passes=2, allow_missing=True)
    request = requests.study_request(Found([cupy_on_host.UUID], [card], [], "13.0"), asked, "contracted", build=build)
    request.station, request.batch = f"{SIMULATED / 'stations.py'}:SimulatedGpu", 2
    return runs.start(request, archive)


@pytest.mark.timeout(280)
def test_the_study_from_its_request_to_a_verified_archive(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = run(build, tmp_path / "archive", monkeypatch)
    assert check_new(archive) == []
    found, _ = check_raw(archive)
    assert found is not None and found.run.study == "contracted"
    assert {k + CONTRACTED for k in (CA, CU, RA, RU)} | {CA + TWIN, RU} <= set(found.samples["kernel"])
    assert set(found.samples["status"]) == {"ok"}
    assert any("not judged exactly" in flag.what for flag in found.run.flags)
    assert {(s.kernel, s.status) for s in found.run.skipped} >= {("triton/update/while" + CONTRACTED, "unavailable")}
    mine = {(gate.gate, gate.arm) for gate in found.gates if gate.arm.endswith(CONTRACTED)}
    assert mine == {
        ("table", CA + CONTRACTED), ("table", RA + CONTRACTED),
        ("contraction", CU + CONTRACTED), ("contraction", RU + CONTRACTED),
    }  # fmt: skip
    for arm in ("cuda", "rust-nvptx"):
        assert found.evidence[f"contraction.{arm}.same_code"].value is (arm == "rust-nvptx")
        prefix = f"contraction.{arm}.pts-20k."
        values = {n.removeprefix(prefix): e.value for n, e in found.evidence.items() if n.startswith(prefix)}
        assert values.pop("samples") == 169_784
        assert {values.pop("tsdf_difference") < 1e-3, values.pop("tsdf_again") < 1e-3} == {True}
        assert values == dict.fromkeys(
            ("blocks_in_one", "voxels_differing", "samples_moved", "samples_in_one", "dropped_samples", "voxels_again"),
            0,
        )
    assert (archive / "raw" / "builds" / "sm_90" / "cuda--update--plain--fma.json").is_file()


@pytest.mark.timeout(280)
def test_a_contracted_build_of_another_program_is_red(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: rust-nvptx's contracted update does nothing."""
    path = manifest_path(build, 90, RU + CONTRACTED)
    manifest = load_manifest(path)
    manifest.entry = "floor_null"
    manifest.save(path)
    path.with_suffix(".cubin").write_text("cuda")
    archive = run(build, tmp_path / "archive", monkeypatch)
    found, problems = check_raw(archive)
    assert problems == [] and found is not None
    [red] = [gate for gate in found.gates if not gate.ok and gate.skipped is None]
    assert (red.gate, red.arm) == ("contraction", RU + CONTRACTED) and "in one of the two only" in red.message
    assert any(RU + CONTRACTED in problem for problem in check_new(archive))
    assert found.evidence["contraction.rust-nvptx.pts-20k.samples_in_one"].value == 169_784
    wrong = found.samples["kernel"] == RU + CONTRACTED
    assert set(found.samples[wrong]["status"]) == {"failed"} and set(found.samples[~wrong]["status"]) == {"ok"}


# -------------------------------------------------------------------------------------------------- claim and figures


def finished(root: Path, compared: dict[tuple[str, str], tuple[int, int]], **changes: Any) -> View:
    """An archive of the study with invented differences.

    Args:
        compared: (arm, cell) -> (samples moved, samples in one). changes: ARM__KEY to another value of a finding.
    """
    times = {
        (k + f, cell): 20.0 + 3 * bool(f) for k in (CA, CU, RA, RU) for f in ("", CONTRACTED) for _, cell in compared
    }
    write_archive(root, samples=sample_rows(times), study="contracted", finish=False)
    rows: list[dict[str, Any]] = []
    for (arm, cell), (moved, single) in compared.items():
        values = {
            "samples": 3_000_000, "samples_moved": moved, "samples_in_one": single, "blocks_in_one": 0,
            "voxels_differing": 2 * moved + single, "dropped_samples": 0, "tsdf_difference": 3e-4, "voxels_again": 0,
            "tsdf_again": 2e-4,
        }  # fmt: skip
        rows += [{"name": f"contraction.{arm}.{cell}.{key}", "value": value} for key, value in values.items()]
        rows.append({"name": f"contraction.{arm}.same_code", "value": arm == "rust-nvptx"})
    for row in rows:
        row["value"] = changes.get(row["name"], row["value"])
    unique = {row["name"]: {**row, "unit": "", "how": "invented"} for row in rows}
    (root / "raw" / "evidence.json").write_text(json.dumps(list(unique.values())))
    document = json.loads((root / "raw" / "run.json").read_text())
    for cell, facts in document["cells"].items():
        facts["axis"] = {"base": "baseline", "r-2.0": "extent"}.get(cell, "trajectory")
    (root / "raw" / "run.json").write_text(json.dumps(document))
    return View(load(root))


USUAL = {
    ("cuda", "base"): (0, 0), ("cuda", "r-2.0"): (0, 0), ("cuda", "room-cold"): (1, 10),
    ("rust-nvptx", "base"): (0, 0), ("rust-nvptx", "room-cold"): (0, 0),
}  # fmt: skip
O10 = REGISTRY.claims["O10"]


def test_the_claim_holds_where_frames_differ_and_synthetic_cells_do_not(tmp_path: Path) -> None:
    found = judge(O10, finished(tmp_path / "a", USUAL))
    assert found.verdict == "reproduced", found.reason
    assert "1 lie in another voxel and 10 are taken" in found.reason and "rust-nvptx has the same code" in found.reason
    assert found.measured == pytest.approx(11 / 3_000_000)
    synthetic = judge(O10, finished(tmp_path / "b", {**USUAL, ("cuda", "r-2.0"): (1, 0)}))
    assert synthetic.verdict == "refuted" and "cuda on r-2.0" in synthetic.reason
    assert judge(O10, finished(tmp_path / "c", {**USUAL, ("cuda", "room-cold"): (0, 0)})).verdict == "refuted"
    assert judge(O10, finished(tmp_path / "d", {**USUAL, ("cuda", "room-cold"): (500, 0)})).verdict == "undecided"


def test_the_claim_says_what_it_lacks(tmp_path: Path) -> None:
    def verdict(name: str, compared: Any, **changes: Any) -> Any:
        return judge(O10, finished(tmp_path / name, compared, **changes))

    same = verdict("a", {key: value for key, value in USUAL.items() if key[0] == "rust-nvptx"})
    assert same.verdict == "undecided" and "whose compiler contracts" in same.reason
    assert "of a frame" in verdict("b", {("cuda", "base"): (0, 0)}).reason
    assert "of a synthetic cell" in verdict("c", {("cuda", "room-cold"): (0, 3)}).reason
    # Two runs of one build that differ say nothing of contraction.
    noisy = verdict("d", USUAL, **{"contraction.cuda.room-cold.voxels_again": 4})
    assert noisy.verdict == "undecided" and "of a frame" in noisy.reason
    write_archive(tmp_path / "e", samples=sample_rows({(CA, "base"): 20.0}))
    other = judge(O10, View(load(tmp_path / "e")))
    assert other.verdict == "undecided" and "which study contracted makes" in other.reason


def test_the_figures_tell_samples_and_times(tmp_path: Path) -> None:
    view = finished(tmp_path / "a", USUAL)
    plot = report.samples(view)
    assert render(plot)[0].startswith(b"<?xml") and len(plot.table.rows) == len(USUAL)
    assert "no sample differs on base and r-2.0" in plot.answer
    assert "on room-cold 1 of 3,000,000 samples move to another voxel and 10 are taken by one build only" in plot.answer
    assert "rust-nvptx has the same code in both builds" in plot.answer
    timed = report.times(view)
    assert render(timed)[0].startswith(b"<?xml")
    assert {row["cell"] for row in timed.table.rows} == {"base", "r-2.0", "room-cold"}
    assert all(row["ratio"] == pytest.approx(1.15, rel=0.02) for row in timed.table.rows)
    assert "cuda/allocate/plain 1.15" in timed.answer
    write_archive(tmp_path / "b", samples=sample_rows({(CA, "base"): 20.0}))
    for make in (report.samples, report.times):
        with pytest.raises(Missing):
            make(View(load(tmp_path / "b")))
