"""A fused volume as data: what every arm reads back, what `fuse` writes, what gates compare."""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from harness.errors import IrrError
from harness.workload.volume import BLOCK_VOXELS, ENTRY_DTYPE, VOXEL_FIELDS, VolumeConfig

UNREADABLE = (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error)
"""What NumPy raises for a file that is no .npz, or a damaged one."""


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.part")


def _unwritable(path: Path, error: OSError) -> IrrError:
    who = f"uid {os.getuid()}, gid {os.getgid()}: choose a folder of your own"
    return IrrError(f"{path} cannot be written: {error.strerror or error}", who)


def check_target(path: Path) -> None:
    """
    Raises:
        IrrError: no file can be written there, or something else than a file has the name: a device would be replaced.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # Path's own questions fail without rights
            what = "is a folder, not a file to write" if os.path.isdir(path) else "is not a file"
            raise IrrError(f"{path} {what}")
        _part(path).open("wb").close()
        _part(path).unlink()
    except OSError as error:
        raise _unwritable(path, error) from None


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that stands under its name whole or not at all, also where the writing is interrupted.

    Raises:
        IrrError: as `check_target`.
    """
    check_target(path)
    part = _part(path)
    try:
        with part.open("wb") as stream:
            yield stream
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise


def unreadable(error: BaseException) -> str:
    """NumPy's words about a file, without its advice to unpickle what nobody trusts."""
    words = str(error).splitlines()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it holds Python objects, or NumPy did not make it" if not words or "pickle" in words[0] else words[0]


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
        with whole_file(path) as stream:
            np.savez_compressed(stream, allow_pickle=False, **values)

    @staticmethod
    def load(path: Path) -> Fused:
        """Read a .npz that `save` (or `fuse`) wrote.

        Raises:
            IrrError: no such file, or not a fused volume.
        """
        try:
            loaded = np.load(path, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise IrrError(f"{path} is not a fused volume: one bare array", "make one with `irr fuse`")
            with loaded as data:
                values = {f.name: data[f.name] for f in fields(Fused)}
        except FileNotFoundError:
            raise IrrError(f"{path} does not exist") from None
        except KeyError as error:
            raise IrrError(f"{path} is not a fused volume: {error.args[0]}", "make one with `irr fuse`") from error
        except UNREADABLE as error:
            raise IrrError(f"{path} is not a fused volume: {unreadable(error)}", "make one with `irr fuse`") from error
        if values["coords"].ndim != 2 or any(np.ndim(values[f.name]) for f in fields(Fused) if f.type != "np.ndarray"):
            raise IrrError(f"{path} is not a fused volume: its arrays are of other shapes", "make one with `irr fuse`")
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
