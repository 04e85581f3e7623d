"""Which stage fuses: findings of the contraction study from PTX, SASS and object code. No GPU."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.build.kernels import KERNELS
from harness.build.loops import Loop, floating_loop, function_text
from harness.build.manifest import ToolMissing, load_manifest
from harness.build.toolchain import find_rustc
from harness.errors import IrrError

BLOCK = "-b256"

RUST_PROBE = """\
#![crate_type = "lib"]
#[no_mangle] pub fn plain(a: f32, b: f32, c: f32) -> f32 { a * b + c }
#[no_mangle] pub fn asked(a: f32, b: f32, c: f32) -> f32 { a.mul_add(b, c) }
"""
"""`plain` is what the blog's loop writes; `asked` is the control: with it, an FMA must appear (B18)."""


def _counts(loop: Loop) -> dict[str, int]:
    opcodes = loop.opcodes()
    return {
        "instructions": len(loop.instructions),
        "add": opcodes["FADD"] + sum(bool(re.match(r"(add|sub)\S*\.f32\b", text)) for text in loop.instructions),
        "mul": opcodes["FMUL"] + sum(bool(re.match(r"mul\S*\.f32\b", text)) for text in loop.instructions),
        "fused": loop.fused,
        "may_fuse": loop.may_fuse,
        "branches": loop.branches,
    }


def loop_findings(build: Path, archs: Iterable[int], native: int | None = None) -> list[dict[str, Any]]:
    """Instructions of every Mandelbrot loop: `ptx.KERNEL.loop.*` and `sass.KERNEL.loop.*`, with `.sm_NN` after the
    kernel for architectures other than `native`. Kernels that are not built are left out.
    """
    found = []
    for arch in archs:
        for path in sorted((build / f"sm_{arch}").glob(f"*--fma--mandelbrot*{BLOCK}*.json")):
            manifest = load_manifest(path)
            if manifest.status != "ok" or manifest.kernel not in KERNELS:
                continue
            where = "" if arch == native else f".sm_{arch}"
            for kind, tool in (("ptx", manifest.compiler), ("sass", manifest.ptxas)):
                text = path.with_suffix(f".{kind}").read_text(encoding="utf-8")
                loop = floating_loop(function_text(text, manifest.entry))
                if loop is None:
                    continue
                made_by = f"{tool.get('name')} {tool.get('version')}"
                how = f"the loop of {manifest.name} in {kind.upper()} for sm_{arch}, by {made_by}"
                found += [
                    {"name": f"{kind}.{manifest.name}{where}.loop.{key}", "value": value, "unit": "", "how": how}
                    for key, value in _counts(loop).items()
                ]
    return found


def loops_text(build: Path, arch: int, contraction: str, languages: Iterable[str] = ("cuda", "rust-oxide")) -> str:
    """The Mandelbrot loops of some languages in SASS, side by side with their counts; blank where none is built."""
    columns = []
    for language in languages:
        path = build / f"sm_{arch}" / f"{language}--fma--mandelbrot-{contraction}{BLOCK}.json"
        if not path.is_file() or load_manifest(path).status != "ok":
            continue
        text = path.with_suffix(".sass").read_text(encoding="utf-8")
        loop = floating_loop(function_text(text, load_manifest(path).entry))
        if loop is not None:
            counts = _counts(loop)
            head = f"{language}: {counts['instructions']} instructions"
            told = f"{counts['add']} add, {counts['mul']} mul, {counts['fused']} fused, {counts['branches']} branches"
            columns.append([head, told, *loop.instructions])
    width = max((len(line) for column in columns for line in column), default=0)
    rows = itertools.zip_longest(*columns, fillvalue="")
    return "\n".join("  ".join(f"{cell:{width}}" for cell in row).rstrip() for row in rows)


def rustc_findings() -> list[dict[str, Any]]:
    """Fused multiply-adds that rustc makes of a * b + c, and of mul_add, on a CPU that has them (B18).

    Raises:
        ToolMissing: no rustc or objdump. IrrError: the probe does not compile.
    """
    rustc, objdump = find_rustc(), shutil.which("objdump")
    if objdump is None:
        raise ToolMissing("objdump is missing", "apt-get install binutils")
    with tempfile.TemporaryDirectory(prefix="irr-rustc-") as name:
        source, made = Path(name) / "probe.rs", Path(name) / "probe.o"
        source.write_text(RUST_PROBE, encoding="utf-8")
        flags = ["-O", "-Ctarget-cpu=x86-64-v3", "--emit=obj", "-Cpanic=abort"]
        done = subprocess.run(
            [str(rustc.path), *flags, "-o", str(made), str(source)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise IrrError(f"rustc cannot compile the contraction probe: {done.stderr.strip().splitlines()[0]}")
        listing = subprocess.run([objdump, "-d", str(made)], capture_output=True, text=True, check=True).stdout
    how = f"objdump of a two-function crate by rustc {rustc.version} {' '.join(flags[:2])}"
    names = {"plain": "rustc.host.fma_instructions", "asked": "rustc.host.fma_instructions_mul_add"}
    found = []
    for function, finding in names.items():
        body = re.search(rf"<{function}>:\n(.*?)(?:\n\n|\Z)", listing, re.S)
        if body is None:
            raise IrrError(f"the contraction probe has no function {function}")
        count = len(re.findall(r"\bvfn?m(?:add|sub)\w*", body.group(1)))
        found.append({"name": finding, "value": count, "unit": "instructions", "how": f"{function}: {how}"})
    return found
