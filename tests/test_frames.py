"""Depth frames: sentinels, poses, counts, axes; and the synthetic room."""

import struct
import zlib

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


# ------------------------------------------------------------------------------------ frames that do not go with others


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lost tracking\n", "is not a table of numbers"),
        ("", "is not a table of numbers"),
        ("1 0 0 0\n0 1 0\n0 0 1 0\n0 0 0 1\n", "is not a table of numbers"),
        ("\ufeff1 0 0 0\n", "is not a table of numbers"),
        ("1 0 0 0\n0 1 0 0\n0 0 1 0\n", "is (3, 4), not 4 x 4"),
        ("1 0 0 1e300\n0 1 0 0\n0 0 1 0\n0 0 0 1\n", "not finite (in float32)"),
    ],
)
def test_a_pose_file_that_holds_no_pose_costs_its_frame_only(text, reason, tmp_path):
    for number in range(3):
        write_seven_scenes(tmp_path, f"frame-{number:06d}", np.full((4, 4), 1000), np.eye(4))
    (tmp_path / "frame-000001.pose.txt").write_text(text, encoding="utf-8")
    found = open_folder(tmp_path)
    assert found.names == ("frame-000000", "frame-000002")
    ((name, why),) = found.skipped
    assert name == "frame-000001" and reason in why


def test_lines_that_end_as_on_windows_are_read(tmp_path):
    pose = np.eye(4)
    pose[0, 3] = 0.25
    write_seven_scenes(tmp_path, "frame-000000", np.full((4, 4), 1000), pose)
    path = tmp_path / "frame-000000.pose.txt"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert np.array_equal(next(iter(open_folder(tmp_path))).pose, pose)


def depth_file(kind: str, path) -> None:
    """A depth image that is not what the others are."""
    path.unlink()
    if kind == "another size":
        Image.fromarray(np.full((6, 5), 1000, np.uint16)).save(path)
    elif kind == "8 bit":
        Image.fromarray(np.full((4, 4), 100, np.uint8)).save(path)
    elif kind == "text":
        path.write_bytes(b"not a picture")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        header = struct.pack(">IIBBBBB", 60_000, 60_000, 16, 0, 0, 0, 0)
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
        parts = (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            for name, data in chunks
        )
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("another size", "its depth image is 5 x 6 pixels, the first frame's 4 x 4"),
        ("8 bit", "is not a 16-bit depth image"),
        ("text", "is not a readable image"),
        ("empty", "is not a readable image"),
        ("folder", "is not a readable image: Is a directory"),
        ("huge", "60000"),
    ],
)
def test_a_depth_image_that_is_none_costs_its_frame_only(kind, reason, tmp_path, recwarn):
    for number in range(3):
        write_seven_scenes(tmp_path, f"frame-{number:06d}", np.full((4, 4), 1000), np.eye(4))
    depth_file(kind, tmp_path / "frame-000001.depth.png")
    found = open_folder(tmp_path)
    assert found.names == ("frame-000000", "frame-000002") and reason in dict(found.skipped)["frame-000001"]
    assert [frame.depth.shape for frame in found] == [(4, 4)] * 2
    assert not recwarn.list


def test_a_damaged_image_is_one_line_when_it_is_read(tmp_path):
    write_seven_scenes(tmp_path, "frame-000000", np.random.default_rng(1).integers(1, 9999, (64, 64)), np.eye(4))
    path = tmp_path / "frame-000000.depth.png"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(IrrError, match=r"frame-000000\.depth\.png is not a readable image: .*truncated"):
        list(open_folder(tmp_path))


def test_intrinsics_that_are_none_name_their_file(tmp_path):
    write_seven_scenes(tmp_path, "frame-000000", np.full((4, 4), 1000), np.eye(4))
    np.savetxt(tmp_path / "camera-intrinsics.txt", [[np.nan, 0, 2], [0, 100, 2], [0, 0, 1]])
    with pytest.raises(IrrError, match=r"camera-intrinsics\.txt: intrinsics fx nan"):
        open_folder(tmp_path)


@pytest.mark.parametrize("quaternion", [(0, 0, 0, 0), (0, 0, 0, 2), (0.5, 0, 0, 0.5)])
def test_a_quaternion_of_another_length_is_no_pose(quaternion, tmp_path):
    """(0, 0, 0, w) gives the identity, whatever w is: one of zeros, from lost tracking, would be fused."""
    write_tartanair(tmp_path, 2, 2)
    np.savetxt(tmp_path / "pose_lcam_front.txt", [[0, 0, 0, 0, 0, 0, 1], [1, 2, 3, *quaternion]])
    found = open_folder(tmp_path)
    assert found.names == ("000000",) and "its quaternion has length" in dict(found.skipped)["000001"]


def test_a_gap_in_the_numbers_is_no_way_to_pair_poses(tmp_path):
    """As many images as poses, and yet the third image is not the third pose's."""
    write_tartanair(tmp_path, 4, 3)
    (tmp_path / "depth_lcam_front" / "000001_lcam_front_depth.png").unlink()
    with pytest.raises(IrrError, match="go on from 0 to 2, elsewhere in steps of 1"):
        open_folder(tmp_path)
    (tmp_path / "depth_lcam_front" / "000003_lcam_front_depth.png").unlink()
    np.savetxt(tmp_path / "pose_lcam_front.txt", np.tile([0, 0, 0, 0, 0, 0, 1], (2, 1)))
    assert open_folder(tmp_path).names == ("000000", "000002")  # every second frame, taken so on purpose


def test_tartanairs_frames_of_640_pixels(tmp_path):
    """Its own size: 90 degrees of view, float32 in four channels, colours beside, a sky that is not fused."""
    (tmp_path / "depth_lcam_front").mkdir()
    (tmp_path / "image_lcam_front").mkdir()
    depth = np.full((640, 640), 2.5, np.float32)
    depth[:10] = 10_000
    Image.fromarray(depth.view(np.uint8).reshape(640, 640, 4), "RGBA").save(
        tmp_path / "depth_lcam_front" / "000000_lcam_front_depth.png"
    )
    Image.fromarray(np.full((640, 640, 3), 9, np.uint8)).save(tmp_path / "image_lcam_front" / "000000_lcam_front.png")
    np.savetxt(tmp_path / "pose_lcam_front.txt", [[1, 2, 3, 0, 0, 0, 1]])
    found = open_folder(tmp_path)
    assert found.intrinsics == Intrinsics(320, 320, 320, 320)
    scene = to_scene(next(iter(found)), found.intrinsics)
    assert len(scene) == 640 * 630 and (scene.colors == 9).all()
    assert scene.points[:, 2] == pytest.approx(3.5) and scene.camera.tolist() == [2, 3, 1]
    assert np.abs(scene.points[:, 0] - 2).max() == pytest.approx(2.5)


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
