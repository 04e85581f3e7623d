"""Rust to PTX, with stock rustc or with cuda-oxide, and the Rust core on the host.

rustc is called directly: a kernel is one crate root (the row's `source`) that may use `irr_core` and `irr_nvptx`; both,
and `core` for the GPU where the compiler brings none, are built as metadata with all MIR, once, into the build folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.build import oxide
from harness.build.kernels import Kernel
from harness.build.manifest import Emitted, ToolMissing, ToolUnsupported
from harness.build.rustc import EDITION, check_ptx, files_read, locked, question, run_rustc, with_inline_version
from harness.build.sources import rust_sources
from harness.build.toolchain import Rustc, find_rustc
from harness.environment import ROOT, pins
from harness.errors import IrrError

TARGET = "nvptx64-nvidia-cuda"
FLAGS = ("-Copt-level=3", "-Cpanic=abort", "-Ccodegen-units=1", "-Cdebuginfo=0")
"""What decides the code, beside the architecture. There is no option for contraction: rustc never contracts."""

METADATA = ("--emit=metadata", "-Zalways-encode-mir", "--crate-type=lib", "--cap-lints=allow")
"""A crate that only kernels use is kept as metadata with the MIR of every function: 14 s for `core` instead of 26."""

HOST_BUILDS = ROOT / "build" / "host"
# The same instruction set as the C++ host arm, never this machine's.
HOST_FLAGS = ("-Copt-level=3", "-Cpanic=abort", "-Ccodegen-units=1", "-Cdebuginfo=0")
HOST_INSTRUCTION_SET = {"x86_64": ("-Ctarget-cpu=x86-64-v2",)}

# compiler_builtins is linked into every crate; a kernel that inlines everything needs nothing from it.
COMPILER_BUILTINS = "#![feature(compiler_builtins, no_core)]\n#![compiler_builtins]\n#![no_core]\n"


# --- finding the compiler ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GpuRustc:
    """A rustc that makes PTX.

    Attributes:
        rustc: the compiler. bundled: whether it brings `core` for the GPU (rustup's target); else core is built.
    """

    rustc: Rustc
    bundled: bool


def _brings_target(rustc: Path) -> bool:
    folder = question(rustc, "--print=target-libdir", f"--target={TARGET}")
    return bool(folder) and any(Path(folder).glob("libcore-*.r*"))


def find_gpu_rustc() -> GpuRustc:
    """$IRR_RUSTC where it is set, else the system's rustc with its source, else a rustc on PATH with the GPU target.

    The system's is called by its path, because a rustup shim may stand first in PATH.

    Raises:
        ToolMissing: none can make PTX.
    """
    named = os.environ.get("IRR_RUSTC", "").strip()
    other = shutil.which("rustc")
    candidates = [Path(named)] if named else [Path("/usr/bin/rustc"), *([Path(other)] if other else [])]
    reasons = []
    for path in candidates:
        try:
            rustc = find_rustc(path)
        except IrrError as error:
            reasons.append(error.what)
            continue
        if _brings_target(path):
            return GpuRustc(rustc, bundled=True)
        if rustc.source is not None:
            return GpuRustc(rustc, bundled=False)
        reasons.append(f"{path} ({rustc.version}) has neither the target {TARGET} nor its own source")
    raise ToolMissing(
        f"no rustc that makes PTX: {'; '.join(reasons)}",
        f"apt-get install rustc-web rust-web-src libstd-rust-web-dev, or rustup target add {TARGET}",
    )


def _deviations(rustc: Rustc) -> list[str]:
    pinned = pins()["rust"]["version"]
    return [] if rustc.version == pinned else [f"unpinned toolchain: rustc {rustc.version} (pinned: {pinned})"]


# --- core and our own crates, as metadata -----------------------------------------------------------------------------


def _library_folder(sysroot: Path) -> Path:
    return sysroot / "lib" / "rustlib" / TARGET / "lib"


def build_core(rustc: Rustc, work: Path) -> Path:
    """A sysroot with `core` for the GPU, built once for a compiler and all architectures.

    Raises:
        IrrError: the compiler's source is not of its version.
    """
    identity = hashlib.sha256(question(rustc.path, "-vV").encode()).hexdigest()[:16]
    sysroot = work / "rust" / f"core-{rustc.version}-{identity}"
    with locked(sysroot.with_name(sysroot.name + ".lock")):
        if sysroot.is_dir():
            return sysroot
        assert rustc.source is not None
        with tempfile.TemporaryDirectory(dir=sysroot.parent, prefix=".core-") as name:
            made = Path(name) / "sysroot"
            folder = _library_folder(made)
            folder.mkdir(parents=True)
            stub = Path(name) / "compiler_builtins.rs"
            stub.write_text(COMPILER_BUILTINS, encoding="utf-8")
            common = [f"--target={TARGET}", f"--sysroot={made}", f"--out-dir={folder}", *METADATA]
            source = rustc.source / "core" / "src" / "lib.rs"
            options = [f"--edition={EDITION}", "--crate-name=core", *FLAGS[:2]]
            run_rustc(rustc.path, [*common, *options, str(source)], f"core of rustc {rustc.version}", rustc.source)
            options = ["--edition=2021", "--crate-name=compiler_builtins", *FLAGS[:2]]
            run_rustc(rustc.path, [*common, *options, str(stub)], "compiler_builtins", Path(name))
            made.rename(sysroot)
    return sysroot


LIBRARIES = ("core", "fma", "nvptx")
"""Folders of rust/ that every kernel of stock rustc may use, in the order of their dependencies."""


def _build_libraries(gpu: GpuRustc, work: Path, root: Path) -> list[str]:
    """Our crates as metadata; the options by which a kernel finds them."""
    sysroot = [] if gpu.bundled else [f"--sysroot={build_core(gpu.rustc, work)}"]
    digest = hashlib.sha256(question(gpu.rustc.path, "-vV").encode())
    for name in LIBRARIES:
        for path in rust_sources(f"rust/{name}", root):
            digest.update(f"\0{path}\0".encode() + (root / path).read_bytes())
    # By content, so that altered copies of the sources (the planted faults) lie beside each other.
    folder = work / "rust" / f"crates-{digest.hexdigest()[:16]}"
    options = [f"--target={TARGET}", f"--edition={EDITION}", *sysroot]
    with locked(folder.with_name(folder.name + ".lock")):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".crates-") as name:
                made = Path(name) / "crates"
                made.mkdir()
                for crate in LIBRARIES:
                    arguments = [*options, *FLAGS[:2], *METADATA, f"--crate-name=irr_{crate}", f"--out-dir={made}"]
                    run_rustc(
                        gpu.rustc.path,
                        [*arguments, f"-Ldependency={made}", *_externs(made), f"rust/{crate}/src/lib.rs"],
                        f"rust/{crate}",
                        root,
                    )
                made.rename(folder)
    return [*options, f"-Ldependency={folder}", *_externs(folder)]


def _externs(folder: Path) -> list[str]:
    return [
        f"--extern={name}={folder / f'lib{name}.rmeta'}"
        for name in (f"irr_{crate}" for crate in LIBRARIES)
        if (folder / f"lib{name}.rmeta").exists()
    ]


# --- emitting ---------------------------------------------------------------------------------------------------------


def emit(kernel: Kernel, arch: int, contract: bool, work: Path, *, root: Path = ROOT) -> Emitted:
    """PTX of one Rust kernel.

    Args:
        arch: compute capability as 90.
        contract: leave contraction to the compiler. Stock rustc has none, so its `/fma` build is the same PTX.
        work: folder of the build; shared, kept.

    Raises:
        ToolMissing: no compiler. ToolUnsupported: it does not know `arch`. IrrError: the source does not compile, or
        the PTX is not what the algorithm asks for.
    """
    work.mkdir(parents=True, exist_ok=True)
    emitter = oxide.emit if kernel.language == "rust-oxide" else _emit_nvptx
    return emitter(kernel, arch, contract, work, root)


def _emit_nvptx(kernel: Kernel, arch: int, contract: bool, work: Path, root: Path) -> Emitted:
    gpu = find_gpu_rustc()
    known = question(gpu.rustc.path, "--print=target-cpus", f"--target={TARGET}")
    if not re.search(rf"\bsm_{arch}\b", known):
        raise ToolUnsupported(f"rustc {gpu.rustc.version} (LLVM {gpu.rustc.llvm}) does not know sm_{arch}")
    found = _build_libraries(gpu, work, root)
    flags = (*FLAGS, f"-Ctarget-cpu=sm_{arch}")
    with tempfile.TemporaryDirectory(dir=work, prefix="rustc-") as name:
        out, dependencies = Path(name).resolve() / "out.ptx", Path(name).resolve() / "out.d"
        arguments = [*found, *flags, "--crate-type=lib", f"--crate-name={kernel.entry}"]
        arguments += [f"--emit=asm={out}", f"--emit=dep-info={dependencies}", kernel.source]
        run_rustc(gpu.rustc.path, arguments, f"{kernel.source} for sm_{arch}", root)
        ptx = with_inline_version(out.read_text(encoding="utf-8"))
        read = files_read(dependencies.read_text(encoding="utf-8"))
    check_ptx(kernel, ptx, arch)
    return Emitted(
        ptx=ptx,
        entry=kernel.entry,
        compiler="rustc",
        version=gpu.rustc.version,
        flags=flags,
        sources=tuple(sorted(read.union(*(rust_sources(f"rust/{name}", root) for name in LIBRARIES)))),
        threads=kernel.threads,
        points=kernel.points,
        extra={
            "llvm": gpu.rustc.llvm,
            "core": "bundled" if gpu.bundled else "built from source",
            "deviations": _deviations(gpu.rustc),
        },
    )


# --- the host ---------------------------------------------------------------------------------------------------------


def build_host(source: Path = ROOT, builds: Path = HOST_BUILDS) -> Path:
    """The core as a host library, libirr-rust.so: built once for its sources and compiler.

    Args:
        source: the folder that holds rust/ (a copy with a planted fault, for instance).

    Raises:
        ToolMissing: no rustc. IrrError: the sources do not compile.
    """
    try:
        rustc = find_rustc(Path(os.environ.get("IRR_RUSTC", "").strip() or "/usr/bin/rustc"))
    except IrrError as error:
        raise ToolMissing(error.what, error.cure) from None
    host = re.search(r"^host: ([^-\s]+)", question(rustc.path, "-vV"), re.MULTILINE)
    flags = (*HOST_FLAGS, *HOST_INSTRUCTION_SET.get(host.group(1) if host else "", ()))
    digest = hashlib.sha256("\0".join((question(rustc.path, "-vV"), *flags)).encode())
    for path in rust_sources("rust/host", source):
        digest.update(f"\0{path}\0".encode() + (source / path).read_bytes())
    folder = builds / f"rust-{digest.hexdigest()[:16]}"
    library = folder / "libirr-rust.so"
    if library.is_file():
        return library
    with locked(folder.with_name(folder.name + ".lock")):
        if library.is_file():
            return library
        with tempfile.TemporaryDirectory(dir=builds, prefix=".rust-") as name:
            made = Path(name) / "made"
            made.mkdir()
            common = [f"--edition={EDITION}", *flags]
            core = Path(name) / "libirr_core.rlib"
            arguments = [*common, "--crate-type=rlib", "--crate-name=irr_core", "-o", str(core), "rust/core/src/lib.rs"]
            run_rustc(rustc.path, arguments, "rust/core on the host", source)
            arguments = [*common, "--crate-type=cdylib", "--crate-name=irr_rust", f"--extern=irr_core={core}"]
            arguments += ["-o", str(made / library.name), "rust/host/src/lib.rs"]
            run_rustc(rustc.path, arguments, "rust/host", source)
            made.rename(folder)
    return library


build_rust_host = build_host
