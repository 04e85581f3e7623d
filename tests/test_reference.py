"""The NumPy evaluation: its counts, its arithmetic, and the host's own helpers (keys, hash, layout, files)."""

from __future__ import annotations

import ctypes
import dataclasses
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.errors import IrrError
from harness.workload.adversarial import adversarial_cases, scene_of
from harness.workload.cells import load_cells
from harness.workload.fused import Fused
from harness.workload.reference import (
    evaluate,
    exact_block_count,
    exact_blocks,
    local_index,
    skip_mask,
    tsdf_bound,
    walk,
)
from harness.workload.scenes import Scene
from harness.workload.table import block_hash, pack, unpack
from harness.workload.volume import (
    FIELDS,
    HASH_MULTIPLIERS,
    KEY_BIAS,
    VOLUME_DTYPE,
    VolumeConfig,
    table_size,
)

F = np.float32
CELLS = load_cells()
FAST = ("base", "pts-20k", "pts-80k", "r-0.25", "r-1.0", "plane-320k", "lf-508", "lf-941")
block_axis = st.integers(-KEY_BIAS, KEY_BIAS - 1)
blocks = st.lists(st.tuples(block_axis, block_axis, block_axis), min_size=1, max_size=20)


def points_scene(points: object, camera: tuple[float, float, float] = (0, 0, 0)) -> Scene:
    return scene_of(np.array(points, F), camera)


# --- the counts of every cell and case --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CELLS]
)
def test_a_cell_has_the_blocks_and_samples_of_its_row(name: str) -> None:
    cell = CELLS[name]
    scene = cell.scene()
    reference = evaluate(scene, cell.config)
    assert (len(reference.coords), reference.samples) == (cell.blocks, cell.samples)
    assert reference.skipped == 0
    assert reference.weight.sum() == cell.samples
    assert exact_block_count(scene, cell.config) == cell.blocks


@pytest.mark.parametrize("case", adversarial_cases().values(), ids=lambda case: case.name)
def test_an_adversarial_case_has_the_blocks_it_says(case) -> None:
    reference = evaluate(case.scene(), case.config)
    assert len(reference.coords) == case.blocks
    assert np.array_equal(reference.coords, exact_blocks(case.scene(), case.config))
    assert reference.block_samples.sum() == reference.samples


# --- the arithmetic ---------------------------------------------------------------------------------------------------


def one_by_one(scene: Scene, config: VolumeConfig) -> dict[tuple[int, int, int], tuple[int, Fraction, list[int]]]:
    """algorithm.md again, slowly: scalars only, sums exact. Voxel -> weight, tsdf, colours."""
    sums: dict[tuple[int, int, int], tuple[int, Fraction, list[int]]] = {}
    c, h, inv, trunc = scene.camera, config.h, config.inv, config.trunc
    for p, colour in zip(scene.points, scene.colors, strict=True):
        d = [F(p[a] - c[a]) for a in range(3)]
        dist = F(np.sqrt(F(F(F(d[0] * d[0]) + F(d[1] * d[1])) + F(d[2] * d[2]))))
        if not dist > F(1e-6):
            continue
        u = [F(d[a] / dist) for a in range(3)]
        for s in range(-4, 5):
            t = F(F(s) * h)
            v = [int(np.floor(F(F(p[a] + F(u[a] * t)) * inv))) for a in range(3)]
            e = [F(F(F(F(v[a]) + F(0.5)) * h) - c[a]) for a in range(3)]
            sdf = F(dist - F(np.sqrt(F(F(F(e[0] * e[0]) + F(e[1] * e[1])) + F(e[2] * e[2])))))
            if sdf < -trunc:
                continue
            value = Fraction(float(min(max(F(sdf * config.inv_trunc), F(-1)), F(1))))
            weight, tsdf, colours = sums.get(tuple(v), (0, Fraction(0), [0, 0, 0]))
            sums[tuple(v)] = weight + 1, tsdf + value, [a + int(b) for a, b in zip(colours, colour, strict=True)]
    return sums


