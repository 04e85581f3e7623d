"""The gates: green on what is right, red on each way of being wrong, never green on nothing."""

from __future__ import annotations

import dataclasses
import gc
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from harness.build.cargo import build_host as build_rust_host
from harness.build.host import build_host, find_compiler, host_flags
from harness.build.kernels import ARMS, KERNELS
from harness.build.manifest import ToolMissing
from harness.device.host import HostLibrary, HostVolume
from harness.device.identity import match_bus
from harness.errors import IrrError, UsageError
from harness.gates import analytic, crossarm, exact, loss, surface, table
from harness.gates.once import Once
from harness.gates.result import GateResult, judge, passed, skip
from harness.gates.run import Hung, coverage_gate, gate_arm, run_gates, summary, unreachable, within
from harness.workload.adversarial import adversarial_cases, scene_of
from harness.workload.cells import load_cells
from harness.workload.fused import Fused, RawVolume
from harness.workload.reference import Reference, evaluate
from harness.workload.scenes import sphere
from harness.workload.volume import VOXEL_FIELDS, VolumeConfig

F = np.float32
CELLS = load_cells()
BASE, SMALL, PLANE = CELLS["base"], CELLS["pts-20k"], CELLS["plane-320k"]
KERNEL_PAIR = [KERNELS["cuda/allocate/plain"], KERNELS["cuda/update/plain"]]


def host_libraries() -> dict[str, HostLibrary]:
    found = {}
    for arm, build in (("cpu", lambda: build_host().path), ("rust-cpu", build_rust_host)):
        try:
            found[arm] = HostLibrary(build())
        except ToolMissing:
            continue
    return found


@pytest.fixture(scope="module")
def libraries() -> dict[str, HostLibrary]:
    found = host_libraries()
    if "cpu" not in found:
        pytest.skip("no C++ compiler")
    return found


def fuse(arm: str, cell, libraries: dict[str, HostLibrary]) -> HostVolume:
    volume = HostVolume(cell.config, libraries[arm])
    for name in (ARMS[arm].allocate, ARMS[arm].update):
        assert name is not None
        volume.launch(name, cell.scene())
    return volume


@pytest.fixture(scope="module")
def volume(libraries: dict[str, HostLibrary]) -> HostVolume:
    return fuse("cpu", SMALL, libraries)


@pytest.fixture(scope="module")
def reference() -> Reference:
    return evaluate(SMALL.scene(), SMALL.config)


def red(results: list[GateResult]) -> set[str]:
    return {result.gate for result in results if result.failed}


def altered(fused: Fused, name: str, at: tuple[int, int], value: float) -> Fused:
    array = getattr(fused, name).copy()
    array[at] = value
    return dataclasses.replace(fused, **{name: array})


# --- a result ---------------------------------------------------------------------------------------------------------


def test_comparing_nothing_fails_and_so_does_checking_nothing() -> None:
    assert not judge("g", "exact", "s", 0, {"a": (True, "")}).ok
    assert not judge("g", "exact", "s", 5, {}).ok
    assert judge("g", "exact", "s", 5, {"a": (True, "")}).ok


def test_a_skipped_gate_is_neither_passed_nor_failed_and_alone_is_no_pass() -> None:
    skipped = skip("g", "exact", "s", "no tool")
    assert not skipped.ok and not skipped.failed and not passed([skipped])
    good = judge("g", "exact", "s", 1, {"a": (True, "")})
    assert passed([skipped, good]) and not passed([good, judge("h", "exact", "s", 0, {})])


def test_a_result_is_strict_json() -> None:
    result = judge(
        "g", "exact", "s", 1, {"a": (np.float64("nan") < 1, "nan")}, {"x": np.float32("nan"), "n": np.int64(3)}
    )
    text = json.dumps(result.to_json(), allow_nan=False)
    assert json.loads(text)["detail"] == {"x": None, "n": 3} and not json.loads(text)["ok"]


