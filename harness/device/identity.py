"""Which device is which: CUDA numbers by speed or by bus, NVML by bus, people by UUID. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import IrrError, UsageError

_BUS = re.compile(r"^\s*(?:([0-9a-f]+):)?([0-9a-f]+):([0-9a-f]+)(?:\.([0-9a-f]+))?\s*$", re.I)
_UUID = re.compile(r"^(GPU|MIG)-[0-9a-f]", re.I)

Device = Mapping[str, Any]
"""A device as NVML describes it: the fingerprint's device keys."""


def bus_key(text: str) -> tuple[int, int, int, int]:
    """A PCI bus id as numbers: NVML prints an eight-digit domain, CUDA a four-digit one, in either case.

    Raises:
        ValueError: not a bus id.
    """
    found = _BUS.match(text)
    if not found:
        raise ValueError(f"{text!r} is not a PCI bus id")
    domain, bus, device, function = (int(part, 16) if part else 0 for part in found.groups())
    return domain, bus, device, function


def match_bus(cuda_bus: str, devices: Sequence[Device]) -> Device:
    """The NVML device that a CUDA device is, by PCI bus id and never by index.

    Raises:
        IrrError: none has that bus id.
    """
    wanted = bus_key(cuda_bus)
    for device in devices:
        if device.get("pci_bus") and bus_key(str(device["pci_bus"])) == wanted:
            return device
    raise IrrError(
        f"NVML has no device at PCI bus {cuda_bus}", "the two libraries disagree about this machine's devices"
    )


def same_uuid(a: str, b: str) -> bool:
    """Whether two UUIDs name one device; CUDA and NVML write the same digits, a prefix may differ (MIG)."""
    return a.lower().split("-", 1)[-1] == b.lower().split("-", 1)[-1]


@dataclass(frozen=True)
class Mask:
    """What CUDA_VISIBLE_DEVICES selects.

    Attributes:
        given: whether the variable is set. tokens: as written. uuids: resolved, in order, None where it cannot be.
        mig: a MIG slice is among them. problems: what is wrong with it, one line each.
    """

    given: bool
    tokens: tuple[str, ...] = ()
    uuids: tuple[str | None, ...] = ()
    mig: bool = False
    problems: tuple[str, ...] = field(default_factory=tuple)


def parse_mask(text: str | None, devices: Sequence[Device], pci_order: bool = False) -> Mask:
    """Read CUDA_VISIBLE_DEVICES as CUDA does: numbers, UUIDs or unique prefixes of them, up to the first invalid one.

    Args:
        text: the variable; None where it is not set. Empty and -1 select nothing.
        devices: NVML's, in PCI bus order.
        pci_order: CUDA_DEVICE_ORDER is PCI_BUS_ID, so a number is a place in `devices`. Without it a number means the
            same only where all devices are of one kind.
    """
    if text is None:
        return Mask(False, (), tuple(d.get("uuid") for d in devices), any(bool(d.get("mig")) for d in devices))
    tokens: list[str] = []
    uuids: list[str | None] = []
    problems: list[str] = []
    mig = False
    numbered = pci_order or len({d.get("name") for d in devices}) <= 1
    for token in (part.strip() for part in text.split(",")):
        if not token or token.startswith("-"):
            break
        if _UUID.match(token):
            mig = mig or token.upper().startswith("MIG-")
            hits = [str(d["uuid"]) for d in devices if str(d.get("uuid", "")).lower().startswith(token.lower())]
            if len(hits) > 1:
                problems.append(f"{token} is the beginning of {len(hits)} UUIDs")
                break
            # A slice is not among NVML's devices; its own UUID is all that CUDA needs.
            found = hits[0] if hits else token if token.upper().startswith("MIG-") else None
            if found is None:
                problems.append(f"no device has a UUID that begins with {token}")
                break
        elif token.isdigit():
            if int(token) >= len(devices):
                problems.append(f"there is no device {token}")
                break
            found = str(devices[int(token)].get("uuid")) if numbered else None
            if found is None:
                problems.append(f"device number {token} is ambiguous between different cards; use UUIDs")
            mig = mig or bool(devices[int(token)].get("mig"))
        else:
            problems.append(f"{token!r} is neither a number nor a UUID")
            break
        if token in tokens or (found is not None and found in uuids):
            problems.append(f"{token} is named twice, and CUDA then shows no device")
        tokens.append(token)
        uuids.append(found)
    return Mask(True, tuple(tokens), tuple(uuids), mig, tuple(problems))


def choose_devices(wanted: str | None, mask: Mask, devices: Sequence[Device]) -> list[str]:
    """UUIDs to run on, in PCI bus order.

    Args:
        wanted: `all` or None for every visible device; else comma-separated UUIDs or unique prefixes of them.

    Raises:
        UsageError: a UUID that is no visible device, ambiguous, or given twice.
        IrrError: the mask is broken, or leaves nothing.
    """
    if mask.problems:
        raise IrrError(f"CUDA_VISIBLE_DEVICES: {mask.problems[0]}", "set it to UUIDs, each once, or unset it")
    visible = [uuid for uuid in mask.uuids if uuid]
    if not visible:
        raise IrrError(
            "no device is visible", "CUDA_VISIBLE_DEVICES hides them all" if mask.given else "see `irr doctor`"
        )
    if wanted is None or wanted == "all":
        return visible
    chosen: list[str] = []
    for token in (part.strip() for part in wanted.split(",") if part.strip()):
        hits = [uuid for uuid in visible if uuid.lower().startswith(token.lower())]
        if len(hits) != 1:
            what = "is no visible device" if not hits else f"is the beginning of {len(hits)} UUIDs"
            raise UsageError(f"--devices: {token} {what}", f"visible: {', '.join(visible)}")
        if hits[0] in chosen:
            raise UsageError(f"--devices: {hits[0]} is named twice", "a pass belongs to one device")
        chosen.append(hits[0])
    if not chosen:
        raise UsageError("--devices names no device", f"visible: {', '.join(visible)}")
    return [uuid for uuid in visible if uuid in chosen]


def require_two(uuids: Sequence[str]) -> None:
    """Refuse what is asked of several devices (`--one-after-another`) on fewer than two different ones.

    Raises:
        IrrError: one device, or one device twice.
    """
    if len(set(uuids)) < 2:
        twice = len(uuids) > 1
        raise IrrError(
            f"two devices are needed, and {uuids[0] + ' is named twice' if twice else f'{len(uuids)} is there'}",
            "name two different UUIDs with --devices, or all",
        )


def child_environment(environ: Mapping[str, str], uuid: str) -> dict[str, str]:
    """The environment of a worker: exactly one device visible, by UUID, numbered by bus."""
    return {**environ, "CUDA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
