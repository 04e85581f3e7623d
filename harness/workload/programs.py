"""The contraction study's programs as cells: what is computed, how large, how often in one timed batch."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.workload.cells import CELLS_FILE

A, X, Y = np.float32(1.000244140625), np.float32(1.000244140625), np.float32(-1.00048828125)
"""a x + y that tells one rounding from two (needs N22): two give exactly 0, one gives 2^-24."""
SEPARATE, FUSED = np.float32(0.0), np.float32(2.0**-24)


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        name: `mandelbrot` or `saxpy`; a kernel belongs to the one its variant begins with.
        elements: pixels, or vector elements. edge, limit: of the image; 0 for saxpy.
        launches: repetitions in one timed batch.
    """

    name: str
    elements: int
    launches: int
    edge: int = 0
    limit: int = 0
    axis: str = "program"


def load_programs(path: Path = CELLS_FILE) -> dict[str, Program]:
    """Every program by name."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["program"]
    return {
        row["name"]: Program(
            row["name"],
            row.get("elements", row.get("edge", 0) ** 2),
            row["launches"],
            row.get("edge", 0),
            row.get("limit", 0),
        )
        for row in rows
    }
