"""Rust to PTX with cuda-oxide, from the folder that IRR_OXIDE names (rust/oxide/README.md says how to make one).

The kernel crate is compiled as cargo-oxide does it (same options, same variables), but by calling rustc: cuda_device
comes from the checkout that the backend was built from, so the two cannot be of different revisions, and rust/core is
the same source as everywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.build.assemble import only_entry
from harness.build.kernels import Kernel
from harness.build.manifest import Emitted, ToolMissing, ToolUnsupported, replace_file
from harness.build.rustc import EDITION, check_ptx, environment, locked, question, run_rustc, with_inline_version
from harness.build.series import missing_changes, revision
from harness.build.sources import rust_sources
from harness.build.toolchain import Program, llvm_mismatch, parse_llvm_version, program_version
from harness.environment import ROOT, pins
from harness.errors import IrrError

VARIABLE = "IRR_OXIDE"
CURE = f"{VARIABLE} names a folder with rustc, librustc_codegen_cuda.so, cuda-oxide, llc and opt: rust/oxide/README.md"

FLAGS = (
    "-Copt-level=3",
    "-Cdebug-assertions=off",
    "-Zmir-enable-passes=-JumpThreading",
    "-Zalways-encode-mir",
    "-Csymbol-mangling-version=v0",
)
"""What cargo-oxide gives rustc beside the backend: device code is compiled from MIR, so every crate keeps its own."""

CRATE = "irr_oxide"
"""Name given to every crate: it is that of the files cuda-oxide writes."""

LIBRARIES = ("core", "fma")
"""Folders of rust/ that a kernel may use, in the order of their dependencies."""

_UNKNOWN_TARGET = re.compile(r"(?i)unknown target|unsupported target|is not a recognized processor|invalid .*sm_\d+")


@dataclass(frozen=True)
class Oxide:
    """A cuda-oxide that compiles.

    Attributes:
        rustc, version, llvm: the compiler that loads the backend, its version and its LLVM's.
        backend: librustc_codegen_cuda.so. checkout: the source it was built from.
        revision: the checkout's commit. missing: what it lacks of patches/series.toml, one line each.
        llc, opt: the LLVM tools that write the PTX.
        notes: lines of the folder's `deviations` file: what whoever built it changed.
    """

    rustc: Path
    version: str
    llvm: str
    backend: Path
    checkout: Path
    revision: str
    missing: tuple[str, ...]
    llc: Program
    opt: Program
    notes: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """Hash of everything that decides the PTX apart from sources, architecture and contraction."""
        parts = [question(self.rustc, "-vV"), self.revision, self.llc.version, self.opt.version]
        digest = hashlib.sha256("\0".join(parts).encode())
        digest.update(self.backend.read_bytes())
        return digest.hexdigest()[:16]

    def deviations(self) -> list[str]:
        """How this differs from the pins, one phrase each."""
        pinned = pins()["oxide"]
        found = []
        words = question(self.rustc, "-vV")
        date = re.search(r"^commit-date: (\S+)", words, re.MULTILINE)
        # nightly-D is made of the commits up to the day before D.
        nightly = re.search(r"^release: \S+-nightly$", words, re.MULTILINE) is not None
        if not nightly or date is None or not _day_before(pinned["toolchain"], date.group(1)):
            found.append(f"unpinned toolchain: rustc {self.version} (pinned: {pinned['toolchain']})")
        if self.revision != pinned["revision"]:
            found.append(f"unpinned toolchain: cuda-oxide {self.revision[:18]} (pinned: {pinned['revision'][:12]})")
        mismatch = llvm_mismatch(Program(self.rustc, self.llvm), self.llc)
        found += self.notes
        # Without this machine's paths, which a manifest must not carry.
        return found + ([f"llc of LLVM {self.llc.version}, rustc of LLVM {self.llvm}"] if mismatch else [])


def _day_before(toolchain: str, day: str) -> bool:
    import datetime

    match = re.search(r"\d{4}-\d{2}-\d{2}$", toolchain)
    if match is None:
        return False
    return datetime.date.fromisoformat(match.group(0)) - datetime.date.fromisoformat(day) == datetime.timedelta(1)


def _tool(folder: Path, name: str, variable: str, sysroot: str) -> Program:
    """llc or opt: beside the compiler, else as cuda-oxide's own variable says, else the Rust toolchain's."""
    candidates = [folder / name]
    if os.environ.get(variable):
        candidates.append(Path(os.environ[variable]))
    candidates += sorted(Path(sysroot).glob(f"lib/rustlib/*/bin/{name}")) if sysroot else []
    for path in candidates:
        version = parse_llvm_version(program_version(path)) if path.exists() else None
        if version is not None:
            return Program(path, version)
    raise ToolMissing(f"cuda-oxide needs LLVM's {name}, which is neither in {folder} nor in {variable}", CURE)


@cache
def _find(named: str) -> Oxide:
    folder = Path(named).expanduser().absolute()
    rustc, backend, checkout = folder / "rustc", folder / "librustc_codegen_cuda.so", folder / "cuda-oxide"
    for path in (rustc, backend, checkout):
        if not path.exists():
            raise ToolMissing(f"{VARIABLE}={named} has no {path.name}", CURE)
    words = question(rustc, "-vV")
    release, llvm = re.search(r"^release: (\S+)", words, re.MULTILINE), parse_llvm_version(words)
    if release is None or llvm is None:
        raise ToolMissing(f"{rustc} does not run", CURE)
    try:
        commit = revision(checkout)
    except IrrError as error:
        raise ToolMissing(error.what, error.cure) from None
    sysroot, notes = question(rustc, "--print=sysroot"), folder / "deviations"
    return Oxide(
        rustc=rustc,
        version=release.group(1),
        llvm=llvm,
        backend=backend,
        checkout=checkout,
        revision=commit,
        missing=tuple(missing_changes(checkout, pins()["oxide"]["repository"])),
        llc=_tool(folder, "llc", "CUDA_OXIDE_LLC", sysroot),
        opt=_tool(folder, "opt", "CUDA_OXIDE_OPT", sysroot),
        notes=tuple(notes.read_text(encoding="utf-8").split("\n")[:-1]) if notes.is_file() else (),
    )


def find_oxide() -> Oxide:
    """The cuda-oxide that IRR_OXIDE names.

    Raises:
        ToolMissing: the variable is not set, or its folder lacks something.
    """
    named = os.environ.get(VARIABLE, "").strip()
    if not named:
        raise ToolMissing(f"no cuda-oxide: {VARIABLE} is not set", CURE)
    return _find(named)


def identity() -> str:
    """What the builder's cache key takes for this compiler; `missing` where there is none."""
    try:
        return find_oxide().identity
    except IrrError:
        return "missing"


