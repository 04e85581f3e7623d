"""Where batches run: one GPU, or this machine's processor. A station belongs to one worker process.

The host station is no stand-in for a GPU: its samples carry the device `host`, and it shows that the harness, from plan
to archive, works where no GPU is.
"""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness.build.kernels import KERNELS
from harness.device.nvml import Values
from harness.device.reading import Counters, Reading
from harness.errors import IrrError
from harness.gates.result import GateResult
from harness.measure.gating import Outcome
from harness.measure.inventory import HELPERS, Built, find_built
from harness.measure.plan import OLDER, file_name
from harness.measure.sampler import Batch
from harness.workload.cells import Cell
from harness.workload.programs import Program

HOST = "host"

Findings = tuple[list[dict[str, Any]], list[GateResult]]
"""Rows of evidence.json, and gates, that a cell gives beyond samples and the gates of its arms."""


class Rig(Protocol):
    """A cell, set up on a device.

    Attributes:
        size: volumes of the batch. reduced: why it is smaller than asked for, or None.
    """

    size: int
    reduced: str | None

    def batch(self, label: str, launch: str, table: str, l2: str, graph: bool = True, load: str = "aot") -> Batch: ...
    def findings(self, labels: Sequence[str], references: Path) -> Findings: ...
    def outcome(self, allocate: str, update: str, arm: str, extract: bool) -> Outcome: ...
    def close(self) -> None: ...


class Station(Protocol):
    """A device and the kernels on it.

    Attributes:
        facts: identity and limits, the fingerprint's device keys, and `nulls` with reasons.
        run_on: what the worker knows of drivers and libraries, the fingerprint's run_on keys.
    """

    place: str
    facts: dict[str, Any]
    run_on: dict[str, Any]

    def load(self, labels: Collection[str]) -> None: ...
    def telemetry(self) -> Values: ...
    def open(self, cell: Cell | Program, size: int) -> Rig: ...
    def close(self) -> None: ...


# --------------------------------------------------------------------------------------------------------------- GPU


class GpuStation:
    """The one GPU that this process sees.

    Raises:
        IrrError: it is not the device that was asked for.
    """

    place = "gpu"

    def __init__(self, spec: Mapping[str, Any]) -> None:
        from harness.device import driver, gpu, identity, nvml

        self._gpu = gpu
        self.gpu = gpu.Gpu(int(spec.get("hold_ns", gpu.HOLD_NS)))
        wanted = str(spec["uuid"])
        if not identity.same_uuid(self.gpu.uuid, wanted):
            raise IrrError(
                f"this worker was given {wanted} and sees {self.gpu.uuid}", "CUDA_VISIBLE_DEVICES is not obeyed"
            )
        self.build = Path(spec["build"])
        self.kernels: dict[str, Any] = {}
        self.jit_ms: dict[str, float] = {}
        self.nvml: nvml.Nvml | None = None
        self.why_no_nvml = ""
        known: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        try:
            self.nvml = nvml.Nvml()
            described = self.nvml.devices()
            match = identity.match_bus(self.gpu.pci_bus, [device.values for device in described])
            found = next(device for device in described if device.values is match)
            known, reasons = dict(found.values), dict(found.reasons)
            self.handle = self.nvml.handle_of(str(known["uuid"]))
        except IrrError as error:
            self.nvml, self.why_no_nvml = None, error.what
            reasons = {query.key: error.what for query in nvml.DEVICE}
        self.facts = {
            **known,
            "uuid": wanted,
            "arch": self.gpu.arch,
            "sms": self.gpu.sms,
            "l2_kib": self.gpu.l2_bytes / 1024,
            "pci_bus": known.get("pci_bus") or self.gpu.pci_bus,
            "nulls": {key: why for key, why in reasons.items() if key not in ("uuid", "arch", "pci_bus")},
        }
        version = driver.driver_cuda_version()
        import cupy

        runtime: Any = cupy.cuda.runtime
        toolkit = int(runtime.runtimeGetVersion())
        self.run_on = {
            "driver": self.nvml.driver_version() if self.nvml else None,
            "driver_cuda": f"{version // 1000}.{version % 1000 // 10}",
            "toolkit": f"{toolkit // 1000}.{toolkit % 1000 // 10}",
            "cupy": cupy.__version__,
        }

    def load(self, labels: Collection[str]) -> None:
        """Load every kernel once; a twin is loaded a second time, as a kernel of its own would be."""
        for label in dict.fromkeys([*labels, *HELPERS]):
            if label not in self.kernels:
                self.kernels[label] = self._load(label)

    def _load(self, label: str) -> Any:
        found = self._built(label, self.gpu.arch)
        return self._gpu.load(found.manifest, found.cubin, name=label)

    def _built(self, label: str, arch: int) -> Built:
        found = find_built(self.build, arch, file_name(label))
        if not isinstance(found, Built):
            raise IrrError(f"{label}: {found.why}", f"./irr build --arch {arch}")
        return found

    def jit(self, label: str) -> Any:
        """A kernel from its PTX through the driver's compiler: this architecture's, or sm_80's for `NAME@sm80`."""
        key = f"{label} jit"
        if key not in self.kernels:
            older = label.endswith(OLDER)
            found = self._built(label.removesuffix(OLDER), 80 if older else self.gpu.arch)
            began = time.perf_counter()
            image = found.cubin.with_suffix(".ptx").read_bytes()
            self.kernels[key] = self._gpu.load(found.manifest, image, name=label, load="jit")
            self.jit_ms[label] = 1e3 * (time.perf_counter() - began)
        return self.kernels[key]

    def telemetry(self) -> Values:
        from harness.device import nvml

        if self.nvml is None:
            keys = [query.key for query in nvml.TELEMETRY]
            return Values(dict.fromkeys(keys), dict.fromkeys(keys, self.why_no_nvml))
        return self.nvml.telemetry(self.handle)

    def open(self, cell: Cell | Program, size: int) -> Rig:
        return ProgramRig(self, cell) if isinstance(cell, Program) else GpuRig(self, cell, size)

    def close(self) -> None:
        if self.nvml is not None:
            self.nvml.close()


