"""`fuse` and `mesh` as a user meets them: what is checked, what is skipped, what is lost, what is written."""

from __future__ import annotations

import errno
import math
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from PIL import Image

from harness.archive.write import write_whole
from harness.device import driver
from harness.errors import DataLost, IrrError, UsageError
from harness.fusing import extract_surface, fuse_file, mesh_file, weld
from harness.whole import whole_file
from harness.workload.frames import folder_scene
from harness.workload.fused import Fused
from harness.workload.reference import evaluate, evaluate_frames
from harness.workload.scenes import sphere
from harness.workload.volume import VolumeConfig, table_size

SCENE = sphere(0.2, 60, 120)
CONFIG = VolumeConfig(1024)
Irr = Callable[..., subprocess.CompletedProcess[str]]


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **{"points": SCENE.points, "camera": SCENE.camera, **arrays})  # pyright: ignore[reportArgumentType]
    return path


@pytest.fixture
def points(tmp_path: Path) -> Path:
    return save(tmp_path / "points.npz", colors=SCENE.colors)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "volume.npz"


def test_fused_as_the_reference(points: Path, out: Path) -> None:
    exact = evaluate(SCENE, CONFIG)
    fuse_file(points, "cpu", out=out)
    fused = Fused.load(out)
    assert np.array_equal(fused.coords, exact.coords)
    assert np.array_equal(fused.weight, exact.weight)
    assert np.array_equal(fused.b, exact.b)
    assert (np.abs(fused.tsdf - exact.tsdf) <= exact.bound).all()
    assert (fused.lost_blocks, fused.failed_inserts, fused.dropped_points, fused.skipped_points) == (0, 0, 0, 0)
    assert (fused.voxel, fused.cap, fused.steps, fused.arm) == (np.float32(0.01), 0, 4, "cpu")
    assert fused.truncation == np.float32(4) * np.float32(0.01)
    assert {f: getattr(fused, f).dtype.str for f in ("coords", "tsdf", "r")} == {
        "coords": "<i4",
        "tsdf": "<f4",
        "r": "<f4",
    }


def test_colours_left_out_are_grey(tmp_path: Path, out: Path) -> None:
    fused = fuse_file(save(tmp_path / "grey.npz"), "cpu", out=out)
    assert np.array_equal(fused.r, 128 * fused.weight)
    assert fused.weight.any()