def _environment(oxide: Oxide) -> dict[str, str]:
    kept = ("CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_NET_GIT_FETCH_WITH_CLI", "GIT_CONFIG_GLOBAL", "SSL_CERT_FILE")
    return {
        **environment(),
        **{name: os.environ[name] for name in kept if name in os.environ},
        # Named, so that no llc of another LLVM is found on PATH (needs N18).
        "CUDA_OXIDE_LLC": str(oxide.llc.path),
        "CUDA_OXIDE_OPT": str(oxide.opt.path),
    }


def _flags(oxide: Oxide) -> list[str]:
    return [f"-Zcodegen-backend={oxide.backend}", *FLAGS]


def _build_device(oxide: Oxide, folder: Path) -> tuple[Path, Path]:
    """cuda_device of the checkout, built by Cargo with the checkout's lock: (its library, the folder of what it needs).

    Raises:
        IrrError: it does not build.
    """
    record = folder / "device.json"
    if record.is_file():
        library, dependencies = json.loads(record.read_text(encoding="utf-8"))
        return folder / library, folder / dependencies
    beside = oxide.rustc.with_name("cargo")
    cargo = str(beside) if beside.exists() else shutil.which("cargo")
    if cargo is None:
        raise ToolMissing("cargo is missing, which builds cuda_device", CURE)
    done = subprocess.run(
        [cargo, "build", "--release", "--locked", "-p", "cuda-device", "--message-format=json"],
        cwd=oxide.checkout,
        env={
            **_environment(oxide),
            "RUSTC": str(oxide.rustc),
            "CARGO_TARGET_DIR": str(folder.resolve() / "target"),
            "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(_flags(oxide)),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("error")] or done.stderr.splitlines()
        raise IrrError(f"cuda_device of {oxide.revision[:12]} does not build: {(lines or ['cargo says nothing'])[0]}")
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    libraries = [
        Path(name).resolve()
        for message in messages
        if message.get("reason") == "compiler-artifact" and message["target"]["name"] == "cuda_device"
        for name in message["filenames"]
        if name.endswith(".rmeta")
    ]
    if not libraries:
        raise IrrError(f"cargo names no library of cuda_device in {oxide.revision[:12]}", "its messages have changed")
    home = folder.resolve()
    # rustc needs the .rlib beside it, by the same name, for nothing: device code is made from metadata.
    dependencies = home / "target" / "release" / "deps"
    library = dependencies / libraries[0].name
    names = [
        str((library if library.exists() else libraries[0]).relative_to(home)),
        str(dependencies.relative_to(home)),
    ]
    replace_file(record, json.dumps(names).encode())
    return folder / names[0], folder / names[1]


def compile_crate(
    source: str,
    arch: int,
    contract: bool,
    work: Path,
    root: Path = ROOT,
    options: tuple[str, ...] = (),
    nvvm_ir: bool = False,
) -> dict[str, bytes]:
    """What cuda-oxide writes for one crate root, by suffix: `.ptx`, `.ll`; compiled once for all that decides it.

    Args:
        options: further options of rustc.
        nvvm_ir: the IR that libNVVM would get, instead of PTX by llc.

    Raises:
        ToolMissing: no cuda-oxide. ToolUnsupported: it does not know `arch`. IrrError: it refuses the source.
    """
    oxide = find_oxide()
    home = work.resolve() / "oxide" / oxide.identity
    digest = hashlib.sha256(json.dumps([source, arch, contract, options, nvvm_ir]).encode())
    for path in rust_sources(source, root):
        digest.update(f"\0{path}\0".encode() + (root / path).read_bytes())
    kept = home / f"{Path(source).stem}-{digest.hexdigest()[:16]}"
    with locked(home.with_name(f"{home.name}.lock")):
        if not kept.is_dir():
            home.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home, prefix=".crate-") as name:
                made = Path(name) / "made"
                made.mkdir()
                _compile(oxide, source, arch, contract, made, home, root, options, nvvm_ir)
                made.rename(kept)
    return {path.suffix: path.read_bytes() for path in sorted(kept.iterdir())}


def _compile(
    oxide: Oxide,
    source: str,
    arch: int,
    contract: bool,
    made: Path,
    home: Path,
    root: Path,
    options: tuple[str, ...],
    nvvm_ir: bool,
) -> None:
    """Compile into the empty folder `made`, which then holds the device code alone."""
    device, dependencies = _build_device(oxide, home)
    variables = _environment(oxide)
    # -Cmetadata stands for the package identity that Cargo would give, so that names are the same anywhere.
    common = [f"--edition={EDITION}", *_flags(oxide), "--crate-type=lib", "-Cmetadata=irr"]
    externs = [f"--extern=cuda_device={device}", f"-Ldependency={dependencies}"]
    for crate in LIBRARIES:
        library = made.parent / f"libirr_{crate}.rmeta"
        arguments = [*common, f"--crate-name=irr_{crate}", f"--emit=metadata={library}", f"rust/{crate}/src/lib.rs"]
        run_rustc(oxide.rustc, arguments, f"rust/{crate} under cuda-oxide", root, variables)
        externs.append(f"--extern=irr_{crate}={library}")
    variables |= {
        "CUDA_OXIDE_PTX_DIR": str(made),
        "CUDA_OXIDE_TARGET": f"sm_{arch}",
        "CARGO_PKG_NAME": CRATE,
        "CARGO_PKG_VERSION": "0.1.0",
        "CARGO_CRATE_NAME": CRATE,
        "CARGO_MANIFEST_DIR": str(root / "rust" / "oxide"),
    }
    if not contract:
        variables["CUDA_OXIDE_NO_FMA"] = "1"
    if nvvm_ir:
        variables["CUDA_OXIDE_EMIT_NVVM_IR"] = "1"
    output = f"--emit=link={made.parent / 'host.rlib'}"
    arguments = [*common, *externs, *options, f"--crate-name={CRATE}", output, source]
    try:
        run_rustc(oxide.rustc, arguments, f"{source} under cuda-oxide for sm_{arch}", root, variables)
    except IrrError as error:
        if _UNKNOWN_TARGET.search(error.what):
            raise ToolUnsupported(error.what) from None
        raise
    wanted = made / f"{CRATE}{'.ll' if nvvm_ir else '.ptx'}"
    if not wanted.is_file():
        raise IrrError(
            f"{source}: cuda-oxide wrote no {wanted.suffix} for sm_{arch}", "CUDA_OXIDE_VERBOSE=1 makes it talk"
        )
    for path in made.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (f"{CRATE}.ptx", f"{CRATE}.ll"):
            path.unlink()


def emit(kernel: Kernel, arch: int, contract: bool, work: Path, root: Path = ROOT) -> Emitted:
    """PTX of one kernel of rust/oxide; arguments and errors as harness.build.cargo.emit."""
    oxide = find_oxide()
    whole = compile_crate(kernel.source, arch, contract, work, root)[".ptx"].decode()
    ptx = with_inline_version(only_entry(whole, kernel.entry))
    check_ptx(kernel, ptx, arch)
    return Emitted(
        ptx=ptx,
        entry=kernel.entry,
        compiler="cuda-oxide",
        version=oxide.revision,
        flags=(*FLAGS, f"CUDA_OXIDE_TARGET=sm_{arch}", *(() if contract else ("CUDA_OXIDE_NO_FMA=1",))),
        sources=rust_sources(kernel.source, root),
        threads=kernel.threads,
        points=kernel.points,
        extra={
            "repository": pins()["oxide"]["repository"],
            "revision": oxide.revision,
            "contains_fix": not oxide.missing,
            "missing": list(oxide.missing),
            "rustc": oxide.version,
            "llvm": oxide.llvm,
            "llc": oxide.llc.version,
            "opt": oxide.opt.version,
            "deviations": oxide.deviations(),
        },
    )