class GpuRig:
    """A cell on a GPU."""

    def __init__(self, station: GpuStation, cell: Cell, size: int) -> None:
        gpu = station._gpu
        self.station, self.name = station, cell.name
        scene = cell.scene()
        free = station.gpu.free_bytes()
        snapshots = 2 if cell.warm else 1
        fits = gpu.fitting_batch(cell.config, size, free, scene.points.nbytes + scene.colors.nbytes, snapshots)
        if fits < 1:
            raise IrrError(f"{cell.name} does not fit: {free / 2**20:.0f} MiB of device memory are free")
        self.reduced = None
        if fits < size:
            self.reduced = f"{fits} of {size} volumes fit into {free / 2**20:.0f} MiB of free device memory"
        kernels = station.kernels
        self.cell = gpu.GpuCell(
            station.gpu,
            cell.config,
            scene,
            kernels["cuda/allocate/plain"],
            fits,
            kernels["cuda/floor/record"],
            cell.before(),
            kernels["cuda/update/plain"],
        )
        self.size = fits

    def batch(self, label: str, launch: str, table: str, l2: str, graph: bool = True, load: str = "aot") -> Batch:
        kernel = self.station.kernels[label] if load == "aot" else self.station.jit(label)
        return self.cell.batch(kernel, launch, table, l2, graph)

    def findings(self, labels: Sequence[str], references: Path) -> Findings:
        from harness.measure.contracted import contraction_findings

        return contraction_findings(self.cell, self.name, self.station.kernels, labels)

    def outcome(self, allocate: str, update: str, arm: str, extract: bool) -> Outcome:
        kernels = self.station.kernels
        second = kernels[update]
        volume = self.cell.run_once(kernels[allocate], second)
        raw = volume.raw(layout=second.layout)
        fused = self.station._gpu.gather(raw, self.cell.config, arm)
        triangles = None
        if extract and second.layout == "arrays":
            triangles = volume.extract(kernels["cuda/extract/plain"]).vertices
        return Outcome(fused, raw, triangles)

    def close(self) -> None:
        """Forget the cell; its memory is free for the next one (graphs hold no memory of their own)."""
        self.cell.close()
        del self.cell
        gc.collect()  # whatever still holds volumes through a cycle must not take the next cell's memory
        self.station.gpu.free_bytes()


class ProgramRig:
    """A program of the contraction study on a GPU."""

    reduced: str | None = None

    def __init__(self, station: GpuStation, program: Program) -> None:
        from harness.device.programs import ProgramCell

        self.station, self.size = station, program.launches
        self.cell = ProgramCell(station.gpu, program, program.launches)

    def batch(self, label: str, launch: str, table: str, l2: str, graph: bool = True, load: str = "aot") -> Batch:
        return self.cell.batch(self.station.kernels[label] if load == "aot" else self.station.jit(label))

    def findings(self, labels: Sequence[str], references: Path) -> Findings:
        from harness.measure.fma import gpu_findings

        return gpu_findings(self.cell, self.station, labels, references)

    def outcome(self, allocate: str, update: str, arm: str, extract: bool) -> Outcome:
        raise IrrError("a program has no volume to judge", "its images are compared as findings")

    def close(self) -> None:
        del self.cell
        gc.collect()
        self.station.gpu.free_bytes()


# -------------------------------------------------------------------------------------------------------------- host


