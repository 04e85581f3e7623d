"""Blocks of a ray by their walls are the blocks of its samples, exactly: on walls, on axes, near, far, out of reach."""

from __future__ import annotations

import numpy as np
import pytest

from harness.build.manifest import ToolMissing
from harness.device.host import HostVolume
from harness.workload.scenes import Scene
from harness.workload.table import pack
from harness.workload.volume import VolumeConfig

POINTS = 1500


def scatter(kind: str, voxel: float, draw: np.random.Generator) -> Scene:
    """Points where rounding decides, or none of them."""
    camera = np.zeros(3)
    points = draw.normal(size=(POINTS, 3)) * voxel
    if kind == "near":
        points *= draw.choice([2, 10, 100])
    elif kind == "on walls":
        points = np.round(points / voxel * 20) * voxel * 8
    elif kind == "on axes":
        points *= 40
        points[np.arange(POINTS), draw.integers(0, 3, POINTS)] = 0
        points[: POINTS // 2, draw.integers(0, 3)] = 0
    elif kind == "far camera":
        camera = draw.normal(size=3) * voxel * 3000
        points = camera + points * 300
    else:
        points *= 16_000
    return Scene(points.astype(np.float32), np.zeros((POINTS, 3), np.uint8), camera.astype(np.float32))


def built(kernel: str, scene: Scene, config: VolumeConfig) -> np.ndarray:
    volume = HostVolume(config)
    volume.launch(kernel, scene)
    return np.sort(pack(volume.coords[: volume.count]))


@pytest.mark.parametrize("kind", ["near", "on walls", "on axes", "far camera", "beyond reach"])
@pytest.mark.parametrize("voxel", [0.005, 0.01, 0.037, 1.0])
def test_walls_give_the_samples_blocks(kind: str, voxel: float) -> None:
    scene, config = scatter(kind, voxel, np.random.default_rng(int(1000 * voxel))), VolumeConfig(32_768, voxel)
    try:
        wanted = built("cuda/allocate/plain", scene, config)
    except ToolMissing as error:
        pytest.skip(error.what)
    assert len(wanted) > 10
    assert np.array_equal(built("cuda/allocate/walls", scene, config), wanted)


@pytest.mark.parametrize("kind", ["near", "on walls", "on axes", "far camera", "beyond reach"])
@pytest.mark.parametrize("variant", ["nowait", "ray", "walls"])
def test_rusts_variants_give_the_same_blocks(kind: str, variant: str) -> None:
    scene, config = scatter(kind, 0.02, np.random.default_rng(3)), VolumeConfig(32_768, 0.02)
    try:
        wanted = built("rust-nvptx/allocate/plain", scene, config)
        assert np.array_equal(wanted, built("cuda/allocate/plain", scene, config))
    except ToolMissing as error:
        pytest.skip(error.what)
    assert np.array_equal(built(f"rust-nvptx/allocate/{variant}", scene, config), wanted)