def test_what_several_gates_need_is_made_once_for_an_object_and_forgotten_with_it() -> None:
    class Volume:
        pass

    kept: Once[Volume, int] = Once()
    volumes, made = [Volume(), Volume()], []

    def slow(value: int) -> int:
        time.sleep(0.02)
        made.append(value)
        return value

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: kept(volumes[0], lambda: slow(1)), range(8))) == [1] * 8
    assert kept(volumes[1], lambda: slow(2)) == 2 and made == [1, 2]
    with pytest.raises(ZeroDivisionError):
        kept(third := Volume(), lambda: 1 // 0)
    assert kept(third, lambda: 3) == 3
    del volumes[0]
    gc.collect()
    assert len(kept._places) == 2


# --- every gate on the host arm, untouched and with one thing wrong ---------------------------------------------------


def test_the_host_arm_passes_every_gate(volume: HostVolume, reference: Reference) -> None:
    results = gate_arm(SMALL, volume.fused("cpu"), volume.raw(), reference, KERNEL_PAIR, volume.extract()[0])
    assert [f"{r.gate}: {r.message}" for r in results if not r.ok] == []
    gates = (
        "sphere geometric extract exact-set exact-samples exact-weight exact-colour exact-tsdf exact-surface table loss"
    )
    assert [r.gate for r in results] == gates.split()
    assert all(r.compared > 0 for r in results)


ONE_WRONG: dict[str, tuple[Callable[[Fused], Fused], set[str]]] = {
    "a weight": (lambda f: altered(f, "weight", (5, 7), f.weight[5, 7] + 1), {"exact-samples", "exact-weight"}),
    "a colour": (lambda f: altered(f, "g", (5, 7), f.g[5, 7] + 1), {"exact-colour"}),
    "a tsdf by a thousandth": (lambda f: altered(f, "tsdf", (5, 7), f.tsdf[5, 7] + F(1e-3)), {"exact-tsdf"}),
    "a nan": (lambda f: altered(f, "tsdf", (5, 7), F("nan")), {"exact-tsdf"}),
    "a weight that is nan": (
        lambda f: altered(f, "weight", (5, 7), F("nan")),
        {"exact-samples", "exact-weight"},
    ),
}


@pytest.mark.parametrize("what", ONE_WRONG)
def test_one_wrong_number_is_seen_by_its_gate_alone(what: str, volume: HostVolume, reference: Reference) -> None:
    change, expected = ONE_WRONG[what]
    assert red(exact.exact_gates(change(volume.fused("cpu")), reference, "s")) == expected


def test_a_missing_and_an_extra_block_are_the_sets(volume: HostVolume, reference: Reference) -> None:
    fused = volume.fused("cpu")
    less = dataclasses.replace(fused, **{n: getattr(fused, n)[1:] for n in ("coords", "tsdf", "weight", "r", "g", "b")})
    assert red(exact.exact_gates(less, reference, "s")) == {"exact-set", "exact-samples"}
    assert "exact-set" not in red(exact.exact_gates(less, reference, "s", may_lose=True))
    shifted = dataclasses.replace(fused, coords=fused.coords + np.int32(1000))
    assert {"exact-set", "exact-weight", "exact-tsdf"} <= red(exact.exact_gates(shifted, reference, "s"))
    turned = dataclasses.replace(fused, coords=fused.coords[::-1])
    assert "exact-set" in red(exact.exact_gates(turned, reference, "s"))


def test_with_a_cap_only_the_set_is_exact(reference: Reference, volume: HostVolume) -> None:
    capped = dataclasses.replace(volume.fused("cpu"), cap=F(32))
    assert [result.gate for result in exact.exact_gates(capped, reference, "s")] == ["exact-set"]


def test_sums_beyond_two_to_the_24_are_held_to_their_rounding(libraries: dict[str, HostLibrary]) -> None:
    """70,000 points in one place: colour sums of up to 17.8 million, no longer exact in float32."""
    scene = scene_of(np.repeat([[0.5, 0.4, 0.3]], 70_000, axis=0))
    scene.colors[:] = 255
    config = VolumeConfig(16)
    volume = HostVolume(config, libraries["cpu"])
    for kernel in KERNEL_PAIR:
        volume.launch(kernel, scene)
    results = {r.gate: r for r in exact.exact_gates(volume.fused("cpu"), evaluate(scene, config), "s")}
    assert all(result.ok for result in results.values())
    assert results["exact-colour"].detail["beyond_exact"] > 0
    wrong = altered(volume.fused("cpu"), "r", tuple(np.argwhere(volume.fused("cpu").r > 1e7)[0]), 1.5e7)
    assert red(exact.exact_gates(wrong, evaluate(scene, config), "s")) == {"exact-colour"}


# --- analytic ---------------------------------------------------------------------------------------------------------


def test_the_sphere_gate_wants_vertices_on_the_sphere_on_all_sides() -> None:
    shape, config = analytic.SphereSurface(0.5), SMALL.config
    points = sphere(0.5, 20, 40).points
    assert analytic.surface_gate(points, shape, config, "s").ok
    for wrong in (points * F(1.006), points[points[:, 0] > 0], np.empty((0, 3)), np.full((4, 3), np.nan)):
        assert analytic.surface_gate(wrong, shape, config, "s").failed


def test_the_largest_error_catches_what_the_mean_lets_pass() -> None:
    """0.0017 m on average is inside a quarter voxel; no right vertex is that far off."""
    shape = analytic.SphereSurface(0.5)
    result = analytic.surface_gate(sphere(0.5 + 0.0017, 20, 40).points, shape, SMALL.config, "s")
    assert result.failed and result.detail["mean_m"] < result.detail["limit_m"]


@pytest.mark.parametrize("cell", [SMALL, PLANE], ids=lambda cell: cell.name)
def test_the_geometric_gate_sees_a_block_too_far_and_one_left_out(cell) -> None:
    scene, shape = cell.scene(), analytic.surface_of(cell)
    assert shape is not None
    coords = evaluate(scene, cell.config).coords
    assert analytic.geometric_gate(coords, scene, shape, cell.config, "s").ok
    far = np.concatenate([coords, np.array([[40, 40, 40]], np.int32)])
    assert analytic.geometric_gate(far, scene, shape, cell.config, "s").detail["outside"] == 1
    held = np.floor(scene.points[len(scene) // 2] / (8 * cell.config.h)).astype(np.int32)
    less = coords[~(coords == held).all(axis=1)]
    assert len(less) == len(coords) - 1
    result = analytic.geometric_gate(less, scene, shape, cell.config, "s")
    assert result.failed and result.detail["missing"] == 1
    assert analytic.geometric_gate(
        coords[:0], dataclasses.replace(scene, points=scene.points[:0]), shape, cell.config, "s"
    ).failed


def test_distances_to_boxes_are_those_of_their_nearest_points() -> None:
    rng = np.random.default_rng(3)
    low = rng.uniform(-1, 1, (40, 3))
    high = low + rng.uniform(0.01, 0.3, (40, 3))
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 13)] * 3, indexing="ij"), -1).reshape(-1, 3)
    for shape in (analytic.SphereSurface(0.5), analytic.PlaneSurface()):
        inside = [shape.distance(a + grid * (b - a)).min() for a, b in zip(low, high, strict=True)]
        exactly = shape.box_distance(low, high)
        assert (exactly <= np.array(inside) + 1e-12).all() and (np.array(inside) - exactly < 0.05).all()