class HostStation:
    """This machine's processor, through the host libraries."""

    place = "host"

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.facts = {"uuid": HOST, "name": _processor(), "arch": 0, "nulls": {}}
        self.run_on: dict[str, Any] = {}
        self.threads = spec.get("threads")

    def load(self, labels: Collection[str]) -> None:
        from harness.device.host import host_library

        for label in labels:
            host_library(KERNELS[file_name(label)].language)

    def telemetry(self) -> Values:
        from harness.device.nvml import TELEMETRY

        keys = [query.key for query in TELEMETRY]
        return Values(dict.fromkeys(keys), dict.fromkeys(keys, "the host has no NVML"))

    def open(self, cell: Cell | Program, size: int) -> Rig:
        if isinstance(cell, Program):
            raise IrrError(f"{cell.name} runs on a GPU", "its CPU part is `irr fma`")
        return HostRig(cell, size, self.threads)

    def close(self) -> None:
        pass


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return "processor"


class HostRig:
    """A cell in host memory."""

    reduced: str | None = None

    def __init__(self, cell: Cell, size: int, threads: int | None = None) -> None:
        from harness.device.host import HostVolume

        self.config, self.scene, self.size = cell.config, cell.scene(), size
        self.volumes = [HostVolume(cell.config, threads=threads) for _ in range(size)]
        first = self.volumes[0]
        for scene in cell.before():
            first.launch("cuda/allocate/plain", scene)
            first.launch("cuda/update/plain", scene)
        self.warm = (first.table.copy(), first.coords.copy(), first.count)
        self.warm_voxels = first.voxels[:, : first.count].copy()
        first.launch("cuda/allocate/plain", self.scene)
        self.built = (first.table.copy(), first.coords.copy(), first.count)

    def restore(self, volume: Any, kept: tuple[Any, Any, int]) -> None:
        """Give a volume a kept table, the built one or that of the frames before, and voxels of 0."""
        volume.clear_table()
        table, coords, count = kept
        volume.table[:] = table
        volume.coords[:] = coords
        volume.counters["count"][0] = count
        volume.clear_voxels()

    def batch(self, label: str, launch: str, table: str, l2: str, graph: bool = True, load: str = "aot") -> Batch:
        return HostBatch(self, label)

    def findings(self, labels: Sequence[str], references: Path) -> Findings:
        return [], []

    def outcome(self, allocate: str, update: str, arm: str, extract: bool) -> Outcome:
        volume = self.volumes[0]
        self.restore(volume, self.warm)
        volume.voxels[:, : volume.count] = self.warm_voxels
        for label in dict.fromkeys((allocate, update)):  # one kernel may do both
            volume.launch(file_name(label), self.scene)
        return Outcome(volume.fused(arm), volume.raw(), volume.extract()[0] if extract else None)

    def close(self) -> None:
        self.volumes.clear()


class HostBatch:
    """One kernel on every volume of the batch, one after another, timed by the host's clock."""

    flushed = False

    def __init__(self, rig: HostRig, label: str) -> None:
        self.rig, self.kernel, self.launches = rig, KERNELS[file_name(label)], rig.size
        self._began = self._us = 0.0

    def reset(self) -> None:
        for volume in self.rig.volumes:
            self.rig.restore(volume, self.rig.built if self.kernel.stage == "update" else self.rig.warm)

    def flush(self) -> None:
        pass

    def stamp(self) -> None:
        pass

    def start(self) -> None:
        self._began = time.perf_counter()

    def launch(self) -> None:
        for volume in self.rig.volumes:
            volume.launch(self.kernel, self.rig.scene)

    def stop(self) -> None:
        self._us = 1e6 * (time.perf_counter() - self._began) / self.launches

    def stamp_again(self) -> None:
        pass

    def collect(self) -> Reading:
        found = [volume.counters for volume in self.rig.volumes]
        counters = Counters(
            min(int(c["count"][0]) for c in found),
            max(int(c["failed_inserts"][0]) for c in found),
            max(int(c["dropped_points"][0]) for c in found),
        )
        return Reading(self._us, None, counters)


# ------------------------------------------------------------------------------------------------------------ choice


STATIONS: dict[str, Callable[[Mapping[str, Any]], Station]] = {"gpu": GpuStation, "host": HostStation}


def make_station(spec: Mapping[str, Any]) -> Station:
    """The station a worker's orders name: one of STATIONS, or `FILE:CLASS` (tests put a fake device there)."""
    name = str(spec["station"])
    if name in STATIONS:
        return STATIONS[name](spec)
    path, _, attribute = name.rpartition(":")
    found = importlib.util.spec_from_file_location("irr_station", path)
    if found is None or found.loader is None:
        raise IrrError(f"no station is named {name!r}")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return getattr(module, attribute)(spec)
