"""Steps that lanes need against steps that tiles take: the part of Triton's cost that no compiler can remove.

A tile runs in step. In every sample each of its lanes probes as many slots as its block lies from its hash, and the
tile as many as its slowest lane; the difference is idle lanes. It grows with the width of the tile and the load of the
table. A CUDA warp is a tile of 32 lanes in this sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.workload.reference import exact_blocks, skip_mask
from harness.workload.scenes import Scene
from harness.workload.table import block_hash, pack
from harness.workload.volume import KEY_EMPTY, VolumeConfig

CHUNK = 1 << 15
"""Points at a time; a multiple of every tile width."""


@dataclass(frozen=True)
class TileSteps:
    """Probe steps of a look-up of every sample in the finished table.

    Attributes:
        lanes: width of a tile.
        needed: steps of all lanes together, one for each slot that a lane reads.
        taken: steps of all tiles, each counted for every lane of the tile.
        tiles: steps of all tiles.
    """

    lanes: int
    needed: int
    taken: int
    tiles: int

    @property
    def used(self) -> float:
        """Share of the lanes' steps that do something, 0 to 1."""
        return self.needed / self.taken if self.taken else 1.0


def probe_steps(blocks: np.ndarray, mask: int) -> np.ndarray:
    """Slots (m,) i64 that a look-up of each block reads, the blocks inserted in their order.

    The sum does not depend on that order (linear probing), single blocks do.

    Args:
        blocks: (m, 3) i32, no more than mask + 1.
    """
    keys, slots = pack(blocks), block_hash(blocks, mask)
    table = np.full(mask + 1, KEY_EMPTY, np.int64)
    steps = np.empty(len(blocks), np.int64)
    for i in range(len(blocks)):
        slot, step = int(slots[i]), 1
        while table[slot] != KEY_EMPTY:
            slot, step = (slot + 1) & mask, step + 1
        table[slot] = keys[i]
        steps[i] = step
    return steps


def _sample_steps(scene: Scene, config: VolumeConfig, keys: np.ndarray, steps: np.ndarray, part: slice) -> np.ndarray:
    """Steps (n, 2 k + 1) i64 of each sample of some points, 0 where there is none."""
    points, k = scene.points[part], config.steps
    skipped = skip_mask(points, scene.camera, config)
    with np.errstate(all="ignore"):
        d = points - scene.camera
        distance = np.sqrt((d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2])
        u = d / distance[:, None]
        t = np.arange(-k, k + 1, dtype=np.float32) * config.h
        v = np.floor((points[:, None, :] + u[:, None, :] * t[None, :, None]) * config.inv)
        e = (v + np.float32(0.5)) * config.h - scene.camera
        sdf = distance[:, None] - np.sqrt((e[..., 0] * e[..., 0] + e[..., 1] * e[..., 1]) + e[..., 2] * e[..., 2])
        seen = ~(sdf < -config.trunc) & ~skipped[:, None]
        blocks = np.where(seen[..., None], v, 0).astype(np.int32) >> 3
    rank = np.searchsorted(keys, pack(blocks[seen]))
    result = np.zeros(seen.shape, np.int64)
    result[seen] = steps[rank]
    return result


def tile_steps(scene: Scene, config: VolumeConfig, widths: tuple[int, ...] = (32, 64, 128, 256)) -> list[TileSteps]:
    """The steps for each tile width, all blocks being in the table.

    Args:
        widths: lanes of a tile, powers of two up to CHUNK.

    Raises:
        ValueError: the blocks do not fit into the table.
    """
    blocks = exact_blocks(scene, config)
    if len(blocks) > config.slots:
        raise ValueError(f"{len(blocks)} blocks do not fit into a table of {config.slots} slots")
    keys, steps = pack(blocks), probe_steps(blocks, config.mask)
    needed, tiles = 0, dict.fromkeys(widths, 0)
    for start in range(0, len(scene), CHUNK):
        lanes = _sample_steps(scene, config, keys, steps, slice(start, start + CHUNK))
        needed += int(lanes.sum())
        for width in widths:
            padded = np.pad(lanes, ((0, -len(lanes) % width), (0, 0)))
            tiles[width] += int(padded.reshape(-1, width, lanes.shape[1]).max(axis=1).sum())
    return [TileSteps(width, needed, width * tiles[width], tiles[width]) for width in widths]


def tile_evidence(cell: str, scene: Scene, config: VolumeConfig) -> list[dict[str, Any]]:
    """The findings of one cell, as rows of an archive's evidence.json."""
    how = "NumPy: slots read by a look-up of every sample in the finished table, a tile taking its slowest lane's"
    return [
        {"name": f"triton.tile.{cell}.w{found.lanes}.used", "value": found.used, "unit": "1", "how": how}
        for found in tile_steps(scene, config)
    ]
