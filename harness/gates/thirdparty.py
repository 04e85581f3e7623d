"""The third party: Open3D's voxel block grid on the same frames, voxel and truncation.

Another algorithm, so what is compared is where the surface lies, both ways, and which blocks hold it. A sphere or plane
cell has no depth frames of its own: the same surface is rendered as depth images from the same camera, in closed form.

Open3D's users report holes where its hash map is made too small. That is looked for on every cell and told in the
gate's detail: `overflow_lost_blocks` and its like (open3d_arm.overflow).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from harness.device import open3d_arm
from harness.device.host import HostVolume
from harness.device.open3d_arm import Grid
from harness.errors import IrrError
from harness.gates.result import GateResult, judge, skip
from harness.gates.surface import distinct
from harness.workload.cells import Cell
from harness.workload.frames import Frame, Intrinsics, open_folder
from harness.workload.fused import Fused
from harness.workload.table import pack
from harness.workload.volume import BLOCK_EDGE, VolumeConfig

TIER = "third-party"

FACE = 640
"""Pixels an edge of a rendered face: 1.6 mm apart on a sphere of 0.5 m, a sixth of a voxel."""

SPARSE = "its points lie farther apart than a voxel: a surface with holes, which depth images do not have"

HELD = 0.95
"""Share of the blocks with surface that the other side must have built too. Measured: all of Open3D's 1,686 on the ten
real frames are ours, 31 of our 1,755 are not Open3D's, which looks at every fourth pixel only."""


def sphere_frames(radius: float) -> tuple[list[Frame], Intrinsics]:
    """A sphere round the camera as six depth images of 90 degrees, one a side of a cube."""
    middle = (FACE - 1) / 2
    camera = Intrinsics(FACE / 2, FACE / 2, middle, middle)
    v, u = np.mgrid[0:FACE, 0:FACE]
    x, y = (u - middle) / camera.fx, (v - middle) / camera.fy
    depth = (radius / np.sqrt(1 + x * x + y * y)).astype(np.float32)
    grey = np.full((FACE, FACE, 3), 128, np.uint8)
    frames = []
    for axis in range(3):
        for sign in (1.0, -1.0):
            ahead, right = np.zeros(3), np.zeros(3)
            ahead[axis], right[(axis + 1) % 3] = sign, 1.0
            pose = np.eye(4)
            pose[:3, :3] = np.stack([right, np.cross(ahead, right), ahead], axis=1)
            frames.append(Frame(f"face-{axis}-{sign:+.0f}", depth, grey, pose))
    return frames, camera


def plane_frames() -> tuple[list[Frame], Intrinsics]:
    """The patch |x|, |y| <= 1 at z = 0.5 as one depth image that ends where it does."""
    middle = (FACE - 1) / 2
    camera = Intrinsics(middle / 2, middle / 2, middle, middle)
    grey = np.full((FACE, FACE, 3), 128, np.uint8)
    return [Frame("plane", np.full((FACE, FACE), 0.5, np.float32), grey, np.eye(4))], camera


def depth_frames(cell: Cell) -> tuple[list[Frame], Intrinsics]:
    """A cell's frames as depth images, those fused before included.

    Raises:
        IrrError: its kind of scene has none.
    """
    given = dict(cell.arguments)
    if cell.kind == "sphere":
        return sphere_frames(float(given["radius"]))
    if cell.kind == "plane":
        return plane_frames()
    if given.get("noise"):
        raise IrrError("noise is drawn on the way to points, not kept as images")
    numbers = range(int(given.get("frame", 0)) - cell.warm, int(given.get("frame", 0)) + 1)
    if cell.kind == "room":
        from harness.workload import room

        return [room.frame(number) for number in numbers], room.INTRINSICS
    if cell.kind == "folder":
        found = open_folder(Path(str(given["folder"])))
        return [found.frames[number]() for number in numbers], found.intrinsics
    raise IrrError(f"a {cell.kind} has no depth images")


