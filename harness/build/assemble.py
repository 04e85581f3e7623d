"""PTX to cubin: one assembler for every language, and what it made of the kernel.

The same ptxas, with the same options, assembles the PTX of nvcc, rustc, cuda-oxide and Triton, so that a difference
between languages is one between their compilers and not between two assemblers (Triton brings its own, 12.8).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.build import cubin as cubin_reader
from harness.build.manifest import ToolMissing, ToolUnsupported, sha256
from harness.build.toolchain import parse_cuda_version, program_version, triton_tools
from harness.errors import IrrError

# ptxas's ways to say that it does not know the architecture or the PTX version.
_UNKNOWN = re.compile(
    r"is not defined for option 'gpu-name'|Unsupported \.version|unsupported \.target|SM version specified by \.target",
    re.IGNORECASE,
)


PTXAS_SECONDS = 1800
"""A bound of 32 probes, unrolled, takes minutes; nothing comes near this."""


@dataclass(frozen=True)
class Assembled:
    """One kernel's cubin and what is known of it.

    Attributes:
        cubin: the ELF file. sass: nvdisasm's listing of the whole cubin.
        parameters: as found in the cubin.
        registers: a thread. spills: bytes, stores and loads. static_shared: bytes a block.
        counts: opcode (FFMA, RED, ATOMG, ...) -> how often it stands in the kernel; `instructions` is their sum,
            without the padding after the end.
        code_sha256: of the machine code alone.
        ptxas: name, version, flags, target; as the manifest has it.
    """

    cubin: bytes
    sass: str
    parameters: tuple[cubin_reader.RawParameter, ...]
    registers: int
    spills: int
    static_shared: int
    counts: dict[str, int]
    code_sha256: str
    ptxas: dict[str, Any]
    disassembler: dict[str, Any]


@cache
def version(program: Path) -> str:
    return parse_cuda_version(program_version(program)) or "unknown"


def target(ptx: str, arch: int) -> str:
    """GPU name for ptxas: sm_90, or sm_90a where the PTX asks for that architecture's own features (Triton does)."""
    match = re.search(r"^\.target\s+sm_(\d+)([af]?)", ptx, re.MULTILINE)
    if match is None:
        raise IrrError("the PTX has no .target line", "it is not what an emitter wrote")
    return f"sm_{arch}{match.group(2) if int(match.group(1)) == arch else ''}"


def flags(gpu: str, contract: bool, registers: int = 0) -> list[str]:
    """ptxas's options. Without -fmad=false it would contract what rustc and LLVM left apart.

    Args:
        registers: most registers a thread; 0 for ptxas's choice.
    """
    limit = [f"-maxrregcount={registers}"] if registers else []
    return [f"-arch={gpu}", "-O3", *([] if contract else ["-fmad=false"]), *limit]


def only_entry(text: str, entry: str) -> str:
    """The PTX without other kernels' bodies; device functions stay, for the kernel may call them."""
    pieces = re.split(r"(?m)^(?=[^\n/]*\.(?:entry|func)\b)", text)
    name = re.compile(r"\.entry\s+([\w$]+)")
    return "".join(piece for piece in pieces if (match := name.search(piece)) is None or match.group(1) == entry)


PTX_COUNTS: dict[str, str] = {
    # needs N18: a float atomic that became a compare-exchange loop is another kernel
    "atom.add.f32": r"\batom\.[\w.:]*add[\w.:]*\.f32\b",
    "red.add.f32": r"\bred\.[\w.:]*add[\w.:]*\.f32\b",
    "atom.cas": r"\batom\.[\w.:]*cas\b",
    "fma.f32": r"\b(?:fma|mad)\.[\w.]*f32(?:x2)?\b",
    "approximate": r"\b(?:div|sqrt|rcp|rsqrt)\.(?:approx|full)\b|\b(?:add|sub|mul|fma|div|sqrt)\.[\w.]*ftz\b",
    # Triton's tl.floor: the same but for values below 1.2e-38, which it takes for zero
    "floor.ftz": r"\bcvt\.rmi\.ftz\b",
    "local": r"\b(?:ld|st)\.local\b",
}
"""What is counted in the PTX of a kernel."""


def count_ptx(ptx: str, entry: str) -> dict[str, int]:
    """How often each of PTX_COUNTS stands in the kernel (comments left out)."""
    text = re.sub(r"//[^\n]*", "", only_entry(ptx, entry))
    return {name: len(re.findall(pattern, text)) for name, pattern in PTX_COUNTS.items()}


_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_]*)", re.MULTILINE)


def count_sass(sass: str, entry: str) -> dict[str, int]:
    """Opcodes of the kernel's section of nvdisasm's listing, and `instructions`, their sum.

    The padding is not counted: NOPs and the branch to itself that close every kernel.

    Raises:
        IrrError: the listing has no such kernel.
    """
    match = re.search(rf"^\.text\.{re.escape(entry)}:\n(.*?)(?=^//-{{10,}}|\Z)", sass, re.MULTILINE | re.DOTALL)
    if match is None:
        raise IrrError(f"the listing has no kernel named {entry}")
    # The loop that ends a kernel stands right before the padding: one BRA to its own label.
    body = re.sub(
        r"(\.L_x_\d+):\n[^\n]*BRA `\(\1\)[^\n]*\n(?=(?:[^\n]*NOP[^\n]*\n)*\s*(?:\.L_x_\d+:\s*)*\Z)",
        "",
        match.group(1).rstrip() + "\n",
    )
    counts = Counter(_INSTRUCTION.findall(body))
    counts.pop("NOP", None)
    # nvdisasm 13.5 writes REDG where the one of 13.0, and the literature, write RED.
    if "REDG" in counts:
        counts["RED"] += counts.pop("REDG")
    return {**dict(sorted(counts.items())), "instructions": sum(counts.values())}


