"""Arm A1: Open3D's voxel block grid, a library of its own with a volume of its own.

It gathers (a thread a voxel looks its depth pixel up) where our arms scatter (a thread a point adds to its voxels), so
surfaces and overlap are compared, never sums. Its device is what it says after the work, and is never called CUDA where
it fell back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import IrrError
from harness.workload.frames import DEPTH_MAX, Frame, Intrinsics
from harness.workload.volume import BLOCK_EDGE, STEPS

BLOCK_COUNT = 16_384
"""Blocks that the grid's hash map is made for; it grows on the CPU."""

RULE = "Open3D: blocks along every fourth pixel's ray within the truncation; irr: blocks of every sample of every point"


class Unavailable(IrrError):
    """Open3D, or the device asked for, is not here; the other arms run."""


@dataclass(frozen=True)
class Grid:
    """What Open3D made of frames.

    Attributes:
        device: what it ran on, in its own words (`CPU:0`, `CUDA:0`). version: Open3D's.
        coords: (m, 3) i32 blocks. capacity: of its hash map afterwards.
        vertices: (v, 3) f32 metres. faces: (f, 3) i64.
        seconds: of touching and integrating each frame.
    """

    device: str
    version: str
    coords: np.ndarray
    capacity: int
    vertices: np.ndarray
    faces: np.ndarray
    seconds: tuple[float, ...]


def load() -> Any:
    """The module; works without a display.

    Raises:
        Unavailable: it is not installed, or a system library is missing; with its own words.
    """
    try:
        import open3d
    except (ImportError, OSError) as error:
        missing = isinstance(error, ModuleNotFoundError)
        cure = "./irr setup installs open3d-cpu" if missing else "install the library that it names, or see irr doctor"
        raise Unavailable(f"open3d cannot be imported: {error}", cure) from None
    return open3d


def choose_device(open3d: Any, wanted: str = "cpu") -> Any:
    """The device object for `cpu` or `cuda`.

    Raises:
        Unavailable: CUDA was asked for and this Open3D has none; it would quietly run on the CPU.
    """
    if wanted == "cuda" and not open3d.core.cuda.is_available():
        raise Unavailable(
            f"open3d {open3d.__version__} has no CUDA here (core.cuda.is_available() is False)",
            "the package open3d-cpu never has; a build with CUDA and a driver are needed",
        )
    return open3d.core.Device("CUDA:0" if wanted == "cuda" else "CPU:0")


def integrate(
    frames: Sequence[Frame],
    camera: Intrinsics,
    voxel: float,
    *,
    device: str = "cpu",
    block_count: int = BLOCK_COUNT,
    depth_max: float = DEPTH_MAX,
    surface: bool = True,
) -> Grid:
    """Fuse frames into a voxel block grid with our voxel edge, block edge and truncation, and cut its surface.

    Args:
        voxel: metres. device: `cpu` or `cuda`. block_count: blocks that its hash map is made for.
        surface: whether to cut it; vertices and faces are empty otherwise.

    Raises:
        Unavailable: see `load` and `choose_device`, or it ended on another device than asked for.
    """
    open3d = load()
    place = choose_device(open3d, device)
    core, geometry = open3d.core, open3d.t.geometry
    kinds = (core.float32,) * 3
    grid = geometry.VoxelBlockGrid(
        ("tsdf", "weight", "color"), kinds, ((1), (1), (3)), voxel, BLOCK_EDGE, block_count, place
    )
    pinhole = core.Tensor(np.array([[camera.fx, 0, camera.cx], [0, camera.fy, camera.cy], [0, 0, 1]], np.float64))
    seconds = []
    for frame in frames:
        depth = geometry.Image(core.Tensor(np.ascontiguousarray(frame.depth, np.float32))).to(place)
        color = geometry.Image(core.Tensor(frame.colors.astype(np.float32) / 255)).to(place)
        pose = core.Tensor(np.linalg.inv(frame.pose))  # it wants world to camera
        began = time.perf_counter()
        blocks = grid.compute_unique_block_coordinates(depth, pinhole, pose, 1.0, depth_max, float(STEPS))
        grid.integrate(blocks, depth, color, pinhole, pinhole, pose, 1.0, depth_max, float(STEPS))
        if device == "cuda":
            core.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    table = grid.hashmap()
    ran = str(table.device)
    if device not in ran.lower():
        raise Unavailable(f"open3d was asked for {device} and ran on {ran}")
    vertices, faces = np.empty((0, 3), np.float32), np.empty((0, 3), np.int64)
    if surface:
        mesh = grid.extract_triangle_mesh(0.0).cpu()
        vertices, faces = mesh.vertex.positions.numpy(), mesh.triangle.indices.numpy().astype(np.int64)
    coords = table.key_tensor().cpu().numpy()[table.active_buf_indices().cpu().numpy()]
    return Grid(
        ran,
        open3d.__version__,
        np.ascontiguousarray(coords, np.int32),
        int(table.capacity()),
        vertices,
        faces,
        tuple(seconds),
    )


OVERFLOW = 8
"""How many times fewer blocks than there are the hash map is made for, to see what becomes of the others."""


def overflow(
    frames: Sequence[Frame], camera: Intrinsics, voxel: float, whole: Grid, device: str = "cpu"
) -> dict[str, int]:
    """Look for the hole that users report where Open3D's hash map is too small: the same frames into a map made for an
    eighth of the blocks, against the run that had room.

    Returns:
        `made_for` and `capacity_after` (blocks), `needed`, and what the small one lacks: `lost_blocks`,
        `lost_vertices` (all that `whole` has and it has not).
    """
    made_for = max(1, len(whole.coords) // OVERFLOW)
    small = integrate(frames, camera, voxel, device=device, block_count=made_for)
    return {
        "made_for": made_for,
        "needed": len(whole.coords),
        "capacity_after": small.capacity,
        "lost_blocks": _absent(whole.coords, small.coords),
        "lost_vertices": _absent(whole.vertices, small.vertices),
    }


def _absent(rows: np.ndarray, others: np.ndarray) -> int:
    """How many distinct rows (m, 3) are not among others (k, 3), to the bit."""
    kept = {row.tobytes() for row in np.ascontiguousarray(others)}
    return len({row.tobytes() for row in np.ascontiguousarray(rows)} - kept)


def distances(points: np.ndarray, vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Distance (k,) f32 in metres of points (k, 3) from a triangle mesh; from its triangles, not its vertices, since
    Open3D's vertices lie a voxel apart."""
    open3d = load()
    tensor = open3d.core.Tensor
    scene = open3d.t.geometry.RaycastingScene()
    scene.add_triangles(tensor(np.ascontiguousarray(vertices, np.float32)), tensor(faces.astype(np.uint32)))
    return scene.compute_distance(tensor(np.ascontiguousarray(points, np.float32))).numpy()
