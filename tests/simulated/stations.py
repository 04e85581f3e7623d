"""Stations for tests of the harness: the GPU station over simulated CuPy, and a device that obeys a script."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


def only_device(spec: Mapping[str, Any]) -> str:
    """The one device that this process sees, as CUDA would take it from the environment (N08).

    Raises:
        IrrError: it sees none, several, another than its orders name, or by a number.
    """
    from harness.errors import IrrError

    seen, order = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER")
    if seen != spec["uuid"] or order != "PCI_BUS_ID":
        raise IrrError(f"sees {seen} in order {order}, ordered to {spec['uuid']}")
    return seen


def SimulatedGpu(spec: Mapping[str, Any]) -> Any:
    """The real GpuStation, its CuPy and driver replaced; a device of the UUID that is visible."""
    import cupy_on_host

    cupy_on_host.UUID_BYTES = bytes.fromhex(only_device(spec).removeprefix("GPU-").replace("-", ""))
    cupy_on_host.install()
    from harness.measure.stations import GpuStation

    return GpuStation(spec)


class Scripted:
    """A device that does what the orders' options say: hang, fail, lose, throttle, or just take its time.

    Options: `hang` and `fail`: [cell, kernel]; `crash`: a cell; `lossy`: a kernel; `batch_s`: seconds a batch;
    `clock`: MHz by pass; `throttle`: mask; `gone`: [UUID, pass] from which on the device is not there; `log`: a file
    for when a pass began and ended.
    """

    place = "gpu"

    def __init__(self, spec: Mapping[str, Any]) -> None:
        from harness.errors import IrrError

        self.spec, self.began = spec, time.monotonic()
        gone, since = spec.get("gone", ("", 0))
        if spec["uuid"] == gone and int(spec["pass_number"]) >= since:
            raise IrrError("GPU is lost")
        self.facts = {
            "uuid": only_device(spec),
            "name": "Scripted",
            "arch": 90,
            "sm_clock_max_mhz": 1410,
            "nulls": {"vbios": "scripted"},
        }
        self.run_on = {"driver": "1.0", "driver_cuda": "13.0"}

    def load(self, labels: Any) -> None:
        pass

    def telemetry(self) -> Any:
        from harness.device.nvml import TELEMETRY, Values

        clocks = self.spec.get("clock", 1410)
        if isinstance(clocks, list):
            clocks = clocks[int(self.spec["pass_number"])]
        known = {"sm_clock_mhz": clocks, "temperature_c": 40, "throttle": int(self.spec.get("throttle", 0))}
        absent = [q.key for q in TELEMETRY if q.key not in known]
        return Values({**known, **dict.fromkeys(absent)}, dict.fromkeys(absent, "scripted"))

    def open(self, cell: Any, size: int) -> Any:
        if self.spec.get("crash") == cell.name:
            raise SystemExit(9)
        return ScriptedRig(self.spec, cell, size)

    def close(self) -> None:
        if "log" in self.spec:
            with open(self.spec["log"], "a") as log:
                log.write(f"{self.spec['uuid']} {self.began} {time.monotonic()}\n")


class ScriptedRig:
    def __init__(self, spec: Mapping[str, Any], cell: Any, size: int) -> None:
        self.spec, self.cell = spec, cell
        self.size = min(size, int(spec.get("fits", size)))
        self.reduced = None if self.size == size else "scripted: little memory"

    def batch(self, label: str, launch: str, table: str, l2: str, graph: bool = True, load: str = "aot") -> Any:
        return ScriptedBatch(self, label)

    def findings(self, labels: Sequence[str], references: Path) -> tuple[list[dict[str, Any]], list[Any]]:
        return [], []

    def outcome(self, *_: Any) -> Any:
        raise AssertionError("no gates in these tests")

    def close(self) -> None:
        pass


class ScriptedBatch:
    flushed = False

    def __init__(self, rig: ScriptedRig, label: str) -> None:
        self.rig, self.label, self.launches = rig, label, rig.size

    def reset(self) -> None:
        pass

    flush = stamp = start = stop = stamp_again = reset

    def launch(self) -> None:
        spec, here = self.rig.spec, [self.rig.cell.name, self.label]
        if spec.get("fail") == here:
            from harness.device.driver import DriverError

            raise DriverError("cuLaunchKernel", 700, "an illegal memory access was encountered (700)")
        time.sleep(3600 if spec.get("hang") == here else float(spec.get("batch_s", 0.001)))

    def collect(self) -> Any:
        from harness.device.reading import Counters, Reading

        lost = 5 if self.rig.spec.get("lossy") == self.label else 0
        return Reading(1.5, 1410.0, Counters(self.rig.cell.blocks - lost, lost, 0))
