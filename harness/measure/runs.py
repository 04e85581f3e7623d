"""A run from its request to its end: the place of its archive, its cells, start, stop, and going on."""

from __future__ import annotations

import shlex
import time
import uuid as uuids
from pathlib import Path

from harness.archive.schema import Note
from harness.archive.write import ArchiveWriter
from harness.build.kernels import select_kernels
from harness.device.driver import NO_GPU
from harness.environment import RESULTS
from harness.errors import IrrError, UsageError
from harness.measure import plan as planning
from harness.measure import probe
from harness.measure.devices import Found, find_devices, locked_clocks
from harness.measure.inventory import take_inventory
from harness.measure.manager import Manager, Request, empty_run, read_request
from harness.output import say
from harness.workload.cells import Cell, load_cells
from harness.workload.programs import Program, load_programs
from harness.workload.trajectories import check_frames


def archive_path(out: Path | None, device: str) -> Path:
    """Where the archive goes: `out`, or results/<gpu>-<utc>-<id>."""
    if out is not None:
        return out
    words = "".join(c if c.isalnum() else "-" for c in device.lower().removeprefix("nvidia ")).strip("-")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return RESULTS / f"{words or 'host'}-{stamp}-{uuids.uuid4().hex[:6]}"


def every_cell(request: Request) -> dict[str, Cell | Program]:
    """Cells by name; a variant in the plan (`base+sms56`) is its cell, which the worker changes."""
    every = {**load_cells(), **load_programs(), **request.trajectories}
    return {**every, **{e.cell: every[planning.variant_of(e.cell)[0]] for e in request.plan}}


def start(request: Request, path: Path) -> Path:
    """Run a request into a new archive."""
    cells = every_cell(request)
    if not request.plan and not request.counted:
        raise IrrError("nothing is left to run", "see the kernels that are missing: ./irr build, or other --arms")
    writer = ArchiveWriter.create(path, empty_run(request, cells))
    say(
        f"{len(request.plan)} entries on {len({e.cell for e in request.plan})} cells, {request.rounds} rounds, "
        f"{request.passes} passes on {', '.join(request.devices)}"
    )
    return _run(Manager(writer, request, cells, say), path)


def _run(manager: Manager, path: Path) -> Path:
    try:
        return manager.run()
    except (KeyboardInterrupt, SystemExit, IrrError):
        say(f"stopped; whole passes are kept: ./irr resume {shlex.quote(str(path))}")
        raise


def resume(archive: Path) -> Path:
    """Go on with a run that was stopped; whole passes and their devices are kept.

    Raises:
        IrrError: not an archive, a finished one, or one whose devices, driver, kernels or frames are no longer here.
    """
    writer = ArchiveWriter.resume(archive)
    request = read_request(archive)
    check_frames(request.trajectories.values(), request.evidence)
    if request.station != "gpu":
        return _run(Manager(writer, request, every_cell(request), say), archive)
    found = same_devices(archive, request)
    drivers = {record["start"]["run_on"].get("driver_cuda") for record in writer.journal.read() if "start" in record}
    if drivers - {None, found.driver_cuda}:
        kept = ", ".join(sorted(str(driver) for driver in drivers))
        raise IrrError(
            f"{archive} has passes under a driver for CUDA {kept}, here is one for CUDA {found.driver_cuda}",
            "passes under two drivers are two archives: start a new run",
        )
    names = {planning.file_name(entry.kernel).split("@")[0].removesuffix("/fma") for entry in request.plan}
    rows = [row for row in select_kernels(None) if row.name in names]
    take_inventory(Path(request.build), request.arch, rows, allow_missing=True)
    commit, _ = probe.commit()
    notes = list(found.flags)
    if commit != request.commit:
        notes.append(
            Note(what="resumed with another commit", why=f"begun with {request.commit}, resumed with {commit}")
        )
    request.flags += [note for note in notes if note not in request.flags]
    with locked_clocks(request.devices, request.clocks != "free") as clocks:
        if clocks != request.clocks:
            raise IrrError(f"{archive} began at clocks of {request.clocks}, these are {clocks}", "start a new run")
        return _run(Manager(writer, request, every_cell(request), say), archive)


def same_devices(archive: Path, request: Request) -> Found:
    """The devices that a run began on.

    Raises:
        IrrError: one of them is not here, or is refused; another never takes its place.
    """
    try:
        found = find_devices(",".join(request.devices), request.shared)
    except UsageError as error:
        why = error.what.removeprefix("--devices: ")
        raise IrrError(
            f"{archive} began on other devices: {why}", "resume it where they are, or start a new run"
        ) from None
    if found is None:
        raise IrrError(*NO_GPU)
    return found
