"""Figures of an archive as files below derived/figures/. Empty until figures are drawn: the page shows its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.claims.registry import View
from harness.report.tables import Table


def make_figures(view: View, tables: Sequence[Table], verdicts: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """Path below derived/ (`figures/NAME.svg`) -> bytes; none in this version."""
    return {}
