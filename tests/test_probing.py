"""The simulated protocol builds what the kernels build, and shows what three words do."""

from __future__ import annotations

import numpy as np

from harness.workload.probing import mixed_hash, probe_evidence, simulate
from harness.workload.reference import exact_block_count
from harness.workload.scenes import sphere
from harness.workload.table import block_hash
from harness.workload.volume import VolumeConfig

SCENE, CONFIG = sphere(0.3, 40, 80), VolumeConfig(1024)


def test_one_word_claims_every_block_once_and_three_words_do_not() -> None:
    found = {row["name"]: row["value"] for row in probe_evidence("test", SCENE, CONFIG)}
    blocks = exact_block_count(SCENE, CONFIG)
    assert found["probes.slots"] == 2048
    assert found["probes.key64.entries"] == found["probes.key64.blocks"] == blocks
    assert found["probes.other_hash.entries"] == blocks
    assert found["probes.three_words.entries"] > 2 * blocks
    assert found["probes.three_words.mean"] > 2 * found["probes.key64.mean"]


def test_alone_a_thread_probes_as_linear_probing_says() -> None:
    blocks = np.array([[1, 2, 3], [1, 2, 3], [4, 5, 6]])
    home = np.array([5, 5, 5])
    for three in (False, True):
        found = simulate(blocks, np.array([3]), home, 7, three)
        assert (found.mean, found.most, found.entries) == (4 / 3, 2, 2)


def test_a_full_table_ends() -> None:
    blocks = np.stack([np.arange(6), np.zeros(6, int), np.zeros(6, int)], axis=-1)
    found = simulate(blocks, np.ones(6, int), block_hash(blocks, 3).astype(np.int64), 3, False)
    assert (found.entries, found.most) == (4, 4)


def test_the_other_hash_spreads() -> None:
    blocks = np.stack(np.meshgrid(*[np.arange(-8, 8)] * 3), axis=-1).reshape(-1, 3)
    taken = np.bincount(mixed_hash(blocks, 4095), minlength=4096)
    assert taken.max() < 10 and (taken == 0).mean() < 0.45
