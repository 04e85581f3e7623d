"""The run without a GPU judges real frames that are here: exactly, arm against arm, and beside Open3D."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.archive.schema import Gate, decode
from harness.device.host import host_library
from harness.errors import IrrError
from harness.gates import run
from harness.measure import without_gpu
from harness.measure.requests import Asked
from harness.workload.fused import VOXEL_FIELDS

POSES = 3


@pytest.fixture(autouse=True)
def frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of frames: a wall that slants and waves, 3 mm between the pixels, before a camera that moves."""
    try:
        for language in ("cuda", "rust-nvptx"):
            host_library(language)
    except IrrError as error:
        pytest.skip(error.what)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("IRR_DATA", str(tmp_path / "data"))
    folder = tmp_path / "data" / "wall"
    folder.mkdir(parents=True)
    np.savetxt(folder / "camera-intrinsics.txt", [[300, 0, 80], [0, 300, 60], [0, 0, 1]])
    v, u = np.mgrid[0:120, 0:160]
    depth = 900 + u / 2 + 20 * np.sin(v / 20)
    for number in range(POSES):
        pose = np.eye(4)
        pose[0, 3] = 0.0123456 * number
        Image.fromarray(depth.astype(np.uint16)).save(folder / f"frame-{number:06d}.depth.png")
        np.savetxt(folder / f"frame-{number:06d}.pose.txt", pose)
    return folder


def reproduce(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    """The request of a run without a GPU, with the steps left out that look at no frame."""
    nothing: dict[str, Any] = {
        "contraction": lambda: ([], [], None),
        "probes": list,
        "language": lambda: ([], None),
        "planted_evidence": lambda: ([], None),
        "host_surface": lambda cell: [],
        "archived_results": lambda: ([], []),
        "GATED_CELLS": "pts-20k",
    }
    for name, value in nothing.items():
        monkeypatch.setattr(without_gpu, name, value)
    monkeypatch.setattr(without_gpu, "host_gates", _host_gates(without_gpu.host_gates))
    requests: list[Any] = []
    monkeypatch.setattr(without_gpu, "start", lambda request, path: requests.append(request) or path)
    without_gpu.reproduce_without_gpu(Asked(command=["irr"], arms="cpu", **changes), Path("never made"))
    return requests[0]


def _host_gates(real: Any) -> Any:
    return lambda cells=None: [] if cells is None else real(cells)


def test_every_frame_is_judged_exactly_and_beside_open3d(monkeypatch: pytest.MonkeyPatch, frames: Path) -> None:
    pytest.importorskip("open3d")
    request = reproduce(monkeypatch)
    gates = [decode(Gate, json.dumps(row).encode(), "gates") for row in request.extra_gates]
    here = [gate for gate in gates if gate.cell == "wall-all" and gate.skipped is None]
    assert here and all(gate.ok for gate in here), [gate.message for gate in here if not gate.ok]
    judged = {(gate.arm, gate.place) for gate in here if gate.gate == "exact-set"}
    assert judged == {("cpu", "host"), ("rust-cpu", "host")}
    assert any(gate.tier == "cross-arm" for gate in here)
    (beside,) = [gate for gate in here if gate.tier == "third-party"]
    medians = [beside.detail[f"{way}_median_m"] for way in ("ours_to_theirs", "theirs_to_ours")]
    assert beside.place == "library" and max(medians) < 0.01 and beside.detail["common_blocks"] > 0
    (finding,) = [row for row in request.evidence if row["name"] == "frames.wall.sha256"]
    assert f"first {POSES} usable frames" in finding["how"]
    assert not any(flag.what == without_gpu.NO_FRAMES for flag in request.flags)
    # Derived numbers only: neither where the frames lie nor a pose.
    written = json.dumps([request.extra_gates, request.evidence, [flag.why for flag in request.flags]])
    assert str(frames.parent) not in written and "0.0123" not in written and "0.0246" not in written


def test_frames_that_are_timed_too_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    request = reproduce(monkeypatch, cells="wall-cold")
    assert [entry.cell for entry in request.plan] == ["wall-cold"] * len(request.plan)
    names = [row["name"] for row in request.evidence]
    assert names.count("frames.wall.sha256") == 1 and len(set(names)) == len(names)


def test_an_arm_that_loses_a_block_of_real_frames_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    fuse = run.HostPlace.fuse

    def loses(self: Any, arm: Any, *rest: Any) -> run.Fusion:
        fusion = fuse(self, arm, *rest)
        kept = {name: getattr(fusion.fused, name)[1:] for name in ("coords", *VOXEL_FIELDS)}
        return (
            fusion
            if arm.name == "cpu"
            else dataclasses.replace(fusion, fused=dataclasses.replace(fusion.fused, **kept))
        )

    monkeypatch.setattr(run.HostPlace, "fuse", loses)
    red = {
        (row["arm"], row["gate"]) for row in reproduce(monkeypatch).extra_gates if not row["ok"] and not row["skipped"]
    }
    assert ("rust-cpu", "exact-set") in red and not any(arm == "cpu" for arm, _ in red)


def test_damaged_frames_are_said_and_stop_nothing(monkeypatch: pytest.MonkeyPatch, frames: Path) -> None:
    (frames / "camera-intrinsics.txt").write_text("nan 0 2\n0 100 2\n0 0 1\n")
    request = reproduce(monkeypatch)
    assert any(flag.what == "wall-all was not judged" and "nan" in flag.why for flag in request.flags)
    assert not any(row["cell"] == "wall-all" for row in request.extra_gates)


@pytest.mark.parametrize(("quick", "why"), [(True, "--quick"), (False, "none are here")])
def test_a_run_without_frames_says_so(
    quick: bool, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not quick:
        monkeypatch.setenv("IRR_DATA", str(tmp_path / "gone"))
    request = reproduce(monkeypatch, quick=quick)
    (flag,) = [flag for flag in request.flags if flag.what == without_gpu.NO_FRAMES]
    assert why in flag.why and str(tmp_path) not in flag.why
    said = capsys.readouterr().err
    assert without_gpu.NO_FRAMES in said and "frames: host arms" not in said
    assert not any(row["name"].startswith("frames.") for row in request.evidence)
