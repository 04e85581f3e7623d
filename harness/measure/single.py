"""Every kernel launched once, for tools that watch a process: Nsight Compute and compute-sanitizer.

    python -m harness.measure.single ORDERS.json

The state before each launch is the matrix's (fresh table; for update the built table and zeroed voxels). With
`profile` only the kernels asked for are inside cudaProfilerStart and Stop, one pair each, in the order of the orders,
so that the n-th profiled launch is the n-th kernel whatever their entries are called.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from harness.errors import IrrError
from harness.measure.heartbeat import die_with
from harness.workload.cells import Cell, load_cells
from harness.workload.scenes import sphere
from harness.workload.volume import VolumeConfig

SMALL = "small"
"""A sphere of 1,152 points: a sanitizer is a hundred times slower than the kernel, and 5 blocks of threads suffice."""


class Orders(msgspec.Struct, kw_only=True):
    """Attributes:
    kernels: sample names, in order. cell: a cell's name, or `small`. profile: mark each launch for a profiler.
    parent: the manager, with which the process ends.
    """

    uuid: str
    build: str
    cell: str
    kernels: list[str]
    parent: int
    profile: bool = False


def small_cell() -> Cell:
    """The cell of the sanitizers; its counts are not needed."""
    return Cell(SMALL, "control", "sphere", (("radius", 0.5), ("rows", 24), ("columns", 48)), VolumeConfig(2048), 0, 0)


@contextlib.contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Inside cudaProfilerStart and Stop."""
    if not wanted:
        yield
        return
    from cupy.cuda import profiler

    profiler.start()
    try:
        yield
    finally:
        profiler.stop()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def run(orders: Orders) -> None:
    """Launch every kernel once and say so on stdout, a name a line."""
    from harness.device.gpu import GpuCell
    from harness.measure.stations import GpuStation

    station = GpuStation({"uuid": orders.uuid, "build": orders.build})
    station.load(orders.kernels)
    kernels = station.kernels
    cell = small_cell() if orders.cell == SMALL else load_cells()[orders.cell]
    scene = sphere(**dict(cell.arguments)) if orders.cell == SMALL else cell.scene()  # pyright: ignore[reportArgumentType]
    rig = GpuCell(station.gpu, cell.config, scene, kernels["cuda/allocate/plain"], 1, kernels["cuda/floor/record"])
    stream = station.gpu.stream
    for name in orders.kernels:
        if not _alive(orders.parent):
            os._exit(1)  # the run was killed; the tool round this process would go on without it
        kernel = kernels[name]
        stage = kernel.manifest.stage
        offsets = "offsets" in kernel.parameter_names
        state = "update" if offsets else {"update": "update", "integrate": "integrate"}.get(stage, "fresh")
        if stage == "extract":
            volume = rig.run_once(kernels["cuda/allocate/plain"], kernels["cuda/update/plain"])
            with profiled(orders.profile):
                volume.extract(kernel)
        else:
            values, n = rig.values(kernel, rig.volumes[0], rig.inputs)
            if offsets and "points" in kernel.parameter_names:
                from harness.device.gpu import record_offsets

                rig.reset("update").launch(stream)
                with profiled(orders.profile):
                    record_offsets(kernel, rig.volumes[0], rig.inputs)
            else:
                block = kernel.block(values)
                rig.reset(state, kernel.layout).launch(stream)
                stream.synchronize()
                with profiled(orders.profile):
                    kernel.enqueue(block, n, stream)
                    stream.synchronize()
        print(name, flush=True)
    rig.close()
    station.close()


def end_after(manager: int) -> None:
    """End when the manager has ended, and the tool in between with it: a device that a killed run left busy would be
    refused by `resume`."""
    while Path(f"/proc/{manager}").exists():
        time.sleep(0.5)
    os._exit(1)


def main(arguments: Sequence[str]) -> int:
    orders = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Orders)
    # A tool may stand between the manager and this process; a signal comes from the tool's end alone.
    die_with(os.getppid())
    threading.Thread(target=end_after, args=(orders.parent,), daemon=True).start()
    try:
        run(orders)
    except IrrError as error:
        print(f"irr: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
