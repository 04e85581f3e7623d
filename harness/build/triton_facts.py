"""What the pinned Triton can say and what its bounded probe costs to compile: evidence for P32 and P35 to P37.

Times are CPU time of this machine, recorded and never judged here. Every question is compiled in a child process,
because one of them is whether the compiler aborts.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.build import assemble
from harness.build.kernels import KERNELS
from harness.build.manifest import ToolMissing
from harness.build.toolchain import find_toolkit
from harness.build.triton_aot import child_environment, emit, lower, use_checkout
from harness.environment import ROOT
from harness.errors import IrrError

ARCH = 90
QUESTION_SECONDS = 120

OUTCOMES = ("compiles", "error-with-location", "error-without-location", "abort")
"""What compiling a kernel can come to, worst last."""

SCALAR_ATOMICS = ("scalar_add", "scalar_exchange", "scalar_cas", "scalar_add_of_a_tile", "scalar_cas_of_a_tile")
"""Kernels of triton/probes/language.py whose atomic has a scalar pointer."""

PROBES = {"static8": 8, "static16": 16, "static32": 32}
"""Variants of triton/allocate whose compile time and size are compared."""


def outcome(question: str, work: Path, arch: int = ARCH) -> str:
    """What compiling a kernel of triton/probes/language.py comes to: one of OUTCOMES.

    Raises:
        ToolMissing: no Triton here. IrrError: it did not end.
    """
    command = [sys.executable, "-m", "harness.build.triton_facts", question, str(arch)]
    work.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
            timeout=QUESTION_SECONDS, cwd=work, env=child_environment(work),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise IrrError(f"Triton did not end on {question} within {QUESTION_SECONDS} s") from None
    said = done.stdout + done.stderr
    if done.returncode == 0:
        return "compiles"
    if "No module named 'triton'" in said:
        raise ToolMissing("Triton is missing", "run ./irr setup, which installs it")
    if done.returncode < 0:
        return "abort"
    return "error-with-location" if _LOCATED.search(said) else "error-without-location"


_FILE = "triton/probes/language.py"
_LOCATED = re.compile(r"language\.py:\d+:\d+: error|CompilationError: at \d+:\d+")
"""The compiler's own words with a place in the source; a traceback names the compiler's lines, not the kernel's."""


def atomic_cas_parameters() -> list[str]:
    """Parameters of tl.atomic_cas that a kernel may give.

    Raises:
        ToolMissing: no Triton here.
    """
    try:
        import triton.language as tl
    except ImportError:
        raise ToolMissing("Triton is missing", "run ./irr setup, which installs it") from None
    return [name for name in inspect.signature(tl.atomic_cas).parameters if not name.startswith("_")]


def compile_cost(variant: str, work: Path, arch: int = ARCH) -> tuple[float, int]:
    """CPU seconds that Triton takes for triton/allocate/`variant` (without its start), and bytes of the cubin."""
    kernel = KERNELS[f"triton/allocate/{variant}"]
    toolkit = find_toolkit()
    emitted = emit(kernel, arch, False, work)
    made = assemble.assemble(
        emitted.ptx, emitted.entry, arch, False, assemble.Assembler(toolkit.ptxas), toolkit.nvdisasm
    )
    return emitted.extra["seconds"], len(made.cubin)


def gather(
    work: Path, *, slow: bool = True, arch: int = ARCH, say: Callable[[str], None] = lambda line: None
) -> list[dict[str, Any]]:
    """All findings, as rows of an archive's evidence.json: name, value, unit, how.

    Args:
        work: folder for Triton's files.
        slow: also compile static32 (half a minute to minutes).
        say: told one line of progress at a time.

    Raises:
        ToolMissing: no Triton, or no ptxas. IrrError: a question did not end, a kernel did not compile.
    """
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        raise ToolMissing("Triton is missing", "run ./irr setup, which installs it") from None
    probes = [variant for variant in PROBES if slow or variant != "static32"]
    asked = (*SCALAR_ATOMICS, "runtime_bound", "unbounded", "masked_cas")
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        # Each is a process of one thread. The longest first: it takes as long as all the others together.
        compiling = {variant: pool.submit(compile_cost, variant, work, arch) for variant in reversed(probes)}
        answers = {name: pool.submit(outcome, name, work, arch) for name in asked}
        say(f"asking the compiler {len(asked)} questions, compiling {', '.join(probes)}")
        found = {name: answer.result() for name, answer in answers.items()}
        say("asked; compiling")
        costs = {variant: compiling[variant].result() for variant in probes}
    questions = {name: found[name] for name in SCALAR_ATOMICS}
    worst = max(questions.values(), key=OUTCOMES.index)
    tried = ", ".join(f"{name} {said}" for name, said in questions.items())
    rows = [
        ("triton.version", version, "", "the installed wheel"),
        ("triton.atomic_cas.parameters", atomic_cas_parameters(), "", "inspect.signature"),
        ("triton.scalar_atomic.outcome", worst, "", f"worst of: {tried}"),
        ("compile.runtime_bound.compiles", found["runtime_bound"] == "compiles", "", "static_range(n)"),
        ("compile.unbounded.compiles", found["unbounded"] == "compiles", "", "while tl.max(...) > 0"),
        ("compile.masked_cas.compiles", found["masked_cas"] == "compiles", "", "atomic_cas(mask=...)"),
    ]
    for variant, (seconds, size) in costs.items():
        rows.append(
            (f"compile.{variant}.s", seconds, "s", f"CPU time, Triton to PTX for sm_{arch}, one thread of this machine")
        )
        rows.append((f"compile.{variant}.cubin_bytes", size, "bytes", f"the pinned ptxas for sm_{arch}"))
    return [{"name": name, "value": value, "unit": unit, "how": how} for name, value, unit, how in rows]


def _child(question: str, arch: int) -> None:
    function = getattr(use_checkout(_FILE, ROOT), question)
    types = {"pointer": "*i32", "n": "i32"}
    signature = {name: types[name] for name in function.arg_names}
    lower(function, signature, {}, arch, {"num_warps": 1, "ptx_version": 90}, lines=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _child(sys.argv[1], int(sys.argv[2]))
    else:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(gather(Path(folder)), indent=1))
