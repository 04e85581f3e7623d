"""ThreadSanitizer on the host arm: silent as it is, and not silent about races planted into a copy of the sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from harness.build.host import HOST_BUILDS, build_runner
from harness.build.manifest import ToolMissing
from harness.device import runner
from harness.environment import ROOT
from harness.errors import IrrError
from harness.gates.faults import apply_diff
from harness.workload.scenes import Scene, sphere
from harness.workload.volume import VolumeConfig

RACES = sorted((ROOT / "tests" / "faults" / "races").glob("*.diff"))
KERNELS = ("cuda/allocate/plain", "cuda/update/plain")
NOWAIT = "cuda/allocate/nowait"
THREADS = 4

# A race shows only if two threads come to the same word, so the work must outlast a scheduler's slice many times over:
# with 7,200 points one thread was done before the others had started. 4,752 blocks here, inserted all along the way.
SCENE = sphere(1.0, 300, 600)
POOL = 8192


@pytest.fixture(scope="module")
def thread_sanitizer() -> Path:
    """The unchanged sources under ThreadSanitizer, or a skip where this machine cannot run it."""
    try:
        program = build_runner(thread_sanitizer=True, kernels=[*KERNELS, NOWAIT]).path
        runner.run(program, KERNELS, Scene(SCENE.points[:1], SCENE.colors[:1], SCENE.camera), VolumeConfig(64), 1, 60)
    except ToolMissing as error:
        pytest.skip(f"no C++ compiler: {error.what}")
    except IrrError as error:
        if "sanitize" in error.what or "tsan" in error.what or "ThreadSanitizer" in error.what:
            pytest.skip(f"ThreadSanitizer does not run here: {error.what}")
        raise
    return program


@pytest.mark.parametrize("cap", [0.0, 4.0])
def test_silent_as_it_is(thread_sanitizer: Path, cap: float) -> None:
    """No report, with the cap off and with the cap's plain read of the weight."""
    result = runner.run(thread_sanitizer, KERNELS, SCENE, VolumeConfig(POOL, cap=cap), THREADS, 120)
    assert result.reports == ""
    assert result.raw.count > 4000


def test_silent_without_waiting(thread_sanitizer: Path) -> None:
    kernels = (NOWAIT, "cuda/update/plain")
    assert runner.run(thread_sanitizer, kernels, SCENE, VolumeConfig(POOL), THREADS, 120).reports == ""


def test_silent_when_the_pool_is_too_small(thread_sanitizer: Path) -> None:
    result = runner.run(thread_sanitizer, KERNELS, SCENE, VolumeConfig(16), THREADS, 120)
    assert result.reports == ""
    assert result.raw.count == 16
    assert result.raw.failed_inserts > 0


@pytest.mark.parametrize("diff", RACES, ids=lambda path: path.stem)
def test_finds_a_planted_race(thread_sanitizer: Path, diff: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "cuda", tmp_path / "cuda")
    apply_diff(diff.read_text(encoding="utf-8"), tmp_path)
    program = build_runner(tmp_path, HOST_BUILDS, thread_sanitizer=True, kernels=KERNELS).path
    result = runner.run(program, KERNELS, SCENE, VolumeConfig(POOL), THREADS, 120)
    assert result.races > 0


def test_four_races_are_planted() -> None:
    assert [path.stem for path in RACES] == ["plain_counter", "plain_index_store", "plain_weight", "split_cas"]


def test_runner_and_library_agree() -> None:
    """The program that carries ThreadSanitizer computes what the library computes."""
    from harness.device.host import HostVolume

    config = VolumeConfig(POOL)
    raw = runner.run(build_runner(kernels=KERNELS).path, KERNELS, SCENE, config, 2, 60).raw
    volume = HostVolume(config)
    for kernel in KERNELS:
        volume.launch(kernel, SCENE)
    ours, theirs = raw.order(), volume.raw().order()
    assert np.array_equal(raw.coords[ours], volume.raw().coords[theirs])
    assert np.array_equal(raw.voxels["weight"][ours], volume.raw().voxels["weight"][theirs])
