"""`counters`: Nsight Compute's counters of the matrix kernels, in an archive of their own.

`reproduce` takes them too, after its passes; this is for a machine whose run had no profiler, or for other cells.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.build.toolchain import find_tool
from harness.errors import IrrError
from harness.measure import reproduce as tasks
from harness.measure.tools import COUNTED_CELLS
from harness.workload.cells import select_cells


def run(cells: str | None = None, arms: str | None = None, out: Path | None = None) -> Path:
    """Count, archive, and print a table of what the archive holds; the archive's path.

    Raises:
        UsageError: no such cell or kernel. IrrError: no GPU, no profiler, or it may not read the counters.
    """
    chosen = [cell.name for cell in select_cells(cells or ",".join(COUNTED_CELLS))]
    tasks.chosen_rows(arms)
    tasks.check_writable(out if out is not None else tasks.RESULTS / "new")
    found = tasks.find_devices(None, allow_shared=False)
    if found is None:
        raise IrrError(*tasks.NO_GPU)
    if find_tool("ncu") is None:
        raise IrrError("ncu is not on this machine", "install NVIDIA Nsight Compute, or put it on PATH")
    request = tasks.gpu_request(
        found,
        quick=False,
        passes=None,
        cells=None,
        arms=arms,
        allow_missing=True,
        allow_shared=False,
        command=["irr", *sys.argv[1:]],
        study="counters",
    )
    request.counted = sorted({entry.kernel for entry in request.plan if "@" not in entry.kernel})
    request.counted_cells = chosen
    request.plan, request.passes, request.gates = [], 0, False
    name = next((str(d.get("name")) for d in found.devices if d.get("uuid") in found.uuids), "gpu")
    path = tasks.start(request, tasks.archive_path(out, name))
    if not (path / "raw" / "counters.csv").is_file():
        raise IrrError("Nsight Compute read nothing", f"why stands in {path}/raw/run.json: flags")
    return path
