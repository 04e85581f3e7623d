"""The contraction study's CPU emulation: built, checked in the object code, called.

The library holds the Mandelbrot loop once for every fusion pattern (cuda/fma/emulation.cpp). Its results mean something
only if the CPU compiler fused what a pattern names and nothing else, so the build counts the fused operations in each
pattern's machine code and refuses a library where they do not add up.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from harness.build.manifest import ToolMissing
from harness.errors import IrrError

SOURCE = Path(__file__).parents[2] / "cuda" / "fma" / "emulation.cpp"


@dataclass(frozen=True)
class Pattern:
    """Which of the loop's multiply-add pairs round once.

    Attributes:
        name: as `fma --json` prints it. symbol: in the library.
        fuses: the pairs: `zy` = 2 zx zy + cy, `difference` = zx zx - zy zy, `escape` = zx zx + zy zy.
    """

    name: str
    fuses: frozenset[str]

    @property
    def symbol(self) -> str:
        return self.name.replace("+", "_")


PATTERNS: dict[str, Pattern] = {
    pattern.name: pattern
    for pattern in (
        Pattern("strict", frozenset()),
        Pattern("nvcc", frozenset({"zy"})),
        Pattern("oxide", frozenset({"zy", "difference"})),
        Pattern("nvcc+escape", frozenset({"zy", "escape"})),
        Pattern("oxide+escape", frozenset({"zy", "difference", "escape"})),
    )
}

FUSED_INSTRUCTION = re.compile(r"\b(?:vfn?m(?:add|sub)\w*|fn?m(?:add|sub|la|ls)|call\s+\S+\s+<fmaf@plt>)\b|<fmaf@plt>")
"""A fused multiply-add in x86 or Arm machine code, or the library call where the CPU has none."""


def _flags() -> list[str]:
    """Options of the host compiler. Contraction is off; fmaf is one instruction where this CPU has it (x86-64-v3)."""
    flags = ["-std=c++17", "-O3", "-ffp-contract=off", "-fopenmp-simd", "-Wno-psabi", "-shared", "-fPIC", "-pthread"]
    if platform.machine() == "x86_64":
        level = "x86-64-v3" if _cpu_has_fma() else "x86-64-v2"
        flags.append(f"-march={level}")
    return flags


def _cpu_has_fma() -> bool:
    try:
        flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        return False
    return flags is not None and {"fma", "avx2"} <= set(flags.group(1).split())


def fused_operations(disassembly: str) -> dict[str, int]:
    """Fused multiply-adds in each pattern's row function, from `objdump -d` of the library.

    Raises:
        IrrError: a pattern's function is not there.
    """
    counts = {}
    for pattern in PATTERNS.values():
        match = re.search(rf"^[0-9a-f]+ <row_{pattern.symbol}>:\n(.*?)(?:\n\n|\Z)", disassembly, re.M | re.S)
        if match is None:
            raise IrrError(f"the emulation has no function row_{pattern.symbol}", f"see {SOURCE.name}")
        counts[pattern.name] = len(FUSED_INSTRUCTION.findall(match.group(1)))
    return counts


def check_object_code(counts: dict[str, int]) -> None:
    """Refuse a library whose machine code does not fuse exactly what each pattern names.

    One pair takes the same number of instructions in every pattern (two 8-lane halves with AVX2, one call without), so
    the counts must be that number times the pairs, and zero where no pair is named.

    Raises:
        IrrError: the counts do not fit.
    """
    unit = counts["nvcc"]
    wanted = {pattern.name: unit * len(pattern.fuses) for pattern in PATTERNS.values()}
    if unit == 0 or counts != wanted:
        raise IrrError(
            f"the emulation's machine code fuses {counts}, its patterns name {wanted}",
            "the host compiler contracts on its own or drops fmaf: its images would not mean what they say",
        )


class Emulation:
    """The built library."""

    def __init__(self, path: Path, compiler: str, flags: list[str], counts: dict[str, int]) -> None:
        self.compiler, self.flags, self.fused = compiler, flags, counts
        self._library = ctypes.CDLL(str(path))

    def image(self, pattern: str, size: int, limit: int, threads: int | None = None) -> np.ndarray:
        """Iterations (size, size) i32 of every pixel, on all cores unless told."""
        out = np.empty((size, size), np.int32)
        function = getattr(self._library, f"image_{PATTERNS[pattern].symbol}")
        function(size, size, limit, threads or os.cpu_count() or 1, out.ctypes.data_as(ctypes.c_void_p))
        return out


@cache
def load_emulation(work: Path) -> Emulation:
    """The emulation, built into `work` unless the same source and compiler already made it.

    Raises:
        ToolMissing: no g++ or no objdump.
        IrrError: it does not compile, or its machine code fuses something else than its patterns name.
    """
    compiler, objdump = shutil.which("g++"), shutil.which("objdump")
    if compiler is None or objdump is None:
        raise ToolMissing("the FMA emulation needs g++ and objdump", "apt-get install g++ (it brings binutils)")
    version = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    flags = _flags()
    key = hashlib.sha256("\0".join([SOURCE.read_text(encoding="utf-8"), version, *flags]).encode()).hexdigest()[:16]
    library = work / f"libirr-fma-{key}.so"
    if not library.exists():
        work.mkdir(parents=True, exist_ok=True)
        part = work / f".{library.name}.{os.getpid()}"
        done = subprocess.run([compiler, *flags, str(SOURCE), "-o", str(part)], capture_output=True, text=True)
        if done.returncode:
            raise IrrError(f"the FMA emulation does not compile: {done.stderr.strip().splitlines()[-1]}")
        part.replace(library)
    listing = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", str(library)], capture_output=True, text=True, check=True
    )
    counts = fused_operations(listing.stdout)
    check_object_code(counts)
    return Emulation(library, f"g++ {version}", flags, counts)
