"""The seeds' own figures, read from data/paper/: what stands beside ours. No predicate carries a figure of its own."""

from __future__ import annotations

import csv
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "paper"


@lru_cache(maxsize=1)
def _text() -> dict[str, Any]:
    return tomllib.loads((DATA / "text.toml").read_text(encoding="utf-8"))


def paper(key: str) -> Any:
    """A figure of the paper's text."""
    return _text()["paper"][key]


def blog(key: str) -> Any:
    """A figure of the blog's text."""
    return _text()["blog"][key]


@lru_cache(maxsize=8)
def rows(name: str) -> tuple[dict[str, str], ...]:
    """Rows of one of the paper's tables (data/paper/NAME.csv), as text."""
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream))


def cell_ratio(cell: str, column: str) -> float | None:
    """The paper's Table 3 ratio of a cell, None for a cell it does not have."""
    for row in rows("cells_allocate"):
        if row["cell"] == cell:
            return float(row[column])
    return None


def stage_range(stage: str, language: str) -> tuple[float, float]:
    """The paper's Table 1 range of a stage for `rust` or `triton`."""
    row = next(row for row in rows("by_stage") if row["stage"] == stage)
    return float(row[f"{language}_over_cuda_min"]), float(row[f"{language}_over_cuda_max"])


def counter(metric: str, column: str) -> float | None:
    """A figure of the paper's Table 4."""
    text = next(row for row in rows("counters_allocate_base") if row["metric"] == metric)[column]
    return float(text) if text else None
