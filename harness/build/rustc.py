"""Calling rustc, and what a Rust kernel's PTX must look like: shared by stock rustc and cuda-oxide."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from harness.build.assemble import count_ptx
from harness.build.kernels import Kernel
from harness.build.manifest import ToolUnsupported
from harness.errors import IrrError

EDITION = "2024"

VOXEL_ADDITIONS = {"arrays": 5, "packed": 2}
"""Float additions that a sample of the update makes, by the layout of the voxels: tsdf, weight, r, g, b; of packed
voxels one of four floats and one of b."""


# --- calling rustc ----------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Environment of a compiler run: nothing of the caller's that could change the code."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH", "RUSTUP_HOME") if name in os.environ}
    # Unstable features on a stable compiler: the GPU's ABI, its intrinsics and its inline assembly.
    return {**kept, "RUSTC_BOOTSTRAP": "1", "LC_ALL": "C"}


def run_rustc(
    rustc: Path, arguments: list[str], what: str, root: Path, variables: Mapping[str, str] | None = None
) -> str:
    """Run rustc inside `root`, so that no name it sees is absolute; its messages.

    Raises:
        IrrError: it fails; the first error is quoted.
    """
    command = [str(rustc), *arguments, f"--remap-path-prefix={root}=."]
    done = subprocess.run(
        command,
        cwd=root,
        env=environment() if variables is None else dict(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.replace(f"{root}/", "").splitlines()
        error = next((n for n, line in enumerate(lines) if line.startswith("error")), 0)
        place = next((line.strip() for line in lines[error:] if line.strip().startswith("-->")), "")
        # cuda-oxide says why in the line after; rustc's own errors go on with the place and the source.
        why = next((line.strip() for line in lines[error + 1 : error + 2] if re.match(r"\s+[A-Za-z]", line)), "")
        words = [(lines or ["rustc says nothing"])[error], why, place]
        raise IrrError(f"{what}: {' '.join(word for word in words if word)}")
    return done.stderr


def files_read(dep_info: str) -> set[Path]:
    """Files named in rustc's dep-info of one crate; relative to the folder that rustc ran in."""
    rule = dep_info.splitlines()[0].split(": ", 1)[1] if ": " in dep_info else ""
    return {Path(os.path.normpath(name)) for name in rule.split()}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time makes what lies beside `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@cache
def question(rustc: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(rustc), *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else ""


# --- what the PTX must look like --------------------------------------------------------------------------------------


def count_adds(counts: Mapping[str, int]) -> int:
    """Native float additions among `assemble.count_ptx`'s counts, with a result or without."""
    return counts["atom.add.f32"] + counts["red.add.f32"]


def check_ptx(kernel: Kernel, ptx: str, arch: int) -> None:
    """The PTX is of the architecture and has the atomics that the algorithm has, neither fewer nor others.

    What every language must not have (contraction, approximations) the builder checks.

    Raises:
        ToolUnsupported: the compiler fell back to another architecture.
        IrrError: no such kernel, or a float addition is lost or became a compare-and-swap loop.
    """
    target = re.search(r"^\.target\s+sm_(\d+)", ptx, re.MULTILINE)
    if target is None or int(target.group(1)) != arch:
        raise ToolUnsupported(
            f"{kernel.name}: the compiler wrote {target.group(0) if target else 'no target'} for sm_{arch}"
        )
    if not re.search(rf"\.entry\s+{re.escape(kernel.entry)}\b", ptx):
        raise IrrError(f"{kernel.source} has no kernel named {kernel.entry}", f"the row of {kernel.name} names it")
    counts, wanted = count_ptx(ptx, kernel.entry), VOXEL_ADDITIONS[kernel.voxels]
    adds, exchanges = count_adds(counts), counts["atom.cas"]
    # Not how often: LLVM may unroll. An LLVM that does not belong to its rustc turns a float addition into a
    # compare-and-swap loop, which no result shows: the sums stay right and the kernel becomes slow.
    if kernel.stage == "update" and (adds < wanted or adds % wanted or exchanges):
        raise IrrError(
            f"{kernel.name} for sm_{arch}: {adds} native float additions and {exchanges} compare-and-swaps in its PTX, "
            f"{wanted} (or a multiple) and 0 expected",
            "rustc and the LLVM that writes the PTX may not belong together: see ./irr doctor",
        )
    if kernel.stage == "allocate" and (exchanges == 0 or adds):
        raise IrrError(
            f"{kernel.name} for sm_{arch}: {exchanges} compare-and-swaps and {adds} float additions in its PTX, "
            "some and 0 expected",
            f"{kernel.source} and rust/core/src/insert.rs decide it",
        )


_VERSION = re.compile(r"^\.version (\d+)\.(\d+)$", re.MULTILINE)
INLINE_VERSIONS = {r"\.b128\b": (8, 3), r"\bred\.[\w.]*\.v4\.f32\b": (8, 1)}
"""What inline PTX may hold, and the PTX version that brought it."""


def with_inline_version(ptx: str) -> str:
    """The PTX as it is, or of the version that its inline PTX needs: LLVM writes the lowest version that the
    architecture has, and does not read what is inline."""
    found = _VERSION.search(ptx)
    needed = max((version for pattern, version in INLINE_VERSIONS.items() if re.search(pattern, ptx)), default=(0, 0))
    if found is None or tuple(map(int, found.groups())) >= needed:
        return ptx
    return ptx[: found.start()] + ".version {}.{}".format(*needed) + ptx[found.end() :]
