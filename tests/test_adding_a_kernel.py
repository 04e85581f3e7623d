"""Adding a kernel is its source and one row: the table against the files, the arms against the table."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

import pytest

from harness.build import kernels
from harness.build.build import Job, flavours
from harness.build.kernels import ARCHITECTURES, ARMS, KERNELS, Arm, Kernel
from harness.build.sources import source_files
from harness.environment import ROOT
from harness.workload.volume import FIELDS

STAGES = {"allocate", "update", "integrate", "extract", "floor", "fma"}
FOLDERS = {"cuda": "cuda", "rust-nvptx": "rust", "rust-oxide": "rust", "triton": "triton"}
SUFFIXES = {"cuda": ".cu", "rust-nvptx": ".rs", "rust-oxide": ".rs", "triton": ".py"}

# How each language says that a function is a kernel.
ENTRIES = {
    "cuda": r"__global__\s+void\s+{entry}\s*\(",
    "rust-nvptx": r"fn\s+{entry}\s*\(",
    "rust-oxide": r"fn\s+{entry}\s*\(",
    "triton": r"@triton\.jit\s+def\s+{entry}\s*\(",
}


def rows() -> list[Kernel]:
    """Every row as it is written, before the table's dictionary could swallow a second one of the same name."""
    made = [getattr(kernels, name)() for name in dir(kernels) if re.fullmatch(r"_\w*rows", name)]
    return [row for part in made for row in part]


def test_names_are_unique() -> None:
    counted = Counter(row.name for row in rows())
    assert [name for name, count in counted.items() if count > 1] == []
    assert counted.keys() == KERNELS.keys()


def test_file_names_are_unique() -> None:
    bases = Counter(Job(row, 90, flavour).base(ROOT) for row in KERNELS.values() for flavour in flavours(row))
    assert max(bases.values()) == 1


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda k: k.name)
def test_row(kernel: Kernel) -> None:
    assert re.fullmatch(r"[a-z-]+/[a-z]+/[a-z0-9-]+", kernel.name)
    assert kernel.stage in STAGES
    source = ROOT / kernel.source
    assert source.is_file() and source.suffix == SUFFIXES[kernel.language]
    assert source.relative_to(ROOT).parts[0] == FOLDERS[kernel.language]
    # In its file, or in one that the file includes.
    text = "\n".join((ROOT / path).read_text() for path in source_files(kernel))
    assert re.search(ENTRIES[kernel.language].format(entry=re.escape(kernel.entry)), text)
    assert kernel.threads % 32 == 0 and 32 <= kernel.threads <= 1024
    assert kernel.points >= 1 and kernel.scratch >= 0
    assert kernel.voxels in ("arrays", "packed")
    assert any(arch >= kernel.min_arch for arch in ARCHITECTURES)
    assert not kernel.waits or kernel.stage in ("allocate", "integrate"), "only an insert waits"
    names = [name for name, _ in kernel.parameters]
    assert len(set(names)) == len(names) and not set(names) & {field.name for field in FIELDS}
    assert ("scratch" in names) == (kernel.scratch > 0)


def test_every_kernel_source_has_a_row() -> None:
    """A source that no row names would be compiled by nobody and tested by nobody."""
    named = {ROOT / row.source for row in KERNELS.values()}
    found = {
        path
        for path in (ROOT / "cuda").rglob("*.cu")
        if "host" not in path.parts and re.search(r"__global__", path.read_text())
    }
    found |= {path for path in (ROOT / "rust").rglob("*.rs") if re.search(r'extern "ptx-kernel" fn', path.read_text())}
    assert sorted(str(path.relative_to(ROOT)) for path in found - named) == []


@pytest.mark.parametrize("arm", ARMS.values(), ids=lambda a: a.name)
def test_arm(arm: Arm) -> None:
    assert arm.place in ("gpu", "host", "library")
    for stage, name in (("allocate", arm.allocate), ("update", arm.update)):
        if arm.place == "library":
            assert name is None
            continue
        assert name is not None and KERNELS[name].stage == stage
        if arm.place == "host":
            assert KERNELS[name].host
    if arm.place != "library":
        assert arm.allocate is not None and arm.update is not None
        # Both see the same voxels.
        assert KERNELS[arm.update].voxels in ("arrays", "packed")


def test_a_second_row_of_a_name_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(iter(KERNELS.values()))
    monkeypatch.setattr(kernels, "_planted_rows", lambda: [dataclasses.replace(row)], raising=False)
    with pytest.raises(AssertionError):
        test_names_are_unique()
