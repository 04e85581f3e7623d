"""Small scenes that corner an implementation: crowded tables, pools too small, the ends of every range.

Each is a case that gates run like a cell. Most are made from the blocks they are to touch: a point at a block's centre
has all nine samples in that block, as long as its ray does not run along an axis (then t = 4 voxels ends on the next
block's face).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.workload.scenes import Scene, index_colors, sphere
from harness.workload.table import block_hash
from harness.workload.volume import BLOCK_EDGE, KEY_BIAS, VolumeConfig

DYADIC = 1 / 64
"""A voxel edge at which block centres are exact in float32, out to the last block."""


@dataclass(frozen=True)
class Case:
    """A scene to be gated, with the same face as a cell.

    Attributes:
        make: makes the scene, unskipped points and all.
        why: what it corners.
        blocks: blocks of the exact set.
    """

    name: str
    why: str
    config: VolumeConfig
    make: Callable[[], Scene]
    blocks: int
    kind: str = "adversarial"
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def scene(self) -> Scene:
        return self.make()


def scene_of(points: np.ndarray, camera: tuple[float, float, float] = (0, 0, 0)) -> Scene:
    """A scene of points (n, 3), metres, with the usual colours."""
    points = np.ascontiguousarray(points, np.float32).reshape(-1, 3)
    return Scene(points, index_colors(len(points)), np.array(camera, np.float32))


def block_centres(blocks: np.ndarray, voxel: float) -> np.ndarray:
    """Centres (m, 3) f32, metres, of block coordinates (m, 3)."""
    edge = np.float64(np.float32(voxel)) * BLOCK_EDGE
    return ((np.asarray(blocks, np.float64) + 0.5) * edge).astype(np.float32)


def blocks_at_slot(slot: int, mask: int, count: int) -> np.ndarray:
    """The first `count` blocks (count, 3) i32 whose hash is `slot`, off the axes and more than 10 blocks out."""
    reach = np.arange(-40, 40)
    grid = np.stack(np.meshgrid(reach, reach, reach, indexing="ij"), axis=-1).reshape(-1, 3).astype(np.int32)
    off_axis = (np.abs(grid) > 10).sum(axis=1) >= 2
    return grid[off_axis & (block_hash(grid, mask) == slot)][:count]


def diagonal_blocks(count: int) -> np.ndarray:
    """`count` different blocks (count, 3) i32 on a slanting line."""
    i = np.arange(count, dtype=np.int32)
    return np.stack([20 + i, -30 - i, 25 + (i % 7)], axis=-1)


CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])


def _far_blocks() -> np.ndarray:
    """The eight blocks at the corners of what a key can hold, -2^20 and 2^20 - 1."""
    return np.where(CORNERS < 0, -KEY_BIAS, KEY_BIAS - 1)


def _far_points(voxel: float) -> np.ndarray:
    """Centres of the far blocks, of the blocks one further out, and points in a far block whose band leaves it."""
    far = block_centres(_far_blocks(), voxel)
    edge = np.float32(voxel) * BLOCK_EDGE
    return np.concatenate([far, far + CORNERS * edge, far + CORNERS * np.float32(0.4) * edge])


def _unusable_points() -> np.ndarray:
    """16 good points between points that the host removes: not finite, at the camera, beyond every key."""
    good = block_centres(diagonal_blocks(16), 0.01)
    bad = np.array(
        [[np.nan, 0.3, 0.3], [0.3, np.inf, 0.3], [0.3, 0.3, -np.inf], [0, 0, 0], [5e-7, 0, 0], [3e38] * 3, [1e6] * 3]
    )
    return np.concatenate([good[:5], bad, good[5:]])


def _crowd(n: int = 4096) -> np.ndarray:
    """n points inside one block, away from its faces."""
    steps = np.arange(n)
    jitter = np.stack([(steps * k % 101) / 101 - 0.5 for k in (37, 59, 83)], axis=-1) * 0.01
    return block_centres(np.array([[9, -7, 5]]), 0.01) + jitter


def _inside_surface() -> Scene:
    """A wall of points so near the camera that every band reaches behind it."""
    directions = sphere(1.0, 12, 24).points
    return scene_of(directions * np.float32(0.015) + np.float32(0.003), (0.003, 0.003, 0.003))


def _blocks_case(name: str, why: str, config: VolumeConfig, blocks: np.ndarray, repeat: int = 3) -> Case:
    def make() -> Scene:
        return scene_of(np.repeat(block_centres(blocks, config.voxel), repeat, axis=0))

    return Case(name, why, config, make, len(blocks))


def _sphere_case(n: int, blocks: int) -> Case:
    return Case(
        f"points-{n}",
        "the tail of a warp and of a thread block",
        VolumeConfig(512),
        lambda: scene_of(sphere(0.3, 8, 8).points[:n]),
        blocks,
    )


def adversarial_cases() -> dict[str, Case]:
    """Every case by name. Those with a pool or table too small for their blocks must lose exactly what does not fit."""
    cases = [
        Case(
            "crowd",
            "all points in one block: every insert and every addition collides",
            VolumeConfig(64),
            lambda: scene_of(_crowd()),
            1,
        ),
        _blocks_case(
            "chain",
            "one probe chain: 24 blocks with the same hash",
            VolumeConfig(32, table=64),
            blocks_at_slot(5, 63, 24),
        ),
        _blocks_case(
            "wrap", "a chain that runs over the table's end", VolumeConfig(32, table=64), blocks_at_slot(62, 63, 12)
        ),
        *[_sphere_case(n, blocks) for n, blocks in ((0, 0), (1, 2), (31, 55), (32, 56), (33, 58))],
        Case(
            "far",
            "blocks -2^20 and 2^20 - 1; those outside are skipped",
            VolumeConfig(64, DYADIC),
            lambda: scene_of(_far_points(DYADIC)),
            8,
        ),
        Case(
            "far-cm",
            "the same where float32 cannot resolve a voxel",
            VolumeConfig(64),
            lambda: scene_of(_far_points(0.01)),
            8,
        ),
        Case(
            "unusable",
            "points that are not finite, at the camera or out of range",
            VolumeConfig(64),
            lambda: scene_of(_unusable_points()),
            16,
        ),
        Case("inside", "a camera nearer to the surface than the truncation", VolumeConfig(64), _inside_surface, 8),
        _blocks_case("two-slots", "a table of two slots, both taken", VolumeConfig(2, table=2), diagonal_blocks(2)),
        _blocks_case("full", "64 blocks in 64 slots: load 1", VolumeConfig(64, table=64), diagonal_blocks(64)),
        _blocks_case(
            "full-plus-1",
            "a 65th block, and look-ups of an absent key in a full table",
            VolumeConfig(64, table=64),
            diagonal_blocks(65),
        ),
        _blocks_case(
            "pool-16",
            "40 blocks for a pool of 16 and 32 slots: tombstones fill the table",
            VolumeConfig(16),
            diagonal_blocks(40),
        ),
        _blocks_case("pool-1", "a pool of one block", VolumeConfig(1), diagonal_blocks(40)),
    ]
    return {case.name: case for case in cases}