def assert_is_slow(scene: Scene, config: VolumeConfig) -> None:
    reference = evaluate(scene, config)
    expected = one_by_one(scene, config)
    for (x, y, z), (weight, tsdf, colours) in expected.items():
        row = np.flatnonzero((reference.coords == [x >> 3, y >> 3, z >> 3]).all(axis=1))
        assert len(row) == 1
        at = row[0], (x & 7) + 8 * (y & 7) + 64 * (z & 7)
        assert reference.weight[at] == weight
        assert abs(Fraction(float(reference.tsdf[at])) - tsdf) <= Fraction(weight) * weight / 2**53
        assert [reference.r[at], reference.g[at], reference.b[at]] == colours
    assert reference.samples == sum(weight for weight, *_ in expected.values())
    assert {tuple(b) for b in reference.coords} == {(x >> 3, y >> 3, z >> 3) for x, y, z in expected}
    keys = reference.keys
    assert (keys[1:] > keys[:-1]).all()


@settings(max_examples=25, deadline=None)
@given(
    points=arrays(F, st.tuples(st.integers(1, 4), st.just(3)), elements=st.floats(-3, 3, width=32)),
    camera=st.tuples(*[st.floats(-1, 1, width=32)] * 3),
    voxel=st.sampled_from([0.01, 0.05, 1 / 64, 0.3]),
)
def test_the_evaluation_is_the_algorithm_one_operation_at_a_time(points, camera, voxel) -> None:
    assert_is_slow(points_scene(points, camera), VolumeConfig(64, voxel))


def test_chunks_do_not_show() -> None:
    """More points than a chunk, with skipped ones in each: the same sums as point by point in two halves."""
    scene = CELLS["pts-80k"].scene()
    points = scene.points.copy()
    points[::1000] = np.nan
    config = VolumeConfig(16384)
    whole = evaluate(Scene(points, scene.colors, scene.camera), config)
    keep = ~np.isnan(points[:, 0])
    kept = evaluate(Scene(points[keep], scene.colors[keep], scene.camera), config)
    assert whole.skipped == 80 and kept.skipped == 0
    for name in ("coords", "weight", "r", "g", "b"):
        assert np.array_equal(getattr(whole, name), getattr(kept, name))
    assert np.allclose(whole.tsdf, kept.tsdf, rtol=0, atol=1e-10)


def test_the_walk_goes_point_by_point_and_outwards() -> None:
    scene = CELLS["pts-20k"].scene()
    index = np.concatenate([index for index, *_ in walk(scene.points, scene.camera, VolumeConfig(1))])
    assert (np.diff(index) >= 0).all() and index[0] == 0 and index[-1] == len(scene) - 1
    sdf = next(walk(scene.points[:1], scene.camera, VolumeConfig(1)))[2]
    assert (np.diff(sdf) < 0.01).all() and sdf[0] > sdf[-1]


# N33. The point itself is sample 0, so its voxel is floor(x * inv): the same form in every arm.
@pytest.mark.parametrize(
    ("x", "voxel", "block", "local"),
    [(-0.001, -1, -1, 7), (-0.125, -8, -1, 0), (-0.1251, -9, -2, 7), (0.1249, 7, 0, 7), (0.125, 8, 1, 0)],
)
def test_voxel_block_and_local_index_either_side_of_zero(x: float, voxel: int, block: int, local: int) -> None:
    config = VolumeConfig(1, 1 / 64)
    _, voxels, _ = next(walk(np.array([[x, 0.5, 0.5]], F), np.array([x, 0.5, 0], F), config))
    # Looking along z, x and y stay where they are.
    assert set(voxels[:, 0].tolist()) == {voxel}
    assert set((voxels[:, 0] >> 3).tolist()) == {block}
    assert set((local_index(voxels) & 7).tolist()) == {local}


