"""Kernels that a run needs and that are not built, or from other sources: built first, where the tools are.

What cannot be built here is left to the inventory, which names it with its cure: a GPU machine without a compiler runs
what was built elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.archive.schema import Skipped
from harness.build.build import build_all
from harness.build.kernels import Kernel
from harness.build.toolchain import find_toolkit
from harness.environment import pins
from harness.errors import IrrError
from harness.measure.inventory import HELPERS, find_built
from harness.output import say


def missing_kernels(build: Path, arch: int, rows: Sequence[Kernel]) -> list[str]:
    """Kernels of the rows, and the helpers, that a build for `arch` would make: never built, failed, or stale.

    Those that take minutes are built by name only; a missing tool that a manifest names is no reason to try again.
    """
    missing = []
    for name in dict.fromkeys([*(row.name for row in rows if not row.slow_build), *HELPERS]):
        try:
            found = find_built(build, arch, name)
        except IrrError:
            missing.append(name)
            continue
        if isinstance(found, Skipped) and found.status == "unavailable":
            missing.append(name)
    return missing


def build_missing(build: Path, arch: int, rows: Sequence[Kernel]) -> list[str]:
    """Build what is missing for `arch`; the names tried, none where nothing is missing or no CUDA compiler is here."""
    if arch < int(pins()["cuda"]["minimum_arch"]):
        return []
    missing = missing_kernels(build, arch, rows)
    if not missing:
        return []
    try:
        find_toolkit()
    except IrrError:
        return []
    say(f"{len(missing)} kernels are not built for sm_{arch}: building them first")
    try:
        build_all([arch], ",".join(missing), build=build)
    except IrrError as error:
        say(f"not all of them could be built: {error.what}")
    return missing
