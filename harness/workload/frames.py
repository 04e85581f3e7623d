"""Real depth frames: folders of depth images and poses, read with suspicion and turned into scenes.

Two layouts are known:

* 7-Scenes: `frame-NNNNNN.depth.png` (16 bit), `.color.png` or `.color.jpg`, `.pose.txt` (4x4, camera to world), and
  `camera-intrinsics.txt` (3x3) where the folder has one. Depth 0 and 65535 are "no reading".
* TartanAir V2: `depth_lcam_front/*.png` (four 8-bit channels that hold one float32), `image_lcam_front/*.png`,
  `pose_lcam_front.txt` (tx ty tz qx qy qz qw a line, camera to world in NED axes), 90 degrees of view.

World axes are OpenCV's everywhere (x right, y down, z forward of the first camera's convention): a NED point (n, e, d)
is (e, d, n) here. A pixel's centre is its integer coordinate, every pixel is used (stride 1) and depth counts up to
DEPTH_MAX inclusive, unless a caller says otherwise.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from harness.errors import IrrError
from harness.workload.noise import add_noise, incidence_of
from harness.workload.scenes import Scene

DEPTH_SCALE = 1000.0
"""Units a metre of a 16-bit depth image: 1000 in 7-Scenes, 5000 in TUM."""

NO_READING = (0, 65535)
"""16-bit values that are not distances."""

DEPTH_MAX = 20.0
"""Farthest depth that is fused, metres (inclusive): a sky of 10 km must not allocate blocks."""

RIGID = 1e-3
"""How far R^T R may lie from the identity: 7-Scenes' poses are written with seven digits and reach 2e-7."""

SEVEN_SCENES_INTRINSICS = (585.0, 585.0, 320.0, 240.0)
"""fx, fy, cx, cy that 7-Scenes states for its depth camera, for folders without camera-intrinsics.txt."""

NED_TO_CV = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])

MAX_PIXELS = 1 << 26
"""Pixels of one frame; a larger image is refused before it is decoded."""

warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # refused by MAX_PIXELS, in one line

FORMATS = ("PNG", "JPEG")
"""Image formats of both layouts; Pillow knows many more, each with its own ways to fail."""

SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N", "I")
"""Pillow's modes of a 16-bit grey image; what is in an "I" image is looked at when it is read."""

FLOAT = ("RGBA",)
"""Pillow's mode of float32 in four 8-bit channels."""


@dataclass(frozen=True)
class Intrinsics:
    """Pinhole camera, pixels: focal lengths and principal point."""

    fx: float
    fy: float
    cx: float
    cy: float

    def __post_init__(self) -> None:
        if not (np.isfinite([self.fx, self.fy, self.cx, self.cy]).all() and self.fx > 0 and self.fy > 0):
            raise IrrError(f"intrinsics fx {self.fx}, fy {self.fy}, cx {self.cx}, cy {self.cy} are no camera")


@dataclass(frozen=True)
class Frame:
    """One frame.

    Attributes:
        depth: (h, w) f32, metres along the optical axis; 0 where there is no reading.
        colors: (h, w, 3) u8.
        pose: (4, 4) f64, camera to world.
    """

    name: str
    depth: np.ndarray
    colors: np.ndarray
    pose: np.ndarray


@dataclass(frozen=True)
class Trajectory:
    """A folder of frames, each read when it is asked for.

    Attributes:
        frames: what reads each usable frame, in order.
        skipped: (frame, reason) of those that are not used.
        files: the files of each usable frame, as `frames` reads them. names: of the usable frames.
    """

    name: str
    layout: str
    intrinsics: Intrinsics
    frames: tuple[Callable[[], Frame], ...]
    skipped: tuple[tuple[str, str], ...] = field(default=())
    files: tuple[tuple[Path, ...], ...] = field(default=())
    names: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.frames)

    def __iter__(self) -> Iterator[Frame]:
        return (read() for read in self.frames)


# ------------------------------------------------------------------------------------------------------ back-projection