def test_the_reciprocal_is_multiplied_never_divided_by() -> None:
    """x = 1.05 at voxel 0.05: dividing gives 20, multiplying by the reciprocal 21."""
    x, config = F(1.05), VolumeConfig(1, 0.05)
    assert int(np.floor(x / config.h)) == 20
    _, voxels, _ = next(walk(np.array([[x, 0.5, 0.5]], F), np.array([x, 0.5, 0], F), config))
    assert set(voxels[:, 0].tolist()) == {21}


@given(st.lists(st.integers(-(2**23), 2**23 - 1), min_size=3, max_size=3))
def test_a_voxel_is_its_block_and_its_place_in_it(voxel: list[int]) -> None:
    v = np.array([voxel], np.int32)
    local = int(local_index(v)[0])
    assert 0 <= local < 512
    inside = [local & 7, local >> 3 & 7, local >> 6]
    assert (8 * (v[0] >> 3) + inside).tolist() == voxel


# --- points that the host removes -------------------------------------------------------------------------------------


def test_unusable_points_are_skipped_and_named_one_by_one() -> None:
    points = np.array(
        [
            [1, 2, 3],
            [np.nan, 0, 1],
            [0, np.inf, 1],
            [0, 0, -np.inf],
            [0, 0, 0],
            [1e-6, 0, 0],
            [1.1e-6, 0, 0],
            [3e38] * 3,
        ],
        F,
    )
    mask = skip_mask(points, np.zeros(3, F), VolumeConfig(1))
    assert mask.tolist() == [False, True, True, True, True, True, False, True]


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("side", (-1, 1))
def test_the_last_block_is_kept_and_the_next_one_is_not(axis: int, side: int) -> None:
    """Voxel 1/64 makes block centres exact: block 2^20 - 1 and -2^20 are in, 2^20 and -2^20 - 1 out."""
    config = VolumeConfig(1, 1 / 64)
    last = KEY_BIAS - 1 if side > 0 else -KEY_BIAS
    for step, skipped in ((0, False), (side, True)):
        block = np.full(3, last)  # all axes, so that the ray slants
        block[axis] += step
        point = ((block + 0.5) * 0.125).astype(F)[None]
        assert skip_mask(point, np.zeros(3, F), config).tolist() == [skipped]
    kept = evaluate(points_scene((np.full((1, 3), last) + 0.5) * 0.125), config)
    assert kept.coords.tolist() == [[last] * 3]


def test_a_point_in_range_whose_band_leaves_it_is_skipped() -> None:
    config = VolumeConfig(1, 1 / 64)
    edge = KEY_BIAS * 0.125
    near, far = F(edge - 1.5 / 64), F(edge - 7 / 64)
    mask = skip_mask(np.array([[near] * 3, [far] * 3], F), np.zeros(3, F), config)
    assert mask.tolist() == [True, False]


@settings(max_examples=40, deadline=None)
@given(
    points=arrays(F, (8, 3), elements=st.floats(width=32, allow_nan=True)),
    camera=st.tuples(*[st.floats(-9, 9, width=32)] * 3),
)
def test_whatever_comes_in_the_walk_stays_in_range(points, camera) -> None:
    camera = np.array(camera, F)
    mask = skip_mask(points, camera, VolumeConfig(1))
    for index, voxels, sdf in walk(points, camera, VolumeConfig(1)):
        assert not mask[index].any()
        assert ((voxels >> 3) >= -KEY_BIAS).all() and ((voxels >> 3) < KEY_BIAS).all()
        assert np.isfinite(sdf).all()


def test_nothing_in_is_nothing_out() -> None:
    reference = evaluate(points_scene(np.empty((0, 3))), VolumeConfig(1))
    assert reference.coords.shape == (0, 3) and reference.weight.shape == (0, 512) and reference.samples == 0
    assert exact_block_count(points_scene([[np.nan] * 3]), VolumeConfig(1)) == 0


