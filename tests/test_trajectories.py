"""Cells of trajectories: warm, cold, dense; data that is not here; checksums; the oracle of several frames."""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.device.host import HostVolume
from harness.environment import ROOT
from harness.errors import IrrError, UsageError
from harness.gates.exact import exact_gates
from harness.gates.loss import loss_gate
from harness.measure import runs
from harness.workload import trajectories
from harness.workload.cells import load_cells, make_frames, make_scene, match_cells, select_cells
from harness.workload.frames import folder_scene
from harness.workload.fused import Fused
from harness.workload.noise import add_noise, axial_sigma, incidence_of
from harness.workload.reference import Reference, evaluate, evaluate_frames, exact_blocks
from harness.workload.scenes import Scene, sphere
from harness.workload.trajectories import NeedsData, all_cells, describe
from harness.workload.volume import VolumeConfig

REAL = Path(__file__).parents[2] / "shared" / "data"
needs_real = pytest.mark.skipif(not (REAL / "rgbd").is_dir(), reason=f"no real frames in {REAL / 'rgbd'}")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("IRR_DATA", raising=False)


def write_folder(folder: Path, frames: int, shift: float = 0.02) -> Path:
    """Frames of 12 x 12 pixels, 1 m before a camera that moves sideways."""
    folder.mkdir(parents=True)
    np.savetxt(folder / "camera-intrinsics.txt", [[20, 0, 6], [0, 20, 6], [0, 0, 1]])
    for i in range(frames):
        pose = np.eye(4)
        pose[0, 3] = shift * i
        Image.fromarray(np.full((12, 12), 1000, np.uint16)).save(folder / f"frame-{i:06d}.depth.png")
        np.savetxt(folder / f"frame-{i:06d}.pose.txt", pose)
    return folder


def test_the_oracle_of_frames_is_the_sum_of_their_oracles():
    config = VolumeConfig(64)
    first, second = sphere(0.1, 20, 40), sphere(0.12, 20, 40)
    moved = Scene(second.points + np.float32(0.05), second.colors, second.camera + np.float32(0.05))
    whole, parts = evaluate_frames([first, moved], config), [evaluate(first, config), evaluate(moved, config)]
    assert whole.samples == sum(part.samples for part in parts)
    sums: dict[tuple, dict[str, np.ndarray]] = {}
    for part in parts:
        for i, block in enumerate(map(tuple, part.coords)):
            held = sums.setdefault(block, {})
            for name in ("weight", "r", "g", "b", "tsdf"):
                held[name] = held.get(name, 0) + getattr(part, name)[i]
    assert [tuple(c) for c in whole.coords] == sorted(sums)
    for name in ("weight", "r", "g", "b"):
        assert np.array_equal(getattr(whole, name), [sums[tuple(c)][name] for c in whole.coords])
    assert np.allclose(whole.tsdf, [sums[tuple(c)]["tsdf"] for c in whole.coords], rtol=0, atol=1e-12)
    more = whole.weight > 1
    assert (whole.bound[more] > 0).all()
    # both frames meet somewhere, else nothing was merged
    assert len(whole.coords) < sum(len(part.coords) for part in parts)


