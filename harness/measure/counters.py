"""`counters`: Nsight Compute's counters of the matrix kernels, in an archive of their own.

`reproduce` takes them too, after its passes; this is for a machine whose run had no profiler, or for other cells.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.archive.write import check_writable
from harness.build.toolchain import find_tool
from harness.device.driver import NO_GPU
from harness.errors import IrrError
from harness.measure.devices import find_devices
from harness.measure.requests import Asked, chosen_rows, counters_request
from harness.measure.runs import archive_path, start
from harness.measure.tools import COUNTED_CELLS
from harness.workload.cells import select_cells


def run(cells: str | None = None, arms: str | None = None, out: Path | None = None) -> Path:
    """Count, and archive; the archive's path.

    Raises:
        UsageError: no such cell or kernel. IrrError: no GPU, no profiler, or it may not read the counters.
    """
    chosen = [cell.name for cell in select_cells(cells or ",".join(COUNTED_CELLS))]
    chosen_rows(arms)
    check_writable(archive_path(out, "new"))
    found = find_devices(None, allow_shared=False)
    if found is None:
        raise IrrError(*NO_GPU)
    if find_tool("ncu") is None:
        raise IrrError("ncu is not on this machine", "install NVIDIA Nsight Compute, or put it on PATH")
    asked = Asked(command=["irr", *sys.argv[1:]], arms=arms, allow_missing=True)
    path = start(counters_request(found, asked, chosen), archive_path(out, found.name))
    if not (path / "raw" / "counters.csv").is_file():
        raise IrrError("Nsight Compute read nothing", f"why stands in {path}/raw/run.json: flags")
    return path
