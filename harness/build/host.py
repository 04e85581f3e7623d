"""The CUDA sources on the CPU: one shared library of every kernel whose row says `host`, and the same as a program.

A build is found by what went into it (sources, flags, compiler), so a second call compiles nothing, and builds of
altered copies of the sources (the faults) lie beside each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.build.kernels import KERNELS, Kernel
from harness.build.manifest import ToolMissing
from harness.environment import ROOT
from harness.errors import IrrError
from harness.workload.volume import cpp_header

HOST_BUILDS = ROOT / "build" / "host"

# No flag that changes a value: contraction off; -fno-math-errno and -fno-trapping-math drop only side effects (errno,
# the exception flags) and let sqrtf and floorf be one instruction each: geometry at base 30 -> 17 ms of CPU time.
# The instruction set is fixed, never this machine's: -march=native with contraction moved 120,630 tsdf sums at base.
INSTRUCTION_SET = {"x86_64": ("-march=x86-64-v2",), "AMD64": ("-march=x86-64-v2",)}
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-pthread",
    "-Wall",
    "-Wextra",
)
THREAD_SANITIZER = ("-fsanitize=thread", "-g")


def _argument(kernel: Kernel, place: int) -> str:
    """The launcher's argument that is parameter `place` of a kernel: colours by name, other pointers by where they
    stand: before n what is read point by point (or, for extract, written), after n the scratch."""
    name, size = kernel.parameters[place]
    if size == 4:
        return f"call.{name}"
    if name == "colors":
        return "Pointer{call.colors}"
    before_n = place < [parameter for parameter, _ in kernel.parameters].index("n")
    return "Pointer{call.points}" if before_n else "Pointer{call.scratch}"


@dataclass(frozen=True)
class HostBuild:
    """A host library or program, and what made it.

    Attributes:
        path: the file. key: hash of sources, flags and compiler, which also names its folder.
    """

    path: Path
    key: str
    compiler: str
    version: str
    flags: tuple[str, ...]


def host_kernels() -> list[Kernel]:
    """Rows that build for the host from cuda/."""
    return [kernel for kernel in KERNELS.values() if kernel.host and kernel.language == "cuda"]


def find_compiler() -> tuple[str, str]:
    """A C++ compiler: path and version line. $CXX where it is set, else g++, else clang++.

    Raises:
        ToolMissing: none runs.
    """
    for name in [os.environ.get("CXX") or "", "g++", "clang++"]:
        path = shutil.which(name) if name else None
        if path is None:
            continue
        try:
            done = subprocess.run(
                [path, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return path, done.stdout.splitlines()[0]
    raise ToolMissing("no C++ compiler found (g++ or clang++)", "install g++, or name one in CXX")


def host_flags(extra: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The compiler's options on this machine, without paths."""
    return (*FLAGS, *INSTRUCTION_SET.get(platform.machine(), ()), *extra)


def _wrapper(kernel: Kernel) -> str:
    """A translation unit: the kernel and the function that calls it for one point."""
    arguments = ", ".join(["call.volume", *(_argument(kernel, place) for place in range(len(kernel.parameters)))])
    include = Path(kernel.source).relative_to("cuda")
    return (
        f'#include "{include}"\n#include "launch.h"\n\n'
        f"void host_{kernel.entry}(const HostCall& call) {{\n  {kernel.entry}({arguments});\n}}\n"
    )


def _registry(kernels: list[Kernel]) -> str:
    lines = ["// generated from harness/build/kernels.py", "#pragma once", '#include "launch.h"', ""]
    lines += [f"void host_{kernel.entry}(const HostCall& call);" for kernel in kernels]
    lines += ["", "constexpr HostKernel HOST_KERNELS[] = {"]
    lines += [f'  {{"{kernel.entry}", host_{kernel.entry}}},' for kernel in kernels]
    return "\n".join([*lines, "};", ""])


def _generated(kernels: list[Kernel]) -> dict[str, str]:
    """Files that are written before compiling, by name."""
    files = {"volume.cuh": cpp_header(), "registry.h": _registry(kernels)}
    return files | {f"host_{kernel.entry}.cpp": _wrapper(kernel) for kernel in kernels}