def test_a_users_folder_makes_warm_cold_and_dense_cells(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "data" / "My Room", 10)
    monkeypatch.setenv("IRR_DATA", str(tmp_path / "data"))
    cells = all_cells()
    warm, cold, dense = (cells[f"my-room-{form}"] for form in ("warm", "cold", "dense"))
    assert (warm.axis, warm.warm, cold.warm, dense.warm) == ("real", 8, 0, 8)
    scenes = [folder_scene(folder, i) for i in range(9)]
    assert len(warm.before()) == 8
    assert all(np.array_equal(a.points, b.points) for a, b in zip(warm.before(), scenes, strict=False))
    assert np.array_equal(warm.scene().points, scenes[8].points)
    config = VolumeConfig(1)
    union = {tuple(block) for scene in scenes for block in exact_blocks(scene, config)}
    assert (warm.blocks, cold.blocks) == (len(union), len(exact_blocks(scenes[8], config)))
    assert warm.samples == evaluate_frames(scenes, config).samples
    assert dense.config.capacity == -(-105 * len(union) // 100) and dense.blocks == warm.blocks
    forms = ("warm", "cold", "dense", "all")
    assert [cell.name for cell in select_cells("my-room-*", cells)] == [f"my-room-{form}" for form in forms]
    with pytest.raises(UsageError, match="no cell matches"):
        select_cells("no-room-*", cells)


@pytest.mark.parametrize(("frames", "fused"), [(3, 3), (10, 10), (12, 10)])
def test_a_folders_whole_cell_fuses_every_frame_up_to_the_cap(frames, fused, tmp_path):
    folder = write_folder(tmp_path / "r", frames)
    cell = all_cells(tmp_path)["r-all"]
    scenes = [folder_scene(folder, i) for i in range(fused)]
    union = {tuple(block) for scene in scenes for block in exact_blocks(scene, VolumeConfig(1))}
    assert (cell.axis, cell.warm, cell.blocks) == ("real", fused - 1, len(union))
    assert cell.samples == evaluate_frames(scenes, cell.config).samples
    assert all(np.array_equal(a.points, b.points) for a, b in zip([*cell.before(), cell.scene()], scenes, strict=True))
    (finding,) = trajectories.frame_evidence([cell])
    assert f"the first {fused} usable frames" in finding["how"]
    if frames == fused:  # a change of any frame is a change of the run's frames
        Image.fromarray(np.full((12, 12), 900, np.uint16)).save(folder / f"frame-{frames - 1:06d}.depth.png")
        with pytest.raises(IrrError, match="are not those that the run began with"):
            trajectories.check_frames([cell], [finding])


def test_the_room_is_planned_with_and_without_noise(tmp_path):
    write_folder(tmp_path / "r", 2)
    forms = [f"room-{form}{noise}" for noise in ("", "-noise") for form in ("warm", "cold", "dense")]
    planned = match_cells("room-*,r-*", [name for name in all_cells(tmp_path) if name not in load_cells()])
    assert planned == [*forms, *(f"r-{form}" for form in ("warm", "cold", "dense", "all"))]


def test_only_a_users_folder_has_a_whole_cell(tmp_path):
    write_folder(tmp_path / "r", 2)
    assert [name for name in all_cells(tmp_path) if name.endswith("-all")] == ["r-all"]
    assert "cells r-warm, r-cold, r-dense, r-all" in describe(tmp_path)


def test_each_trajectory_that_is_here_has_one_cell_with_most_of_its_frames(tmp_path):
    assert trajectories.widest_cells(tmp_path) == [] == trajectories.widest_cells(tmp_path / "gone")
    for name, frames in (("short", 2), ("long", 12)):
        write_folder(tmp_path / name, frames)
    write_folder(tmp_path / "retrooffice" / "P000", 2)
    assert trajectories.widest_cells(tmp_path) == ["tartan-warm", "long-all", "short-all"]


def test_fewer_frames_than_the_paper_warms_with(tmp_path):
    write_folder(tmp_path / "short", 3)
    assert all_cells(tmp_path)["short-warm"].warm == 2


def test_the_papers_cells_say_what_they_need_until_their_frames_are_there(tmp_path):
    cells = all_cells(tmp_path)
    with pytest.raises(NeedsData, match="RetroOffice/P001"):
        cells["tartan-p001"]
    folder = tmp_path / "retrooffice" / "Data_easy" / "P001"
    (folder / "depth_lcam_front").mkdir(parents=True)
    values = np.full((8, 8), 0.5, np.float32).view(np.uint8).reshape(8, 8, 4)
    for i in range(2):
        Image.fromarray(values, "RGBA").save(folder / "depth_lcam_front" / f"{i:06d}_lcam_front_depth.png")
    np.savetxt(folder / "pose_lcam_front.txt", np.tile([0, 0, 0, 0, 0, 0, 1], (2, 1)))
    cell = all_cells(tmp_path)["tartan-p001"]
    assert (cell.axis, cell.warm, len(cell.scene())) == ("real", 1, 64)
    assert ": folder:" not in describe(tmp_path)  # its frames are the table's, not a user's


def test_checksums_are_recorded_once_and_a_changed_file_is_named(tmp_path):
    folder = write_folder(tmp_path / "data" / "r", 2)
    root = tmp_path / "data"
    assert "checksums recorded" in describe(root)
    assert "checksums as recorded" in describe(root)
    assert "needs-data" in describe(root)
    Image.fromarray(np.full((12, 12), 900, np.uint16)).save(folder / "frame-000001.depth.png")
    assert "CHANGED since the first use: frame-000001.depth.png" in describe(root)
    with pytest.raises(IrrError, match=r"frame-000001\.depth\.png changed"):
        all_cells(root)["r-warm"]
    trajectories.record_file(folder).unlink()
    assert all_cells(root)["r-warm"].warm == 1


def test_a_run_goes_on_with_the_frames_it_began_with_or_not_at_all(tmp_path):
    folder = write_folder(tmp_path / "data" / "r", 3)
    cells = [all_cells(tmp_path / "data")[name] for name in ("r-warm", "r-cold")]
    begun = [*trajectories.frame_evidence(cells), {"name": "other", "value": 1}]
    trajectories.check_frames(cells, begun)
    trajectories.check_frames([], begun)
    Image.fromarray(np.full((12, 12), 900, np.uint16)).save(folder / "frame-000001.depth.png")
    with pytest.raises(IrrError, match="the frames in r are not those that the run began with"):
        trajectories.check_frames(cells, begun)
    shutil.rmtree(folder)
    with pytest.raises(IrrError, match="not a folder"):
        trajectories.check_frames(cells, begun)


def test_resume_asks_for_the_same_frames(tmp_path, monkeypatch):
    write_folder(tmp_path / "r", 2)
    begun = types.SimpleNamespace(
        trajectories={"r-cold": all_cells(tmp_path)["r-cold"]},
        evidence=[{"name": "frames.r.sha256", "value": "0" * 64}],
        station="host",
    )
    monkeypatch.setattr(runs.ArchiveWriter, "resume", lambda path: None)
    monkeypatch.setattr(runs, "read_request", lambda path: begun)
    with pytest.raises(IrrError, match="the frames in r are not those"):
        runs.resume(tmp_path)


def test_describe_of_no_folder_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "gone", tmp_path / "file"):
        with pytest.raises(IrrError, match="not a folder"):
            describe(path)
    for name, words in (("gone", "does not exist"), ("file", "is not a folder")):
        monkeypatch.setenv("IRR_DATA", str(tmp_path / name))
        assert f"({'which ' + words})" in describe() and "needs-data" in describe()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give its rights up")
