"""Stations for tests of the harness: the GPU station over simulated CuPy, and a device that obeys a script."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


def SimulatedGpu(spec: Mapping[str, Any]) -> Any:
    """The real GpuStation, its CuPy and driver replaced."""
    import cupy_on_host

    cupy_on_host.install()
    from harness.measure.stations import GpuStation

    return GpuStation(spec)
