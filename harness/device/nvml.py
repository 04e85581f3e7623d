"""What NVML says about devices: identity, limits, and the state while a batch runs.

One row a field. A value that NVML does not have (a slice, an integrated GPU, WSL2) is null with the reason, never 0 and
never a text in a number's place; a real 0 stays 0.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import IrrError

NO_BINDINGS = "the NVML bindings (nvidia-ml-py) are not installed"

THROTTLE_REASONS: dict[int, str] = {
    0x1: "gpu idle",
    0x2: "application clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}
"""NVML clock event reasons by bit."""

SLOWING = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80
"""Reasons that make a running kernel slower than the card can be; idle and clock settings are none."""


def throttle_names(mask: int) -> list[str]:
    """The reasons in a mask, named; a bit without a name is shown as hexadecimal."""
    known = [name for bit, name in THROTTLE_REASONS.items() if mask & bit]
    rest = mask & ~sum(THROTTLE_REASONS)
    return [*known, hex(rest)] if rest else known


_NUMBER = re.compile(r"^\s*([-+]?\d+(?:\.\d+)?)\s*(?:%|W|C|MHz|MiB|KiB)?\s*$")
_ABSENT = re.compile(
    r"^\s*\[?\s*(n/?a|not supported|unknown error|insufficient permissions|not found|gpu is lost)\s*\]?\s*$", re.I
)


def clean(raw: Any) -> tuple[int | float | bool | str | None, str | None]:
    """(value, reason): a reading as a number, a bool or a name, or null with the reason.

    Text such as `[N/A]` or `[Not Supported]`, which tools print where a number belongs, is a reason.
    """
    if raw is None:
        return None, "not reported"
    if isinstance(raw, bytes):
        raw = raw.decode("utf-8", "replace")
    if isinstance(raw, float) and not math.isfinite(raw):
        return None, "not a finite number"
    if not isinstance(raw, str):
        return raw, None
    if not raw.strip() or _ABSENT.match(raw):
        return None, raw.strip().strip("[]").strip() or "empty"
    number = _NUMBER.match(raw)
    if number:
        return (float(number[1]) if "." in number[1] else int(number[1])), None
    return raw.strip(), None


Read = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Query:
    """One field and how to ask NVML for it: read(pynvml, handle)."""

    key: str
    read: Read


def _memory(nvml: Any, handle: Any) -> Any:
    """Version 2 leaves the driver's own reservation out of `used`."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except (nvml.NVMLError, AttributeError, TypeError):
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _events(nvml: Any, handle: Any) -> int:
    new = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    if new is not None:
        try:
            return int(new(handle))
        except nvml.NVMLError_FunctionNotFound:
            pass
    return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _capability(nvml: Any, handle: Any) -> int:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return 10 * int(major) + int(minor)


def _mig(nvml: Any, handle: Any) -> bool:
    try:
        return int(nvml.nvmlDeviceGetMigMode(handle)[0]) == 1
    except nvml.NVMLError as error:
        if "Not Supported" in str(error):  # a card that has no MIG is no slice
            return False
        raise


DEVICE: tuple[Query, ...] = (
    Query("uuid", lambda nvml, h: nvml.nvmlDeviceGetUUID(h)),
    Query("name", lambda nvml, h: nvml.nvmlDeviceGetName(h)),
    Query("arch", _capability),
    Query("mig", _mig),
    Query("ecc", lambda nvml, h: bool(nvml.nvmlDeviceGetEccMode(h)[0])),
    Query("power_limit_w", lambda nvml, h: nvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000),
    Query("memory_mib", lambda nvml, h: _memory(nvml, h).total / 2**20),
    Query("sm_clock_max_mhz", lambda nvml, h: nvml.nvmlDeviceGetMaxClockInfo(h, nvml.NVML_CLOCK_SM)),
    Query("mem_clock_max_mhz", lambda nvml, h: nvml.nvmlDeviceGetMaxClockInfo(h, nvml.NVML_CLOCK_MEM)),
    Query("pci_bus", lambda nvml, h: nvml.nvmlDeviceGetPciInfo(h).busId),
    Query(
        "pcie",
        lambda nvml, h: f"gen{nvml.nvmlDeviceGetMaxPcieLinkGeneration(h)} x{nvml.nvmlDeviceGetMaxPcieLinkWidth(h)}",
    ),
    Query("vbios", lambda nvml, h: nvml.nvmlDeviceGetVbiosVersion(h)),
    Query("persistence", lambda nvml, h: bool(nvml.nvmlDeviceGetPersistenceMode(h))),
)
"""What a device is; keys are the fingerprint's."""

