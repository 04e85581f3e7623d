"""The benchmark against Open3D: what it decides, what it says of what is not here. Its times are no test's business."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.environment import ROOT
from harness.errors import IrrError

sys.path.append(str(ROOT / "benchmarks"))

benchmark = importlib.import_module("against_open3d")


def arm(seconds: float, fails: Exception | None = None) -> Callable[[], Any]:
    """What makes an arm whose every run takes so long by its own account."""

    def run() -> float:
        if fails is not None:
            raise fails
        return seconds

    return lambda: benchmark.Arm(run, {"threads": 2})


def test_limits_are_decided_within_a_round() -> None:
    """A round that is twice as slow for all of them moves no ratio; a limit that one round misses is not clear."""
    seconds = {"open3d CPU": [1.0, 2.0, 1.0], "cpu": [3.0, 6.0, 4.0], "cuda": [0.09, 0.18, 0.11], "rust-cpu": [9.0] * 3}
    ratios = benchmark.judge(seconds)
    assert ratios["cpu"]["times_the_time"] == {"median": 3.0, "low": 3.0, "high": 4.0}
    assert (ratios["cpu"]["met"], ratios["cpu"]["clear"]) == (True, False)
    assert ratios["cuda"]["times_as_fast"]["median"] == pytest.approx(1 / 0.09)
    assert (ratios["cuda"]["met"], ratios["cuda"]["clear"]) == (True, False)
    assert "met" not in ratios["rust-cpu"]
    worse = benchmark.judge({**seconds, "cpu": [4.0, 8.0, 4.0], "cuda": [0.2, 0.4, 0.2]})
    assert [(worse[name]["met"], worse[name]["clear"]) for name in ("cpu", "cuda")] == [(False, True), (False, True)]


def test_what_is_absent_stops_nothing_and_is_named() -> None:
    arms, absent, wrong = benchmark.prepare(
        {
            "open3d CPU": arm(1.0),
            "cpu": arm(3.0),
            "rust-cpu": arm(0, IrrError("no rustc\n", "install it")),
            "cuda": arm(0, ImportError("No module named 'cupy'")),
            "other": arm(0, benchmark.WrongBlocks("other built 1 of 2 blocks and dropped 9 samples")),
        }
    )
    assert list(arms) == ["open3d CPU", "cpu"]
    assert absent == {"rust-cpu": "no rustc", "cuda": "No module named 'cupy'"}
    assert wrong == {"other": "other built 1 of 2 blocks and dropped 9 samples"}
    orders = benchmark.measure(arms, 4)
    assert [sorted(order) for order in orders] == [["cpu", "open3d CPU"]] * 4
    ratios = benchmark.judge({name: made.seconds for name, made in arms.items()})
    assert ratios["cpu"]["met"] and benchmark.undecided(ratios, absent) == {"cuda": "No module named 'cupy'"}
    without = benchmark.judge({"cpu": [1.0]})
    assert benchmark.undecided(without, {"open3d CPU": "open3d cannot be imported"}) == {
        "cuda": "open3d cannot be imported",
        "cpu": "open3d cannot be imported",
    }


def test_a_volume_that_lacks_something_is_no_result() -> None:
    benchmark.check_blocks("cpu", 5, 0, 5)
    for built, dropped in ((4, 0), (6, 0), (5, 1)):
        with pytest.raises(benchmark.WrongBlocks, match=f"cpu built {built} of 5"):
            benchmark.check_blocks("cpu", built, dropped, 5)


def small_folder(folder: Path) -> Path:
    """Three frames of 16 x 16 pixels, 1 m before a camera that moves sideways."""
    folder.mkdir()
    np.savetxt(folder / "camera-intrinsics.txt", [[20, 0, 8], [0, 20, 8], [0, 0, 1]])
    for number in range(3):
        pose = np.eye(4)
        pose[0, 3] = 0.05 * number
        Image.fromarray(np.full((16, 16), 1000, np.uint16)).save(folder / f"frame-{number:06d}.depth.png")
        np.savetxt(folder / f"frame-{number:06d}.pose.txt", pose)
    return folder


def test_the_whole_of_it_where_no_gpu_and_perhaps_no_open3d_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Host arms on a small folder: exact blocks, a strict report, an exit code that is about what was decided."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder, out = small_folder(tmp_path / "frames"), tmp_path / "report.json"
    code = benchmark.main([str(folder), "--rounds", "2", "--out", str(out)])
    report = json.loads(out.read_text(), parse_constant=lambda text: pytest.fail(text))
    said = capsys.readouterr().out
    assert (report["frames"], report["points"]) == (3, 768) and report["wrong"] == {}
    assert {"cpu"} <= set(report["arms"]) and "cuda" in report["unavailable"]
    assert f"cuda: unavailable, {report['unavailable']['cuda']}" in said and "limit of cuda: not decided" in said
    for row in report["arms"].values():
        assert len(row["rounds_seconds"]) == 2 and row["seconds"]["low"] <= row["seconds"]["median"]
    assert report["machine"]["cpu"] and report["machine"]["usable_cores"] == report["arms"]["cpu"]["threads"]
    decided = [row["met"] for row in report["ratios"].values() if "met" in row]
    assert code == (0 if decided and all(decided) else 1)
    if "open3d CPU" in report["arms"]:
        assert "open3d CPU twin" in report["ratios"] and decided
    else:
        assert "limit of cpu: not decided" in said


def test_wrong_use_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main([str(tmp_path / "gone")]) == 1
    assert "is not a folder" in capsys.readouterr().err
    with pytest.raises(IrrError, match=r"x\.json cannot be written"):
        benchmark.write(tmp_path / "none" / "x.json", {})
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_arm_over_simulated_cupy(tmp_path: Path) -> None:
    """The same calls as on a GPU: every run fuses into an empty volume, and a pool too small is noticed."""
    code = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests" / "simulated")!r}, {str(ROOT / "benchmarks")!r}, {str(ROOT)!r}]
import builds, cupy_on_host
cupy_on_host.install()
from pathlib import Path
import against_open3d as benchmark
from harness.workload.scenes import sphere
from harness.workload.volume import VolumeConfig
build = builds.make_build(Path({str(tmp_path)!r}), builds.HELPERS)
scenes = [sphere(0.1, 20, 40), sphere(0.12, 20, 40)]
exact = benchmark.exact_block_count(scenes, 0.01)
arm = benchmark.gpu_arm(scenes, VolumeConfig(2 * exact), exact, build)
assert all(arm.run() > 0 for _ in range(3))
assert arm.facts["uuid"] == cupy_on_host.UUID
try:
    benchmark.gpu_arm(scenes, VolumeConfig(exact - 1), exact, build).run()
except benchmark.WrongBlocks as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "cuda built" in done.stdout
