"""Finding the compilers, the same way for every builder and for doctor.

One toolkit serves every arm: the wheels' (pinned) unless CUDA_HOME names another, which the manifests then name.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.environment import pins
from harness.errors import IrrError

PROGRAMS = ("nvcc", "ptxas", "cuobjdump", "nvdisasm")
HEADERS = ("cuda.h", "cuda_runtime.h")


@dataclass(frozen=True)
class Toolkit:
    """A complete CUDA toolkit.

    Attributes:
        version: of nvcc and ptxas, as 13.0.88.
        origin: `wheels`, `CUDA_HOME` or `PATH`.
    """

    root: Path
    version: str
    nvcc: Path
    ptxas: Path
    cuobjdump: Path
    nvdisasm: Path
    origin: str = "wheels"

    @property
    def pinned(self) -> bool:
        """Whether this is the version of pins.toml; a toolkit that deviates is named in every manifest."""
        return self.version == pins()["cuda"]["toolkit"]

    @property
    def place(self) -> str:
        """Where it came from, as manifests and fingerprints say it: `wheels`, or `CUDA_HOME: /usr/local/cuda`."""
        return self.origin if self.origin == "wheels" else f"{self.origin}: {self.root}"


def version_key(version: str) -> tuple[int, ...]:
    """Numbers of a version, so that 13.10 is above 13.9."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def parse_cuda_version(text: str) -> str | None:
    """Version in the words of `nvcc --version` or `ptxas --version`."""
    match = re.search(r"release [\d.]+, V(\d+(?:\.\d+)+)", text) or re.search(r"release (\d+\.\d+)", text)
    return match.group(1) if match else None