def _source_files(source: Path) -> list[Path]:
    names = {".cu", ".cuh", ".cpp", ".h"}
    found = sorted(path for path in (source / "cuda").rglob("*") if path.suffix in names)
    if not found:
        raise IrrError(f"{source / 'cuda'} holds no kernels")
    return found


def _build_key(source: Path, generated: dict[str, str], command: list[str]) -> str:
    digest = hashlib.sha256(json.dumps([generated, command], sort_keys=True).encode())
    for path in _source_files(source):
        digest.update(f"\0{path.relative_to(source)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        words = done.stderr.splitlines()
        first = next((line for line in words if "error" in line), words[0] if words else f"exit {done.returncode}")
        raise IrrError(f"{what} does not compile for the host: {first.strip()}")


def _build(
    source: Path,
    builds: Path,
    product: str,
    extra: tuple[str, ...],
    link: tuple[str, ...],
    kernels: Iterable[str] | None,
) -> HostBuild:
    compiler, version = find_compiler()
    flags = host_flags(extra)
    wanted = None if kernels is None else set(kernels)
    rows = [kernel for kernel in host_kernels() if wanted is None or kernel.name in wanted]
    generated = _generated(rows)
    key = _build_key(source, generated, [version, product, *flags, *link])
    folder = builds / key
    result = HostBuild(folder / product, key, Path(compiler).name, version, flags)
    if result.path.exists():
        return result
    builds.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=builds, prefix=".building-") as name:
        work = Path(name)
        for file, text in generated.items():
            (work / file).write_text(text, encoding="utf-8")
        include = [f"-I{source / 'cuda' / 'host'}", f"-I{source / 'cuda'}", f"-I{work}"]
        units = [work / f"host_{kernel.entry}.cpp" for kernel in rows]
        units += [
            source / "cuda" / "host" / file for file in ("launch.cpp", *(["run.cpp"] if product == "run" else []))
        ]

        def compile_unit(unit: Path) -> str:
            target = work / (unit.stem + ".o")
            _run([compiler, *flags, *include, "-x", "c++", "-c", str(unit), "-o", str(target)], unit.name)
            return str(target)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_unit, units))
        made = work / "product"
        made.mkdir()
        _run([compiler, *flags, *link, *objects, "-o", str(made / product)], product)
        record = {**asdict(result), "path": product}
        (made / "build.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        try:
            made.rename(folder)
        except OSError:
            if not result.path.exists():  # else another process was faster with the same build
                raise
    return result


def build_host(
    source: Path = ROOT,
    builds: Path = HOST_BUILDS,
    extra: tuple[str, ...] = (),
    kernels: Iterable[str] | None = None,
) -> HostBuild:
    """The shared library of the host kernels, built if it is not there; seconds once, then nothing.

    Args:
        source: the folder that holds cuda/ (a copy with a planted fault, for instance).
        extra: further compiler options, part of the build's key.
        kernels: names of the rows to build, None for all (fewer build faster: one translation unit each).

    Raises:
        ToolMissing: no compiler. IrrError: the sources do not compile.
    """
    build = _build(source, builds, "libirr-cuda.so", extra, ("-shared",), kernels)
    if source == ROOT and not extra and kernels is None:  # the project's own, under its plain name too
        stable = builds / build.path.name
        if not stable.exists() or stable.read_bytes() != build.path.read_bytes():
            part = builds / f".{build.path.name}.{os.getpid()}"
            shutil.copyfile(build.path, part)
            part.replace(stable)
    return build


def build_runner(
    source: Path = ROOT,
    builds: Path = HOST_BUILDS,
    thread_sanitizer: bool = False,
    kernels: Iterable[str] | None = None,
) -> HostBuild:
    """The same kernels as a program (cuda/host/run.cpp), which can be killed and can carry ThreadSanitizer.

    Arguments and errors as `build_host`.
    """
    return _build(source, builds, "run", THREAD_SANITIZER if thread_sanitizer else (), (), kernels)