# --- the bound of float32 sums ----------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(x=arrays(F, st.integers(1, 60), elements=st.floats(-1, 1, width=32)), seed=st.integers(0, 2**32 - 1))
def test_a_sum_in_any_order_and_in_a_tree_stays_within_the_bound(x, seed: int) -> None:
    exact = sum((Fraction(float(value)) for value in x), Fraction(0))
    bound = float(tsdf_bound(np.array(len(x)), np.array(np.abs(x.astype(np.float64)).sum())))
    shuffled = np.random.default_rng(seed).permutation(x)
    running = F(0)
    for value in shuffled:
        running = F(running + value)
    halves = list(shuffled)
    while len(halves) > 1:
        halves = [F(a + b) for a, b in zip(halves[::2], halves[1::2], strict=False)] + halves[len(halves) // 2 * 2 :]
    for total in (running, halves[0]):
        assert abs(Fraction(float(total)) - exact) <= Fraction(bound)


def test_one_addend_has_no_room_beyond_the_smallest_numbers() -> None:
    assert float(tsdf_bound(np.array(1), np.array(1.0))) < 1e-36
    assert float(tsdf_bound(np.array(0), np.array(0.0))) == 0


# --- keys, hash, table size -------------------------------------------------------------------------------------------


@given(blocks)
def test_a_key_gives_its_block_back_and_keeps_the_order(coords: list[tuple[int, int, int]]) -> None:
    array = np.array(coords, np.int32)
    keys = pack(array)
    assert np.array_equal(unpack(keys), array)
    assert (keys >= 0).all()
    order = sorted(range(len(coords)), key=lambda i: coords[i])
    assert (np.diff(keys[order]) >= 0).all()
    assert len(set(keys.tolist())) == len(set(coords))


def test_the_outermost_keys() -> None:
    ends = np.array([[-KEY_BIAS] * 3, [KEY_BIAS - 1] * 3], np.int32)
    assert pack(ends).tolist() == [0, (1 << 63) - 1]
    assert np.array_equal(unpack(pack(ends)), ends)


@given(blocks, st.integers(1, 20))
def test_the_hash_wraps_as_unsigned_32_bits(coords: list[tuple[int, int, int]], bits: int) -> None:
    mask = (1 << bits) - 1
    expected = []
    for block in coords:
        x, y, z = ((value * prime) & 0xFFFFFFFF for value, prime in zip(block, HASH_MULTIPLIERS, strict=True))
        expected.append((x ^ y ^ z) & mask)
    assert block_hash(np.array(coords, np.int32), mask).tolist() == expected


@given(st.integers(1, 1 << 29))
def test_a_table_is_the_next_power_of_two_of_twice_the_pool(capacity: int) -> None:
    size = table_size(capacity)
    assert size >= 2 * capacity and size & (size - 1) == 0 and size // 2 < 2 * capacity


@settings(deadline=None)
@given(st.sets(st.tuples(*[st.integers(-40, 40)] * 3), min_size=1, max_size=60))
def test_a_table_filled_by_linear_probing_finds_what_it_holds(held: set[tuple[int, int, int]]) -> None:
    """Look-up, against a dictionary: 64 slots, up to a load of 0.94."""
    mask = 63
    table: list[int] = [-1] * 64
    for block in held:
        key, slot = int(pack(np.array([block]))[0]), int(block_hash(np.array([block]), mask)[0])
        while table[slot] != -1:
            slot = (slot + 1) & mask
        table[slot] = key
    for block in [*held, (41, 0, 0), (-41, 7, 7)]:
        key, slot = int(pack(np.array([block]))[0]), int(block_hash(np.array([block]), mask)[0])
        while table[slot] not in (-1, key):
            slot = (slot + 1) & mask
        assert (table[slot] == key) == (block in held)


# --- the struct -------------------------------------------------------------------------------------------------------


def test_a_struct_holds_what_it_was_given() -> None:
    config = VolumeConfig(7, 0.05, None, 32)
    pointers = {f.name: 1000 + i for i, f in enumerate(FIELDS) if f.numpy == "<u8"}
    value = config.struct(pointers)
    for name, address in pointers.items():
        assert value[name] == address
    assert (value["mask"], value["capacity"], value["steps"]) == (15, 7, 4)
    assert value["voxel"] == F(0.05) and value["inv_voxel"] == F(1) / F(0.05)
    assert value["trunc"] == F(4) * F(0.05) and value["inv_trunc"] == F(1) / (F(4) * F(0.05)) and value["cap"] == 32
    assert ctypes.sizeof(ctypes.c_char * VOLUME_DTYPE.itemsize) == 112


# --- files ------------------------------------------------------------------------------------------------------------


def fused_of(scene: Scene, config: VolumeConfig) -> Fused:
    reference = evaluate(scene, config)
    sums = {name: getattr(reference, name).astype(F) for name in ("tsdf", "weight", "r", "g", "b")}
    scalars = {"voxel": config.h, "truncation": config.trunc, "cap": F(config.cap), "steps": np.int32(4)}
    return Fused(
        reference.coords,
        **sums,
        lost_blocks=1,
        failed_inserts=2,
        dropped_points=3,
        skipped_points=4,
        **scalars,
        arm="cpu",
    )


@pytest.mark.parametrize("n", [0, 1, 40])
def test_a_fused_volume_survives_its_file(tmp_path: Path, n: int) -> None:
    fused = fused_of(points_scene(CELLS["pts-20k"].scene().points[:n]), VolumeConfig(64))
    fused.save(tmp_path / "v.npz")
    again = Fused.load(tmp_path / "v.npz")
    for field in dataclasses.fields(Fused):
        before, after = getattr(fused, field.name), getattr(again, field.name)
        if isinstance(before, np.ndarray):
            assert before.dtype == after.dtype and np.array_equal(before, after)
        else:
            assert before == after and type(before) is type(after)
    assert [path.name for path in tmp_path.iterdir()] == ["v.npz"]


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    fused = fused_of(points_scene([[0.5, 0.4, 0.3]]), VolumeConfig(64))
    with pytest.raises(IrrError, match="cannot be written"):
        fused.save(tmp_path / "no-such-folder" / "v.npz")
    assert list(tmp_path.iterdir()) == []


def _damaged(path: Path, how: str) -> None:
    fused = fused_of(points_scene([[0.5, 0.4, 0.3]]), VolumeConfig(64))
    values = {field.name: np.asarray(getattr(fused, field.name)) for field in dataclasses.fields(Fused)}
    if how == "absent":
        return
    if how == "text":
        path.write_text("not a zip\n")
        return
    if how == "cut":
        fused.save(path)
        path.write_bytes(path.read_bytes()[:-200])
        return
    if how == "field":
        del values["tsdf"]
    if how == "shape":
        values["weight"] = values["weight"][:, :100]
    if how == "pickle":
        values["arm"] = np.array([{"a": 1}], object)
    np.savez(path, **values)


@pytest.mark.parametrize("how", ["absent", "text", "cut", "field", "shape", "pickle"])
def test_a_file_that_is_no_volume_is_refused_in_words(tmp_path: Path, how: str) -> None:
    path = tmp_path / "v.npz"
    _damaged(path, how)
    with pytest.raises(IrrError) as error:
        Fused.load(path)
    assert "v.npz" in str(error.value) and "Traceback" not in str(error.value)


# --- scenes -----------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_scenes_are_the_formulas_in_float64_rounded_once() -> None:
    sphere_scene, plane_scene = CELLS["pts-20k"].scene(), CELLS["plane-320k"].scene()
    assert len(sphere_scene) == 100 * 200 and len(plane_scene) == 566 * 566
    i, j = 17, 93
    theta, phi = np.pi * (i + 0.5) / 100, 2 * np.pi * j / 200
    expected = 0.5 * np.array([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)])
    assert np.array_equal(sphere_scene.points[i * 200 + j], expected.astype(F))
    assert np.array_equal(
        plane_scene.points[i * 566 + j], np.array([-1 + 2 * i / 565, -1 + 2 * j / 565, 0.5]).astype(F)
    )
    n = i * 200 + j
    assert sphere_scene.colors[n].tolist() == [37 * n % 256, 59 * n % 256, 83 * n % 256]
    assert not sphere_scene.camera.any() and sphere_scene.points.flags.c_contiguous
