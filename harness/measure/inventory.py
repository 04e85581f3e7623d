"""Which kernels are built for a device, and which are not and why. Reads manifests, never compiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.archive.schema import Skipped
from harness.build.kernels import KERNELS, Kernel
from harness.build.manifest import Manifest, load_manifest, manifest_path
from harness.build.sources import current_source_hash
from harness.device.preflight import arch_verdict
from harness.environment import pins
from harness.errors import IrrError

HELPERS = ("cuda/allocate/plain", "cuda/update/plain", "cuda/floor/record", "cuda/extract/plain")
"""Kernels that every GPU cell needs: who builds the table, fills the voxels, records the offsets, cuts the surface."""


@dataclass(frozen=True)
class Built:
    """A kernel that is there: its manifest and cubin."""

    manifest: Manifest
    cubin: Path


def built_architectures(build: Path) -> set[int]:
    """Architectures that have any cubin."""
    found = set()
    for folder in build.glob("sm_*"):
        if folder.name[3:].isdigit() and any(folder.glob("*.cubin")):
            found.add(int(folder.name[3:]))
    return found


def find_built(build: Path, arch: int, name: str) -> Built | Skipped:
    """One kernel as it is built (`cuda/allocate/plain`, `.../fma`, `...@bundled`), or why it is not.

    Raises:
        IrrError: it is there and stale (other sources), or its cubin is missing or damaged: a number of another program
            must not appear under this name.
    """
    row = KERNELS[name.split("@")[0].removesuffix("/fma")]
    cure = f"./irr build --arch {arch}"
    if arch < row.min_arch:
        why = f"written for sm_{row.min_arch} and newer"
        return Skipped(kernel=name, cell="*", status="unsupported", why=why)
    path = manifest_path(build, arch, name)
    if not path.is_file():
        return Skipped(kernel=name, cell="*", status="unavailable", why=f"not built for sm_{arch}: {cure}")
    manifest = load_manifest(path)
    if manifest.status != "ok":
        status = manifest.status if manifest.status != "failed" else "unavailable"
        return Skipped(kernel=name, cell="*", status=status, why=manifest.reason or manifest.status)
    if manifest.source_hash != current_source_hash(row):
        raise IrrError(f"{name} for sm_{arch} was built from other sources than these", cure)
    cubin = path.with_suffix(".cubin")
    if not cubin.is_file():
        raise IrrError(f"{cubin} is missing beside its manifest", cure)
    return Built(manifest, cubin)


def take_inventory(
    build: Path, arch: int, rows: Sequence[Kernel], *, allow_missing: bool = False, controls: Sequence[str] = ()
) -> tuple[dict[str, Built], list[Skipped]]:
    """Every wanted kernel and the helpers, for one architecture.

    Args:
        controls: further builds of the rows (`NAME/fma`, `NAME@nofmad`), listed where they are not there.

    Returns:
        What is there by name, and what is not with its reason.

    Raises:
        IrrError: a helper is missing, or another kernel was never built and `allow_missing` is off; the first few are
            named. A row that takes minutes to build, and one whose manifest says why it could not be built
            (needs-toolchain, toolchain-unsupported, unsupported), is listed and stops nothing: other arms still run.
    """
    verdict = arch_verdict(arch, built_architectures(build), int(pins()["cuda"]["minimum_arch"]))
    if verdict.status != "ok":
        raise IrrError(verdict.reason, None if verdict.status == "unsupported" else f"./irr build --arch {arch}")
    there: dict[str, Built] = {}
    skipped: list[Skipped] = []
    for name in dict.fromkeys([*(row.name for row in rows), *HELPERS]):
        found = find_built(build, arch, name)
        if isinstance(found, Built):
            there[name] = found
        else:
            skipped.append(found)
    missing = [s for s in skipped if s.status == "unavailable" and not KERNELS[s.kernel].slow_build]
    for name in controls:
        found = find_built(build, arch, name)
        if isinstance(found, Built):
            there[name] = found
        else:
            skipped.append(found)
    gone = [entry for entry in skipped if entry.kernel in HELPERS]
    if gone:
        raise IrrError(f"{gone[0].kernel} is needed by every cell: {gone[0].why}", f"./irr build --arch {arch}")
    if missing and not allow_missing:
        names = ", ".join(entry.kernel for entry in missing[:4]) + (" ..." if len(missing) > 4 else "")
        raise IrrError(
            f"{len(missing)} kernels are missing for sm_{arch}: {names} ({missing[0].why})",
            "build them, choose others with --arms, or go on without them with --allow-missing",
        )
    return there, skipped


def deviations(built: Iterable[Built]) -> list[str]:
    """Toolchains that are not the pinned ones, each once."""
    return list(dict.fromkeys(text for entry in built for text in entry.manifest.deviations))
