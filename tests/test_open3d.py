"""Arm A1: what Open3D is asked and never mistaken for, and the gate that holds our surface against its own."""

from __future__ import annotations

import builtins
import dataclasses
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from harness.device import open3d_arm
from harness.device.host import HostVolume
from harness.device.open3d_arm import Grid, Unavailable
from harness.gates import thirdparty
from harness.gates.thirdparty import judge_cell, sphere_frames, third_party_gate
from harness.workload.cells import load_cells
from harness.workload.frames import to_scene
from harness.workload.fused import Fused
from harness.workload.scenes import sphere
from harness.workload.trajectories import all_cells
from harness.workload.volume import VOXEL_FIELDS, VolumeConfig

REAL = Path(__file__).parents[2] / "shared" / "data"


# --- N26: missing, headless, on the CPU although CUDA was asked for ---------------------------------------------------


def fake(cuda: bool, device: str = "CPU:0") -> types.ModuleType:
    """A module that answers what `choose_device` asks."""
    module = types.ModuleType("open3d")
    module.__version__ = "0.0-fake"  # type: ignore[attr-defined]
    available = types.SimpleNamespace(is_available=lambda: cuda)
    module.core = types.SimpleNamespace(cuda=available, Device=lambda name: name)  # type: ignore[attr-defined]
    return module


def test_without_cuda_it_is_not_run_as_cuda(monkeypatch):
    monkeypatch.setitem(sys.modules, "open3d", fake(cuda=False))
    frames, camera = sphere_frames(0.1)
    with pytest.raises(Unavailable, match=r"no CUDA here \(core.cuda.is_available\(\) is False\)"):
        open3d_arm.integrate(frames, camera, 0.01, device="cuda")
    assert open3d_arm.choose_device(fake(cuda=False), "cpu") == "CPU:0"
    assert open3d_arm.choose_device(fake(cuda=True), "cuda") == "CUDA:0"
    result = judge_cell(load_cells()["base"], None, device="cuda")  # type: ignore[arg-type]
    assert not result.ok and result.skipped is not None and "no CUDA here" in result.skipped


def test_a_run_that_fell_back_is_no_cuda_run(monkeypatch):
    """Bindings that say they have CUDA, and a grid that ends up on the CPU."""
    pytest.importorskip("open3d")
    import open3d

    monkeypatch.setattr(open3d_arm, "choose_device", lambda module, wanted: open3d.core.Device("CPU:0"))
    monkeypatch.setattr(open3d.core.cuda, "synchronize", lambda *_: None)
    frames, camera = sphere_frames(0.1)
    with pytest.raises(Unavailable, match="asked for cuda and ran on CPU:0"):
        open3d_arm.integrate(frames[:1], camera, 0.01, device="cuda", surface=False)


