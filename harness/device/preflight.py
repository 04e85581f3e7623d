"""Refusals and flags before anything is timed. Pure functions over what was found, so every case is a test."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.device.nvml import Process

MAX_FOREIGN_MIB = 1024
"""Another process with more than this on the device means that the device is shared (method: The machine)."""

MAX_UTILISATION = 10
"""Percent of time in kernels before we have started any: more means somebody else is measuring or working."""

EXCLUSIVE_PROCESS, PROHIBITED = 3, 2


@dataclass(frozen=True)
class Finding:
    """Something about a device that stops a run (`refuse`), or that the archive must say (`flag`)."""

    kind: Literal["refuse", "flag"]
    what: str
    why: str


# ------------------------------------------------------------------------------------------------- driver and toolkit


@dataclass(frozen=True)
class Compatibility:
    """What a driver can run of what a toolkit made."""

    cubin: bool
    ptx: bool
    reason: str


def version_pair(text: str | int) -> tuple[int, int]:
    """(13, 0) of `13.0`, `13.0.88`, or the driver's own 13000; compared as numbers, never as text."""
    if isinstance(text, int):
        return text // 1000, text % 1000 // 10
    parts = [*text.split("."), "0"][:2]
    return int(parts[0]), int(parts[1])


def driver_serves(toolkit: str | int, driver: str | int) -> Compatibility:
    """Whether a driver (by the CUDA version it serves) runs cubins and PTX of a toolkit.

    Within a major version a cubin of a newer toolkit runs on an older driver, PTX does not: the driver's compiler does
    not know the newer PTX version. An older major version runs neither.
    """
    made, serves = version_pair(toolkit), version_pair(driver)
    told = f"toolkit {made[0]}.{made[1]}, driver for CUDA {serves[0]}.{serves[1]}"
    if serves >= made:
        return Compatibility(True, True, told)
    if serves[0] == made[0]:
        return Compatibility(
            True, False, f"{told}: the driver is older than the toolkit, its compiler refuses this PTX"
        )
    return Compatibility(False, False, f"{told}: needs a driver for CUDA {made[0]}.0 or newer")


# -------------------------------------------------------------------------------------------------------- architecture


@dataclass(frozen=True)
class ArchVerdict:
    """Whether a device has code: status as of a kernel (`ok`, `unavailable`, `unsupported`)."""

    status: Literal["ok", "unavailable", "unsupported"]
    reason: str


def arch_number(text: str | int | tuple[int, int]) -> int:
    """90 of 90, `9.0`, `sm_90`, `sm_90a` or (9, 0): always a number, since as text 10.0 is less than 9.0."""
    if isinstance(text, int):
        return text
    if isinstance(text, tuple):
        return 10 * text[0] + text[1]
    digits = text.strip().lower().removeprefix("sm_").removeprefix("compute_").rstrip("af")
    if "." in digits:
        major, minor = digits.split(".", 1)
        return 10 * int(major) + int(minor)
    return int(digits)


def arch_verdict(device: str | int | tuple[int, int], built: Collection[int], minimum: int) -> ArchVerdict:
    """Whether kernels built for `built` run on a device.

    Args:
        minimum: lowest architecture that the toolkit compiles for (75 for CUDA 13).
    """
    arch = arch_number(device)
    if arch < minimum:
        found, least = f"{arch // 10}.{arch % 10}", f"{minimum // 10}.{minimum % 10}"
        why = f"unsupported: compute capability {found}, this toolkit needs >= {least}"
        return ArchVerdict("unsupported", why)
    if arch in built:
        return ArchVerdict("ok", f"built for sm_{arch}")
    have = ", ".join(f"sm_{a}" for a in sorted(built)) or "nothing"
    return ArchVerdict(
        "unavailable", f"no code for sm_{arch} (built: {have}): rebuild for sm_{arch} with ./irr build --arch {arch}"
    )


# ------------------------------------------------------------------------------------------------------------- sharing


@dataclass(frozen=True)
class DeviceState:
    """A device before a run, as NVML shows it; None where it does not say."""

    uuid: str
    name: str
    mig: bool | None = False
    compute_mode: int | None = 0
    utilisation: float | None = 0
    memory_used_mib: float | None = 0
    processes: Sequence[Process] = ()


def inspect(state: DeviceState, own_pids: Collection[int] = (), allow_shared: bool = False) -> list[Finding]:
    """What speaks against a device, or must be said about it.

    Args:
        own_pids: processes of this run. allow_shared: turns the sharing refusals into flags (--allow-shared).
    """
    found: list[Finding] = []
    label = f"{state.name} {state.uuid}"

    def shared(why: str) -> None:
        found.append(Finding("flag" if allow_shared else "refuse", f"{label} is shared", why))

    foreign = [process for process in state.processes if process.pid not in own_pids]
    heavy = [process for process in foreign if process.mib is not None and process.mib > MAX_FOREIGN_MIB]
    for process in heavy:
        shared(f"process {process.pid} ({process.name}) holds {process.mib:.0f} MiB on it")
    listed = sum(process.mib or 0 for process in state.processes)
    used = state.memory_used_mib
    if not heavy and used is not None and used - listed > MAX_FOREIGN_MIB:
        unknown = [f"{process.pid} ({process.name})" for process in foreign if process.mib is None]
        who = f"process {', '.join(unknown)}" if unknown else "a process that cannot be seen from here"
        shared(f"{who} holds up to {used - listed:.0f} MiB on it")
    if state.utilisation is not None and state.utilisation > MAX_UTILISATION:
        who = ", ".join(f"{p.pid} ({p.name})" for p in foreign) or "a process that cannot be seen from here"
        shared(f"it is busy {state.utilisation:.0f} % of the time; process {who}")
    if state.compute_mode == PROHIBITED:
        found.append(
            Finding("refuse", f"{label} prohibits compute", "compute mode PROHIBITED; nvidia-smi -c 0 as its owner")
        )
    if state.compute_mode == EXCLUSIVE_PROCESS:
        if foreign:
            who = ", ".join(f"{p.pid} ({p.name})" for p in foreign)
            found.append(Finding("refuse", f"{label} is in exclusive-process mode", f"and process {who} has it"))
        else:
            found.append(
                Finding(
                    "flag", f"{label} is in exclusive-process mode", "the control with two processes cannot run on it"
                )
            )
    if state.mig:
        found.append(Finding("flag", f"{label} is in MIG mode", "a slice has fewer multiprocessors and shares memory"))
    if state.utilisation is None:
        found.append(Finding("flag", f"{label} does not report utilisation", "whether it is busy cannot be told"))
    return found