def test_the_kernels_surface_is_the_crossings(volume: HostVolume) -> None:
    triangles, fused = volume.extract()[0], volume.fused("cpu")
    assert surface.extract_gate(triangles, fused, "s").ok
    moved = triangles.copy()
    moved[3, 1, 2] += F(1e-5)
    for wrong in (moved, triangles[: len(triangles) // 2], triangles[:0]):
        assert surface.extract_gate(wrong, fused, "s").failed


# --- the table --------------------------------------------------------------------------------------------------------


def corrupted(raw: RawVolume, change: Callable[[np.ndarray], None]) -> RawVolume:
    slots = raw.table.copy()
    change(slots)
    return dataclasses.replace(raw, table=slots)


def _used(slots: np.ndarray) -> np.ndarray:
    return np.flatnonzero(slots["key"] != -1)


def _move(slots: np.ndarray) -> None:
    """One entry to a place that its probe never reaches."""
    here = _used(slots)[0]
    gap = np.flatnonzero((slots["key"] == -1) & (np.roll(slots["key"], 1) == -1))
    there = gap[gap > here][5]
    slots[there] = slots[here]
    slots[here] = (-1, -1, 0)


def _twice(slots: np.ndarray) -> None:
    here = _used(slots)[0]
    slots[np.flatnonzero(slots["key"] == -1)[0]] = slots[here]


def _same_index(slots: np.ndarray) -> None:
    first, second = _used(slots)[:2]
    slots["index"][second] = slots["index"][first]


def _unpublished(slots: np.ndarray) -> None:
    slots["index"][_used(slots)[0]] = -1


def _tombstone(slots: np.ndarray) -> None:
    slots["index"][_used(slots)[0]] = -2


def _stray(slots: np.ndarray) -> None:
    slots["index"][np.flatnonzero(slots["key"] == -1)[0]] = 4


def _no_key(slots: np.ndarray) -> None:
    slots["key"][_used(slots)[0]] = -5


def _empty(slots: np.ndarray) -> None:
    slots["key"] = -1
    slots["index"] = -1


@pytest.mark.parametrize("change", [_move, _twice, _same_index, _unpublished, _tombstone, _stray, _no_key, _empty])
def test_a_broken_table_is_seen(change: Callable[[np.ndarray], None], volume: HostVolume) -> None:
    assert table.table_gate(volume.raw(), SMALL.config, "s").ok
    assert table.table_gate(corrupted(volume.raw(), change), SMALL.config, "s").failed


def test_coordinates_that_are_another_blocks_are_seen(volume: HostVolume) -> None:
    raw = volume.raw()
    coords = raw.coords.copy()
    coords[[3, 4]] = coords[[4, 3]]
    result = table.table_gate(dataclasses.replace(raw, coords=coords), SMALL.config, "s")
    assert result.failed and "another block" in result.message


# --- arms against each other, and N33 in all of them ------------------------------------------------------------------


def test_two_arms_agree_and_disagree(volume: HostVolume) -> None:
    cpu = volume.fused("cpu")
    other = dataclasses.replace(cpu, arm="other")
    assert crossarm.cross_gate(cpu, other, "s").ok
    wrong = {
        "itself": cpu,
        "set": dataclasses.replace(other, coords=other.coords + np.int32(1)),
        "weight": altered(other, "weight", (5, 7), 99),
        "colour": altered(other, "b", (5, 7), 99),
        "tsdf": altered(other, "tsdf", (5, 7), 9),
        "nan": altered(other, "tsdf", (5, 7), F("nan")),
        "voxel": dataclasses.replace(other, voxel=F(0.02)),
        "empty": dataclasses.replace(
            other, **{n: getattr(other, n)[:0] for n in ("coords", "tsdf", "weight", "r", "g", "b")}
        ),
    }
    assert {name for name, fused in wrong.items() if not crossarm.cross_gate(cpu, fused, "s").failed} == set()


@pytest.mark.parametrize("arm", ["cpu", "rust-cpu"])
@pytest.mark.parametrize(
    ("x", "voxel", "expected"),
    [
        (-0.001, 1 / 64, -1),
        (-0.125, 1 / 64, -8),
        (-0.1251, 1 / 64, -9),
        (0.1249, 1 / 64, 7),
        (0.125, 1 / 64, 8),
        (1.05, 0.05, 21),
    ],
)
def test_every_arm_floors_alike(
    arm: str, x: float, voxel: float, expected: int, libraries: dict[str, HostLibrary]
) -> None:
    if arm not in libraries:
        pytest.skip("no rustc")
    scene = scene_of(np.array([[x, 0.5, 0.5]]), (x, 0.5, 0))
    volume = HostVolume(VolumeConfig(8, voxel), libraries[arm])
    for name in (ARMS[arm].allocate, ARMS[arm].update):
        volume.launch(name or "", scene)
    fused = volume.fused(arm)
    block, local = np.nonzero(fused.weight)
    assert set((8 * fused.coords[block, 0] + (local & 7)).tolist()) == {expected}
    assert fused.weight.sum() == evaluate(scene, volume.config).samples


@pytest.mark.parametrize(("rows", "surface_there"), [(32, False), (56, False), (64, True), (100, True)])
def test_points_too_sparse_for_a_surface_are_judged_without_one(
    rows: int, surface_there: bool, libraries: dict[str, HostLibrary]
) -> None:
    words = (("radius", 0.5), ("rows", rows), ("columns", 2 * rows))
    cell = dataclasses.replace(SMALL, name="sparse", arguments=words)
    fused = fuse("cpu", cell, libraries).fused("cpu")
    assert (len(surface.crossings(fused)) > 0) is surface_there
    reference = evaluate(cell.scene(), cell.config)
    raw = fuse("cpu", cell, libraries).raw()
    names = {r.gate for r in gate_arm(cell, fused, raw, reference, KERNEL_PAIR)}
    assert ("sphere" in names) is surface_there and {"geometric", "exact-set", "exact-tsdf"} <= names
    # What has no surface has its blocks and sums judged all the same.
    assert red(gate_arm(cell, altered(fused, "weight", (0, 0), 99.0), raw, reference, KERNEL_PAIR)) >= {"exact-weight"}


# --- loss, N27 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["cpu", "rust-cpu"])
@pytest.mark.parametrize("pool", [1100, 600, 1])
def test_a_pool_smaller_than_base_ends_at_once_and_loses_exactly_what_does_not_fit(
    arm: str, pool: int, libraries: dict[str, HostLibrary]
) -> None:
    if arm not in libraries:
        pytest.skip("no rustc")
    cell = dataclasses.replace(BASE, config=VolumeConfig(pool))
    expected = evaluate(BASE.scene(), cell.config)
    began = time.monotonic()
    volume = fuse(arm, cell, libraries)
    assert time.monotonic() - began < 10
    results = gate_arm(cell, volume.fused(arm), volume.raw(), expected, KERNEL_PAIR)
    assert [f"{r.gate}: {r.message}" for r in results if not r.ok] == []
    figures = next(r.detail for r in results if r.gate == "loss")
    assert figures["lost_blocks"] == 1160 - pool
    assert figures["dropped_points"] == 2_725_904 - volume.fused(arm).weight.sum(dtype=np.float64)


@pytest.mark.parametrize("arm", ["cpu", "rust-cpu"])
def test_a_table_as_full_as_it_gets(arm: str, libraries: dict[str, HostLibrary]) -> None:
    """N27: 16 blocks for 40; 64 of 64; a 65th and the look-up of an absent key."""
    if arm not in libraries:
        pytest.skip("no rustc")
    cases = adversarial_cases()
    for name, lost in (("pool-16", 24), ("full", 0), ("full-plus-1", 1), ("two-slots", 0), ("pool-1", 39)):
        began = time.monotonic()
        volume = fuse(arm, cases[name], libraries)
        assert time.monotonic() - began < 10
        expected = evaluate(cases[name].scene(), cases[name].config)
        results = gate_arm(cases[name], volume.fused(arm), volume.raw(), expected, KERNEL_PAIR)
        assert [f"{name}: {r.gate}: {r.message}" for r in results if not r.ok] == []
        assert next(r.detail["lost_blocks"] for r in results if r.gate == "loss") == lost


def test_a_loss_that_is_not_what_it_had_to_be(volume: HostVolume, reference: Reference) -> None:
    fused = volume.fused("cpu")
    assert loss.loss_gate(fused, reference, SMALL.config, False, "s").ok
    for wrong in ({"dropped_points": 1}, {"failed_inserts": 1}):
        assert loss.loss_gate(dataclasses.replace(fused, **wrong), reference, SMALL.config, False, "s").failed
    less = dataclasses.replace(fused, **{n: getattr(fused, n)[1:] for n in ("coords", "tsdf", "weight", "r", "g", "b")})
    dropped = int(reference.block_samples[0])
    silent, told = less, dataclasses.replace(less, dropped_points=dropped, failed_inserts=9)
    assert loss.lost_blocks(less.coords, reference.coords) == 1
    assert loss.loss_gate(told, reference, SMALL.config, False, "s").failed  # the pool had room
    assert loss.loss_gate(told, reference, SMALL.config, True, "s").ok  # a bounded probe may lose, and says so
    assert loss.loss_gate(silent, reference, SMALL.config, True, "s").failed  # but never in silence
    assert loss.loss_gate(
        less,
        dataclasses.replace(reference, coords=reference.coords[:0], weight=reference.weight[:0]),
        SMALL.config,
        True,
        "s",
    ).failed


# --- contraction, N22 -------------------------------------------------------------------------------------------------

SAXPY = """
#include <cstdio>
extern "C" __attribute__((noinline)) float saxpy(float a, float x, float y) { return a * x + y; }
int main() { volatile float a = 1.000244140625f, y = -1.00048828125f; std::printf("%.8g\\n", saxpy(a, a, y)); }
"""


@pytest.mark.parametrize(
    ("extra", "expected"),
    [((), 0.0), (("-march=x86-64-v3",), 0.0), (("-march=x86-64-v3", "-ffp-contract=fast"), 2.0**-24)],
)
def test_the_host_arm_does_what_its_label_says(tmp_path: Path, extra: tuple[str, ...], expected: float) -> None:
    """N22: a value that tells fused from separate, under the host arm's own flags; the last row shows that it can."""
    try:
        compiler, _ = find_compiler()
    except ToolMissing as missing:
        pytest.skip(missing.what)
    if extra and " fma " not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no fused multiply-add")
    (tmp_path / "saxpy.cpp").write_text(SAXPY)
    flags = [flag for flag in host_flags(extra) if flag != "-fPIC"]
    subprocess.run([compiler, *flags, "saxpy.cpp", "-o", "saxpy"], cwd=tmp_path, check=True, timeout=120)
    said = subprocess.run([tmp_path / "saxpy"], capture_output=True, text=True, check=True).stdout
    assert F(said) == F(expected)
    assert "-ffp-contract=off" in host_flags()


# --- running them all -------------------------------------------------------------------------------------------------


def test_an_arm_that_does_not_end_is_called_hung() -> None:
    began = time.monotonic()
    with pytest.raises(Hung, match="did not end"):
        within(0.2, "it", lambda: time.sleep(5))  # pyright: ignore[reportArgumentType]
    assert time.monotonic() - began < 3
    with pytest.raises(ZeroDivisionError):
        within(5, "it", lambda: 1 // 0)  # pyright: ignore[reportArgumentType]


def test_all_arms_of_this_machine_on_a_few_cases() -> None:
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    results = run_gates(None, "points-0,points-33,pool-16,chain", places=("host", "gpu"))
    assert [f"{r.gate}: {r.subject}: {r.message}" for r in results if r.failed] == []
    assert passed(results) and results[-1].gate == "coverage"
    said = summary(results)
    assert "skipped open3d" in said and "FAILED" not in said
    listed = {r.subject.split(" on ")[0] for r in results}
    assert set(ARMS) <= listed


def test_the_gpu_place_over_simulated_cupy(tmp_path: Path) -> None:
    """The calls that run arms on a GPU, over this machine's memory; a GPU runs the same through `irr gate`."""
    program = Path(__file__).parent / "simulated" / "gates_gpu.py"
    done = subprocess.run([sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "all right" in done.stdout, done.stderr[-2000:]


@pytest.mark.gpu
def test_every_gate_on_a_gpu() -> None:
    results = run_gates(None, None, places=("gpu",))
    assert [f"{r.gate}: {r.subject}: {r.message}" for r in results if r.failed] == []
    assert "cuda" in {r.subject.split(" on ")[0] for r in results if r.gate == "provenance"}


def test_coverage_notices_what_is_missing_and_what_is_hollow() -> None:
    arms, cells = [ARMS["cpu"], ARMS["rust-cpu"]], [SMALL]
    ran = judge("provenance", "exact", "cpu on pts-20k", 1, {"ran": (True, "")})
    held = judge("table", "table", "cpu on pts-20k", 1, {"a": (True, "")})
    left = skip("arm", "exact", "rust-cpu on pts-20k", "no rustc")
    assert coverage_gate([ran, held, left], arms, cells).ok
    assert coverage_gate([ran, held], arms, cells).failed
    assert coverage_gate([ran, left], arms, cells).failed
    hollow = dataclasses.replace(left, ok=True)
    assert coverage_gate([ran, held, hollow], arms, cells).failed
    assert coverage_gate([], [], []).failed


def test_unknown_arms_and_cells_are_wrong_use() -> None:
    with pytest.raises(UsageError, match="nobody"):
        run_gates("nobody")
    with pytest.raises(UsageError, match="nowhere"):
        run_gates("cpu", "nowhere")


def test_a_device_is_the_one_at_its_bus() -> None:
    """N01: NVML prints an eight-digit domain, CUDA a four-digit one, in any case; the index says nothing."""
    cards = [
        {"name": "Card A", "uuid": "GPU-a", "pci_bus": "00000000:01:00.0"},
        {"name": "Card B", "uuid": "GPU-b", "pci_bus": "00000000:AF:00.0"},
    ]
    assert match_bus("0000:af:00.0", cards)["uuid"] == "GPU-b"
    assert match_bus("0000:01:00.0", cards)["uuid"] == "GPU-a"
    with pytest.raises(IrrError):
        match_bus("0000:02:00.0", cards)


# ------------------------------------------------------------------------------------------------- a bounded look-up


def test_a_bounded_update_loses_what_lies_beyond_its_bound_and_nothing_else(libraries):
    case = adversarial_cases()["chain"]
    scene = case.scene()
    reference = evaluate(scene, case.config)
    volume = fuse("cpu", case, libraries)
    raw, whole = volume.raw(), volume.fused("cpu")
    bounded = [KERNELS["cuda/allocate/plain"], KERNELS["triton/update/static8"]]
    beyond = unreachable(raw, case.config, bounded)
    assert 0 < len(beyond) < len(reference.keys)
    away = np.isin(reference.keys, beyond)
    gone = {name: np.where(away[:, None], 0, getattr(whole, name)).astype(F) for name in VOXEL_FIELDS}
    lossy = dataclasses.replace(whole, **gone, dropped_points=int(reference.block_samples[away].sum()))

    def red(fused: Fused, kernels=bounded) -> set[str]:
        results = gate_arm(case, fused, raw, reference, kernels)
        return {result.gate for result in results if not result.ok}

    assert red(lossy) == set()
    assert "loss" in red(whole)  # it reached what it says it cannot
    assert "loss" in red(dataclasses.replace(lossy, dropped_points=lossy.dropped_points - 1))
    assert "exact-weight" in red(lossy, KERNEL_PAIR)  # an unbounded update may not
    near = np.flatnonzero(~away)[0]
    weight = lossy.weight.copy()
    weight[near] = 0
    assert "exact-weight" in red(dataclasses.replace(lossy, weight=weight))
