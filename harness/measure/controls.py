"""The controls that show why a rule exists, run after the passes in a worker of their own (claims P4, P10-P13, O5, O9).

What becomes samples is a variant of the cell base: base+blocked (one kernel after the other, from idle clocks),
base+shared (beside a process that computes), base+nograph (launched from the host, one by one), base+cap32 (weight cap
of 32), base+alone (nothing changed, while the other devices of the run rest). What is no batch of launches becomes
findings in evidence.json: a single launch, the extraction's parts, pools that are too small, the cap's share.

    python -m harness.measure.controls UUID BUILD     the other process of base+shared
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import IrrError
from harness.gates.loss import lost_blocks
from harness.measure.heartbeat import die_with
from harness.measure.plan import CAPPED, CONTROL_CELL, SHARED
from harness.measure.sampler import measure
from harness.measure.surface import surface_finding
from harness.workload.cells import Cell, load_cells
from harness.workload.reference import Reference
from harness.workload.volume import VolumeConfig

IDLE_S = 4.0
"""Rest before the blocked control, so that it begins at idle clocks."""

SINGLE_LAUNCHES = 300
"""Enough for a p99 (200 and more)."""

EXTRACTIONS = 10
FEWER = "sms"
SMALL_POOLS = (1100, 600, 1)
CAP = 32.0
SETTLED_S = 1.0
"""How long the other process computes before anything is timed beside it: NVML's utilisation is a mean of a second."""

OTHER_CELL = "pts-1280k"
OTHER_S = 60.0
"""The other process ends by itself after this, should nobody end it."""

Finding = dict[str, Any]


class ControlUnavailable(IrrError):
    """A control that this device does not allow; said in the archive, no failure of the run."""


def finding(name: str, value: Any, unit: str, how: str) -> Finding:
    """A row of evidence.json."""
    return {"name": name, "value": value, "unit": unit, "how": how}


def capped(cell: Cell) -> Cell:
    """The cell with the paper's weight cap."""
    return dataclasses.replace(cell, config=dataclasses.replace(cell.config, cap=CAP))


def variant_cell(cell: Cell, variant: str) -> Cell:
    """A cell as its variant changes it."""
    return capped(cell) if variant == CAPPED else cell


@contextlib.contextmanager
def surroundings(variant: str, uuid: str, build: str, station: Any = None) -> Iterator[None]:
    """What a variant changes around the cell: another process on the device, a rest before it, or so many
    multiprocessors that nothing else may use (`sms56`: 56 are left)."""
    if variant.startswith(FEWER):
        from harness.device.occupy import occupied

        left, all_of_them = int(variant.removeprefix(FEWER)), int(station.facts.get("sms") or 0)
        if left > all_of_them:
            raise ControlUnavailable(f"{left} multiprocessors are wanted, and the device shows {all_of_them}")
        try:
            with occupied(all_of_them - left):
                yield
        except IrrError as error:
            raise ControlUnavailable(error.what) from None
        return
    if variant != SHARED:
        if variant == "blocked":
            time.sleep(IDLE_S)
        yield
        return
    other = subprocess.Popen(
        [sys.executable, "-m", "harness.measure.controls", uuid, build],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert other.stdout is not None
        if other.stdout.readline().strip() != b"busy":
            raise ControlUnavailable("a second process could not use the device (exclusive-process mode forbids it)")
        time.sleep(SETTLED_S)
        yield
        if other.poll() is not None:
            raise ControlUnavailable("the second process ended before the timing beside it did")
    finally:
        other.kill()
        other.wait()


def compute_beside(uuid: str, build: str) -> None:
    """Keep a device busy with large updates: what an unnoticed neighbour does."""
    from harness.measure.stations import GpuStation

    station = GpuStation({"uuid": uuid, "build": build})
    station.load(["cuda/update/plain"])
    rig = station.open(load_cells()[OTHER_CELL], 1)
    batch = rig.batch("cuda/update/plain", "serial", "fresh", "asreset")
    measure(batch)
    print("busy", flush=True)
    end = time.monotonic() + OTHER_S
    while time.monotonic() < end:
        batch.reset()
        for _ in range(50):
            batch.launch()
        batch.collect()


# ------------------------------------------------------------------------------------------------------------ findings


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, int(np.ceil(share * len(ordered))) - 1)]


def single_launch(rig: Any, kernels: Any) -> list[Finding]:
    """One launch and a wait, by the host's clock, against the same kernel inside a graph (P10)."""
    cell, kernel = rig.cell, kernels["cuda/allocate/plain"]
    stream = cell.gpu.stream
    volume = cell.volumes[0]
    values, n = cell.values(kernel, volume, cell.inputs)
    block = kernel.block(values)
    walls = []
    for _ in range(SINGLE_LAUNCHES):
        cell.reset("fresh").launch(stream)
        stream.synchronize()
        time.sleep(0.001)  # as between the frames of a program that waits for its result
        began = time.perf_counter()
        kernel.enqueue(block, n, stream)
        stream.synchronize()
        walls.append(1e6 * (time.perf_counter() - began))
    batch = rig.batch("cuda/allocate/plain", "serial", "fresh", "asreset")
    graph = [measure(batch).us for _ in range(32)][2:]
    how = f"cuda/allocate/plain on base, fresh table; {SINGLE_LAUNCHES} single launches with a wait, host clock"
    return [
        finding("single_launch.wall_us.p50", statistics.median(walls), "us", how),
        finding("single_launch.wall_us.p99", percentile(walls, 0.99), "us", how),
        finding(
            "single_launch.graph_us.p50",
            statistics.median(graph),
            "us",
            "the same kernel, 8 launches in a graph, events, median of 30",
        ),
    ]


