"""Cells of the matrix, read from data/cells.toml: a scene with the volume it is fused into."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.errors import UsageError
from harness.workload.scenes import Scene, plane, sphere
from harness.workload.volume import VolumeConfig

CELLS_FILE = Path(__file__).parents[2] / "data" / "cells.toml"
STUDY_CELLS_FILE = CELLS_FILE.with_name("study_cells.toml")
"""Cells that belong to a study and not to the matrix."""

Argument = float | int | str


def _room(frame: int, noise: int = 0) -> Scene:
    from harness.workload.room import room

    return room(frame, bool(noise))


def _folder(folder: str, frame: int, noise: int = 0) -> Scene:
    from harness.workload.frames import folder_scene

    return folder_scene(Path(folder), frame, bool(noise))


SCENE_KINDS: dict[str, Callable[..., Scene]] = {"sphere": sphere, "plane": plane, "room": _room, "folder": _folder}


@dataclass(frozen=True)
class Cell:
    """One cell: what is fused, into what, and the exact counts every lossless arm must reach.

    Attributes:
        axis: the question the cell answers (points, extent, loadfactor, load, shape, trajectory, real, baseline).
        blocks: blocks of the exact set, those of the frames fused before included.
        samples: update samples after the occlusion test, of all frames.
        warm: frames fused before the timed one, the same for all arms; only frames of a trajectory have any.
    """

    name: str
    axis: str
    kind: str
    arguments: tuple[tuple[str, Argument], ...]
    config: VolumeConfig
    blocks: int
    samples: int
    warm: int = 0

    @property
    def load_factor(self) -> float:
        return self.blocks / self.config.slots

    @property
    def radius(self) -> float | None:
        """Radius of a sphere scene in metres, None for other scenes."""
        return float(dict(self.arguments)["radius"]) if self.kind == "sphere" else None

    def scene(self) -> Scene:
        """What is timed."""
        return make_scene(self.kind, self.arguments)

    def before(self) -> list[Scene]:
        """The frames fused before the timing, oldest first."""
        return make_frames(self.kind, self.arguments, self.warm)[:-1]


@lru_cache(maxsize=24)
def make_scene(kind: str, arguments: tuple[tuple[str, Argument], ...]) -> Scene:
    return SCENE_KINDS[kind](**dict(arguments))


def make_frames(kind: str, arguments: tuple[tuple[str, Argument], ...], before: int) -> list[Scene]:
    """A frame and the `before` frames that precede it, oldest first; made side by side."""
    if not before:
        return [make_scene(kind, arguments)]
    given = dict(arguments)
    last = int(given["frame"])
    with ThreadPoolExecutor(4) as pool:
        rows = [tuple({**given, "frame": number}.items()) for number in range(last - before, last + 1)]
        return list(pool.map(lambda row: make_scene(kind, row), rows))


def load_cells(path: Path = CELLS_FILE) -> dict[str, Cell]:
    """Every cell by name, in the file's order."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    voxel = document["defaults"]["voxel"]
    cells = {}
    for row in document["cell"]:
        scene = dict(row["scene"])
        kind = scene.pop("kind")
        config = VolumeConfig(row["pool"], voxel, row.get("table"))
        cells[row["name"]] = Cell(
            row["name"], row["axis"], kind, tuple(scene.items()), config, row["blocks"], row["samples"]
        )
    return cells


def match_cells(pattern: str, names: Iterable[str]) -> list[str]:
    """Names that match any of the comma-separated globs.

    Raises:
        UsageError: nothing matches.
    """
    names = list(names)
    globs = [part.strip() for part in pattern.split(",") if part.strip()]
    chosen = [name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in globs)]
    if not chosen:
        raise UsageError(f"no cell matches {pattern!r}", f"cells: {', '.join(names)}")
    return chosen


def select_cells(pattern: str, cells: Mapping[str, Cell] | None = None) -> list[Cell]:
    """Cells whose name matches any of the comma-separated globs.

    Raises:
        UsageError: nothing matches.
    """
    cells = cells if cells is not None else load_cells()
    return [cells[name] for name in match_cells(pattern, cells)]
