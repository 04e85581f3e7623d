"""CUDA C++ to PTX, with the pinned nvcc."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from harness.build.kernels import Kernel
from harness.build.manifest import Emitted, ToolMissing, ToolUnsupported, replace_file
from harness.build.sources import CUDA_INCLUDES, cuda_sources, file_hash, generated_headers
from harness.build.toolchain import Toolkit, find_toolkit
from harness.environment import ROOT
from harness.errors import IrrError

FLAGS = ("-std=c++17", "-O3")


def compile_flags(arch: int, contract: bool) -> tuple[str, ...]:
    """What decides the code: recorded in the manifest. Contraction is off unless the kernel is a `/fma` build."""
    return (*FLAGS, f"-arch=compute_{arch}", "-fmad=true" if contract else "-fmad=false")


def write_headers(work: Path) -> Path:
    """The folder of generated headers below `work`, filled."""
    folder = work / "include"
    for name, text in generated_headers().items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            replace_file(path, text.encode())
    return folder


@cache
def _compile(
    toolkit: Toolkit, source: str, arch: int, contract: bool, work: Path, root: Path, _stamp: tuple[str, ...]
) -> tuple[str, tuple[Path, ...]]:
    """PTX and the files read. Rows that share a source, as the contraction study's do, are compiled once; `_stamp`, the
    hashes of the sources, makes a changed file another call."""
    headers = write_headers(work)
    with tempfile.TemporaryDirectory(dir=work, prefix="nvcc-") as folder:
        ptx, dependencies = Path(folder, "out.ptx"), Path(folder, "out.d")
        # Run in the checkout with relative names: a path in the command would reach the names of internal symbols.
        command = [str(toolkit.nvcc), "-ptx", *compile_flags(arch, contract), "-I", str(headers.resolve())]
        command += [word for include in CUDA_INCLUDES for word in ("-I", include)]
        command += ["-MD", "-MF", str(dependencies.resolve()), "-o", str(ptx.resolve()), source]
        done = subprocess.run(
            command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode != 0:
            words = (done.stderr + done.stdout).strip().replace(str(root) + "/", "")
            if "nsupported gpu architecture" in words:
                raise ToolUnsupported(f"nvcc {toolkit.version} at {toolkit.nvcc} does not know sm_{arch}")
            lines = [line for line in words.splitlines() if "error" in line] or words.splitlines() or ["no message"]
            raise IrrError(
                f"{source}: nvcc for sm_{arch}: {lines[0].strip()}", f"all of it: cd {root} && {shlex.join(command)}"
            )
        read = dependencies.read_text(encoding="utf-8").split(":", 1)[1].replace("\\\n", " ").split()
        inside = {(root / name).resolve() for name in read} - {p.resolve() for p in headers.iterdir()}
        relative = {path.relative_to(root) for path in inside if path.is_relative_to(root)}
        # The wheels' own headers lie below .venv; their version is the compiler's.
        sources = tuple(sorted(path for path in relative if path.parts[0] != ".venv"))
        return ptx.read_text(encoding="utf-8"), sources


def emit(
    kernel: Kernel, arch: int, contract: bool, work: Path, *, root: Path = ROOT, toolkit: Toolkit | None = None
) -> Emitted:
    """PTX of one CUDA kernel.

    Args:
        arch: compute capability as 90.
        contract: leave multiply-add contraction to nvcc (its default).
        work: folder of the build; shared, kept.

    Raises:
        ToolMissing: no toolkit, or no host compiler for nvcc. ToolUnsupported: nvcc does not know `arch`.
        IrrError: the source does not compile.
    """
    if toolkit is None:
        try:
            toolkit = find_toolkit()
        except IrrError as error:
            raise ToolMissing(error.what, error.cure) from None
    work.mkdir(parents=True, exist_ok=True)
    stamp = tuple(file_hash(root / path) for path in cuda_sources(kernel.source, root))
    ptx, sources = _compile(toolkit, kernel.source, arch, contract, work, root, stamp)
    if not re.search(rf"\.entry\s+{re.escape(kernel.entry)}\b", ptx):
        raise IrrError(f"{kernel.source} has no kernel named {kernel.entry}", f"the row of {kernel.name} names it")
    return Emitted(
        ptx=ptx,
        entry=kernel.entry,
        compiler="nvcc",
        version=toolkit.version,
        flags=compile_flags(arch, contract),
        sources=sources,
        threads=kernel.threads,
        points=kernel.points,
        extra={
            "toolkit": toolkit.place,
            "deviations": [] if toolkit.pinned else [f"unpinned toolchain: nvcc {toolkit.version} ({toolkit.origin})"]
        },
    )