def rotate(matrix: np.ndarray, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> list[np.ndarray]:
    """Components of `matrix` (3, 3) times the vectors (x, y, z), each operation rounded by itself.

    Not by a matrix product. Frames are made side by side, and NumPy's OpenBLAS does not keep products that run at one
    time apart in every version: of 588 such products by its 0.3.30, in 16 threads of its own, two held rows of another
    one (NumPy's issue 29391; later versions mend that, and more). In one run on 16 cores a process that evaluated a
    noisy room found 147 blocks more than the kernels and the next process did. Rounding is not why: neither another
    order nor extended precision moves one of that room's 3.7 million points.
    """
    return [(row[0] * x + row[1] * y) + row[2] * z for row in matrix]


def to_scene(frame: Frame, intrinsics: Intrinsics, *, stride: int = 1, depth_max: float = DEPTH_MAX) -> Scene:
    """Points of a frame in the world, row by row: every stride-th pixel with 0 < depth <= depth_max.

    Computed in float64, cast to float32, so that every arm gets the same points.
    """
    depth = frame.depth[::stride, ::stride].astype(np.float64)
    with np.errstate(invalid="ignore"):
        keep = np.isfinite(depth) & (depth > 0) & (depth <= depth_max)
    v, u = np.nonzero(keep)
    z = depth[v, u]
    x = (u * stride - intrinsics.cx) / intrinsics.fx * z
    y = (v * stride - intrinsics.cy) / intrinsics.fy * z
    points = np.stack(rotate(frame.pose[:3, :3], x, y, z), axis=-1) + frame.pose[:3, 3]
    colors = frame.colors[::stride, ::stride][v, u]
    return Scene(
        np.ascontiguousarray(points, np.float32),
        np.ascontiguousarray(colors, np.uint8),
        frame.pose[:3, 3].astype(np.float32),
    )


def folder_scene(folder: Path, number: int, noise: bool = False, depth_scale: float = DEPTH_SCALE) -> Scene:
    """The number-th usable frame of a folder as points, with a depth sensor's noise if asked for."""
    found = _opened(folder, depth_scale)
    if number >= len(found):
        raise IrrError(f"{folder} has {len(found)} usable frames, no number {number}")
    frame = found.frames[number]()
    if noise:
        camera = found.intrinsics
        depth = frame.depth.astype(np.float64)
        incidence = incidence_of(depth, (camera.fx, camera.fy), (camera.cx, camera.cy))
        frame = dataclasses.replace(frame, depth=add_noise(depth, incidence, number).astype(np.float32))
    return to_scene(frame, found.intrinsics)


@functools.lru_cache(maxsize=4)
def _opened(folder: Path, depth_scale: float) -> Trajectory:
    return open_folder(folder, depth_scale=depth_scale)


# --------------------------------------------------------------------------------------------------------------- poses


def pose_fault(pose: np.ndarray) -> str | None:
    """Why a (4, 4) matrix is not a camera's pose, None if it is one."""
    with np.errstate(over="ignore"):
        finite = np.isfinite(pose.astype(np.float32)).all()
    if not finite:
        return "its pose has values that are not finite (in float32)"
    if not np.allclose(pose[3], [0, 0, 0, 1], atol=RIGID):
        return "the last row of its pose is not 0 0 0 1"
    rotation = pose[:3, :3]
    if np.abs(rotation.T @ rotation - np.eye(3)).max() > RIGID:
        return "its pose is not rigid (the rotation's columns are not orthonormal)"
    if np.linalg.det(rotation) < 0:
        return "its pose mirrors (determinant -1)"
    return None


def quaternion_pose(values: np.ndarray) -> np.ndarray:
    """Camera-to-world matrix (4, 4) in OpenCV axes of a TartanAir line: tx ty tz qx qy qz qw, NED."""
    t, (x, y, z, w) = values[:3], values[3:]
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
    pose = np.eye(4)
    pose[:3, :3] = NED_TO_CV @ rotation @ NED_TO_CV.T
    pose[:3, 3] = NED_TO_CV @ t
    return pose


def line_fault(values: np.ndarray) -> str | None:
    """Why a TartanAir line is not a camera's pose, None if it is one. A quaternion is not repaired: one of zeros, as
    lost tracking writes it, would be the identity."""
    squared = float((values[3:] * values[3:]).sum())
    if np.isfinite(values).all() and not abs(squared - 1) <= RIGID:
        return f"its quaternion has length {squared**0.5:.3g}, not 1: its pose is not rigid"
    return pose_fault(quaternion_pose(values))


def _numbers(path: Path) -> np.ndarray:
    """The numbers of a text file, (rows, columns) f64.

    Raises:
        IrrError: it cannot be read, or a line is not numbers of one count.
    """
    try:
        rows = [line.split() for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
        table = np.array([[float(word) for word in row] for row in rows], np.float64)
    except FileNotFoundError:
        raise IrrError(f"{path} is missing") from None
    except (OSError, ValueError):
        raise IrrError(f"{path} is not a table of numbers") from None
    if table.ndim != 2:
        raise IrrError(f"{path} is not a table of numbers with one count a line")
    return table


# -------------------------------------------------------------------------------------------------------------- images


@contextlib.contextmanager
def _opened_image(path: Path) -> Iterator[Image.Image]:
    """An image whose pixels are not read yet.

    Raises:
        IrrError: it is missing, no image, or too large; also where its pixels turn out to be damaged.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise IrrError(f"{path} has {image.width} x {image.height} pixels, more than {MAX_PIXELS}")
            yield image
    except FileNotFoundError:
        raise IrrError(f"{path} is missing") from None
    except UnidentifiedImageError:
        raise IrrError(f"{path} is not a readable image: neither PNG nor JPEG") from None
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise IrrError(f"{path} is not a readable image: {words}") from None


def _pixels(path: Path) -> np.ndarray:
    with _opened_image(path) as image:
        return np.array(image)


def _depth_size(path: Path, modes: tuple[str, ...]) -> tuple[int, int]:
    """Width and height of a depth image, by its header.

    Raises:
        IrrError: no readable image, or not one of depth.
    """
    with _opened_image(path) as image:
        if image.mode not in modes:
            what = "16-bit depth image" if modes == SIXTEEN_BIT else "depth image of four 8-bit channels"
            raise IrrError(f"{path} is not a {what} (it is {image.mode})")
        return image.size


def _size_fault(size: tuple[int, int], first: tuple[int, int]) -> str | None:
    """Why a frame does not go with the first one: one camera has one size."""
    if size == first:
        return None
    return f"its depth image is {size[0]} x {size[1]} pixels, the first frame's {first[0]} x {first[1]}"


def depth_of_16_bit(values: np.ndarray, scale: float = DEPTH_SCALE) -> np.ndarray:
    """Metres (h, w) f32 of a 16-bit depth image; 0 where there is no reading."""
    with np.errstate(over="ignore"):  # beyond float32 is beyond every range
        return np.where(np.isin(values, NO_READING), 0, values / scale).astype(np.float32)


def depth_of_float(channels: np.ndarray) -> np.ndarray:
    """Metres (h, w) f32 of an (h, w, 4) u8 image whose four channels hold one little-endian float32."""
    depth = np.ascontiguousarray(channels).view("<f4")[..., 0].astype(np.float32)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(depth) & (depth > 0), depth, 0).astype(np.float32)


def _read_16_bit(path: Path, scale: float) -> np.ndarray:
    values = _pixels(path)
    if values.ndim != 2 or values.dtype.kind not in "ui" or values.dtype.itemsize < 2:
        raise IrrError(f"{path} is not a 16-bit depth image ({values.dtype} {values.shape})")
    return depth_of_16_bit(values, scale)


def _read_float(path: Path) -> np.ndarray:
    values = _pixels(path)
    if values.ndim != 3 or values.shape[2] != 4 or values.dtype != np.uint8:
        raise IrrError(f"{path} is not a depth image of four 8-bit channels ({values.dtype} {values.shape})")
    return depth_of_float(values)


def _read_colors(path: Path | None, shape: tuple[int, ...]) -> np.ndarray:
    """Colours of a frame, grey where there is no image."""
    if path is None:
        return np.full((*shape, 3), 128, np.uint8)
    values = _pixels(path)
    if values.ndim == 2:
        values = np.repeat(values[..., None], 3, axis=2)
    if values.shape[:2] != shape or values.dtype != np.uint8 or values.shape[2] < 3:
        raise IrrError(f"{path} is {values.shape}, its depth image {shape}: they must be registered")
    return np.ascontiguousarray(values[..., :3])


# ------------------------------------------------------------------------------------------------------------- folders


def open_folder(folder: Path, *, depth_scale: float = DEPTH_SCALE) -> Trajectory:
    """The frames of a folder in one of the known layouts.

    Raises:
        IrrError: no such folder, no known layout in it, no usable frame, or counts that do not agree.
    """
    if not os.path.isdir(folder):  # unlike Path's, os.path's questions are answered without rights too
        raise IrrError(f"{folder} is not a folder", "name the folder that holds the frames")
    if any(folder.glob("*.depth.png")):
        found = _seven_scenes(folder, depth_scale)
    elif os.path.exists(folder / "pose_lcam_front.txt") or os.path.isdir(folder / "depth_lcam_front"):
        found = _tartanair(folder)
    else:
        raise IrrError(
            f"{folder} has no frames of a known layout",
            "7-Scenes: frame-NNNNNN.depth.png and .pose.txt; TartanAir V2: depth_lcam_front/ and pose_lcam_front.txt",
        )
    if not found.frames:
        reasons = "; ".join(f"{name}: {why}" for name, why in found.skipped[:3])
        raise IrrError(f"{folder} has no usable frame ({reasons or 'none at all'})")
    return found


def _seven_scenes(folder: Path, scale: float) -> Trajectory:
    if not (np.isfinite(scale) and scale > 0):
        raise IrrError(f"a depth scale must be positive units a metre, not {scale}")
    path = folder / "camera-intrinsics.txt"
    intrinsics = Intrinsics(*SEVEN_SCENES_INTRINSICS)
    if os.path.exists(path):
        matrix = _numbers(path)
        if matrix.shape != (3, 3):
            raise IrrError(f"{path} is {matrix.shape}, intrinsics are 3 x 3")
        try:
            intrinsics = Intrinsics(*(float(matrix[i]) for i in ((0, 0), (1, 1), (0, 2), (1, 2))))
        except IrrError as error:
            raise IrrError(f"{path}: {error.what}") from None
    names = sorted({re.sub(r"\.(depth|color|pose)\.\w+$", "", p.name) for p in folder.glob("*.*.*")})
    frames: list[Callable[[], Frame]] = []
    files: list[tuple[Path, ...]] = []
    kept: list[str] = []
    skipped: list[tuple[str, str]] = []
    first: tuple[int, int] | None = None
    for name in names:
        depth, pose = folder / f"{name}.depth.png", folder / f"{name}.pose.txt"
        missing = [p.name for p in (depth, pose) if not os.path.exists(p)]
        if missing:
            skipped.append((name, f"{' and '.join(missing)} missing"))
            continue
        try:
            matrix, size = _numbers(pose), _depth_size(depth, SIXTEEN_BIT)
        except IrrError as error:
            skipped.append((name, error.what))
            continue
        fault = f"its pose is {matrix.shape}, not 4 x 4" if matrix.shape != (4, 4) else pose_fault(matrix)
        fault = fault or _size_fault(size, first or size)
        if fault:
            skipped.append((name, fault))
            continue
        first = first or size
        colors = next((p for p in (folder / f"{name}.color.{e}" for e in ("png", "jpg")) if os.path.exists(p)), None)
        frames.append(_reader(name, lambda d=depth: _read_16_bit(d, scale), colors, matrix))
        kept.append(name)
        files.append(tuple(f for f in (depth, pose, colors, path if os.path.exists(path) else None) if f is not None))
    return Trajectory(folder.name, "7-Scenes", intrinsics, tuple(frames), tuple(skipped), tuple(files), tuple(kept))


def _tartanair(folder: Path) -> Trajectory:
    depths = sorted((folder / "depth_lcam_front").glob("*.png"))
    lines = _numbers(folder / "pose_lcam_front.txt")
    if len(depths) != len(lines):
        raise IrrError(
            f"{folder} has {len(depths)} depth images and {len(lines)} poses",
            "fetch what is missing; frames and poses are not paired by guessing",
        )
    if lines.shape[1] != 7:
        raise IrrError(f"{folder / 'pose_lcam_front.txt'} has {lines.shape[1]} numbers a line, a pose has 7")
    _check_steps(folder, [depth.name for depth in depths])
    frames: list[Callable[[], Frame]] = []
    files: list[tuple[Path, ...]] = []
    kept: list[str] = []
    skipped: list[tuple[str, str]] = []
    first: tuple[int, int] | None = None
    for depth, line in zip(depths, lines, strict=True):
        name = depth.name.split("_")[0]
        try:
            size = _depth_size(depth, FLOAT)
        except IrrError as error:
            skipped.append((name, error.what))
            continue
        fault = line_fault(line) or _size_fault(size, first or size)
        if fault:
            skipped.append((name, fault))
            continue
        first = first or size
        image = folder / "image_lcam_front" / depth.name.replace("_depth", "")
        colors = image if os.path.exists(image) else None
        frames.append(_reader(name, lambda d=depth: _read_float(d), colors, quaternion_pose(line)))
        kept.append(name)
        files.append((depth, *([image] if colors else []), folder / "pose_lcam_front.txt"))
    width, height = first or (640, 640)
    intrinsics = Intrinsics(width / 2, height / 2, width / 2, height / 2)  # 90 degrees both ways
    return Trajectory(folder.name, "TartanAir V2", intrinsics, tuple(frames), tuple(skipped), tuple(files), tuple(kept))


def _check_steps(folder: Path, names: list[str]) -> None:
    """Poses have no frame numbers, so one image missing among the others would give all later ones wrong poses.

    Raises:
        IrrError: the numbers of the images (sorted names) do not go on in even steps.
    """
    numbers = [int(found[0]) for name in names if (found := re.match(r"\d+", name))]
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    if len(steps) > 1:
        a, b = next((a, b) for a, b in itertools.pairwise(numbers) if b - a == max(steps))
        raise IrrError(
            f"{folder}: depth images go on from {a} to {b}, elsewhere in steps of {min(steps)}",
            "fetch what is missing; frames and poses are not paired by guessing",
        )


def _reader(
    name: str, read_depth: Callable[[], np.ndarray], colors: Path | None, pose: np.ndarray
) -> Callable[[], Frame]:
    def read() -> Frame:
        depth = read_depth()
        return Frame(name, depth, _read_colors(colors, depth.shape), pose)

    return read
