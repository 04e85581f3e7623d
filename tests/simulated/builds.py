"""A build folder as a builder elsewhere would have left it; its cubins name a host library instead of holding code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.build.kernels import KERNELS
from harness.build.manifest import Manifest, Parameter, load_manifest, manifest_path
from harness.build.sources import current_source_hash
from harness.workload.volume import VOLUME_DTYPE

HELPERS = ("cuda/allocate/plain", "cuda/update/plain", "cuda/floor/record", "cuda/extract/plain")
FLOORS = ("cuda/floor/null", "cuda/floor/geometry", "cuda/floor/atomics")


def parameters(name: str) -> list[Parameter]:
    """The parameter block as a C compiler lays it out."""
    found = [Parameter("volume", 0, VOLUME_DTYPE.itemsize)]
    at = VOLUME_DTYPE.itemsize
    for label, size in KERNELS[name].parameters:
        at = -(-at // size) * size
        found.append(Parameter(label, at, size))
        at += size
    return found


def make_flavour(folder: Path, names: Iterable[str], flavour: str, arch: int = 90) -> None:
    """Further builds of kernels that `make_build` has made: the same stand-ins under their own names."""
    for name in names:
        manifest = load_manifest(manifest_path(folder, arch, name))
        manifest.flavour, manifest.contract = flavour, flavour == "fma"
        path = manifest_path(folder, arch, manifest.name)
        manifest.save(path)
        path.with_suffix(".cubin").write_text(manifest.language)


def make_build(folder: Path, names: Iterable[str], arch: int = 90) -> Path:
    """Manifests and stand-in cubins of kernels that the host libraries have."""
    for name in names:
        row = KERNELS[name]
        manifest = Manifest(
            kernel=name,
            arch=arch,
            entry=row.entry,
            stage=row.stage,
            language=row.language,
            contract=False,
            status="ok",
            parameters=parameters(name),
            threads=row.threads,
            points=row.points,
            bounded=row.bounded,
            compiler={"name": "stand-in", "version": "13.0.88"},
            ptxas={"name": "pinned", "version": "13.0.88"},
            source_hash=current_source_hash(row),
        )
        path = manifest_path(folder, arch, name)
        manifest.save(path)
        path.with_suffix(".cubin").write_text(row.language)
    return folder