@pytest.mark.parametrize(
    "error", [OSError("libGL.so.1: cannot open shared object file"), ModuleNotFoundError("No module named 'open3d'")]
)
def test_an_import_that_fails_makes_the_arm_unavailable_in_its_own_words(error, monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest, **named):
        if name == "open3d":
            raise error
        return real(name, *rest, **named)

    monkeypatch.delitem(sys.modules, "open3d", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(Unavailable, match=str(error).split(":")[0]):
        open3d_arm.load()
    result = judge_cell(load_cells()["base"], None)  # type: ignore[arg-type]
    assert result.skipped is not None and str(error) in result.skipped and not result.failed


# --- the gate ---------------------------------------------------------------------------------------------------------

RADIUS = 0.2


@pytest.fixture(scope="module")
def grid() -> Grid:
    pytest.importorskip("open3d")
    return open3d_arm.integrate(*sphere_frames(RADIUS), 0.01)


@pytest.fixture(scope="module")
def ours() -> Fused:
    volume = HostVolume(VolumeConfig(512))
    for kernel in ("cuda/allocate/plain", "cuda/update/plain"):
        volume.launch(kernel, sphere(RADIUS, 200, 400))
    return volume.fused("cpu")


def test_rendered_faces_are_the_sphere():
    frames, camera = sphere_frames(RADIUS)
    for frame in frames:
        points = to_scene(frame, camera, stride=40).points
        assert np.abs(np.linalg.norm(points, axis=1) - RADIUS).max() < 1e-6
        assert np.linalg.det(frame.pose[:3, :3]) == pytest.approx(1)
    ends = np.concatenate([to_scene(frame, camera, stride=40).points for frame in frames])
    assert (ends.max(axis=0) > 0.19).all() and (ends.min(axis=0) < -0.19).all()


def test_the_sphere_agrees(grid, ours):
    result = third_party_gate(ours, grid, "open3d on sphere")
    assert result.ok, result.message
    assert result.detail["device"] == "CPU:0" and result.compared > 5000
    assert result.detail["common_blocks"] == len(ours.coords)
    assert result.detail["ours_to_theirs_median_m"] < 0.0005


def test_half_a_voxel_of_bias_in_all_our_arms_is_seen(grid, ours):
    """The fault that agreement between arms cannot show (P8): the same sums, half a voxel further on in each axis."""
    coarse = dataclasses.replace(grid, vertices=(grid.vertices + np.float32(0.005)))
    result = third_party_gate(ours, coarse, "open3d on sphere")
    assert result.failed and "apart" in result.message


def test_a_block_lost_where_the_surface_is_is_seen(grid, ours):
    less = {name: getattr(ours, name)[::2] for name in ("coords", *VOXEL_FIELDS)}
    result = third_party_gate(dataclasses.replace(ours, **less), grid, "open3d on sphere")
    assert result.failed and "Open3D's surface are ours" in result.message


def test_nothing_to_compare_fails(grid, ours):
    none = {name: getattr(ours, name)[:0] for name in ("coords", *VOXEL_FIELDS)}
    result = third_party_gate(dataclasses.replace(ours, **none), grid, "open3d on nothing")
    assert result.failed and "nothing was compared" in result.message


def test_a_sparse_cell_is_skipped_with_its_reason(ours):
    result = judge_cell(load_cells()["pts-20k"], ours)
    assert result.skipped == thirdparty.SPARSE and not result.ok


def test_a_grid_too_small_grows_on_the_cpu(grid):
    """Issues tell of a hole in the mesh; the CPU's hash map is made larger instead, and nothing is lost."""
    found = open3d_arm.overflow(*sphere_frames(RADIUS), 0.01, grid)
    assert found["made_for"] == len(grid.coords) // 8 and found["needed"] == len(grid.coords)
    assert found["capacity_after"] >= found["needed"]
    assert (found["lost_blocks"], found["lost_vertices"]) == (0, 0)


def test_a_hole_is_seen(grid, monkeypatch):
    """A map that keeps what it was made for, as those users had it."""

    def keeps(frames, camera, voxel, *, device, block_count):
        return dataclasses.replace(
            grid,
            coords=grid.coords[:block_count],
            capacity=block_count,
            vertices=grid.vertices[: len(grid.vertices) // 4],
        )

    monkeypatch.setattr(open3d_arm, "integrate", keeps)
    found = open3d_arm.overflow(*sphere_frames(RADIUS), 0.01, grid)
    assert found["lost_blocks"] == len(grid.coords) - found["made_for"] and found["capacity_after"] < found["needed"]
    kept = np.unique(grid.vertices[: len(grid.vertices) // 4], axis=0)
    assert found["lost_vertices"] == len(np.unique(grid.vertices, axis=0)) - len(kept)


def test_the_gate_tells_of_the_overflow_and_does_not_judge_it(ours, monkeypatch):
    cell = dataclasses.replace(load_cells()["base"], arguments=(("radius", RADIUS), ("rows", 200), ("columns", 400)))
    result = judge_cell(cell, ours)
    assert result.ok and result.detail["overflow_lost_blocks"] == 0

    def ends(*_):
        raise RuntimeError("[Open3D Error] no memory\nat ...")

    monkeypatch.setattr(open3d_arm, "overflow", ends)
    result = judge_cell(cell, ours)
    assert result.ok and result.detail["overflow_ended"] == "[Open3D Error] no memory"


@pytest.mark.slow
@pytest.mark.skipif(not (REAL / "rgbd").is_dir(), reason=f"no real frames in {REAL / 'rgbd'}")
def test_all_real_frames_agree_within_a_quarter_voxel():
    pytest.importorskip("open3d")
    cell = all_cells(REAL)["rgbd-all"]
    volume = HostVolume(cell.config)
    for scene in [*cell.before(), cell.scene()]:
        for kernel in ("cuda/allocate/plain", "cuda/update/plain"):
            volume.launch(kernel, scene)
    assert volume.count == cell.blocks
    result = judge_cell(cell, volume.fused("cpu"))
    assert result.ok, result.message
