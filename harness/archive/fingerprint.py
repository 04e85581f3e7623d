"""The fingerprint: one table of fields. Upper layers probe and hand in plain dicts; nothing here touches a machine.

A fingerprint has two sides, because a kernel may be built where no GPU is: `built_on` (tools) and `run_on` (driver,
libraries, devices). The driver and the toolkit are two fields: a new toolkit on an old driver loads cubins and refuses
PTX, which one field could not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.archive.schema import Fingerprint, Null

NOT_PROBED = "not probed"


@dataclass(frozen=True)
class Field:
    """One fingerprint field.

    Attributes:
        side: `built_on`, `run_on` or `device` (an entry of run_on["devices"]).
        checked: whether records that differ in it must not be pooled. Analysis packages are fields, never keys.
    """

    key: str
    side: str
    checked: bool
    meaning: str


FIELDS: tuple[Field, ...] = (
    Field("os", "built_on", False, "operating system and release"),
    Field("machine", "built_on", False, "processor architecture, as uname -m"),
    Field("python", "built_on", False, "Python that ran the build"),
    Field("toolkit", "built_on", True, "CUDA toolkit version (nvcc --version)"),
    Field("toolkit_root", "built_on", False, "where the toolkit came from: wheels, or CUDA_HOME or PATH with its root"),
    Field("nvcc", "built_on", True, "nvcc's full version"),
    Field("ptxas", "built_on", True, "ptxas that assembled every kernel of the matrix, full version"),
    Field("ptxas_from", "built_on", False, "where that ptxas came from"),
    Field("triton", "built_on", True, "Triton"),
    Field("triton_ptxas", "built_on", False, "ptxas in the Triton wheel, used by the control @bundled only"),
    Field("rustc", "built_on", True, "stock rustc and its LLVM"),
    Field("cuda_oxide", "built_on", True, "cuda-oxide commit and its rustc"),
    Field("llc", "built_on", False, "llc version and path used by cuda-oxide"),
    Field("opt", "built_on", False, "opt version and path used by cuda-oxide"),
    Field("cxx", "built_on", False, "host C++ compiler"),
    Field("deviations", "built_on", True, "tools that are not the pinned ones, by name"),
    Field("os", "run_on", False, "operating system and release"),
    Field("kernel", "run_on", False, "kernel release"),
    Field("machine", "run_on", False, "processor architecture, as uname -m"),
    Field("cpu", "run_on", False, "processor model"),
    Field("cores", "run_on", False, "processors this process may use"),
    Field("memory_mib", "run_on", False, "main memory, MiB"),
    Field("container", "run_on", False, "container runtime, if one can be told"),
    Field("driver", "run_on", True, "NVIDIA driver version"),
    Field("driver_cuda", "run_on", True, "highest CUDA version the driver serves"),
    Field("toolkit", "run_on", False, "CUDA runtime version of the libraries loaded when running"),
    Field("visible_devices", "run_on", False, "CUDA_VISIBLE_DEVICES as it was found"),
    Field("python", "run_on", False, "Python"),
    Field("cupy", "run_on", False, "CuPy"),
    Field("numpy", "run_on", False, "NumPy"),
    Field("pandas", "run_on", False, "pandas"),
    Field("scipy", "run_on", False, "SciPy"),
    Field("msgspec", "run_on", False, "msgspec"),
    Field("nvml", "run_on", False, "NVML bindings"),
    Field("ncu", "run_on", False, "Nsight Compute"),
    Field("open3d", "run_on", False, "Open3D"),
    Field("lock", "run_on", False, "SHA-256 of requirements.txt when the packages are the locked ones"),
    Field("clocks", "run_on", True, "free, or the frequency they were locked to"),
    Field("shared", "run_on", True, "whether another process was allowed on the device (--allow-shared)"),
    Field("uuid", "device", False, "NVML UUID"),
    Field("name", "device", True, "device name"),
    Field("arch", "device", True, "compute capability x 10"),
    Field("sms", "device", True, "streaming multiprocessors"),
    Field("mig", "device", True, "whether it is a MIG slice"),
    Field("ecc", "device", True, "whether ECC is on"),
    Field("power_limit_w", "device", True, "enforced power limit, W"),
    Field("memory_mib", "device", False, "device memory, MiB"),
    Field("l2_kib", "device", False, "L2 cache, KiB"),
    Field("sm_clock_max_mhz", "device", False, "highest SM clock, MHz"),
    Field("mem_clock_max_mhz", "device", False, "highest memory clock, MHz"),
    Field("pci_bus", "device", False, "PCI bus id"),
    Field("pcie", "device", False, "PCIe generation and width"),
    Field("vbios", "device", False, "VBIOS version"),
    Field("persistence", "device", False, "whether persistence mode is on"),
)


def keys(side: str, checked: bool | None = None) -> list[str]:
    """Keys of one side, all or only the (un)checked ones."""
    return [field.key for field in FIELDS if field.side == side and checked in (None, field.checked)]


def _side(
    side: str, found: Mapping[str, Any], nulls: list[Null], prefix: str, why: Mapping[str, str]
) -> dict[str, Any]:
    unknown = set(found) - set(keys(side))
    if unknown:
        raise ValueError(f"fingerprint {side} has no field {', '.join(sorted(unknown))}: add it to the table")
    filled = {}
    for key in keys(side):
        filled[key] = found.get(key)
        if filled[key] is None:
            path = f"{prefix}.{key}"
            nulls.append(Null(field=path, why=why.get(path) or why.get(key) or NOT_PROBED))
    return filled


def make(
    built_on: Mapping[str, Any],
    run_on: Mapping[str, Any],
    devices: list[Mapping[str, Any]] | None = None,
    why: Mapping[str, str] | None = None,
) -> Fingerprint:
    """A whole fingerprint: every field of the table, null with a reason where it was not found.

    Args:
        built_on, run_on, devices: what was probed; keys of the table only.
        why: reasons for nulls by key or by path (`run_on.driver`, `run_on.devices[0].ecc`).

    Raises:
        ValueError: a key that the table does not have.
    """
    why = why or {}
    nulls: list[Null] = []
    built = _side("built_on", built_on, nulls, "built_on", why)
    run = _side("run_on", {k: v for k, v in run_on.items() if k != "devices"}, nulls, "run_on", why)
    found = list(devices if devices is not None else run_on.get("devices", []))
    run["devices"] = [_side("device", d, nulls, f"run_on.devices[{i}]", why) for i, d in enumerate(found)]
    return Fingerprint(built_on=built, run_on=run, nulls=nulls)


def pooling_keys(fingerprint: Fingerprint) -> dict[str, Any]:
    """Every checked field by path; two archives may be pooled only where these agree.

    Devices count as the sorted list of distinct kinds: two cards of one model are one kind, their UUIDs no key.
    """
    found = {f"built_on.{key}": fingerprint.built_on.get(key) for key in keys("built_on", True)}
    found |= {f"run_on.{key}": fingerprint.run_on.get(key) for key in keys("run_on", True)}
    devices = fingerprint.run_on.get("devices") or []
    for key in keys("device", True):
        found[f"device.{key}"] = sorted({repr(device.get(key)) for device in devices})
    return found


def differences(a: Fingerprint, b: Fingerprint) -> list[tuple[str, Any, Any]]:
    """(path, value in a, value in b) of every checked field in which they differ; empty means they may be pooled.

    A tool is null where no kernel of the archive was made by it: no kernel that both have can differ by it. A null of
    the machine is something that is not known, and differs.
    """
    left, right = pooling_keys(a), pooling_keys(b)

    def unused(key: str) -> bool:
        return key.startswith("built_on.") and None in (left[key], right[key])

    return [(key, left[key], right[key]) for key in left if left[key] != right[key] and not unused(key)]
