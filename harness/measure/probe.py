"""The fingerprint's two sides: what built the kernels (from their manifests) and what runs them (this machine)."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.build.manifest import Manifest
from harness.environment import ROOT

PACKAGES = {
    "cupy": "cupy-cuda13x",
    "numpy": "numpy",
    "pandas": "pandas",
    "scipy": "scipy",
    "msgspec": "msgspec",
    "nvml": "nvidia-ml-py",
}


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first(values: Iterable[Any]) -> str | None:
    """The values, each once, joined; None where there is none."""
    found = [str(value) for value in dict.fromkeys(values) if value]
    return ", ".join(found) or None


def built_on(manifests: Iterable[Manifest]) -> tuple[dict[str, Any], dict[str, str]]:
    """(built_on, reasons for nulls) from the manifests of the kernels that are timed.

    Nothing is asked of this machine: it may have no compiler, and may not be the one that built them.
    """
    rows = list(manifests)
    by_language = {m.language: m.compiler for m in rows}

    def compiler(language: str) -> str | None:
        found = by_language.get(language)
        return None if not found else f"{found.get('name', '')} {found.get('version', '')}".strip()

    pinned = [m.ptxas for m in rows if m.ptxas.get("name") != "bundled"]
    values: dict[str, Any] = {
        "toolkit": _first(m.compiler.get("version") for m in rows if m.language == "cuda"),
        "toolkit_root": _first(m.compiler.get("toolkit") for m in rows),
        "nvcc": compiler("cuda"),
        "ptxas": _first(p.get("version") for p in pinned),
        "ptxas_from": _first(p.get("name") for p in pinned),
        "triton": compiler("triton"),
        "triton_ptxas": _first(m.ptxas.get("version") for m in rows if m.ptxas.get("name") == "bundled"),
        "rustc": compiler("rust-nvptx"),
        "cuda_oxide": None,
        "deviations": list(dict.fromkeys(text for m in rows for text in m.deviations)),
    }
    oxide = by_language.get("rust-oxide")
    if oxide:
        words = [compiler("rust-oxide"), oxide.get("revision"), oxide.get("rustc")]
        values["cuda_oxide"] = " ".join(str(word) for word in words if word)
        values["llc"] = oxide.get("llc")
        values["opt"] = oxide.get("opt")
    why = "no kernel of this archive was made by it" if rows else "no kernel in this archive"
    absent = "not in the kernels' manifests"
    reasons = {
        f"built_on.{key}": why
        for key in ("nvcc", "triton", "rustc", "cuda_oxide", "triton_ptxas", "toolkit", "ptxas", "ptxas_from")
    }
    reasons |= {f"built_on.{key}": absent for key in ("os", "machine", "python", "toolkit_root", "cxx", "llc", "opt")}
    return {key: value for key, value in values.items() if value is not None}, reasons


def _memory_mib() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError):
        return None


def _container() -> str | None:
    if Path("/run/.containerenv").exists():
        return "podman"
    if Path("/.dockerenv").exists():
        return "docker"
    return os.environ.get("container") or None  # noqa: SIM112  (systemd's and podman's own spelling)


def _system() -> str:
    try:
        release = platform.freedesktop_os_release()
        return release.get("PRETTY_NAME") or release.get("ID", "Linux")
    except OSError:
        return platform.system()


def processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return None


def _ncu() -> str | None:
    path = shutil.which("ncu")
    if path is None:
        return None
    try:
        done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next((line.split()[1] for line in done.stdout.splitlines() if line.startswith("Version ")), None)


def _lock() -> str | None:
    """The lock's digest, where this Python is the locked environment."""
    stamp = ROOT / ".venv" / "irr-lock.sha256"
    try:
        inside = Path(sys.prefix).resolve() == (ROOT / ".venv").resolve()
        return stamp.read_text().strip() if inside else None
    except OSError:
        return None


def run_on(worker: Mapping[str, Any], *, shared: bool, clocks: str, gpu: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """(run_on, reasons for nulls) of this machine.

    Args:
        worker: what a worker told of its driver and libraries. shared: --allow-shared. clocks: `free`, or a frequency.
    """
    values: dict[str, Any] = {
        "os": _system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": _memory_mib(),
        "container": _container(),
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "python": platform.python_version(),
        "ncu": _ncu(),
        "open3d": package_version("open3d-cpu") or package_version("open3d"),
        "lock": _lock(),
        "clocks": clocks,
        "shared": shared,
        **{key: package_version(name) for key, name in PACKAGES.items()},
        **dict(worker),
    }
    no_gpu = "no GPU here" if not gpu else "the worker could not tell"
    reasons = {
        "run_on.container": "none can be told",
        "run_on.visible_devices": "the variable was not set",
        "run_on.lock": "the packages are not those of the lock",
        "run_on.ncu": "not on PATH",
        **{f"run_on.{key}": no_gpu for key in ("driver", "driver_cuda", "toolkit")},
        **{f"run_on.{key}": "not installed" for key in ("open3d", *PACKAGES)},
    }
    return {key: value for key, value in values.items() if value is not None}, reasons


def commit() -> tuple[str, bool]:
    """(commit, dirty) of the checkout; ("", True) where there is no git, ($IRR_COMMIT, False) in an image."""
    baked = os.environ.get("IRR_COMMIT")
    if baked:
        return baked, False
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20
        )
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", True
    if head.returncode != 0:
        return "", True
    return head.stdout.strip(), bool(changed.stdout.strip())
