"""What this machine has of what irr needs: every tool, driver, device and limit, found or not, with the cure."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.build import toolchain
from harness.device.driver import NO_GPU
from harness.environment import RESULTS, ROOT, cache_root, pins, system_packages
from harness.errors import IrrError

NEEDED_DISK_GIB = 3
"""The venv (2.5 GiB) and what a build and a run write."""

Tool = dict[str, Any]


def _tool(found: bool, version: str | None = None, path: Any = None, cure: str | None = None, **more: Any) -> Tool:
    tool: Tool = {"found": found, "version": version, "path": None if path is None else str(path), **more}
    if not found:
        tool["cure"] = cure
    return tool


def examine(env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Everything at once, as `doctor --json` prints it."""
    env = os.environ if env is None else env
    tools: dict[str, Tool] = {"python": _python()}
    problems: list[dict[str, str]] = []
    tools |= _toolkit(env)
    tools |= _host_compiler(env)
    tools |= _rust(env, problems)
    tools |= _packages()
    tools |= _programs(env)
    driver, devices = _gpu(env, problems)
    limits = _limits(problems)
    missing: dict[str, list[str]] = {}
    for name, tool in tools.items():
        if not tool["found"]:
            missing.setdefault(f"{tool['cure']}", []).append(name)
    problems[:0] = [{"what": f"not found: {', '.join(names)}", "cure": cure} for cure, names in missing.items()]
    return {"tools": tools, "driver": driver, "devices": devices, "limits": limits, "problems": problems}


def _python() -> Tool:
    low, high = pins()["python"]["minimum"], pins()["python"]["maximum"]
    fits = toolchain.version_key(low) <= sys.version_info[:2] <= toolchain.version_key(high)
    cure = f"the lock serves Python {low} to {high}; install one of these and remove .venv"
    return _tool(fits, platform.python_version(), sys.executable, cure)


def _toolkit(env: Mapping[str, str]) -> dict[str, Tool]:
    try:
        toolkit = toolchain.find_toolkit(env)
    except IrrError as error:
        return {name: _tool(False, cure=" ".join(str(error).split())) for name in toolchain.PROGRAMS}
    found = {}
    for name in toolchain.PROGRAMS:
        path = getattr(toolkit, name)
        words = toolchain.parse_cuda_version(toolchain.program_version(path))
        cure = f"{path} does not run here; remove .venv and run ./irr setup, or see CUDA_HOME"
        found[name] = _tool(words is not None, words, path, cure, origin=toolkit.origin, pinned=toolkit.pinned)
    return found


def _host_compiler(env: Mapping[str, str]) -> dict[str, Tool]:
    try:
        compiler = toolchain.find_host_compiler(env)
    except IrrError as error:
        return {"g++": _tool(False, cure=error.cure)}
    number = re.search(r"\d+(?:\.\d+)+$", compiler.version)
    return {"g++": _tool(True, number.group(0) if number else compiler.version, compiler.path)}


def _rust(env: Mapping[str, str], problems: list[dict[str, str]]) -> dict[str, Tool]:
    tools = {}
    debian = "apt-get install rustc-web rust-web-src libstd-rust-web-dev (./irr setup does it as root)"
    try:
        rustc = toolchain.find_rustc()
        tools["rustc"] = _tool(True, rustc.version, rustc.path, llvm=rustc.llvm)
        cure = f"the source must be that of rustc {rustc.version}: apt-get install rust-web-src"
        tools["rust-src"] = _tool(rustc.source is not None, rustc.version if rustc.source else None, rustc.source, cure)
    except IrrError:
        tools["rustc"] = _tool(False, cure=debian)
        tools["rust-src"] = _tool(False, cure=debian)
    oxide = shutil.which("cargo-oxide", path=env.get("PATH"))
    pinned = pins()["oxide"]
    nightly = oxide_rustc(env)
    cure = (
        f"nix develop brings it; or build cargo-oxide of {pinned['repository']} at {pinned['revision'][:12]} "
        f"with {pinned['toolchain']} (rust-src, rustc-dev, llvm-tools)"
    )
    tools["cargo-oxide"] = _tool(
        oxide is not None, None, oxide, cure, toolchain=pinned["toolchain"], llvm=nightly.version if nightly else None
    )
    llc = shutil.which("llc", path=env.get("PATH"))
    llvm = toolchain.parse_llvm_version(toolchain.program_version(llc)) if llc else None
    if llc and llvm and nightly:
        clash = toolchain.llvm_mismatch(nightly, toolchain.Program(Path(llc), llvm))
        if clash is not None:
            problems.append(
                {"what": clash, "cure": "take that llc off PATH, or use the one of the toolchain's llvm-tools"}
            )
    if llc:
        tools["llc"] = _tool(True, llvm, llc)
    return tools