def extraction(rig: Any, kernels: Any) -> list[Finding]:
    """Where an extraction's time goes (P4)."""
    if "cuda/extract/plain" not in kernels:
        return []
    volume = rig.cell.run_once(kernels["cuda/allocate/plain"], kernels["cuda/update/plain"])
    volume.extract(kernels["cuda/extract/plain"])
    runs = [volume.extract(kernels["cuda/extract/plain"]) for _ in range(EXTRACTIONS)]
    parts = {
        "extract.counting_ms": [r.count_us for r in runs],
        "extract.allocation_ms": [r.allocate_us for r in runs],
        "extract.writing_ms": [r.kernel_us for r in runs],
        "extract.kernel_ms": [r.count_us + r.allocate_us + r.kernel_us for r in runs],
        "extract.copy_ms": [r.copy_us for r in runs],
        "extract.copy_pinned_ms": [r.pinned_us for r in runs],
        "extract.total_ms": [r.count_us + r.allocate_us + r.kernel_us + r.copy_us for r in runs],
    }
    how = (
        f"cuda/extract/plain on base, events, median of {EXTRACTIONS}; kernel: counting pass, allocation of the "
        "buffers and writing pass together; copy: into pageable memory, as a caller's arrays are, and the same bytes "
        "into pinned memory"
    )
    found = [finding(name, statistics.median(values) / 1e3, "ms", how) for name, values in parts.items()]
    found.append(finding("extract.triangles", len(runs[0].vertices), "triangles", how))
    cell = load_cells()[CONTROL_CELL]
    return found + surface_finding("cuda", cell.name, runs[0].vertices, cell.config.voxel)


def small_pools(cell: Cell, reference: Reference, kernels: Any, arms: Sequence[tuple[str, str, str]]) -> list[Finding]:
    """Pools smaller than the scene end at once, and what is lost is counted exactly (O5).

    Args:
        arms: (name, allocate, update) of arms that are not bounded.
    """
    from harness.device.gpu import GpuVolume, Inputs

    scene = cell.scene()
    inputs = Inputs.of(scene)
    found = []
    for arm, allocate, update in arms:
        for pool in SMALL_POOLS:
            volume = GpuVolume(VolumeConfig(pool))
            began = time.perf_counter()
            volume.launch(kernels[allocate], inputs)
            volume.launch(kernels[update], inputs)
            seconds = time.perf_counter() - began
            fused = volume.fused(arm, layout=kernels[update].layout)
            kept = {tuple(row) for row in fused.coords.tolist()}
            missing = np.array([tuple(row) not in kept for row in reference.coords.tolist()])
            how = f"{arm} on base, pool of {pool}; wall time of both kernels"
            values = {
                "seconds": (seconds, "s"),
                "needed_blocks": (len(reference.coords), "blocks"),
                "lost_blocks": (lost_blocks(fused.coords, reference.coords), "blocks"),
                "dropped_points": (fused.dropped_points, "samples"),
                "lost_samples": (int(reference.block_samples[missing].sum()), "samples"),
                "failed_inserts": (fused.failed_inserts, "calls"),
            }
            found += [
                finding(f"small_pool.{arm}.{pool}.{key}", value, unit, how) for key, (value, unit) in values.items()
            ]
    return found


def cap_share(cell: Cell, kernels: Any) -> list[Finding]:
    """The share of samples that a cap of 32 skips: in the first launch, and in the fourth into the same voxels."""
    from harness.device.gpu import GpuVolume, Inputs

    inputs = Inputs.of(cell.scene())
    volume = GpuVolume(capped(cell).config)
    volume.launch(kernels["cuda/allocate/plain"], inputs)
    before, shares = 0.0, []
    for _ in range(4):
        volume.launch(kernels["cuda/update/plain"], inputs)
        weight = float(volume.fused("cuda").weight.sum(dtype=np.float64))
        shares.append(1 - (weight - before) / cell.samples)
        before = weight
    how = "cuda/update/plain on base, cap 32: samples that added no weight, of all; voxels zeroed before launch 1 only"
    return [
        finding("cap32.skipped_share.launch1", shares[0], "share", how),
        finding("cap32.skipped_share.launch4", shares[3], "share", how),
    ]


def findings(station: Any, reference: Reference, arms: Sequence[tuple[str, str, str]]) -> list[Finding]:
    """Every finding of the controls on one GPU station."""
    cell = load_cells()[CONTROL_CELL]
    rig = station.open(cell, 8)
    try:
        found = single_launch(rig, station.kernels) + extraction(rig, station.kernels)
        link = station.facts.get("pcie")
        if link:
            found.append(finding("extract.link", link, "", "the link that the copy goes over: PCIe, as NVML says"))
    finally:
        rig.close()
    return found + cap_share(cell, station.kernels) + small_pools(cell, reference, station.kernels, arms)


if __name__ == "__main__":
    die_with(os.getppid())
    compute_beside(sys.argv[1], str(Path(sys.argv[2])))
