"""What one built kernel is: the emitters' hand-over (`Emitted`) and the record beside every cubin (`Manifest`).

The manifest travels into the archive (raw/builds/), so it says everything a reader needs to judge a kernel without a
compiler. Fields that others decide by:

* `status`: `ok`, `needs-toolchain` (a tool is missing), `toolchain-unsupported` (the tool does not know the
  architecture), `unsupported` (the kernel is not written for it), `failed`; `reason` says why in one line.
* `flavour`: "" for the row itself; `fma` for the control with the compiler's default contraction (`NAME/fma`),
  `bundled` for the one through Triton's own ptxas (`NAME@bundled`). `contract` is also true for rows that ask for it.
* `compiler`: `{"name", "version", "flags", ...}`. For cuda-oxide also `"revision"`, `"contains_fix"` (bool: the
  revision has the atomic lowering of patches/), and the versions `"rustc"`, `"llvm"`, `"llc"`. `verify` refuses an `ok`
  manifest of language `rust-oxide` whose `compiler["contains_fix"]` is not `true`.
* `ptxas`: `{"name": "pinned" | "bundled", "version", "flags", "target"}`: the assembler that made the cubin.
* `deviations`: toolchains that are not the pinned ones, a phrase each (`unpinned toolchain: ...`); in every table.
* `parameters`: `{"name", "offset", "size"}` as found in the cubin, in order; compared with the driver at load time.
* `shared`: dynamic shared memory a launch must ask for, bytes; `static_shared`: what the kernel holds by itself.
* `source_hash`: `harness.build.sources.current_source_hash(kernel)` at build time: any machine can tell a stale kernel.

An emitter gets `work`, one folder for the whole build that jobs of several processes share and that is kept between
builds: it makes its own subfolder there and locks what it shares. It raises `ToolMissing` / `ToolUnsupported` (below)
where its tool is absent or does not know the architecture, and IrrError where the source does not compile.

Standard library only: the machine that measures has no compiler and few packages.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import IrrError

SCHEMA = 1

FLAVOURS = {"": "", "fma": "/fma", "bundled": "@bundled", "nofmad": "@nofmad"}
"""How a row was built -> what its samples' names end in: as the row says; by the compiler's default contraction; by
Triton's own ptxas; default PTX through a ptxas that may not contract (B19)."""

STATUSES = ("ok", "needs-toolchain", "toolchain-unsupported", "unsupported", "failed")


class ToolMissing(IrrError):
    """A compiler or assembler is not on this machine: the kernel's status becomes `needs-toolchain`."""

    status = "needs-toolchain"


class ToolUnsupported(IrrError):
    """The tool is there and does not know the architecture: the kernel's status becomes `toolchain-unsupported`."""

    status = "toolchain-unsupported"


@dataclass(frozen=True)
class Emitted:
    """PTX of one kernel for one architecture, as an emitter hands it to the assembler.

    Attributes:
        ptx: the whole PTX text; the same bytes from any folder, no absolute path inside.
        entry: the kernel's symbol in `ptx`.
        compiler, version: name and version of what wrote the PTX (`nvcc`, `13.0.88`).
        flags: its options, without paths of this machine.
        sources: files it read, relative to the repository; each must be among `sources.source_files(kernel)`.
        volume: `struct` (one 112-byte parameter) or `flat` (one parameter a field).
        trailing_nulls: pointers after the declared parameters that a launch fills with null (Triton: 2).
        threads: threads a block. points: points a block handles.
        shared: dynamic shared memory a launch must ask for, bytes.
        extra: further facts about the compiler, merged into the manifest's `compiler`; its key `deviations` (a list)
            goes to the manifest's own.
    """

    ptx: str
    entry: str
    compiler: str
    version: str
    flags: tuple[str, ...]
    sources: tuple[Path, ...]
    volume: str = "struct"
    trailing_nulls: int = 0
    threads: int = 256
    points: int = 256
    shared: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter: byte offset and size inside the parameter block."""

    name: str
    offset: int
    size: int


@dataclass
class Manifest:
    """The record of one built kernel. Keys in the JSON are these names; see the module's docstring for the choices."""

    kernel: str
    arch: int
    entry: str
    stage: str
    language: str
    contract: bool
    status: str
    reason: str = ""
    flavour: str = ""
    volume: str = "struct"
    parameters: list[Parameter] = field(default_factory=list)
    trailing_nulls: int = 0
    threads: int = 256
    points: int = 256
    scratch: int = 0
    shared: int = 0
    static_shared: int = 0
    registers: int = 0
    spills: int = 0
    waits: bool = False
    bounded: bool = False
    voxels: str = "arrays"
    constants: dict[str, int] = field(default_factory=dict)
    compiler: dict[str, Any] = field(default_factory=dict)
    ptxas: dict[str, Any] = field(default_factory=dict)
    disassembler: dict[str, Any] = field(default_factory=dict)
    source_hash: str = ""
    sources: list[str] = field(default_factory=list)
    sass: dict[str, int] = field(default_factory=dict)
    ptx: dict[str, int] = field(default_factory=dict)
    cubin_sha256: str = ""
    code_sha256: str = ""
    ptx_sha256: str = ""
    sass_sha256: str = ""
    deviations: list[str] = field(default_factory=list)
    cache_key: str = ""
    schema: int = SCHEMA

    @property
    def name(self) -> str:
        """The name samples carry: the row's, with the suffix of its flavour."""
        return self.kernel + FLAVOURS[self.flavour]

    @property
    def stem(self) -> str:
        """File name without extension."""
        return self.name.replace("/", "--")

    def to_json(self) -> str:
        """One JSON object, keys sorted, LF, strict (no NaN)."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True, allow_nan=False) + "\n"

    def save(self, path: Path) -> None:
        replace_file(path, self.to_json().encode())


def parse_manifest(text: str, where: str) -> Manifest:
    """A manifest from its JSON.

    Args:
        where: what to name in an error (a path).

    Raises:
        IrrError: not JSON, a missing or unknown key, another schema.
    """
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise TypeError("not an object")
        if data.get("schema") != SCHEMA:
            raise IrrError(
                f"{where}: manifest of schema {data.get('schema')!r}, this irr reads {SCHEMA}", "build again"
            )
        if data.get("flavour") not in FLAVOURS or data.get("status") not in STATUSES:
            raise TypeError(f"flavour {data.get('flavour')!r}, status {data.get('status')!r}")
        data["parameters"] = [Parameter(**p) for p in data.get("parameters", [])]
        return Manifest(**data)
    except (ValueError, TypeError) as error:
        raise IrrError(f"{where}: not a kernel manifest ({error})", "build the kernel again") from None


def load_manifest(path: Path) -> Manifest:
    """The manifest at `path`.

    Raises:
        IrrError: no such file, or not a manifest.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise IrrError(f"{path}: cannot be read ({error})", "./irr build makes the kernels") from None
    return parse_manifest(text, str(path))


def manifest_path(build: Path, arch: int, name: str) -> Path:
    """Where the manifest of sample name `name` (`cuda/allocate/plain`, `.../fma`) lies below the build folder."""
    return build / f"sm_{arch}" / (name.replace("/", "--") + ".json")


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file or the whole new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="." + path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
