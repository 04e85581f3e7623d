"""`reproduce`, and the contraction study's GPU part: from one command to a verified archive."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.archive.write import check_writable
from harness.device.driver import NO_GPU
from harness.device.identity import require_two
from harness.errors import IrrError, UsageError
from harness.measure.devices import find_devices, locked_clocks
from harness.measure.requests import Asked, check_cells, chosen_rows, contraction_request, matrix_request, study_request
from harness.measure.runs import archive_path, start
from harness.measure.studies import find_study
from harness.measure.without_gpu import reproduce_without_gpu


def command() -> list[str]:
    """The words that were typed."""
    return ["irr", *sys.argv[1:]]


def reproduce(
    *,
    quick: bool = False,
    require_gpu: bool = False,
    passes: int | None = None,
    devices: str | None = None,
    cells: str | None = None,
    arms: str | None = None,
    allow_missing: bool = False,
    allow_shared: bool = False,
    one_after_another: bool = False,
    lock_clocks: bool = False,
    study: str | None = None,
    out: Path | None = None,
) -> Path:
    """The whole job, or one study of the table; the archive's path.

    Without a GPU: host gates, the contraction study on the CPU and the archived results, under a banner.

    Raises:
        UsageError, IrrError: wrong use; a device, a kernel or the folder is refused. Nothing half made is left behind.
    """
    if passes is not None and passes < 1:
        raise UsageError(f"--passes {passes}: at least 1")
    if study is not None:
        find_study(study)
        if quick or cells is not None or arms is not None:
            raise UsageError(f"--study {study} has cells and kernels of its own", "leave out --quick, --cells, --arms")
    asked = Asked(
        command=command(),
        quick=quick,
        passes=passes,
        cells=cells,
        arms=arms,
        allow_missing=allow_missing,
        allow_shared=allow_shared,
        at_once=not one_after_another,
    )
    check_cells(cells, quick)
    chosen_rows(arms)
    # Before anything else: a wrong folder must cost seconds.
    check_writable(archive_path(out, "new"))
    found = find_devices(devices, allow_shared)
    if found is None:
        if require_gpu:
            raise IrrError(*NO_GPU)
        if devices not in (None, "all"):
            raise IrrError(f"--devices {devices}: {NO_GPU[0]}", NO_GPU[1])
        if study is not None:
            raise IrrError(f"the study {study} needs a GPU: {NO_GPU[0]}", NO_GPU[1])
        return reproduce_without_gpu(asked, out)
    if one_after_another:
        require_two(found.uuids)
    request = matrix_request(found, asked) if study is None else study_request(found, asked, study)
    with locked_clocks(found.uuids, lock_clocks) as clocks:
        request.clocks = clocks
        return start(request, archive_path(out, found.name))


def contraction(passes: int | None = None, *, devices: str | None = None, allow_missing: bool = True) -> Path | None:
    """The contraction study on this machine's GPUs, archived; None where there is no GPU."""
    found = find_devices(devices, False)
    if found is None:
        return None
    check_writable(archive_path(None, "new"))
    request = contraction_request(found, Asked(command=command(), passes=passes, allow_missing=allow_missing))
    return start(request, archive_path(None, found.name))
