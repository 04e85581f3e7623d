"""Gates against geometry that is known in closed form: nothing here runs the walk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from harness.gates.once import Once
from harness.gates.result import GateResult, judge
from harness.workload.cells import Cell
from harness.workload.scenes import Scene
from harness.workload.table import pack
from harness.workload.volume import BLOCK_EDGE, KEY_BIAS, VolumeConfig

ROUNDING = 16 * 2.0**-24
"""Relative slack within which float32 may put a point on either side of a block's face: a few roundings, with room."""


class Surface(Protocol):
    """A surface whose distance is known."""

    @property
    def name(self) -> str:
        """Name of the gate that judges vertices by it."""
        ...

    @property
    def area(self) -> float:
        """Square metres of it that the points cover."""
        ...

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Unsigned distance (k,) of points (k, 3), metres."""
        ...

    def box_distance(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Smallest distance (k,) between the surface and boxes low..high (k, 3), metres."""
        ...

    def worst(self, h: float) -> float | None:
        """Largest distance of a right vertex at voxel edge h, metres; None where none can be derived."""
        ...


@dataclass(frozen=True)
class SphereSurface:
    """A sphere round the origin, where the camera is, metres."""

    radius: float
    name = "sphere"

    @property
    def area(self) -> float:
        return 4 * np.pi * self.radius**2

    def distance(self, points: np.ndarray) -> np.ndarray:
        return np.abs(np.linalg.norm(points, axis=1) - self.radius)

    def box_distance(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        nearest = np.linalg.norm(np.maximum(0, np.maximum(low, -high)), axis=1)
        farthest = np.linalg.norm(np.maximum(np.abs(low), np.abs(high)), axis=1)
        return np.maximum(0, np.maximum(nearest - self.radius, self.radius - farthest))

    def worst(self, h: float) -> float | None:
        """Seen from its centre, a sphere's projective distance is its true distance R - |e|, so a vertex is off only by
        linear interpolation of |e| along an edge: at most L^2 / 8 max|f''|, with L = sqrt(3) h the longest edge and
        f'' <= 1 / r, r the edge's distance from the centre. Measured: 7.44e-5 m of 7.64e-5 m at base."""
        nearest = self.radius - np.sqrt(3) * h
        if nearest <= 0:
            return None
        return 3 * h * h / (8 * nearest) + ROUNDING * self.radius


@dataclass(frozen=True)
class PlaneSurface:
    """The patch |x|, |y| <= half of the plane z = depth, metres, seen from the origin."""

    depth: float = 0.5
    half: float = 1.0
    name = "plane"

    @property
    def area(self) -> float:
        return 4 * self.half**2

    def distance(self, points: np.ndarray) -> np.ndarray:
        return self.box_distance(points, points)

    def box_distance(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        patch_low = np.array([-self.half, -self.half, self.depth])
        patch_high = np.array([self.half, self.half, self.depth])
        return np.linalg.norm(np.maximum(0, np.maximum(low - patch_high, patch_low - high)), axis=1)

    def worst(self, h: float) -> float | None:
        """None: along a slanting ray the projective distance is not the distance to the plane, and a voxel's mean
        depends on which rays met it."""
        return None


SURFACES: dict[str, Callable[[Mapping[str, Any]], Surface]] = {
    "sphere": lambda arguments: SphereSurface(arguments["radius"]),
    "plane": lambda arguments: PlaneSurface(),
}
"""Scene kind -> its surface; a kind without one has no analytic gates."""


def surface_of(cell: Cell) -> Surface | None:
    """The surface of a cell's scene, None where none is known in closed form (real frames)."""
    make = SURFACES.get(cell.kind)
    return None if make is None else make(dict(cell.arguments))


SPARSE = 0.25
"""Points to a voxel's face of surface below which no cube has a sample in each of its eight corners. Spheres of radius
0.5 m: 0.20 leaves no vertex, 0.26 has 90, pts-20k's 0.64 has 2,998."""


def extractable(surface: Surface, points: int, config: VolumeConfig) -> bool:
    """Whether so many points leave a surface to extract; fewer have rays and no surface between them."""
    return points * float(config.h) ** 2 >= SPARSE * surface.area


def surface_gate(vertices: np.ndarray, surface: Surface, config: VolumeConfig, subject: str) -> GateResult:
    """The extracted surface lies on the surface: mean distance below a quarter voxel (the paper's limit), no vertex
    farther than a right one can be (where that is known), vertices on every side.

    The mean alone is not enough. Evaluating the distance at the ray's sample instead of the voxel's centre, the fault
    that the paper tells of, gives a mean of 0.0017 m at base, inside a quarter voxel, and a largest error of 0.0049 m.

    Args:
        vertices: (k, 3), metres.
    """
    vertices = np.asarray(vertices, np.float64)
    error = surface.distance(vertices) if len(vertices) else np.empty(0)
    mean, largest = (float(error.mean()), float(error.max())) if len(error) else (float("nan"), float("nan"))
    sides = len(np.unique((vertices[:, :2] > 0) @ np.array([1, 2]))) if len(error) else 0
    limit, worst = float(config.h) / 4, surface.worst(float(config.h))
    checks = {
        "mean": (mean < limit, f"mean distance {mean:.3g} m is not below a quarter voxel ({limit:.3g} m)"),
        "sides": (sides == 4, f"vertices in {sides} of 4 quadrants"),
    }
    if worst is not None:
        checks["worst"] = (largest <= worst, f"a vertex is {largest:.3g} m off, where {worst:.3g} m is possible")
    detail = {"mean_m": mean, "max_m": largest, "limit_m": limit, "worst_m": worst, "sides": sides}
    return judge(surface.name, "analytic", subject, len(error), checks, detail)


def geometric_gate(
    coords: np.ndarray, scene: Scene, surface: Surface, config: VolumeConfig, subject: str
) -> GateResult:
    """The block set against the surface itself (algorithm: Two independent gates, b).

    No built block may lie outside the band |distance| <= trunc widened by one voxel diagonal, and every block that
    holds a point must be built. A point within float32 rounding of a block's face may belong to either side.

    Args:
        coords: (m, 3) i32 built blocks. scene: without points that are skipped.
    """
    edge = BLOCK_EDGE * float(config.h)
    band = float(config.trunc) + float(np.sqrt(3)) * float(config.h)
    low = np.asarray(coords, np.float64) * edge
    distance = surface.box_distance(low, low + edge)
    outside = int((distance > band).sum())
    held = _POINT_BLOCKS(scene, lambda: PointBlocks.of(scene.points, edge))
    if held.edge != edge:
        held = PointBlocks.of(scene.points, edge)
    missing = held.missing(pack(coords))
    return judge(
        "geometric",
        "analytic",
        subject,
        min(len(coords), len(held)),
        {
            "band": (outside == 0, f"{outside} blocks lie outside the truncation band"),
            "points": (missing == 0, f"{missing} of {len(held)} blocks that hold a point are not built"),
        },
        {
            "blocks": len(coords),
            "outside": outside,
            "farthest_m": float(distance.max()) if len(coords) else None,
            "band_m": band,
            "blocks_with_points": len(held),
            "missing": missing,
        },
    )


@dataclass(frozen=True)
class PointBlocks:
    """Blocks that hold a point of a scene.

    Attributes:
        edge: of a block, metres. clear: keys (k,) i64 of blocks that a point lies in beyond doubt. either: (m, 6) i64,
        lowest and highest block of the points within rounding of a face.
    """

    edge: float
    clear: np.ndarray
    either: np.ndarray

    @classmethod
    def of(cls, points: np.ndarray, edge: float) -> PointBlocks:
        p = np.asarray(points, np.float64)
        slack = np.abs(p) * ROUNDING
        low, high = (np.floor((p + way * slack) / edge).astype(np.int64) for way in (-1, 1))
        low, high = (np.clip(b, -KEY_BIAS, KEY_BIAS - 1) for b in (low, high))
        clear = (low == high).all(axis=1)
        either = np.unique(np.concatenate([low[~clear], high[~clear]], axis=1), axis=0)
        return cls(edge, np.unique(pack(low[clear])), either)

    def __len__(self) -> int:
        return len(self.clear) + len(self.either)

    def missing(self, built: np.ndarray) -> int:
        """How many are not among built keys; one of the blocks that share a face is enough for a point upon it."""
        reached = np.zeros(len(self.either), bool)
        for sides in itertools.product((0, 1), repeat=3):
            corner = np.stack([self.either[:, axis + 3 * side] for axis, side in enumerate(sides)], axis=-1)
            reached |= np.isin(pack(corner), built)
        return int((~np.isin(self.clear, built)).sum() + (~reached).sum())


_POINT_BLOCKS: Once[Scene, PointBlocks] = Once()