def test_without_rights_everything_is_one_line(tmp_path):
    """A user without rights to input, output or data folder; in a process of its own, since rights do not come back."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own lies in a folder that nobody else may look into
        Path(name).chmod(0o755)
        lines = said_without_rights(Path(name))
    assert len([line for line in lines if line.startswith("one line:")]) == 4
    assert "may not look into) | True" in lines[4] and "does not exist) | True" in lines[5]


def said_without_rights(above: Path) -> list[str]:
    """Lines of a process that may look into `above`, and not into the folder of frames in it."""
    folder = write_folder(above / "shut" / "r", 2)
    (above / "shut").chmod(0o700)
    code = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from harness.errors import IrrError
from harness.fusing import fuse_file, mesh_file
from harness.workload.trajectories import all_cells, describe
os.setgid(65534), os.setuid(65534)
shut, folder = Path({str(above / "shut")!r}), Path({str(folder)!r})
calls = [
    lambda: fuse_file(folder, "cpu", out=shut / "v.npz"),
    lambda: fuse_file(shut / "points.npz", "cpu", out=Path("/dev/shm/irr-test-v.npz")),
    lambda: mesh_file(shut / "v.npz", out=Path("/dev/shm/irr-test-m.ply")),
    lambda: describe(folder),
]
for call in calls:
    try:
        call()
    except IrrError as error:
        print("one line:", error.what)
for root in (shut, folder):
    os.environ["IRR_DATA"] = str(root)
    print(describe().splitlines()[0], "|", "room-cold" in list(all_cells()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_a_folder_among_the_files_is_said_and_stops_no_other(tmp_path):
    write_folder(tmp_path / "good", 2)
    (write_folder(tmp_path / "bad", 2) / "frame-000001.color.png").mkdir()
    said = describe(tmp_path)
    assert "bad: folder: unusable:" in said and "frame-000001.color.png cannot be read: Is a directory" in said
    assert "good: folder: 2 frames" in said


def test_incidence_and_noise_of_a_slanting_wall():
    _, u = np.mgrid[0:60, 0:60]
    x = (u - 30) / 60
    depth = 1.0 / (1 - 0.5 * x)  # the plane z = 1 + 0.5 x
    theta = incidence_of(depth, (60.0, 60.0), (30.0, 30.0))
    assert theta[30, 30] == pytest.approx(np.arctan(0.5), abs=1e-3)
    noisy = add_noise(depth, theta, 3)
    assert np.array_equal(noisy, add_noise(depth, theta, 3)) and not np.array_equal(noisy, add_noise(depth, theta, 4))
    assert np.std((noisy - depth) / axial_sigma(depth, theta)) == pytest.approx(1, abs=0.05)
    depth[0, 0] = 0
    theta[1, 1] = np.deg2rad(83)
    assert add_noise(depth, theta, 3)[0, 0] == 0 and add_noise(depth, theta, 3)[1, 1] == 0


@needs_real
def test_the_real_frames_blocks():
    cell = all_cells(REAL)["rgbd-cold"]
    assert (cell.blocks, cell.samples, len(cell.scene())) == (2454, 2327160, 273761)
    assert (all_cells(REAL)["rgbd-all"].warm, all_cells(REAL)["rgbd-all"].blocks) == (9, 2892)


# --- gates of a warm volume -------------------------------------------------------------------------------------------

WARM = VolumeConfig(256)


def frames_of_a_warm_cell() -> tuple[Scene, Scene]:
    first, second = sphere(0.1, 20, 40), sphere(0.12, 20, 40)
    return first, Scene(second.points + np.float32(0.05), second.colors, second.camera + np.float32(0.05))


def fused_on_the_host(*scenes: Scene) -> HostVolume:
    volume = HostVolume(WARM)
    for scene in scenes:
        for kernel in ("cuda/allocate/plain", "cuda/update/plain"):
            volume.launch(kernel, scene)
    return volume


def test_a_warm_volume_passes_every_exact_gate_and_a_frame_left_out_none():
    first, last = frames_of_a_warm_cell()
    reference = evaluate_frames([first, last], WARM)
    assert (reference.earlier == fused_blocks(first, reference)).all() and reference.earlier.any()
    whole = fused_on_the_host(first, last).fused("cpu")
    assert all(result.ok for result in exact_gates(whole, reference, "cpu on warm"))
    failed = {
        result.gate for result in exact_gates(fused_on_the_host(last).fused("cpu"), reference, "s") if result.failed
    }
    assert {"exact-set", "exact-samples", "exact-weight", "exact-colour", "exact-tsdf"} <= failed


def fused_blocks(scene: Scene, reference: Reference) -> np.ndarray:
    """Samples that one frame has in each block of a reference."""
    alone = evaluate(scene, WARM)
    samples = np.zeros(len(reference.coords), np.int64)
    samples[np.searchsorted(reference.keys, alone.keys)] = alone.block_samples
    return samples


def test_a_bounded_update_of_a_warm_volume_loses_the_last_frames_samples_only():
    """A block beyond the look-up's bound keeps what the frames before put there, whole."""
    first, last = frames_of_a_warm_cell()
    reference = evaluate_frames([first, last], WARM)
    samples = fused_blocks(last, reference)
    place = int(np.flatnonzero((samples > 0) & (reference.earlier > 0))[0])
    before = fused_on_the_host(first).fused("cpu")
    whole = fused_on_the_host(first, last).fused("cpu")
    weight = whole.weight.copy()
    weight[place] = before.weight[(before.coords == reference.coords[place]).all(axis=1)][0]
    lossy = dataclasses.replace(whole, weight=weight, dropped_points=int(samples[place]))
    beyond = reference.keys[place : place + 1]

    def judged(fused: Fused, given: bool) -> bool:
        return loss_gate(fused, reference, WARM, True, "triton-update on warm", beyond, given).ok

    assert judged(lossy, given=True) and not judged(lossy, given=False)
    assert not judged(dataclasses.replace(lossy, dropped_points=lossy.dropped_points + 1), given=True)
    assert not judged(
        dataclasses.replace(whole, dropped_points=lossy.dropped_points), given=True
    )  # written all the same


def test_frames_are_the_same_points_made_side_by_side_and_alone() -> None:
    side_by_side = make_frames("room", (("frame", 2), ("noise", True)), 2)
    for number, scene in enumerate(side_by_side):
        make_scene.cache_clear()
        assert np.array_equal(scene.points, make_scene("room", (("frame", number), ("noise", True))).points)
