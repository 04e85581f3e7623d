"""Everything the harness asks of a GPU, once, in under a minute, with a compact report. Exit 1 if anything is wrong.

    IRR_PYTHON's python -m tests.gpu.smoke [--kernels GLOB] [--large]

Loads every cubin of the device's architecture and compares its parameter list with the driver's; judges every kernel of
the matrix on small cells; small pools, odd inputs; graphs in every regime, and what a reset, a hold and a stamp cost.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.build.kernels import KERNELS
from harness.build.manifest import load_manifest
from harness.device.gpu import Gpu, GpuCell, GpuVolume, LoadedKernel, load, record_offsets
from harness.environment import ROOT
from harness.errors import IrrError
from harness.gates.run import gate_arm
from harness.measure import gating
from harness.measure.sampler import measure
from harness.workload.cells import Cell, load_cells
from harness.workload.fused import gather
from harness.workload.reference import evaluate
from harness.workload.scenes import Scene
from harness.workload.volume import VolumeConfig

PLAIN, UPDATE = "cuda/allocate/plain", "cuda/update/plain"


@dataclass
class Report:
    """Lines of what was done; `wrong` counts."""

    wrong: int = 0
    lines: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def say(self, text: str) -> None:
        print(f"{time.perf_counter() - self.began:6.2f} {text}", flush=True)

    def fault(self, text: str) -> None:
        self.wrong += 1
        self.say(f"WRONG  {text}")

    def attempt(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.fault(f"{what}: {type(error).__name__}: {error} (at {Path(where.filename).name}:{where.lineno})")
            return None


def load_all(report: Report, build: Path, pattern: str) -> dict[str, LoadedKernel]:
    """Every cubin that the folder has, by sample name (its file's)."""
    loaded: dict[str, LoadedKernel] = {}
    refused: dict[str, int] = {}
    for path in sorted(build.glob("*.json")):
        manifest = load_manifest(path)
        name = path.stem.replace("--fma", "/fma").replace("--", "/")
        if not (fnmatch.fnmatchcase(name, pattern) or manifest.kernel in gating_helpers()):
            continue
        if manifest.status != "ok":
            refused[manifest.status] = refused.get(manifest.status, 0) + 1
            continue
        kernel = report.attempt(name, lambda m=manifest, p=path, n=name: load(m, p.with_suffix(".cubin"), name=n))
        if kernel is not None:
            loaded[name] = kernel
    report.say(f"loaded {len(loaded)} cubins, parameter lists as the driver has them; not built: {refused or 'none'}")
    return loaded


def gating_helpers() -> tuple[str, ...]:
    from harness.measure.inventory import HELPERS

    return HELPERS


def gate_everything(
    report: Report, gpu: Gpu, loaded: dict[str, LoadedKernel], cell: Cell, matrix_only: bool = False
) -> None:
    """Every allocate and update kernel on one cell against the exact evaluation."""
    scene, reference = cell.scene(), evaluate(cell.scene(), cell.config)
    rig = GpuCell(gpu, cell.config, scene, loaded[PLAIN], 1, loaded.get("cuda/floor/record"))
    labels = [n for n in loaded if n.split("@")[0].removesuffix("/fma") in KERNELS and "/fma" not in n]
    if matrix_only:
        labels = [n for n in labels if n in KERNELS and KERNELS[n].matrix]
    judged = gating.subjects(labels, "gpu")
    bad = 0
    for subject in judged:

        def one(s: gating.Subject = subject) -> list[Any]:
            second = loaded[s.update]
            volume = rig.run_once(loaded[s.allocate], second)
            raw = volume.raw(layout=second.layout)
            fused = gather(raw, cell.config, s.arm)
            rows = [KERNELS[n.split("@")[0]] for n in (s.allocate, s.update)]
            return gate_arm(cell, fused, raw, reference, rows, None, scene)

        results = report.attempt(f"{subject.arm} on {cell.name}", one)
        wrong = [r for r in results or [] if r.failed]
        bad += bool(wrong)
        for result in wrong[:3]:
            report.fault(f"{result.gate}: {result.subject}: {result.message}")
    report.say(f"{cell.name}: {len(judged) - bad} of {len(judged)} arms and kernels pass all their gates")
    triangles = report.attempt(
        "extract", lambda: rig.run_once(loaded[PLAIN], loaded[UPDATE]).extract(loaded["cuda/extract/plain"])
    )
    if triangles is not None:
        report.say(
            f"{cell.name}: {len(triangles.vertices)} triangles; count {triangles.count_us:.0f}, "
            f"kernel {triangles.kernel_us:.0f}, copy {triangles.copy_us:.0f} us"
        )
    rig.close()


def small_pools(report: Report, loaded: dict[str, LoadedKernel]) -> None:
    """A pool smaller than the scene ends at once and says exactly what was lost."""
    cell = load_cells()["base"]
    scene, reference = cell.scene(), evaluate(cell.scene(), cell.config)
    pairs = [(PLAIN, UPDATE)]
    pairs += [(n, UPDATE) for n in ("cuda/allocate/nowait", "rust-nvptx/allocate/plain", "rust-oxide/allocate/plain")]
    pairs += [("triton/allocate/while", "triton/update/while")]
    for pool in (1100, 600, 1):
        config = VolumeConfig(pool)
        told = []
        for allocate, update in pairs:
            if allocate not in loaded or update not in loaded:
                continue
            volume = GpuVolume(config)
            began = time.perf_counter()
            volume.launch(loaded[allocate], scene)
            volume.launch(loaded[update], scene)
            seconds = time.perf_counter() - began
            fused = volume.fused(allocate)
            kept = set(map(tuple, fused.coords.tolist()))
            missing = np.array([tuple(c) not in kept for c in reference.coords.tolist()])
            exact = int(reference.block_samples[missing].sum())
            lost = int(missing.sum())
            if lost != reference.coords.shape[0] - pool or fused.dropped_points != exact or seconds > 5:
                report.fault(
                    f"{allocate} in a pool of {pool}: lost {lost}, dropped {fused.dropped_points} of {exact}, "
                    f"{seconds:.2f} s"
                )
            told.append(f"{allocate.split('/')[0]} {1e3 * seconds:.0f} ms")
        report.say(f"pool {pool}: loss exact; {', '.join(told)}")


def odd_inputs(report: Report, loaded: dict[str, LoadedKernel]) -> None:
    """No points, one point, a last block of threads that is not full, a camera inside the surface."""
    config = VolumeConfig(4096)
    generator = np.random.default_rng(7)
    cases = {
        "no points": np.empty((0, 3), np.float32),
        "one point": np.array([[0.3, 0.2, 0.9]], np.float32),
        "257 points": generator.uniform(-0.5, 0.5, (257, 3)).astype(np.float32),
        "far corner": np.array([[-83000.0, 83000.0, 1.0]], np.float32),
    }
    for name, points in cases.items():
        scene = Scene(points, np.full((len(points), 3), 128, np.uint8), np.array([0.05, 0.0, 0.0], np.float32))
        reference = evaluate(scene, config)
        for allocate, update in (
            (PLAIN, UPDATE),
            ("rust-nvptx/allocate/plain", "rust-nvptx/update/plain"),
            ("triton/allocate/while", "triton/update/while"),
        ):
            if allocate not in loaded or update not in loaded:
                continue
            volume = GpuVolume(config)
            volume.launch(loaded[allocate], scene)
            volume.launch(loaded[update], scene)
            fused = volume.fused(allocate)
            same = np.array_equal(fused.coords, reference.coords) and np.array_equal(fused.weight, reference.weight)
            if not same:
                report.fault(f"{allocate} on {name}: {len(fused.coords)} blocks, {len(reference.coords)} expected")
    report.say(f"odd inputs: {', '.join(cases)}")


def regimes(report: Report, gpu: Gpu, loaded: dict[str, LoadedKernel], cell: Cell, batch: int) -> None:
    """Graphs in every regime: a time and a clock for each kernel, and state that is what it must be."""
    scene = cell.scene()
    began = time.perf_counter()
    rig = GpuCell(gpu, cell.config, scene, loaded[PLAIN], batch, loaded["cuda/floor/record"])
    report.say(f"{cell.name}: set up in {time.perf_counter() - began:.2f} s, {rig.built} blocks, batch {batch}")
    if rig.built != min(cell.blocks, cell.config.capacity):
        report.fault(f"{cell.name}: {rig.built} blocks built, {cell.blocks} expected")
    rows = {n: KERNELS[n] for n in loaded if n in KERNELS}
    matrix = [n for n, row in rows.items() if row.matrix and row.stage in ("allocate", "update", "floor")]
    for name in matrix:
        told = []
        row = KERNELS[name]
        wanted = [("serial", "fresh", "asreset")]
        if row.stage == "allocate":
            wanted.append(("serial", "filled", "asreset"))
        if row.variant in ("plain", "while"):
            wanted += [("concurrent", "fresh", "asreset"), ("serial", "fresh", "flushed")]
        for launch, table, l2 in wanted:

            def one(k: str = name, la: str = launch, t: str = table, c: str = l2) -> Any:
                made = rig.batch(loaded[k], la, t, c)
                return [measure(made) for _ in range(7)]

            readings = report.attempt(f"{name} {launch} {table} {l2} on {cell.name}", one)
            if not readings:
                continue
            last = readings[-1]
            times = sorted(r.us for r in readings[2:])
            late = sum(r.late for r in readings[2:])
            label = {"serial": "", "concurrent": "conc "}[launch] + {"fresh": "", "filled": "filled "}[table]
            label += "flushed " if l2 == "flushed" else ""
            told.append(f"{label}{times[2]:.2f}" + (f" late {late}/5" if late else ""))
            left = last.counters
            if left is not None and not row.bounded:
                right = left.blocks == rig.built and not left.dropped_points and not left.failed_inserts
                if not right:
                    report.fault(f"{name} {launch} {table}: counters {left}, {rig.built} blocks built")
            if last.mhz is None:
                report.fault(f"{name} {launch} {table}: no SM clock from the stamps")
        report.say(f"{cell.name:10} {name:34} us: {'; '.join(told)}")
    for hold in (gpu.hold_ns, 0):
        kept, gpu.hold_ns = gpu.hold_ns, hold
        made = rig.batch(loaded["cuda/floor/null"])
        readings = [measure(made) for _ in range(30)]
        walls = []
        for _ in range(50):
            began = time.perf_counter()
            measure(made)
            walls.append(time.perf_counter() - began)
        gpu.hold_ns = kept
        times = sorted(r.us for r in readings)
        report.say(
            f"{cell.name}: hold {hold} ns: null {times[15]:.3f} us a launch (min {times[0]:.3f}, max {times[-1]:.3f}), "
            f"late {sum(r.late for r in readings)}/30, clock {readings[-1].mhz or 0:.0f} MHz, "
            f"a batch takes {1e6 * sorted(walls)[25]:.0f} us of wall time"
        )
    rig.close()


def offsets(report: Report, loaded: dict[str, LoadedKernel]) -> None:
    """The recorder lists every sample of the update once."""
    from harness.device.gpu import Inputs

    cell = load_cells()["pts-20k"]
    volume = GpuVolume(cell.config)
    inputs = Inputs.of(cell.scene())
    loaded[PLAIN].launch(volume, inputs)
    found = record_offsets(loaded["cuda/floor/record"], volume, inputs)
    if len(found) != cell.samples:
        report.fault(f"{len(found)} offsets recorded, {cell.samples} samples expected")
    report.say(f"recorder: {len(found)} offsets")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", default="*", help="glob of kernels to load")
    parser.add_argument("--cell", default="base", help="cell whose regimes are timed")
    given = parser.parse_args()
    report = Report()
    gpu = Gpu()
    report.say(f"{gpu.uuid} sm_{gpu.arch}, {gpu.sms} SMs, L2 {gpu.l2_bytes >> 20} MiB, bus {gpu.pci_bus}")
    try:
        from harness.device.nvml import Nvml

        session = Nvml()
        values = session.telemetry(session.handle_of(gpu.uuid))
        report.say(f"NVML: driver {session.driver_version()}, {values.values}, nulls {values.reasons or 'none'}")
        began = time.perf_counter()
        for _ in range(10):
            session.telemetry(session.handles()[0])
        report.say(f"NVML: a reading takes {1e2 * (time.perf_counter() - began):.2f} ms")
        report.say(f"NVML: processes {session.processes(session.handles()[0])}")
    except IrrError as error:
        report.say(f"NVML: {error}")
    cells = load_cells()
    loaded = load_all(report, ROOT / "build" / f"sm_{gpu.arch}", given.kernels)
    if PLAIN not in loaded or UPDATE not in loaded:
        report.fault("cuda/allocate/plain and cuda/update/plain are needed")
        return 1
    report.attempt("offsets", lambda: offsets(report, loaded))
    report.attempt("gates", lambda: gate_everything(report, gpu, loaded, cells["pts-20k"]))
    report.attempt("gates", lambda: gate_everything(report, gpu, loaded, cells["lf-918"], matrix_only=True))
    report.attempt("small pools", lambda: small_pools(report, loaded))
    report.attempt("odd inputs", lambda: odd_inputs(report, loaded))
    report.attempt("regimes", lambda: regimes(report, gpu, loaded, cells["pts-20k"], 8))
    report.attempt("regimes", lambda: regimes(report, gpu, loaded, cells[given.cell], 8))
    report.say(f"{report.wrong} wrong")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