def program_version(program: Path | str, *, option: str = "--version") -> str:
    """What a program says of itself; "" if it does not run."""
    try:
        done = subprocess.run(
            [str(program), option],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


@cache
def known_architectures(nvcc: Path) -> tuple[int, ...]:
    """Compute capabilities that an nvcc compiles for; none where it does not say."""
    listed = re.findall(r"compute_(\d+)\b", program_version(nvcc, option="--list-gpu-arch"))
    return tuple(sorted(map(int, listed)))


def _package_folders(name: str) -> list[Path]:
    """Folders of an installed package, found without importing it, wherever on sys.path it stands."""
    spec = importlib.util.find_spec(name)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []


def wheel_root() -> Path | None:
    """The toolkit that the CUDA wheels of this interpreter make up, complete or not."""
    for folder in _package_folders("nvidia"):
        if (folder / "cu13" / "bin" / "nvcc").exists():
            return folder / "cu13"
    return None


def _check(root: Path, origin: str) -> Toolkit:
    cure = {
        "wheels": "remove .venv and run ./irr setup again",
        "CUDA_HOME": "point CUDA_HOME at a complete toolkit, or unset it to use the pinned wheels",
        "PATH": "run ./irr setup, which brings the pinned toolkit",
    }[origin]
    needed = [root / "bin" / name for name in PROGRAMS] + [root / "include" / name for name in HEADERS]
    # Debian-like layouts and the wheels agree on bin/ and include/; nothing is searched for elsewhere, because a root
    # put together from two toolkits is exactly what must not happen.
    missing = [str(path.relative_to(root)) for path in needed if not path.is_file()]
    if (root / "bin" / "nvcc").is_file():
        version = _toolkit_version(root)
        minimum = pins()["cuda"]["minimum"]
        if version is not None and version_key(version) < version_key(minimum):
            raise IrrError(f"CUDA toolkit in {root} ({origin}) is {version}; {minimum} or newer is needed", cure)
    if missing:
        raise IrrError(f"CUDA toolkit in {root} ({origin}) lacks {', '.join(missing)}", cure)
    version = _toolkit_version(root)
    if version is None:
        raise IrrError(f"{root}/bin/nvcc ({origin}) does not say its version: it does not run here", cure)
    return Toolkit(root, version, *(root / "bin" / name for name in PROGRAMS), origin=origin)


@cache
def _toolkit_version(root: Path) -> str | None:
    return parse_cuda_version(program_version(root / "bin" / "nvcc"))


def find_toolkit(env: Mapping[str, str] | None = None) -> Toolkit:
    """The one toolkit that every arm is built with.

    CUDA_HOME where it is set (set to "" counts as not set), else the wheels', else that of the nvcc on PATH.

    Raises:
        IrrError: none found, or the one that was named is too old or incomplete.
    """
    env = os.environ if env is None else env
    named = env.get("CUDA_HOME", "").strip()
    if named:
        root = Path(named).expanduser().absolute()
        if not root.is_dir():
            raise IrrError(f"CUDA_HOME={named} is not a folder", "unset it to use the pinned wheels")
        return _check(root, "CUDA_HOME")
    wheels = wheel_root()
    if wheels is not None:
        return _check(wheels, "wheels")
    nvcc = shutil.which("nvcc", path=env.get("PATH", ""))
    if nvcc is not None:
        return _check(Path(nvcc).resolve().parents[1], "PATH")
    raise IrrError(
        "no CUDA toolkit: neither the wheels nor CUDA_HOME nor an nvcc on PATH",
        "run ./irr setup (not under IRR_PYTHON), or bring kernels built elsewhere in build/",
    )


@dataclass(frozen=True)
class Program:
    """A program that was found, with the version it gives."""

    path: Path
    version: str


def triton_tools() -> dict[str, Path]:
    """Programs that the Triton wheel carries (its ptxas is the control `@bundled`), {} without Triton."""
    for folder in _package_folders("triton"):
        programs = folder / "backends" / "nvidia" / "bin"
        if programs.is_dir():
            return {path.name: path for path in sorted(programs.iterdir())}
    return {}


def triton_environment(toolkit: Toolkit) -> dict[str, str]:
    """Variables that make Triton use the toolkit's ptxas; sm_100 and up have a variable of their own."""
    return {"TRITON_PTXAS_PATH": str(toolkit.ptxas), "TRITON_PTXAS_BLACKWELL_PATH": str(toolkit.ptxas)}


def find_tool(name: str, env: Mapping[str, str] | None = None) -> Path | None:
    """A program of NVIDIA's that is no part of the wheels (ncu, compute-sanitizer), also where it is not on PATH."""
    env = os.environ if env is None else env
    on_path = shutil.which(name, path=env.get("PATH"))
    if on_path is not None:
        return Path(on_path)
    roots = [Path(root) for root in (env.get("CUDA_HOME", "").strip(), "/usr/local/cuda") if root]
    places = [root / "bin" / name for root in roots]
    # Nsight Compute's own packages: a folder a version, the newest first.
    folders = Path("/opt/nvidia/nsight-compute").glob("*/")
    places += [folder / name for folder in sorted(folders, key=lambda path: version_key(path.name), reverse=True)]
    return next((place for place in places if os.access(place, os.X_OK) and place.is_file()), None)


def find_host_compiler(env: Mapping[str, str] | None = None) -> Program:
    """The C++ compiler of the host build and of nvcc.

    Raises:
        IrrError: there is none.
    """
    env = os.environ if env is None else env
    path = shutil.which("g++", path=env.get("PATH"))
    if path is None:
        raise IrrError("g++ is missing", "apt-get install g++ (./irr setup does it as root)")
    words = program_version(path)
    return Program(Path(path), words.splitlines()[0] if words else "unknown")


# --- Rust and its LLVM ------------------------------------------------------------------------------------------


def parse_llvm_version(text: str) -> str | None:
    """LLVM version in the words of `rustc -vV` or of `llc --version`; None if there is none.

    `LLVM version: 23.1.0` and `LLVM version 22.1.2-rust-1.96.0-nightly` give 23.1.0 and 22.1.2.
    """
    match = re.search(r"LLVM version:?\s+(\d+(?:\.\d+)*)", text)
    return match.group(1) if match else None


def llvm_mismatch(rustc: Program, llc: Program) -> str | None:
    """Why the two must not be mixed, or None; versions are LLVM versions.

    With an llc of another LLVM the same source gives other PTX (a native float atomic or a compare-exchange loop).
    """
    if version_key(rustc.version)[:1] == version_key(llc.version)[:1]:
        return None
    return (
        f"llc at {llc.path} is LLVM {llc.version}, rustc at {rustc.path} is LLVM {rustc.version}: "
        "their PTX is not comparable"
    )


@dataclass(frozen=True)
class Rustc:
    """A Rust compiler. llvm: version of its LLVM. source: its own core library's source, if installed."""

    path: Path
    version: str
    llvm: str
    source: Path | None


def find_rustc(path: Path = Path("/usr/bin/rustc")) -> Rustc:
    """The system's rustc, by its path: a rustup shim may stand first in PATH.

    Raises:
        IrrError: there is none.
    """
    words = program_version(path, option="-vV") if path.exists() else ""
    release = re.search(r"^release: (\S+)", words, re.MULTILINE)
    llvm = parse_llvm_version(words)
    if release is None or llvm is None:
        raise IrrError(f"rustc is missing ({path})", "apt-get install rustc-web rust-web-src libstd-rust-web-dev")
    # Source and compiler must be the same version.
    source = Path(f"/usr/src/rustc-{release.group(1)}/library")
    return Rustc(path, release.group(1), llvm, source if source.is_dir() else None)
