"""Depth frames: sentinels, poses, counts, axes; and the synthetic room."""

import numpy as np
import pytest
from PIL import Image

from harness.errors import IrrError
from harness.workload import room
from harness.workload.frames import (
    Frame,
    Intrinsics,
    depth_of_16_bit,
    depth_of_float,
    open_folder,
    pose_fault,
    quaternion_pose,
    to_scene,
)
from harness.workload.noise import axial_sigma
from harness.workload.reference import exact_blocks
from harness.workload.volume import VolumeConfig

CAMERA = Intrinsics(100.0, 100.0, 2.0, 2.0)


def frame_of(depth: np.ndarray, pose: np.ndarray | None = None) -> Frame:
    depth = np.asarray(depth, np.float32)
    return Frame("f", depth, np.full((*depth.shape, 3), 7, np.uint8), np.eye(4) if pose is None else pose)


def write_seven_scenes(folder, name: str, depth: np.ndarray, pose: np.ndarray | None, color: bool = True) -> None:
    Image.fromarray(depth.astype(np.uint16)).save(folder / f"{name}.depth.png")
    if pose is not None:
        np.savetxt(folder / f"{name}.pose.txt", pose)
    if color:
        Image.fromarray(np.zeros((*depth.shape, 3), np.uint8)).save(folder / f"{name}.color.png")


# ----------------------------------------------------------------------------------------------------- N28: bad depth


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, 10_000.0])
def test_a_bad_pixel_is_as_no_pixel(bad):
    depth = np.ones((4, 4), np.float32)
    depth[1, 2] = 0
    clean = to_scene(frame_of(depth), CAMERA)
    depth[1, 2] = bad
    dirty = to_scene(frame_of(depth), CAMERA)
    assert len(clean) == 15
    assert np.array_equal(clean.points, dirty.points)
    config = VolumeConfig(64)
    assert np.array_equal(exact_blocks(clean, config), exact_blocks(dirty, config))


def test_no_reading_of_16_bit_images_and_their_scale():
    values = np.array([[0, 65535, 1000, 5000]], np.uint16)
    assert depth_of_16_bit(values).tolist() == [[0, 0, 1, 5]]
    assert depth_of_16_bit(values, 5000.0)[0, 3] == 1


def test_the_farthest_depth_is_fused_and_the_next_is_not():
    depth = np.array([[2.0, np.nextafter(np.float32(2), np.float32(3))]], np.float32)
    assert len(to_scene(frame_of(depth), CAMERA, depth_max=2.0)) == 1


def test_float_depth_in_four_channels():
    wanted = np.array([[1.5, np.inf, -2.0, np.nan]], np.float32)
    channels = wanted.view(np.uint8).reshape(1, 4, 4)
    assert depth_of_float(channels).tolist() == [[1.5, 0, 0, 0]]


# ------------------------------------------------------------------------------------------------- N30, N31, N33: poses


def broken(kind: str) -> np.ndarray:
    pose = np.eye(4)
    if kind == "-inf":
        pose[0, 3] = -np.inf
    elif kind == "nan":
        pose[1, 1] = np.nan
    elif kind == "mirror":
        pose[0, 0] = -1
    elif kind == "zero":
        pose[:] = 0
    elif kind == "sheared":
        pose[0, 1] = 0.5
    return pose


@pytest.mark.parametrize("kind", ["-inf", "nan", "mirror", "zero", "sheared"])
def test_a_broken_pose_is_skipped_with_its_reason(kind, tmp_path):
    depth = np.full((4, 4), 1000)
    write_seven_scenes(tmp_path, "frame-000000", depth, np.eye(4))
    write_seven_scenes(tmp_path, "frame-000001", depth, broken(kind))
    found = open_folder(tmp_path)
    assert len(found) == 1
    ((name, reason),) = found.skipped
    assert name == "frame-000001" and "pose" in reason
    assert pose_fault(np.eye(4)) is None


def test_a_pose_without_depth_and_depth_without_a_pose_are_said(tmp_path):
    depth = np.full((4, 4), 1000)
    write_seven_scenes(tmp_path, "frame-000000", depth, np.eye(4))
    write_seven_scenes(tmp_path, "frame-000001", depth, None)
    np.savetxt(tmp_path / "frame-000002.pose.txt", np.eye(4))
    assert dict(open_folder(tmp_path).skipped) == {
        "frame-000001": "frame-000001.pose.txt missing",
        "frame-000002": "frame-000002.depth.png missing",
    }