def oxide_rustc(env: Mapping[str, str]) -> toolchain.Program | None:
    """rustc of the toolchain that cuda-oxide pins, with its LLVM as version; None where rustup does not have it."""
    rustup = shutil.which("rustup", path=env.get("PATH"))
    if rustup is None:
        return None
    try:
        # `which`, unlike `run`, never downloads a toolchain that is missing.
        words = [rustup, "which", "--toolchain", pins()["oxide"]["toolchain"], "rustc"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    path = done.stdout.strip()
    llvm = toolchain.parse_llvm_version(toolchain.program_version(path, option="-vV")) if path else None
    return toolchain.Program(Path(path), llvm) if llvm else None


def _packages() -> dict[str, Tool]:
    tools = {}
    for name, package in (("triton", "triton"), ("cupy", "cupy-cuda13x"), ("nvidia-ml-py", "nvidia-ml-py")):
        tools[name] = _distribution(package)
    bundled = toolchain.triton_tools().get("ptxas")
    if bundled is not None:
        words = toolchain.parse_cuda_version(toolchain.program_version(bundled))
        tools["triton ptxas"] = _tool(
            words is not None, words, bundled, "reinstall triton: its ptxas does not run here"
        )
    else:
        tools["triton ptxas"] = _tool(False, cure=tools["triton"].get("cure", "reinstall triton: it has no ptxas"))
    tools["open3d"] = open3d()
    return tools


def _distribution(package: str) -> Tool:
    try:
        return _tool(True, version(package))
    except PackageNotFoundError:
        return _tool(False, cure="run ./irr without IRR_PYTHON, or install it in that Python")


def open3d(run: Callable[..., Any] = subprocess.run) -> Tool:
    """Whether Open3D can be imported; in a process of its own, because a missing library can end the process."""
    tool = _distribution("open3d-cpu")
    if not tool["found"]:
        return tool
    code = "import open3d"
    try:
        done = run(
            [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _tool(False, tool["version"], cure=f"its import did not end: {error}")
    if done.returncode == 0:
        return tool
    needs = [row.package for row in system_packages() if "open3d" in row.arms]
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return _tool(False, tool["version"], cure=f"apt-get install {' '.join(needs)} ({reason})")


PROGRAMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("ncu", ("ncu",), "comes with NVIDIA Nsight Compute; without it the archive has no counters and says so"),
    ("compute-sanitizer", ("compute-sanitizer",), "comes with the CUDA toolkit; needed before numbers are published"),
    ("container engine", ("podman", "docker"), "install podman or docker; only `irr image` needs it"),
    ("nix", ("nix", "nix-instantiate"), "install nix; only the flake needs it"),
    ("chromium", ("chromium",), "apt-get install chromium chromium-driver; only the page's tests need it"),
    ("chromedriver", ("chromedriver",), "apt-get install chromium chromium-driver; only the page's tests need it"),
)


def _programs(env: Mapping[str, str]) -> dict[str, Tool]:
    tools = {}
    for name, commands, cure in PROGRAMS:
        path = next((found for command in commands if (found := toolchain.find_tool(command, env))), None)
        words = toolchain.program_version(path) if path else ""
        found = re.search(r"\d+(?:\.\d+)+", words)
        tools[name] = _tool(path is not None, found.group(0) if found else None, path, cure)
    return tools


def driver_cuda_version() -> str | None:
    """CUDA version that the driver supports, as 13.0; None without a driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _gpu(env: Mapping[str, str], problems: list[dict[str, str]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    driver: dict[str, Any] = {"cuda": driver_cuda_version(), "version": None}
    if driver["cuda"] is None:
        problems.append({"what": "no NVIDIA driver: libcuda.so.1 cannot be loaded", "cure": NO_GPU[1]})
        return driver, []
    from harness.device import nvml
    from harness.device.preflight import driver_serves

    served = driver_serves(pins()["cuda"]["toolkit"], driver["cuda"])
    if not (served.cubin and served.ptx):
        problems.append(
            {"what": served.reason, "cure": "install an NVIDIA driver for CUDA 13.0 or newer (580 or newer)"}
        )
    devices = nvml.describe_devices()
    driver["version"] = nvml.driver_version()
    if not devices:
        problems.append({"what": "a driver, but no GPU", "cure": NO_GPU[1]})
    return driver, devices


def _gib(value: float) -> float:
    return round(value / 2**30, 1)


def _memory_limit() -> int:
    """Memory that may be used: the machine's, or less where a container's limit is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            words = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if words.isdigit():
            total = min(total, int(words))
    return total


def _profiling_needs_root() -> bool | None:
    """Whether the driver gives counters to root only; None without a driver."""
    try:
        words = Path("/proc/driver/nvidia/params").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"RmProfilingAdminOnly:\s*(\d)", words)
    return match.group(1) == "1" if match else None


def _limits(problems: list[dict[str, str]]) -> dict[str, Any]:
    results = RESULTS if RESULTS.exists() else ROOT
    limits: dict[str, Any] = {
        "processors": len(os.sched_getaffinity(0)),
        "memory_gib": _gib(_memory_limit()),
        "disk_free_gib": _gib(shutil.disk_usage(ROOT).free),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "results_writable": os.access(results, os.W_OK),
        "counters_need_root": _profiling_needs_root(),
    }
    try:
        limits["caches"] = str(cache_root())
    except IrrError as error:
        limits["caches"] = None
        problems.append({"what": error.what, "cure": error.cure or ""})
    if limits["disk_free_gib"] < NEEDED_DISK_GIB:
        problems.append(
            {"what": f"{limits['disk_free_gib']} GiB free in {ROOT}", "cure": f"make {NEEDED_DISK_GIB} GiB free"}
        )
    if not limits["results_writable"]:
        problems.append(
            {
                "what": f"{results} is not writable for uid {os.getuid()}, gid {os.getgid()}",
                "cure": "pass --out a folder of your own, or change its owner",
            }
        )
    if limits["counters_need_root"] and os.geteuid() != 0:
        problems.append(
            {
                "what": "the driver gives performance counters to root only",
                "cure": "run counters as root; the rest needs no root",
            }
        )
    return limits


def as_text(findings: dict[str, Any]) -> str:
    """The findings for a reader: a line each, problems with their cure last."""
    lines = []
    for name, tool in findings["tools"].items():
        deviates = "" if tool.get("pinned", True) else "  (not the pinned version)"
        llvm = f"  LLVM {tool['llvm']}" if tool.get("llvm") else ""
        state = f"{tool['version'] or 'found'}{llvm}{deviates}" if tool["found"] else "-"
        lines.append(f"  {name:<18} {state:<28} {tool['path'] or ''}".rstrip())
    driver = findings["driver"]
    lines.append(f"  {'driver':<18} {driver['version'] or '-'} (CUDA {driver['cuda'] or '-'})")
    for device in findings["devices"]:
        lines.append(f"  {'device':<18} {device.get('name')}  {device.get('uuid')}")
    for name, value in findings["limits"].items():
        lines.append(f"  {name:<18} {'-' if value is None else value}")
    if findings["problems"]:
        lines.append("\nproblems:")
        lines += [f"  {problem['what']}\n      {problem['cure']}" for problem in findings["problems"]]
    else:
        lines.append("\nno problems")
    return "\n".join(lines)