TELEMETRY: tuple[Query, ...] = (
    Query("sm_clock_mhz", lambda nvml, h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM)),
    Query("mem_clock_mhz", lambda nvml, h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_MEM)),
    Query("temperature_c", lambda nvml, h: nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU)),
    Query("power_w", lambda nvml, h: nvml.nvmlDeviceGetPowerUsage(h) / 1000),
    Query("throttle", _events),
    Query("utilisation", lambda nvml, h: nvml.nvmlDeviceGetUtilizationRates(h).gpu),
    Query("memory_used_mib", lambda nvml, h: _memory(nvml, h).used / 2**20),
)
"""What a device does now; keys are telemetry.csv's columns."""


@dataclass
class Values:
    """Readings by key, null where there is none, and the reason for every null."""

    values: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def ask(nvml: Any, handle: Any, queries: tuple[Query, ...]) -> Values:
    """Every field of a table; one that fails is null with NVML's own words."""
    found = Values()
    for query in queries:
        try:
            value, reason = clean(query.read(nvml, handle))
        except Exception as error:  # bindings raise their own kinds, and AttributeError where an old one lacks the call
            value, reason = None, str(error) or type(error).__name__
        found.values[query.key] = value
        if value is None:
            found.reasons[query.key] = reason or "not reported"
    return found


@dataclass(frozen=True)
class Process:
    """A process on a device; `mib` null where NVML does not say."""

    pid: int
    name: str
    mib: float | None


def _processes(nvml: Any, handle: Any) -> list[Process]:
    found: dict[int, Process] = {}
    for call in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        try:
            rows = getattr(nvml, call)(handle)
        except Exception:  # a kind of process that the device does not have
            continue
        for row in rows:
            used = row.usedGpuMemory
            found[row.pid] = Process(row.pid, _process_name(nvml, row.pid), None if used is None else used / 2**20)
    return list(found.values())


def _process_name(nvml: Any, pid: int) -> str:
    try:
        name, _ = clean(nvml.nvmlSystemGetProcessName(pid))
        return Path(str(name)).name
    except Exception:
        try:
            return Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            return "unknown"


class Nvml:
    """An open NVML session.

    Args:
        module: the bindings; None imports pynvml.

    Raises:
        IrrError: no bindings, no driver, or NVML does not start; the message is the reason that goes into the archive.
    """

    def __init__(self, module: Any = None) -> None:
        if module is None:
            try:
                import pynvml as module
            except ImportError:
                raise IrrError(NO_BINDINGS, "install nvidia-ml-py") from None
        self.module = module
        try:
            module.nvmlInit()
        except Exception as error:
            raise IrrError(f"NVML does not start: {error}", "see `irr doctor`") from None

    def handles(self) -> list[Any]:
        """Handles in PCI bus order, which is NVML's."""
        return [self.module.nvmlDeviceGetHandleByIndex(i) for i in range(self.module.nvmlDeviceGetCount())]

    def driver_version(self) -> str | None:
        try:
            return str(clean(self.module.nvmlSystemGetDriverVersion())[0])
        except Exception:
            return None

    def devices(self) -> list[Values]:
        """Identity of every device, in PCI bus order."""
        return [ask(self.module, handle, DEVICE) for handle in self.handles()]

    def handle_of(self, uuid: str) -> Any:
        """The handle of a device by its UUID.

        Raises:
            IrrError: NVML knows no such device.
        """
        for handle in self.handles():
            if str(clean(self.module.nvmlDeviceGetUUID(handle))[0]).lower() == uuid.lower():
                return handle
        try:
            return self.module.nvmlDeviceGetHandleByUUID(uuid.encode())
        except Exception as error:
            raise IrrError(f"NVML knows no device {uuid}: {error}") from None

    def telemetry(self, handle: Any) -> Values:
        return ask(self.module, handle, TELEMETRY)

    def processes(self, handle: Any) -> list[Process]:
        """Processes with memory on the device, compute and graphics."""
        return _processes(self.module, handle)

    def compute_mode(self, handle: Any) -> int | None:
        """0 default, 2 prohibited, 3 exclusive process; null where NVML does not say."""
        try:
            return int(self.module.nvmlDeviceGetComputeMode(handle))
        except Exception:
            return None

    def close(self) -> None:
        with contextlib.suppress(Exception):  # nothing is left to do
            self.module.nvmlShutdown()


def describe_devices(module: Any = None) -> list[dict[str, Any]]:
    """Every device as doctor prints it: the fingerprint's keys, and `nulls` with reasons; empty without NVML."""
    try:
        session = Nvml(module)
    except IrrError:
        return []
    try:
        return [{**device.values, "nulls": device.reasons} for device in session.devices()]
    finally:
        session.close()


def driver_version(module: Any = None) -> str | None:
    """The driver's version as NVML says it; null without NVML."""
    try:
        session = Nvml(module)
    except IrrError:
        return None
    try:
        return session.driver_version()
    finally:
        session.close()


def slowing(values: Mapping[str, Any]) -> int:
    """The slowing reasons in a telemetry reading, as a mask; 0 for none or unknown."""
    return int(values.get("throttle") or 0) & SLOWING