@pytest.mark.parametrize(
    ("line", "world"),
    [
        ([1, 2, 3, 0, 0, 0, 1], [2, 3, 6]),
        ([1, 2, 3, 0, 0, 0.70710678, 0.70710678], [7, 3, 1]),
        ([1, 2, 3, 0, 0.70710678, 0, 0.70710678], [2, -2, 1]),
    ],
)
def test_ned_poses_land_in_opencv_axes(line, world):
    pose = quaternion_pose(np.array(line, float))
    assert pose_fault(pose) is None
    assert pose[:3, :3] @ [0, 0, 5] + pose[:3, 3] == pytest.approx(world, abs=1e-6)


def test_camera_to_world_is_not_inverted():
    pose = np.eye(4)
    pose[2, 3] = -1
    scene = to_scene(frame_of(np.full((4, 4), 2.0), pose), CAMERA)
    assert np.all(scene.points[:, 2] == 1)
    assert scene.camera.tolist() == [0, 0, -1]


def write_tartanair(folder, depths: int, poses: int) -> None:
    (folder / "depth_lcam_front").mkdir()
    values = np.full((4, 4), 1.5, np.float32).view(np.uint8).reshape(4, 4, 4)
    for i in range(depths):
        Image.fromarray(values, "RGBA").save(folder / "depth_lcam_front" / f"{i:06d}_lcam_front_depth.png")
    np.savetxt(folder / "pose_lcam_front.txt", np.tile([1, 2, 3, 0, 0, 0, 1], (poses, 1)))


def test_tartanair_reads_and_unequal_counts_name_both(tmp_path):
    write_tartanair(tmp_path, 3, 3)
    found = open_folder(tmp_path)
    assert (len(found), found.intrinsics) == (3, Intrinsics(2, 2, 2, 2))
    first = next(iter(found))
    assert np.all(first.depth == 1.5) and np.all(first.colors == 128)
    (tmp_path / "depth_lcam_front" / "000002_lcam_front_depth.png").unlink()
    with pytest.raises(IrrError, match="2 depth images and 3 poses"):
        open_folder(tmp_path)


def test_what_is_no_folder_of_frames_is_one_line(tmp_path):
    for folder, words in ((tmp_path, "known layout"), (tmp_path / "gone", "not a folder")):
        with pytest.raises(IrrError, match=words):
            open_folder(folder)
    write_seven_scenes(tmp_path, "frame-000000", np.full((4, 4), 1000), np.zeros((4, 4)))
    with pytest.raises(IrrError, match="no usable frame"):
        open_folder(tmp_path)
    write_seven_scenes(tmp_path, "frame-000001", np.full((4, 4), 1000), np.eye(4), color=False)
    (tmp_path / "frame-000001.depth.png").write_bytes(b"not a picture")
    with pytest.raises(IrrError, match="readable image"):
        list(open_folder(tmp_path))


def test_images_that_are_not_registered_are_refused(tmp_path):
    write_seven_scenes(tmp_path, "frame-000000", np.full((4, 4), 1000), np.eye(4))
    Image.fromarray(np.zeros((5, 5, 3), np.uint8)).save(tmp_path / "frame-000000.color.png")
    with pytest.raises(IrrError, match="registered"):
        list(open_folder(tmp_path))


# ------------------------------------------------------------------------------------------------------------ the room


def test_the_room_lies_on_its_surfaces():
    scene = to_scene(room.frame(0), room.INTRINSICS, stride=8)
    p = scene.points.astype(np.float64)
    on = [np.abs(p - wall).min(axis=1) for wall in room.ROOM]
    on += [np.abs(np.linalg.norm(p - s[:3], axis=1) - s[3]) for s in room.SPHERES]
    outside = [np.maximum(np.maximum(low - p, p - high), 0).max(axis=1) for low, high in room.BOXES]
    inside = [np.minimum(p - low, high - p).min(axis=1) for low, high in room.BOXES]
    on += [np.maximum(o, np.abs(np.minimum(i, 0)) + np.maximum(i, 0)) for o, i in zip(outside, inside, strict=True)]
    assert np.min(on, axis=0).max() < 1e-5
    assert len(scene) == 80 * 80


def test_noise_grows_with_distance_and_repeats():
    clean, noisy = room.frame(2), room.frame(2, noise=True)
    assert np.array_equal(noisy.depth, room.frame(2, noise=True).depth)
    kept = noisy.depth > 0
    error = np.abs(noisy.depth - clean.depth)
    near, far = kept & (clean.depth < 2), kept & (clean.depth > 3)
    assert 0 < error[near].mean() < error[far].mean() < 0.03
    assert axial_sigma(np.array(0.4), np.array(0.0)) == 0.0012
