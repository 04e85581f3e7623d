"""Lane steps against tile steps, by hand on small scenes."""

from __future__ import annotations

import numpy as np
import pytest

from harness.workload.reference import evaluate, walk
from harness.workload.scenes import Scene, sphere
from harness.workload.tiles import probe_steps, tile_evidence, tile_steps
from harness.workload.volume import VolumeConfig


def test_probe_steps_of_one_chain() -> None:
    x, y, z = (axis.ravel() for axis in np.meshgrid(*[np.arange(8)] * 3, indexing="ij"))
    blocks = np.stack([x, y, z], axis=-1).astype(np.int32)
    assert probe_steps(blocks[:2], 1).tolist() in ([1, 1], [1, 2])
    everything = probe_steps(blocks, 511)  # a full table
    assert everything.min() == 1 and everything.max() <= 512
    # The sum does not depend on the order of insertion.
    assert probe_steps(blocks[::-1].copy(), 511).sum() == everything.sum()


def test_tiles_of_one_lane_waste_nothing_and_wide_ones_wait_for_the_slowest() -> None:
    scene, config = sphere(0.5, 12, 24), VolumeConfig(600, table=1024)
    reference = evaluate(scene, config)
    one, two, wide = tile_steps(scene, config, (1, 2, 512))
    assert one.needed == one.taken == two.needed == wide.needed
    assert one.used == 1 > two.used > wide.used > 0
    # What all lanes need: the steps of each block, once for each of its samples.
    assert one.needed == (probe_steps(reference.coords, config.mask) * reference.block_samples).sum()
    # One tile holds all 288 points: it takes the slowest of every sample, nine maxima.
    assert wide.tiles <= 9 * probe_steps(reference.coords, config.mask).max()


def test_samples_behind_the_surface_and_points_on_the_camera_take_no_step() -> None:
    scene = Scene(np.zeros((3, 3), np.float32), np.zeros((3, 3), np.uint8), np.zeros(3, np.float32))
    (none,) = tile_steps(scene, VolumeConfig(4), (32,))
    assert (none.needed, none.taken, none.used) == (0, 0, 1.0)
    scene, config = sphere(0.5, 8, 12), VolumeConfig(400, table=1 << 16)
    (found,) = tile_steps(scene, config, (1,))
    assert found.needed >= sum(len(index) for index, _, _ in walk(scene.points, scene.camera, config))


def test_a_table_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        tile_steps(sphere(0.5, 8, 12), VolumeConfig(2, table=2))
    rows = tile_evidence("x", sphere(0.5, 4, 4), VolumeConfig(200))
    assert [row["name"] for row in rows] == [f"triton.tile.x.w{w}.used" for w in (32, 64, 128, 256)]