def test_unusable_points_are_skipped_and_named(tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The volume is the one without them; two values of each kind, one in every coordinate."""
    broken = SCENE.points.copy()
    broken[0, 0], broken[1, 1], broken[2, 2], broken[3, 0] = np.nan, np.inf, -np.inf, np.nan
    broken[4] = SCENE.camera
    broken[5] = SCENE.camera + np.float32(5e-7)
    broken[6, 0] = 1e9
    broken[7] = (0, -83886.08, 0)  # block -2^20, with samples in the block beyond
    fused = fuse_file(save(tmp_path / "broken.npz", points=broken), "cpu", out=out)
    clean = fuse_file(save(tmp_path / "clean.npz", points=SCENE.points[8:]), "cpu", out=tmp_path / "clean-volume.npz")
    assert fused.skipped_points == 8
    words = capsys.readouterr().err
    assert "skipped 8 points: 4 not finite, 2 within 1e-6 m of the camera, 2 outside blocks -1048576..1048575" in words
    assert np.array_equal(fused.coords, clean.coords)
    assert np.array_equal(fused.weight, clean.weight)
    assert np.isfinite(fused.tsdf).all()


@pytest.mark.parametrize("given", [np.empty((0, 3), np.float32), np.full((3, 3), np.nan, np.float32)])
def test_no_point_left(tmp_path: Path, out: Path, given: np.ndarray) -> None:
    fused = fuse_file(save(tmp_path / "none.npz", points=given), "cpu", out=out)
    assert fused.coords.shape == (0, 3)
    assert fused.tsdf.shape == (0, 512)
    assert fused.skipped_points == len(given)
    mesh_file(out, out=tmp_path / "none.ply")
    assert b"element face 0\n" in (tmp_path / "none.ply").read_bytes()


def test_loss_is_exit_3_with_the_file_written(irr: Irr, points: Path, out: Path) -> None:
    exact = evaluate(SCENE, CONFIG)
    done = irr("fuse", str(points), "--arm", "cpu", "--pool", "50", "--out", str(out))
    assert done.returncode == 3, done.stderr
    fused = Fused.load(out)
    assert len(fused.coords) == 50
    assert fused.lost_blocks == len(exact.coords) - 50
    assert fused.dropped_points == exact.samples - fused.weight.sum()
    assert f"lost {fused.lost_blocks} of {len(exact.coords)} blocks" in done.stderr
    assert "Traceback" not in done.stderr


def test_pool_and_table_as_the_error_advises(points: Path, out: Path) -> None:
    with pytest.raises(DataLost, match="lost") as caught:
        fuse_file(points, "cpu", pool=2, table=2, out=out)
    words = (caught.value.cure or "").split()
    pool, table = int(words[words.index("--pool") + 1]), int(words[words.index("--table") + 1])
    assert fuse_file(points, "cpu", pool=pool, table=table, out=out).lost_blocks == 0


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"points": SCENE.points.astype(np.float64)}, "points is float64"),
        ({"points": SCENE.points.T}, "points is float32"),
        ({"points": SCENE.points.ravel()}, "points is float32"),
        ({"camera": np.zeros(4, np.float32)}, "camera is float32"),
        ({"camera": np.zeros(3)}, "camera is float64"),
        ({"camera": np.full(3, np.nan, np.float32)}, "not finite"),
        ({"colors": SCENE.colors[:-1]}, "7200 points have 7199 colors"),
        ({"colors": SCENE.colors.astype(np.float32)}, "colors is float32"),
        ({"points": np.array([object()] * 3)}, "Python objects"),
    ],
)
def test_arrays_that_are_not_what_they_must_be(tmp_path: Path, out: Path, arrays: dict, message: str) -> None:
    with pytest.raises(IrrError, match=message):
        fuse_file(save(tmp_path / "wrong.npz", **arrays), "cpu", out=out)
    assert not out.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not really", b"points\n1 2 3\n"])
def test_files_that_are_no_archive(tmp_path: Path, out: Path, content: bytes) -> None:
    path = tmp_path / "garbage.npz"
    path.write_bytes(content)
    with pytest.raises(IrrError, match=r"garbage\.npz"):
        fuse_file(path, "cpu", out=out)


def test_a_damaged_archive(points: Path, out: Path) -> None:
    data = bytearray(points.read_bytes())
    data[2000:2100] = bytes(100)
    points.write_bytes(data)
    with pytest.raises(IrrError, match=r"points\.npz"):
        fuse_file(points, "cpu", out=out)


def test_what_is_missing_is_named(tmp_path: Path, points: Path, out: Path) -> None:
    with pytest.raises(IrrError, match="does not exist"):
        fuse_file(tmp_path / "nothing.npz", "cpu", out=out)
    np.savez(tmp_path / "empty.npz", other=np.zeros(1))
    with pytest.raises(IrrError, match="no points and no camera; it holds other"):
        fuse_file(tmp_path / "empty.npz", "cpu", out=out)
    np.save(tmp_path / "bare.npy", SCENE.points)
    with pytest.raises(IrrError, match="one bare array"):
        fuse_file(tmp_path / "bare.npy", "cpu", out=out)
    with pytest.raises(IrrError, match="no folder"):
        fuse_file(points, "cpu", out=tmp_path / "no" / "volume.npz")
    with pytest.raises(IrrError, match="is a folder"):
        fuse_file(points, "cpu", out=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arm": "cuba"}, "no arm is named 'cuba'"),
        ({"table": 1000}, "power of two"),
        ({"table": 1}, "power of two"),
        ({"pool": 1 << 31}, "more than"),
        ({"voxel": 1e-42}, "out of float32"),
        ({"voxel": 1e38}, "out of float32"),
        ({"voxel": float("nan")}, "positive"),
        ({"cap": -1.0}, "cap"),
        ({"interpret": True}, "--interpret is for Triton"),
    ],
)
def test_wrong_use(points: Path, out: Path, options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fuse_file(points, **{"arm": "cpu", "out": out, **options})
    assert not out.exists()


def test_more_than_the_memory_is_refused(points: Path, out: Path) -> None:
    with pytest.raises(IrrError, match="GiB"):
        fuse_file(points, "cpu", table=1 << 31, out=out)


def test_mesh_is_closed_and_coloured(out: Path, tmp_path: Path) -> None:
    dense = sphere(0.2, 160, 320)  # every voxel of the band is seen, so the surface has no hole
    points = save(tmp_path / "dense.npz", points=dense.points, colors=dense.colors)
    plyfile = tmp_path / "surface.ply"
    fused = fuse_file(points, "cpu", out=out)
    mesh_file(out, out=plyfile)
    head, _, body = plyfile.read_bytes().partition(b"end_header\n")
    lines = head.decode().splitlines()
    assert lines[:2] == ["ply", "format binary_little_endian 1.0"]
    count = {words[1]: int(words[2]) for words in map(str.split, lines) if words[0] == "element"}
    vertex = np.frombuffer(body, [("xyz", "<f4", 3), ("rgb", "u1", 3)], count["vertex"])
    face = np.frombuffer(body, [("count", "u1"), ("corners", "<i4", 3)], count["face"], vertex.nbytes)
    assert len(body) == vertex.nbytes + face.nbytes
    assert (face["count"] == 3).all()
    radius = np.linalg.norm(vertex["xyz"].astype(np.float64), axis=1)
    assert np.abs(radius - 0.2).max() < 0.01 / 4
    assert vertex["rgb"].std() > 1
    faces = face["corners"].astype(np.int64)
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    there, back = edges @ [len(vertex), 1], edges @ [1, len(vertex)]
    assert np.array_equal(np.sort(there), np.sort(back))

    # The soup comes in the order of the threads, the file does not.
    first = weld(*extract_surface(fused))
    for _ in range(3):
        assert all(np.array_equal(a, b) for a, b in zip(first, weld(*extract_surface(fused)), strict=True))


def test_mesh_of_something_else(points: Path, tmp_path: Path) -> None:
    with pytest.raises(IrrError, match="not a fused volume"):
        mesh_file(points, out=tmp_path / "x.ply")
    assert not (tmp_path / "x.ply").exists()


def test_a_bounded_arm_warns_and_is_done(
    points: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loss in an arm that declares it is no error; here the cpu arm, declared bounded for the test."""
    monkeypatch.setattr("harness.fusing.is_bounded", lambda arm: True)
    fused = fuse_file(points, "cpu", pool=50, out=out)
    assert fused.lost_blocks > 0
    exact = len(fuse_file(points, "cpu", out=out.with_name("whole.npz")).coords)
    said = capsys.readouterr().err
    cure = f"--pool {math.ceil(1.25 * exact)} --table {table_size(math.ceil(1.25 * exact))} hold the scene"
    assert f"warning: cpu lost {exact - 50} of {exact} blocks" in said
    assert f"pool 50, 128 slots are too few for {exact} blocks; {cure}" in said and "declared" not in said
    # Where everything has a place, the loss is the probe's own.
    monkeypatch.setattr("harness.fusing.lost_blocks", lambda coords, exact: 3)
    fuse_file(points, "cpu", out=out)
    said = capsys.readouterr().err
    assert "warning: cpu lost 3 of" in said and "as its bounded probe is declared to" in said and "--pool" not in said


@pytest.mark.parametrize("place", [".", "/", "..", "./"])
def test_a_folder_without_a_name_is_no_target(
    points: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    fuse_file(points, "cpu", out=out)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is a folder, not a file to write"):
        fuse_file(points, "cpu", out=Path(place))
    with pytest.raises(UsageError, match="is a folder, not a file to write"):
        mesh_file(out, out=Path(place))
    with pytest.raises(UsageError, match="is a folder, not a file to write"), whole_file(Path(place)):
        pytest.fail("opened")


def test_only_what_is_out_of_range_is_blamed(points: Path, out: Path) -> None:
    with pytest.raises(UsageError, match=r"^a voxel edge of 1e-40 m is out of float32's range$"):
        fuse_file(points, "cpu", voxel=1e-40, out=out)
    with pytest.raises(UsageError, match=r"^a cap of 1e\+300 is out of float32's range$"):
        fuse_file(points, "cpu", cap=1e300, out=out)


def test_a_gpu_arm_without_a_driver_says_what_every_task_says(irr: Irr, points: Path, out: Path) -> None:
    try:
        driver.library()
    except IrrError:
        pass
    else:
        pytest.skip("there is an NVIDIA driver here")
    done = irr("fuse", str(points), "--arm", "cuda", "--out", str(out))
    assert done.returncode == 1 and f"irr: {driver.NO_GPU[0]}" in done.stderr and driver.NO_GPU[1] in done.stderr
    assert "cudaError" not in done.stderr and not out.exists()


# --- what is written, and what is left alone --------------------------------------------------------------------------


def test_nothing_but_a_file_is_replaced(irr: Irr, points: Path, out: Path, tmp_path: Path) -> None:
    """A pipe stands for every device: written beside and renamed, /dev/null itself would be gone. Of a link the file
    it names would stay as it was, and the link be gone."""
    pipe, link, dangling, folder = (tmp_path / name for name in ("pipe", "link", "dangling", "folder"))
    os.mkfifo(pipe)
    (tmp_path / "old").write_text("old")
    link.symlink_to("old")
    dangling.symlink_to("nothing")
    folder.mkdir()
    fuse_file(points, "cpu", out=out)
    words = {pipe: "is not a file", link: "is a link", dangling: "is a link", folder: "is a folder"}
    for target, why in words.items():
        with pytest.raises(UsageError, match=why):
            fuse_file(points, "cpu", out=target)
        with pytest.raises(UsageError, match=why):
            mesh_file(out, out=target)
    assert pipe.is_fifo() and link.read_text() == "old" and link.is_symlink() and dangling.is_symlink()
    done = irr("mesh", str(out), "--out", str(pipe))
    assert done.returncode == 2 and done.stderr.count("\n") <= 2 and pipe.is_fifo()


def test_a_device_is_not_replaced(points: Path, out: Path, tmp_path: Path) -> None:
    """As root, who may: a device of our own, the numbers of /dev/null."""
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except OSError:
        pytest.skip("no rights to make a device")
    fuse_file(points, "cpu", out=out)
    for act in (lambda: fuse_file(points, "cpu", out=device), lambda: mesh_file(out, out=device)):
        with pytest.raises(UsageError, match="is not a file"):
            act()
    with pytest.raises(UsageError, match="is not a file"):
        write_whole(device, b"x")
    assert stat.S_ISCHR(device.lstat().st_mode)


def test_a_users_own_part_is_kept(points: Path, out: Path, tmp_path: Path) -> None:
    kept = [tmp_path / f"{out.name}.part", tmp_path / f"{out.name}.{os.getpid()}.part"]
    for path in kept:
        path.write_text("mine")
    fuse_file(points, "cpu", out=out)
    write_whole(out, b"x")
    assert [path.read_text() for path in kept] == ["mine", "mine"]
    assert sorted(tmp_path.glob("*.part")) == sorted(kept)


def test_two_writers_of_one_name_do_not_share_a_file(tmp_path: Path) -> None:
    """The last one to end has the name; in a process of its own or not, neither writes into the other's."""
    path = tmp_path / "v.npz"
    with whole_file(path) as first:
        first.write(b"first ")
        write_whole(path, b"third")
        with whole_file(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
        first.write(b"whole")
    assert path.read_bytes() == b"first whole"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def test_a_frame_is_not_replaced(tmp_path: Path) -> None:
    folder = frames_folder(tmp_path / "frames", 1)
    frame = folder / "frame-000000.depth.png"
    before = frame.read_bytes()
    with pytest.raises(UsageError, match="is the input"):
        fuse_file(folder, "cpu", out=frame)
    assert frame.read_bytes() == before
    for _ in range(2):  # its own result of before is no input
        fuse_file(folder, "cpu", out=folder / "volume.npz")


def test_the_input_is_not_replaced(points: Path, out: Path, tmp_path: Path) -> None:
    before = points.read_bytes()
    link = tmp_path / "link.npz"
    link.symlink_to(points)
    for same in (points, link):
        with pytest.raises(UsageError, match="is the input"):
            fuse_file(points, "cpu", out=same)
    fuse_file(points, "cpu", out=out)
    with pytest.raises(UsageError, match="is the input"):
        mesh_file(out, out=out)
    assert points.read_bytes() == before


def test_stopped_while_it_writes_leaves_what_was_there(
    points: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fuse_file(points, "cpu", out=out)
    before, names = out.read_bytes(), sorted(tmp_path.iterdir())

    def stopped(stream: BinaryIO, **values: object) -> None:
        stream.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.workload.fused.np.savez_compressed", stopped)
    with pytest.raises(KeyboardInterrupt):
        fuse_file(points, "cpu", out=out)
    assert out.read_bytes() == before and sorted(tmp_path.iterdir()) == names


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(IrrError, match=r"v\.npz cannot be written: No space left"), whole_file(tmp_path / "v.npz"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_volume_that_is_none_is_one_line(points: Path, out: Path, tmp_path: Path) -> None:
    fuse_file(points, "cpu", out=out)
    whole = dict(np.load(out))
    np.save(tmp_path / "bare.npy", whole["coords"])
    (tmp_path / "text.npz").write_text("x")
    (tmp_path / "cut.npz").write_bytes(out.read_bytes()[:-100])
    damaged = bytearray(out.read_bytes())
    damaged[200:260] = bytes(60)
    (tmp_path / "damaged.npz").write_bytes(damaged)
    np.savez(tmp_path / "flat.npz", **{**whole, "coords": whole["coords"][0]})
    np.savez(tmp_path / "many.npz", **{**whole, "voxel": np.ones(3, np.float32)})
    for path in sorted({*tmp_path.glob("*.np[zy]")} - {out, points}):
        with pytest.raises(IrrError, match="not a fused volume") as caught:
            mesh_file(path, out=tmp_path / "m.ply")
        assert "pickle" not in str(caught.value)
    assert not (tmp_path / "m.ply").exists()


@pytest.mark.parametrize("options", [{"stride": 2}, {"frames": 3}, {"depth_scale": 5000.0}, {"depth_max": 3.0}])
def test_options_of_folders_are_refused_for_points(points: Path, out: Path, options: dict) -> None:
    with pytest.raises(UsageError, match="--stride and --depth-max are for folders of frames"):
        fuse_file(points, "cpu", out=out, **options)
    assert not out.exists()


def test_values_that_no_fusion_gives_are_refused_at_once(points: Path, out: Path, tmp_path: Path) -> None:
    """Coordinates of which no key exists, or one block twice, filled a table that was searched for minutes."""
    fuse_file(points, "cpu", out=out)
    whole = dict(np.load(out))

    def changed(name: str, value: object) -> dict[str, np.ndarray]:
        array = whole[name].copy()
        array.reshape(-1)[0] = value
        return {name: array}

    twice = whole["coords"].copy()
    twice[1] = twice[0]
    wrong = {
        "tsdf has values that are not finite": changed("tsdf", np.nan),
        "weight has values that are not finite": changed("weight", np.inf),
        "weight has negative values": changed("weight", -1),
        "coords has a block twice": {"coords": twice},
        r"coords has blocks outside -1048576\.\.1048575": changed("coords", 1 << 20),
        "coords has blocks outside -1048576": changed("coords", -(1 << 20) - 1),
        r"coords is int64": {"coords": whole["coords"].astype(np.int64)},
        r"tsdf is float64": {"tsdf": whole["tsdf"].astype(np.float64)},
        r"voxel is float32 \(3,\), not one number": {"voxel": np.ones(3, np.float32)},
        r"voxel is <U1 \(\), not one number": {"voxel": np.array("x")},
        "its voxel edge is nan m": {"voxel": np.float32(np.nan)},
        "its voxel edge is -0.01": {"voxel": np.float32(-0.01)},
        "its voxel edge is 0.01": {"cap": np.float32(np.inf)},
        "out of float32's range": {"voxel": np.float32(1e37)},
        "lost_blocks is float64": {"lost_blocks": np.float64(1)},
        "arm is int64": {"arm": np.int64(1)},
    }
    for words, arrays in wrong.items():
        np.savez(tmp_path / "wrong.npz", **{**whole, **arrays})
        with pytest.raises(IrrError, match=f"not a fused volume: .*{words}") as caught:
            mesh_file(tmp_path / "wrong.npz", out=tmp_path / "m.ply")
        assert caught.value.exit_code == 1 and not (tmp_path / "m.ply").exists()
    # The ends of what a key holds are blocks like any other.
    far = whole["coords"].copy()
    far[0], far[-1] = -(1 << 20), (1 << 20) - 1
    np.savez(tmp_path / "far.npz", **{**whole, "coords": far})
    mesh_file(tmp_path / "far.npz", out=tmp_path / "m.ply")


def test_what_a_volume_lacks_is_named(points: Path, out: Path, tmp_path: Path) -> None:
    fuse_file(points, "cpu", out=out)
    whole = dict(np.load(out))
    del whole["coords"], whole["arm"]
    np.savez(tmp_path / "less.npz", **whole)
    with pytest.raises(IrrError, match=r"less\.npz is not a fused volume: it has no coords, no arm"):
        mesh_file(tmp_path / "less.npz", out=tmp_path / "m.ply")


@pytest.mark.filterwarnings("error")
def test_an_edge_or_a_point_at_the_end_of_float32(tmp_path: Path, out: Path) -> None:
    """Refused where squares of distances overflow, else fused without a word of NumPy's."""
    points = save(tmp_path / "points.npz")
    for edge in (1e30, 1e19, 2e18):
        with pytest.raises(UsageError, match="out of float32"):
            fuse_file(points, "cpu", voxel=edge, out=out)
    assert len(fuse_file(points, "cpu", voxel=1.7e18, out=out).coords)
    far = SCENE.points.copy()
    far[0], far[1] = 1.06e19, 1e30
    fused = fuse_file(save(tmp_path / "far.npz", points=far), "cpu", voxel=1e17, out=out)
    assert fused.skipped_points == 1 and np.isfinite(fused.tsdf).all()


@pytest.mark.parametrize(
    ("arrays", "cured"),
    [
        ({"points": SCENE.points.astype(np.float64)}, True),
        ({"colors": SCENE.colors.astype(np.int64)}, True),
        ({"points": SCENE.points.ravel()}, False),
        ({"points": SCENE.points.astype(np.complex64)}, False),
        ({"points": SCENE.points.astype(str)}, False),
    ],
)
def test_the_cure_is_named_where_it_cures(tmp_path: Path, out: Path, arrays: dict, cured: bool) -> None:
    path = save(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(IrrError) as caught:
        fuse_file(path, "cpu", out=out)
    assert ("astype" in str(caught.value)) == cured
    if cured:
        name, array = next(iter(arrays.items()))
        kind = np.uint8 if name == "colors" else np.float32
        fuse_file(save(path, **{name: array.astype(kind)}), "cpu", out=out)


def test_the_last_line_names_the_next_step(points: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fuse_file(points, "cpu", out=out)
    assert capsys.readouterr().err.splitlines()[-1] == f"its surface: ./irr mesh {out} --out {out.with_suffix('.ply')}"


# --- folders of depth frames ------------------------------------------------------------------------------------------


def frames_folder(folder: Path, count: int, scale: int = 1000) -> Path:
    """`count` frames of 16 x 16 pixels, 1 m before a camera that moves sideways; one more with a broken pose."""
    folder.mkdir()
    np.savetxt(folder / "camera-intrinsics.txt", [[20, 0, 8], [0, 20, 8], [0, 0, 1]])
    for number in range(count + 1):
        pose = np.eye(4)
        pose[0, 3] = 0.05 * number if number < count else np.nan
        Image.fromarray(np.full((16, 16), scale, np.uint16)).save(folder / f"frame-{number:06d}.depth.png")
        np.savetxt(folder / f"frame-{number:06d}.pose.txt", pose)
    return folder


@pytest.mark.parametrize("arm", ["cpu", "rust-cpu"])
def test_a_folder_is_the_sum_of_its_frames(
    arm: str, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = frames_folder(tmp_path / "frames", 3)
    scenes = [folder_scene(folder, number) for number in range(3)]
    whole = evaluate_frames(scenes, CONFIG)
    fused = fuse_file(folder, arm, out=out)
    assert np.array_equal(fused.coords, whole.coords) and np.array_equal(fused.weight, whole.weight)
    assert (np.abs(fused.tsdf - whole.tsdf) <= whole.bound).all() and np.isfinite(fused.tsdf).all()
    said = capsys.readouterr().err
    assert "skipped frame-000003: its pose has values that are not finite" in said
    assert f"{arm}: frame 3 of 3" in said and "of 3 frames" in said


def test_frames_depth_scale_stride_and_range(tmp_path: Path, out: Path) -> None:
    folder = frames_folder(tmp_path / "frames", 3, scale=5000)
    first = evaluate(folder_scene(folder, 0, depth_scale=5000), CONFIG)
    fused = fuse_file(folder, "cpu", out=out, frames=1, depth_scale=5000)
    assert np.array_equal(fused.weight, first.weight)
    quarter = fuse_file(folder, "cpu", out=out, frames=1, depth_scale=5000, stride=2)
    assert 0 < quarter.weight.sum() < 0.3 * fused.weight.sum()
    assert not len(fuse_file(folder, "cpu", out=out, depth_scale=5000, depth_max=0.5).coords)


def test_a_folder_of_nothing_is_one_line(tmp_path: Path, out: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(IrrError, match="no frames of a known layout"):
        fuse_file(tmp_path / "empty", "cpu", out=out)
    assert not out.exists()


def test_a_sphere_is_watertight(points: Path, out: Path, tmp_path: Path) -> None:
    """After welding every edge belongs to two triangles, walked in opposite ways: closed and with one outside."""
    exact = sphere(0.2, 200, 400)
    np.savez(points, points=exact.points, colors=exact.colors, camera=exact.camera)
    _, _, faces = weld(*extract_surface(fuse_file(points, "cpu", out=out)))
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    forward, backward = ({(int(a), int(b)) for a, b in pairs} for pairs in (edges, edges[:, ::-1]))
    assert len(forward) == len(edges) and forward == backward
    # A sphere: vertices - edges + faces = 2.
    assert len(np.unique(faces)) - len(edges) // 2 + len(faces) == 2
