"""Devices to run on: which there are, who else uses them, how many multiprocessors they have, and their clocks."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.archive.schema import Note
from harness.device import driver, nvml, preflight
from harness.device.identity import choose_devices, parse_mask
from harness.errors import IrrError
from harness.output import say


@dataclass(frozen=True)
class Found:
    """Devices to run on, as NVML or the driver shows them."""

    uuids: list[str]
    devices: list[dict[str, Any]]
    flags: list[Note]
    driver_cuda: str | None

    @property
    def used(self) -> list[dict[str, Any]]:
        """What is known of the devices to run on; of the first one there for a slice, which NVML does not list."""
        return [device for device in self.devices if str(device.get("uuid")) in self.uuids] or self.devices[:1]

    @property
    def name(self) -> str:
        """The card's name, for the archive's."""
        return next((str(d.get("name")) for d in self.devices if d.get("uuid") in self.uuids), "gpu")


def driver_cuda() -> int | None:
    """The CUDA version that the driver serves, as 13000; None without a driver. Makes no context."""
    try:
        driver.library()
        return driver.driver_cuda_version()
    except IrrError:
        return None


def find_devices(wanted: str | None, allow_shared: bool) -> Found | None:
    """Devices for a run, each looked at for other users; None where there is no GPU.

    Raises:
        UsageError: --devices names none that is visible. IrrError: a device is refused; the process is named.
    """
    version = driver_cuda()
    if version is None:
        return None
    text = f"{version // 1000}.{version % 1000 // 10}"
    try:
        session = nvml.Nvml()
    except IrrError as error:
        return _without_nvml(error.what, text, wanted)
    try:
        known = [device.values for device in session.devices()]
        if not known:
            return None
        pci = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        mask = parse_mask(os.environ.get("CUDA_VISIBLE_DEVICES"), known, pci)
        if mask.given and not mask.uuids and not mask.problems:
            return None
        chosen = choose_devices(wanted, mask, known)
        if wanted is None:
            chosen = chosen[:1]
        flags: list[Note] = []
        for uuid in chosen:
            handle = session.handle_of(uuid)
            identity = next(
                (d for d in known if str(d.get("uuid")).lower() == uuid.lower()), {"name": "MIG slice", "mig": True}
            )
            state = settled(session, handle)
            findings = preflight.inspect(
                preflight.DeviceState(
                    uuid=uuid,
                    name=str(identity.get("name") or "GPU"),
                    mig=identity.get("mig"),
                    compute_mode=session.compute_mode(handle),
                    utilisation=state.get("utilisation"),
                    memory_used_mib=state.get("memory_used_mib"),
                    processes=session.processes(handle),
                ),
                own_pids=(os.getpid(),),
                allow_shared=allow_shared,
            )
            refused = [finding for finding in findings if finding.kind == "refuse"]
            if refused:
                cure = "wait, choose another with --devices, or accept it with --allow-shared (recorded in the archive)"
                raise IrrError(f"{refused[0].what}: {refused[0].why}", cure)
            flags += [Note(what=finding.what, why=finding.why) for finding in findings]
        return Found(chosen, known, flags, text)
    finally:
        session.close()


def settled(session: Any, handle: Any) -> dict[str, Any]:
    """A device's state, once NVML's memory of a process that has just ended is gone: utilisation is a mean over up to
    a second, and a run that follows another one must not be refused for it."""
    state = session.telemetry(handle).values
    for _ in range(8):
        if (state.get("utilisation") or 0) <= preflight.MAX_UTILISATION or session.processes(handle):
            break
        time.sleep(0.25)
        state = session.telemetry(handle).values
    return state


def _without_nvml(why: str, version: str, wanted: str | None) -> Found | None:
    """Devices by the driver alone: no telemetry, no look at other users; said in the archive."""
    library = driver.library()
    count = ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0 or not count.value:
        return None
    devices: list[dict[str, Any]] = []
    for index in range(count.value):
        raw = (ctypes.c_ubyte * 16)()
        name = ctypes.create_string_buffer(256)
        numbers = {}
        driver.check("cuDeviceGetUuid", library.cuDeviceGetUuid_v2(ctypes.byref(raw), index))
        driver.check("cuDeviceGetName", library.cuDeviceGetName(name, 256, index))
        for key, attribute in (("major", 75), ("minor", 76)):
            value = ctypes.c_int()
            driver.check("cuDeviceGetAttribute", library.cuDeviceGetAttribute(ctypes.byref(value), attribute, index))
            numbers[key] = value.value
        digits = bytes(raw).hex()
        uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        arch = 10 * numbers["major"] + numbers["minor"]
        devices.append({"uuid": uuid, "name": name.value.decode(errors="replace"), "arch": arch})
    # What the driver shows is already behind the mask.
    chosen = choose_devices(wanted, parse_mask(None, devices), devices)
    flag = Note(what="no NVML", why=f"{why}: no telemetry, and other users of the device cannot be seen")
    return Found(chosen[:1] if wanted is None else chosen, devices, [flag], version)


def multiprocessors() -> int | None:
    """Multiprocessors of the first device the driver shows (all devices of a run are of one kind); makes no context."""
    library, value = driver.library(), ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGetAttribute(ctypes.byref(value), ctypes.c_int(16), 0) != 0:
        return None
    return value.value


class locked_clocks:
    """Lock the SM clocks while a run goes on, if asked for; they are free again afterwards, whatever happens.

    Raises:
        IrrError: the driver does not allow it; said instead of measuring at other clocks than asked for.
    """

    def __init__(self, devices: Sequence[str], wanted: bool) -> None:
        self.devices, self.wanted = devices, wanted
        self.session: Any = None

    def __enter__(self) -> str:
        if not self.wanted:
            return "free"
        self.session = nvml.Nvml()
        module = self.session.module
        clocks = []
        for uuid in self.devices:
            handle = self.session.handle_of(uuid)
            try:
                clock = int(module.nvmlDeviceGetMaxClockInfo(handle, module.NVML_CLOCK_SM))
                module.nvmlDeviceSetGpuLockedClocks(handle, clock, clock)
            except Exception as error:
                self.__exit__()
                raise IrrError(f"the clocks of {uuid} cannot be locked: {error}", "run without --lock-clocks") from None
            clocks.append(f"{clock} MHz")
        return ", ".join(dict.fromkeys(clocks))

    def __exit__(self, *_: object) -> None:
        if self.session is None:
            return
        for uuid in self.devices:
            try:
                self.session.module.nvmlDeviceResetGpuLockedClocks(self.session.handle_of(uuid))
            except Exception as error:
                say(f"the clocks of {uuid} could not be freed: {error}")
        self.session.close()
        self.session = None
