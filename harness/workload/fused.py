"""A fused volume as data: what every arm reads back, what `fuse` writes, what gates compare."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import IrrError
from harness.whole import whole_file
from harness.workload.table import pack
from harness.workload.volume import BLOCK_VOXELS, ENTRY_DTYPE, KEY_BIAS, VOXEL_FIELDS, VolumeConfig

UNREADABLE = (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error)
"""What NumPy raises for a file that is no .npz, or a damaged one."""


def unreadable(error: BaseException) -> str:
    """NumPy's words about a file, without its advice to unpickle what nobody trusts."""
    words = str(error).splitlines()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it holds Python objects, or NumPy did not make it" if not words or "pickle" in words[0] else words[0]


MAKE_ONE = "make one with `irr fuse`"

NUMBERS = {"voxel": "f", "truncation": "f", "cap": "f", "steps": "iu", "arm": "U"} | dict.fromkeys(
    ("lost_blocks", "failed_inserts", "dropped_points", "skipped_points"), "iu"
)
"""Single values of a fused volume -> the kinds of NumPy's types that they may have."""


def _wrong(values: Mapping[str, np.ndarray]) -> str | None:
    """What keeps arrays by name from being a fused volume, None where nothing does. Whoever uses one relies on all of
    it: coordinates that no key holds, or one block twice, fill a hash table that is then searched for ever."""
    coords = values["coords"]
    if coords.dtype != np.int32 or coords.ndim != 2 or coords.shape[1] != 3:
        return f"coords is {coords.dtype} {coords.shape}, not int32 (m, 3)"
    shape = (len(coords), BLOCK_VOXELS)
    for name in VOXEL_FIELDS:
        array = values[name]
        if array.dtype != np.float32 or array.shape != shape:
            return f"{name} is {array.dtype} {array.shape}, not float32 {shape}"
        if not np.isfinite(array).all():
            return f"{name} has values that are not finite"
    if (values["weight"] < 0).any():
        return "weight has negative values"
    if ((coords < -KEY_BIAS) | (coords >= KEY_BIAS)).any():
        return f"coords has blocks outside -{KEY_BIAS}..{KEY_BIAS - 1}"
    if len(np.unique(pack(coords))) != len(coords):
        return "coords has a block twice"
    for name, kinds in NUMBERS.items():
        if values[name].shape or values[name].dtype.kind not in kinds:
            return (
                f"{name} is {values[name].dtype} {values[name].shape}, not one {'text' if kinds == 'U' else 'number'}"
            )
    if not (np.isfinite(values["voxel"]) and values["voxel"] > 0 and np.isfinite(values["cap"]) and values["cap"] >= 0):
        return f"its voxel edge is {values['voxel']:g} m, its cap {values['cap']:g}"
    return None


@dataclass(frozen=True, eq=False)
class Fused:
    """Blocks in lexicographic order of their coordinates, sums as accumulated. Its arrays are never written to.

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
        with whole_file(path) as stream:
            np.savez_compressed(stream, allow_pickle=False, **values)

    @staticmethod
    def load(path: Path) -> Fused:
        """Read a .npz that `save` (or `fuse`) wrote.

        Raises:
            IrrError: no such file, not a fused volume, or values that no fusion gives.
        """
        try:
            loaded = np.load(path, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise IrrError(f"{path} is not a fused volume: one bare array", MAKE_ONE)
            with loaded as data:
                missing = [f.name for f in fields(Fused) if f.name not in data]
                if missing:
                    raise IrrError(f"{path} is not a fused volume: it has no {', no '.join(missing)}", MAKE_ONE)
                values = {f.name: data[f.name] for f in fields(Fused)}
        except FileNotFoundError:
            raise IrrError(f"{path} does not exist") from None
        except UNREADABLE as error:
            raise IrrError(f"{path} is not a fused volume: {unreadable(error)}", MAKE_ONE) from error
        wrong = _wrong(values)
        if wrong is not None:
            raise IrrError(f"{path} is not a fused volume: {wrong}", MAKE_ONE)
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
