"""Which files make a kernel, and their hash: what tells a stale kernel from a current one.

Needs no compiler, so that the machine that measures can check kernels built elsewhere. The builder checks in turn that
every file its compiler really read is in the list.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import tomllib
from functools import cache
from pathlib import Path

from harness.build.kernels import Kernel
from harness.environment import ROOT
from harness.errors import IrrError
from harness.workload import volume

CUDA_INCLUDES = ("cuda", "cuda/device")
"""Include path of a device build, after the including file's own folder and the generated headers."""

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def generated_headers() -> dict[str, str]:
    """Headers made from the field table when building, by the name that `#include` uses."""
    return {"volume.cuh": volume.cpp_header()}


def _read(root: Path, path: Path) -> str:
    try:
        return (root / path).read_text(encoding="utf-8")
    except OSError as error:
        raise IrrError(f"source {path} cannot be read ({error.strerror})", "take a whole checkout") from None


def cuda_sources(source: str, root: Path = ROOT) -> tuple[Path, ...]:
    """The file and all that it includes by "", transitively, relative to `root`.

    Raises:
        IrrError: a file, or one that is included, is not there.
    """
    generated = generated_headers()
    found: dict[Path, None] = {}
    todo = [Path(source)]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found[path] = None
        for name in _INCLUDE.findall(_read(root, path)):
            if name in generated:
                continue
            for folder in (path.parent, *map(Path, CUDA_INCLUDES)):
                if (root / folder / name).is_file():
                    todo.append(Path(*_normal(folder / name)))
                    break
            else:
                raise IrrError(f'{path} includes "{name}", which is in none of {", ".join(CUDA_INCLUDES)}')
    return tuple(sorted(found))


def _normal(path: Path) -> list[str]:
    """Parts of a relative path without `.` and `..`, so that one file has one name."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return parts


_RUST_MODULE = re.compile(r'^\s*#\[path\s*=\s*"([^"]+)"\]', re.MULTILINE)


def _rust_modules(path: Path) -> set[Path]:
    """The file and the modules that it takes from elsewhere by #[path], transitively."""
    found: set[Path] = set()
    todo = [path]
    while todo:
        path = todo.pop().resolve()
        if path in found:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise IrrError(f"source {path.name} cannot be read ({error.strerror})", "take a whole checkout") from None
        found.add(path)
        todo += [path.parent / name for name in _RUST_MODULE.findall(text)]
    return found


def rust_sources(source: str, root: Path = ROOT) -> tuple[Path, ...]:
    """Every Rust source, manifest and lock of the crate and of the crates it names by path, relative to `root`.

    Args:
        source: the crate's folder or a file inside it.
    """
    crate = root / source
    if crate.is_file():
        crate = crate.parent
    while not (crate / "Cargo.toml").is_file():
        if crate == root or root not in crate.parents:
            raise IrrError(f"{source} is in no crate: no Cargo.toml above it", "take a whole checkout")
        crate = crate.parent
    found = {
        folder / name
        for folder in crate.parents
        if folder == root or root in folder.parents
        for name in ("Cargo.toml", "Cargo.lock", ".cargo/config.toml", "rust-toolchain.toml")
        if (folder / name).is_file()
    }  # the workspace's own: its profile and lock decide what is compiled
    todo = [crate]
    seen: set[Path] = set()
    while todo:
        crate = todo.pop().resolve()
        if crate in seen:
            continue
        seen.add(crate)
        for path in crate.rglob("*"):
            inside = path.relative_to(crate)
            if "target" in inside.parts or not path.is_file():
                continue
            if path.suffix == ".rs":
                found |= _rust_modules(path)
            elif path.name in ("Cargo.toml", "Cargo.lock"):
                found.add(path)
        manifest = tomllib.loads((crate / "Cargo.toml").read_text(encoding="utf-8"))
        for table in ("dependencies", "build-dependencies"):
            for value in manifest.get(table, {}).values():
                # A path outside the checkout belongs to the toolchain, whose version the manifest records.
                if (
                    isinstance(value, dict)
                    and "path" in value
                    and (crate / value["path"]).resolve().is_relative_to(root)
                ):
                    todo.append(crate / value["path"])
    return tuple(sorted(path.relative_to(root) for path in found))


def python_sources(source: str, root: Path = ROOT) -> tuple[Path, ...]:
    """The module and the neighbours it imports, transitively, relative to `root`.

    A neighbour is looked for in the module's own folder and in the folder that the path begins with (`triton/`).
    """
    found: dict[Path, None] = {}
    todo = [Path(source)]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found[path] = None
        names: list[str] = []
        for node in ast.walk(ast.parse(_read(root, path), filename=str(path))):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.ImportFrom):
                names += [alias.name for alias in node.names]
        for name in names:
            for folder in (path.parent, Path(path.parts[0])):
                candidate = folder / (name.replace(".", "/") + ".py")
                if (root / candidate).is_file():
                    todo.append(candidate)
    return tuple(sorted(found))


def source_files(kernel: Kernel, root: Path = ROOT) -> tuple[Path, ...]:
    """Files that make the kernel, relative to `root`, sorted.

    Raises:
        IrrError: a file is missing.
    """
    language = kernel.language.split("-")[0]
    finder = {"cuda": cuda_sources, "rust": rust_sources, "triton": python_sources}[language]
    return finder(kernel.source, root)


def _identity(kernel: Kernel) -> dict[str, object]:
    """The fields of the row that change what is compiled or how it is launched."""
    names = ("name", "source", "entry", "threads", "points", "waits", "bounded", "scratch", "voxels", "contract")
    limit = {"registers": kernel.registers} if kernel.registers else {}
    return {**{name: getattr(kernel, name) for name in names}, "constants": dict(kernel.constants), **limit}


@cache
def _file_hash(path: Path, _stamp: tuple[int, int]) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def file_hash(path: Path) -> str:
    """sha256 of a file; read once as long as it does not change."""
    stat = path.stat()
    return _file_hash(path, (stat.st_mtime_ns, stat.st_size))


def current_source_hash(kernel: Kernel, root: Path = ROOT) -> str:
    """Hash of everything in this checkout that makes the kernel: row, files, and the generated volume.

    A manifest with another `source_hash` is a kernel of other sources. Architecture, flags and tools are not part of
    it: the manifest has them by name.

    Raises:
        IrrError: a source is missing.
    """
    digest = hashlib.sha256()
    parts: list[object] = [_identity(kernel)]
    if kernel.takes_volume:
        parts.append(volume.rust_source() if kernel.language.startswith("rust") else volume.cpp_header())
    for path in source_files(kernel, root):
        parts.append([path.as_posix(), file_hash(root / path)])
    for part in parts:
        digest.update(json.dumps(part, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()