def usage(words: str, entry: str) -> tuple[int, int, int]:
    """Registers, spilled bytes and static shared memory, in the words of `ptxas -v`."""
    match = re.search(
        rf"Compiling entry function '{re.escape(entry)}'.*?(?=Compiling entry function|\Z)", words, re.DOTALL
    )
    part = match.group(0) if match else ""

    def number(pattern: str) -> int:
        return sum(int(found) for found in re.findall(pattern, part))

    if "Used" not in part:
        raise IrrError(
            f"ptxas says nothing about {entry}", "its words have changed: harness/build/assemble.py reads them"
        )
    return number(r"Used (\d+) registers"), number(r"(\d+) bytes spill"), number(r"(\d+) bytes smem")


def run_ptxas(ptx: str, gpu: str, contract: bool, ptxas: Path, registers: int = 0) -> tuple[bytes, str]:
    """The cubin, and what `ptxas -v` says.

    Raises:
        ToolMissing: no such program. ToolUnsupported: it does not know the architecture or the PTX version.
        IrrError: the PTX does not assemble.
    """
    with tempfile.TemporaryDirectory(prefix="irr-ptxas-") as folder:
        # Fixed relative names: ptxas may write them into the cubin, which must not depend on the folder.
        Path(folder, "kernel.ptx").write_text(ptx, encoding="utf-8")
        command = [str(ptxas), "-v", *flags(gpu, contract, registers), "kernel.ptx", "-o", "kernel.cubin"]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=PTXAS_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise IrrError(f"ptxas at {ptxas}, {gpu}: not done after {PTXAS_SECONDS} s") from None
        except OSError as error:
            raise ToolMissing(
                f"ptxas at {ptxas} does not run ({error.strerror})", "./irr setup brings the pinned one"
            ) from None
        words = done.stdout + done.stderr
        if done.returncode != 0:
            first = next(
                (line.strip() for line in words.splitlines() if line.strip()), f"exit status {done.returncode}"
            )
            if _UNKNOWN.search(words):
                raise ToolUnsupported(f"ptxas {version(ptxas)} at {ptxas} does not know {gpu}: {first}")
            raise IrrError(f"ptxas {version(ptxas)} at {ptxas}, {gpu}: {first}")
        return Path(folder, "kernel.cubin").read_bytes(), words


@cache
def disassemble(cubin: bytes, nvdisasm: Path) -> str:
    """nvdisasm's listing of a cubin."""
    with tempfile.TemporaryDirectory(prefix="irr-nvdisasm-") as folder:
        Path(folder, "kernel.cubin").write_bytes(cubin)
        done = subprocess.run(
            [str(nvdisasm), "-c", "kernel.cubin"],
            cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
    if done.returncode != 0:
        words = (done.stderr + done.stdout).strip().splitlines()
        raise IrrError(f"nvdisasm at {nvdisasm}: {words[0] if words else f'exit status {done.returncode}'}")
    return done.stdout


def bundled_ptxas(arch: int) -> Path:
    """Triton's own ptxas, the control `@bundled`; from sm_100 on Triton has another.

    Raises:
        ToolMissing: no Triton here.
    """
    program = triton_tools().get("ptxas-blackwell" if arch >= 100 else "ptxas")
    if program is None:
        raise ToolMissing("the Triton wheel, which brings the bundled ptxas, is not installed", "./irr setup")
    return program


@dataclass(frozen=True)
class Assembler:
    """A ptxas. name: `pinned` (the toolkit's), `bundled` (Triton's), or the variable that names it."""

    path: Path
    name: str = "pinned"


def assemble(
    ptx: str, entry: str, arch: int, contract: bool, assembler: Assembler, nvdisasm: Path, registers: int = 0
) -> Assembled:
    """The kernel's cubin for one architecture.

    Args:
        contract: leave contraction to ptxas (its default). registers: most of them a thread, 0 for its choice.

    Raises:
        ToolMissing, ToolUnsupported, IrrError: as run_ptxas.
    """
    gpu = target(ptx, arch)
    cubin, words = run_once(ptx, gpu, contract, assembler.path, registers)
    used, spills, static_shared = usage(words, entry)
    sass = disassemble(cubin, nvdisasm)
    return Assembled(
        cubin=cubin,
        sass=sass,
        parameters=tuple(cubin_reader.parameters(cubin, entry)),
        registers=used,
        spills=spills,
        static_shared=static_shared,
        counts=count_sass(sass, entry),
        code_sha256=sha256(cubin_reader.code(cubin, entry)),
        ptxas={
            "name": assembler.name,
            "version": version(assembler.path),
            "flags": flags(gpu, contract, registers),
            "target": gpu,
        },
        disassembler={"name": "nvdisasm", "version": version(nvdisasm)},
    )


run_once = cache(run_ptxas)
"""Rows that share their PTX (block sizes of one source) are assembled once."""
