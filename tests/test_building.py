"""A run builds what it needs and is not built, where the tools are; elsewhere the inventory says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.build.kernels import KERNELS
from harness.build.manifest import load_manifest, manifest_path
from harness.build.toolchain import find_toolkit
from harness.errors import IrrError
from harness.measure import building
from harness.measure.building import build_missing, missing_kernels
from harness.measure.inventory import HELPERS, Built, find_built

ROWS = [KERNELS["cuda/allocate/nowait"], KERNELS["triton/allocate/static32"]]
NAMES = ["cuda/allocate/nowait", *HELPERS]


def no_toolkit() -> None:
    raise IrrError("no CUDA toolkit")


def test_without_a_compiler_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_kernels(tmp_path / "build", 90, ROWS) == NAMES
    monkeypatch.setattr(building, "find_toolkit", no_toolkit)
    assert build_missing(tmp_path / "build", 90, ROWS) == []
    assert not (tmp_path / "build").exists()


def test_a_device_that_is_too_old_is_left_to_the_inventory(tmp_path: Path) -> None:
    assert build_missing(tmp_path / "build", 70, ROWS) == []


def test_what_is_missing_or_stale_is_built_and_nothing_else(tmp_path: Path) -> None:
    try:
        find_toolkit()
    except IrrError as error:
        pytest.skip(f"no CUDA compiler: {error.what}")
    build = tmp_path / "build"
    assert build_missing(build, 90, ROWS) == NAMES
    assert all(isinstance(find_built(build, 90, name), Built) for name in NAMES)
    assert not manifest_path(build, 90, "triton/allocate/static32").exists()
    assert build_missing(build, 90, ROWS) == []
    path = manifest_path(build, 90, "cuda/allocate/nowait")
    manifest = load_manifest(path)
    right = manifest.source_hash
    manifest.source_hash = manifest.cache_key = "0" * 64
    manifest.save(path)
    assert build_missing(build, 90, ROWS) == ["cuda/allocate/nowait"]
    assert load_manifest(path).source_hash == right


def test_a_missing_tool_that_a_manifest_names_is_not_asked_for_again(tmp_path: Path) -> None:
    from tests.simulated import builds

    build = builds.make_build(tmp_path, [*HELPERS, "cuda/allocate/nowait"])
    path = manifest_path(build, 90, "cuda/allocate/nowait")
    manifest = load_manifest(path)
    manifest.status, manifest.reason = "needs-toolchain", "it is not here"
    manifest.save(path)
    assert missing_kernels(build, 90, ROWS) == []