def judge_cell(cell: Cell, fused: Fused, device: str = "cpu") -> GateResult:
    """Run Open3D on a cell's frames and hold an arm's volume against it; skipped, with the reason, where it cannot."""
    subject = f"open3d on {cell.name}"
    if cell.kind == "sphere" and _spacing(cell) > cell.config.voxel:
        return skip("third-party", TIER, subject, SPARSE)
    try:
        frames, camera = depth_frames(cell)
        grid = open3d_arm.integrate(frames, camera, cell.config.voxel, device=device)
    except IrrError as error:
        return skip("third-party", TIER, subject, str(error).replace("\n", "; "))
    result = third_party_gate(fused, grid, subject)
    # Told, not judged: a hole there is Open3D's, and says nothing about our arms.
    try:
        told: dict[str, int | str] = {**open3d_arm.overflow(frames, camera, cell.config.voxel, grid, device)}
    except (IrrError, RuntimeError) as error:
        told = {"ended": str(error).splitlines()[0]}
    more = {f"overflow_{name}": value for name, value in told.items()}
    return dataclasses.replace(result, detail={**result.detail, **more})


def _spacing(cell: Cell) -> float:
    """Distance of neighbouring rows of a sphere's points, metres."""
    given = dict(cell.arguments)
    return float(np.pi * float(given["radius"]) / float(given["rows"]))


def third_party_gate(fused: Fused, grid: Grid, subject: str) -> GateResult:
    """The two surfaces lie within a quarter voxel of each other (median, both ways), as the analytic gate asks of the
    sphere, and either side has built the blocks that hold the other's surface.

    A bias of half a voxel in each axis, which no agreement between our own arms shows, moves the median to 0.4 voxel.
    The means are told: at the rim of what was seen one side has surface where the other has none.
    """
    edge = BLOCK_EDGE * float(fused.voxel)
    triangles = _triangles(fused)
    corners = triangles.reshape(-1, 3)
    mine, theirs = distinct(corners.astype(np.float64)), np.asarray(grid.vertices, np.float64)
    there = open3d_arm.distances(mine, grid.vertices, grid.faces) if len(mine) and len(theirs) else np.empty(0)
    back = (
        open3d_arm.distances(theirs, corners, np.arange(len(corners)).reshape(-1, 3))
        if len(mine) and len(theirs)
        else np.empty(0)
    )
    medians = [float(np.median(d)) if len(d) else float("nan") for d in (there, back)]
    means = [float(d.mean()) if len(d) else float("nan") for d in (there, back)]
    limit = float(fused.voxel) / 4
    ours_held, theirs_held = _held(mine, edge, grid.coords), _held(theirs, edge, fused.coords)
    common = len(np.intersect1d(pack(fused.coords), pack(grid.coords)))
    return judge(
        "third-party",
        TIER,
        subject,
        min(len(mine), len(theirs)),
        {
            "near": (
                all(median < limit for median in medians),
                f"surfaces are {medians[0]:.3g} and {medians[1]:.3g} m apart (medians), not below {limit:.3g} m",
            ),
            "theirs built": (
                theirs_held >= HELD,
                f"only {theirs_held:.1%} of the blocks with Open3D's surface are ours",
            ),
            "ours built": (ours_held >= HELD, f"only {ours_held:.1%} of the blocks with our surface are Open3D's"),
        },
        {
            "against": fused.arm,
            "device": grid.device,
            "open3d": grid.version,
            "ours_to_theirs_median_m": medians[0],
            "theirs_to_ours_median_m": medians[1],
            "ours_to_theirs_mean_m": means[0],
            "theirs_to_ours_mean_m": means[1],
            "limit_m": limit,
            "vertices": len(mine),
            "open3d_vertices": len(theirs),
            "blocks": len(fused.coords),
            "open3d_blocks": len(grid.coords),
            "common_blocks": common,
            "rule": open3d_arm.RULE,
            "seconds_per_frame": float(np.median(grid.seconds)) if grid.seconds else None,
        },
    )


def _held(vertices: np.ndarray, edge: float, coords: np.ndarray) -> float:
    """Share of the blocks holding any of these vertices that are among `coords`."""
    if not len(vertices):
        return 0.0
    blocks = np.unique(np.floor(vertices / edge).astype(np.int64), axis=0)
    return float(np.isin(pack(blocks), pack(coords)).mean())


def _triangles(fused: Fused) -> np.ndarray:
    """The volume's surface (t, 3, 3) f32, metres, by the host's extract kernel."""
    volume = HostVolume(VolumeConfig(max(1, len(fused.coords)), float(fused.voxel), None, float(fused.cap)))
    volume.load(fused)
    return volume.extract()[0]
