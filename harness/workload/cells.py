"""Cells of the matrix, read from data/cells.toml: a scene with the volume it is fused into."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.errors import UsageError
from harness.workload.scenes import Scene, plane, sphere
from harness.workload.volume import VolumeConfig

CELLS_FILE = Path(__file__).parents[2] / "data" / "cells.toml"

SCENE_KINDS: dict[str, Callable[..., Scene]] = {"sphere": sphere, "plane": plane}


@dataclass(frozen=True)
class Cell:
    """One cell: what is fused, into what, and the exact counts every lossless arm must reach.

    Attributes:
        axis: the question the cell answers (points, extent, loadfactor, load, shape, real, baseline).
        blocks: blocks of the exact set.
        samples: update samples after the occlusion test.
    """

    name: str
    axis: str
    kind: str
    arguments: tuple[tuple[str, float | int], ...]
    config: VolumeConfig
    blocks: int
    samples: int

    @property
    def load_factor(self) -> float:
        return self.blocks / self.config.slots

    @property
    def radius(self) -> float | None:
        """Radius of a sphere scene in metres, None for other scenes."""
        return dict(self.arguments).get("radius") if self.kind == "sphere" else None

    def scene(self) -> Scene:
        return _scene(self.kind, self.arguments)


@lru_cache(maxsize=4)
def _scene(kind: str, arguments: tuple[tuple[str, float | int], ...]) -> Scene:
    return SCENE_KINDS[kind](**dict(arguments))


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


def select_cells(pattern: str, cells: dict[str, Cell] | None = None) -> list[Cell]:
    """Cells whose name matches any of the comma-separated globs.

    Raises:
        UsageError: nothing matches.
    """
    cells = cells if cells is not None else load_cells()
    globs = [part.strip() for part in pattern.split(",") if part.strip()]
    chosen = [cell for cell in cells.values() if any(fnmatch.fnmatchcase(cell.name, glob) for glob in globs)]
    if not chosen:
        raise UsageError(f"no cell matches {pattern!r}", f"cells: {', '.join(cells)}")
    return chosen
