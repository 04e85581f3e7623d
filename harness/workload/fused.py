"""A fused volume as data: what every arm reads back, what `fuse` writes, what gates compare."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import IrrError
from harness.workload.volume import BLOCK_VOXELS, ENTRY_DTYPE, VOXEL_FIELDS, VolumeConfig


@dataclass(frozen=True)
class Fused:
    """Blocks in lexicographic order of their coordinates, sums as accumulated.

    Attributes:
        coords: (m, 3) i32 block coordinates, lexicographic.
        tsdf, weight, r, g, b: (m, 512) f32 sums; local index x + 8 y + 64 z.
        lost_blocks: blocks of the exact set that are missing (needs the exact set; 0 until it is known).
        failed_inserts, dropped_points: the kernels' own counters (algorithm: Three loss figures).
        skipped_points: points the host removed before any arm saw them.
        voxel, truncation, cap: metres, metres, weight (0 = off); steps: samples on each side.
        arm: who computed it.
    """

    coords: np.ndarray
    tsdf: np.ndarray
    weight: np.ndarray
    r: np.ndarray
    g: np.ndarray
    b: np.ndarray
    lost_blocks: int
    failed_inserts: int
    dropped_points: int
    skipped_points: int
    voxel: np.float32
    truncation: np.float32
    cap: np.float32
    steps: np.int32
    arm: str

    def save(self, path: Path) -> None:
        """Write the .npz; the file appears whole or not at all."""
        values: dict[str, Any] = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}
        part = path.with_name(path.name + ".part")
        try:
            with part.open("wb") as stream:
                np.savez_compressed(stream, allow_pickle=False, **values)
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise IrrError(f"{path} cannot be written: {error.strerror}") from error

    @staticmethod
    def load(path: Path) -> Fused:
        """Read a .npz that `save` (or `fuse`) wrote.

        Raises:
            IrrError: no such file, or not a fused volume.
        """
        try:
            with np.load(path, allow_pickle=False) as data:
                values = {f.name: data[f.name] for f in fields(Fused)}
        except FileNotFoundError:
            raise IrrError(f"{path} does not exist") from None
        except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise IrrError(f"{path} is not a fused volume: {error}", "make one with `irr fuse`") from error
        shape = (len(values["coords"]), BLOCK_VOXELS)
        if any(values[name].shape != shape for name in VOXEL_FIELDS):
            raise IrrError(f"{path} is not a fused volume: its voxel arrays are not {shape}")
        scalars = {name: values[name][()] for name in ("voxel", "truncation", "cap", "steps")}
        counters = {
            name: int(values[name]) for name in ("lost_blocks", "failed_inserts", "dropped_points", "skipped_points")
        }
        return Fused(**{**values, **scalars, **counters, "arm": str(values["arm"])})


@dataclass(frozen=True)
class RawVolume:
    """A volume's memory as it lies, copied to the host: what the table invariant is checked on.

    Attributes:
        table: (slots,) ENTRY_DTYPE.
        count: blocks built. failed_inserts, dropped_points: the counters.
        coords: (capacity, 3) i32, the first `count` rows written.
        voxels: name -> (count, 512) f32 in index order; empty when only the table was read.
    """

    table: np.ndarray
    count: int
    failed_inserts: int
    dropped_points: int
    coords: np.ndarray
    voxels: dict[str, np.ndarray]

    def __post_init__(self) -> None:
        if self.table.dtype != ENTRY_DTYPE:
            raise TypeError(f"a table is {ENTRY_DTYPE}, not {self.table.dtype}")

    def order(self) -> np.ndarray:
        """Pool indices of the built blocks in lexicographic order of their coordinates."""
        built = self.coords[: self.count]
        return np.lexsort((built[:, 2], built[:, 1], built[:, 0]))


def gather(raw: RawVolume, config: VolumeConfig, arm: str, skipped: int = 0) -> Fused:
    """A volume's memory in lexicographic order of its blocks.

    Args:
        raw: with its voxels.
        skipped: points that the host removed.

    Returns:
        The volume with `lost_blocks` 0: which blocks are missing only the exact set can say.
    """
    order = raw.order()
    return Fused(
        coords=raw.coords[: raw.count][order],
        **{name: raw.voxels[name][order] for name in VOXEL_FIELDS},
        lost_blocks=0,
        failed_inserts=raw.failed_inserts,
        dropped_points=raw.dropped_points,
        skipped_points=skipped,
        voxel=config.h,
        truncation=config.trunc,
        cap=np.float32(config.cap),
        steps=np.int32(config.steps),
        arm=arm,
    )
