"""The host arms on odd inputs: pools too small, tables full, the first and last block, no point at all."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from harness.build.host import build_host, find_compiler, host_flags
from harness.build.manifest import ToolMissing
from harness.device.host import LIBRARIES, HostVolume, checked, run_with_deadline
from harness.errors import IrrError
from harness.gates.loss import lost_blocks
from harness.workload.cells import load_cells
from harness.workload.reference import evaluate, exact_blocks, skip_mask
from harness.workload.scenes import Scene, sphere
from harness.workload.table import block_hash, pack
from harness.workload.volume import KEY_BIAS, STEPS, VOLUME_DTYPE, VOXEL_FIELDS, VolumeConfig, cpp_header

H = 0.01
BASE = load_cells()["base"]


def scene(points: np.ndarray, camera: tuple[float, float, float] = (0, 0, 0)) -> Scene:
    points = np.ascontiguousarray(points, np.float32).reshape(-1, 3)
    return Scene(points, np.full(points.shape, 100, np.uint8), np.array(camera, np.float32))


def line(count: int, first: int = 0) -> Scene:
    """`count` points along x, the band of each within a block of its own: blocks (first + i, 0, 0), 8 samples each.

    A point 0.4 voxels behind a voxel's edge has its last sample 4.1 voxels behind the surface, so occluded: voxels
    -4 .. 3 round it are left, which is one block if the point's voxel is 4 of 0 .. 7.
    """
    x = (8.0 * (first + np.arange(count)) + 4.4) * H
    points = np.stack([x, np.full(count, 0.035), np.full(count, 0.035)], axis=-1)
    return scene(points, (x[0] - 1 if count else 0, 0.035, 0.035))


@pytest.fixture(params=sorted(LIBRARIES))
def language(request: pytest.FixtureRequest) -> str:
    """Every language with a host library; skipped where its compiler is missing."""
    try:
        LIBRARIES[request.param]()
    except ToolMissing as error:
        pytest.skip(f"{request.param}: {error.what}")
    return request.param


def fuse(language: str, given: Scene, config: VolumeConfig) -> HostVolume:
    volume = HostVolume(config)
    volume.launch(f"{language}/allocate/plain", given)
    volume.launch(f"{language}/update/plain", given)
    return volume


# --- pools and tables too small -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [1100, 600, 1])
def test_small_pool_ends_with_exact_loss(language: str, pool: int) -> None:
    given, exact = BASE.scene(), evaluate(BASE.scene(), BASE.config)
    start = time.process_time()
    volume = fuse(language, given, VolumeConfig(pool))
    assert time.process_time() - start < 2  # CPU seconds: tens of milliseconds on a machine of one's own
    fused = volume.fused("test")
    missing = ~np.isin(exact.keys, pack(fused.coords))
    assert lost_blocks(fused.coords, exact.coords) == BASE.blocks - pool
    assert fused.dropped_points == exact.block_samples[missing].sum()
    assert fused.weight.sum() == BASE.samples - fused.dropped_points


def test_small_pool_and_small_table() -> None:
    """Tombstones fill the table, later inserts find no slot: three figures, three numbers."""
    given = BASE.scene()
    volume = fuse("cuda", given, VolumeConfig(600, table=1024))
    raw = volume.raw()
    assert raw.count == 600
    assert (raw.table["index"] == -2).sum() == 1024 - 600
    assert raw.failed_inserts > BASE.blocks - 600
    assert lost_blocks(raw.coords[: raw.count], exact_blocks(given, BASE.config)) == BASE.blocks - 600
    assert raw.voxels["weight"].sum() == BASE.samples - raw.dropped_points


@pytest.mark.smoke
def test_pool_and_table_exactly_full(language: str) -> None:
    """64 keys in 64 slots; the 65th finds no place and its look-up ends."""
    config = VolumeConfig(64, table=64)
    volume = fuse(language, line(64), config)
    raw = volume.raw()
    assert (raw.count, raw.failed_inserts, raw.dropped_points) == (64, 0, 0)
    assert set(raw.table["index"].tolist()) == set(range(64))
    assert raw.voxels["weight"].sum() == 64 * 8

    volume.launch(f"{language}/allocate/plain", line(1, first=64))
    volume.launch(f"{language}/update/plain", line(1, first=64))
    raw = volume.raw()
    assert (raw.count, raw.failed_inserts, raw.dropped_points) == (64, 8, 8)
    assert raw.voxels["weight"].sum() == 64 * 8


def test_frame_larger_than_a_pool_of_16(language: str) -> None:
    raw = fuse(language, line(40), VolumeConfig(16)).raw()
    assert raw.count == 16
    # 32 slots: 16 blocks, 16 tombstones; the other 8 blocks fail at each of their 8 samples.
    assert raw.failed_inserts == 16 + 8 * 8
    assert raw.dropped_points == 24 * 8


def test_table_of_two_slots(language: str) -> None:
    assert fuse(language, line(1), VolumeConfig(1)).raw().table.size == 2
    assert fuse(language, line(2), VolumeConfig(2, table=2)).raw().count == 2
    raw = fuse(language, line(3), VolumeConfig(2, table=2)).raw()
    assert (raw.count, raw.failed_inserts, raw.dropped_points) == (2, 8, 8)


def test_more_threads_than_cores_do_not_hang() -> None:
    given = sphere(0.5, 100, 200)
    raw = run_with_deadline(
        build_host().path, ["cuda/allocate/plain", "cuda/update/plain"], given, VolumeConfig(600), 60, threads=64
    )
    assert raw.count == 600


# --- odd inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33])
def test_any_number_of_points(language: str, count: int) -> None:
    raw = fuse(language, line(count), VolumeConfig(64)).raw()
    assert (raw.count, raw.failed_inserts, raw.dropped_points) == (count, 0, 0)
    assert raw.voxels["weight"].sum() == 8 * count
    assert raw.voxels["r"].sum() == 8 * count * 100


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("voxel", [-8 * KEY_BIAS + 4, 8 * KEY_BIAS - 5])
def test_first_and_last_block(language: str, axis: int, voxel: int) -> None:
    """Blocks -2^20 and 2^20 - 1 have keys of their own; one voxel further out the host removes the point."""
    edge, outwards = 0.25, 1 if voxel > 0 else -1  # a voxel edge whose multiples are exact out there
    config = VolumeConfig(8, edge)

    def at(v: int) -> Scene:
        point = np.full(3, 3.5 * edge)
        point[axis] = v * edge
        camera = point.copy()
        camera[axis] -= outwards * 100 * edge
        return scene(point, tuple(camera))

    given = at(voxel)
    assert skip_mask(given.points, given.camera, config).tolist() == [False]
    assert skip_mask(at(voxel + outwards).points, given.camera, config).tolist() == [True]
    expected = exact_blocks(given, config)
    assert (-KEY_BIAS if voxel < 0 else KEY_BIAS - 1) in expected[:, axis]
    volume = fuse(language, given, config)
    assert np.array_equal(volume.fused("test").coords, expected)
    assert volume.raw().voxels["weight"].sum() == evaluate(given, config).samples


def test_point_at_the_camera_has_no_sample(language: str) -> None:
    given = scene(np.array([[0.3, 0.2, 0.1], [0.3, 0.2, 0.1 + 1e-7]]), (0.3, 0.2, 0.1))
    assert fuse(language, given, VolumeConfig(64)).count == 0


def test_camera_within_the_band_of_its_points(language: str) -> None:
    """Points 1.5 voxels round the camera: rays run through the camera and out behind it, and every arm agrees."""
    given = sphere(0.015, 20, 40)
    exact = evaluate(given, VolumeConfig(64))
    fused = fuse(language, given, VolumeConfig(64)).fused("test")
    assert np.array_equal(fused.coords, exact.coords)
    assert np.array_equal(fused.weight, exact.weight)


@pytest.mark.parametrize("threads", [1, 2])
def test_cap_stops_each_voxel_within_the_threads_in_flight(language: str, threads: int) -> None:
    """The cap is a plain read, so a voxel may pass it by what was in flight: one addition a thread but the one that
    reads. A single thread is exact."""
    given = BASE.scene()
    volume = HostVolume(VolumeConfig(2048, cap=32), threads=threads)
    for stage in ("allocate", "update"):
        volume.launch(f"{language}/{stage}/plain", given)
    fused, exact = volume.fused("test"), evaluate(given, BASE.config)
    assert fused.dropped_points == 0
    assert (exact.weight > 32).any()
    assert (fused.weight >= np.minimum(exact.weight, 32)).all()
    assert (fused.weight <= np.minimum(exact.weight, 32 + threads - 1)).all()


# --- voxel edges (needs N33) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("voxel", "x", "wanted"),
    [
        (1 / 64, -0.001, (-1, -1, 7)),
        (1 / 64, -0.125, (-8, -1, 0)),
        (1 / 64, -0.1251, (-9, -2, 7)),
        (1 / 64, 0.1249, (7, 0, 7)),
        (1 / 64, 0.125, (8, 1, 0)),
        (0.05, 1.05, (21, 2, 5)),  # a division would say 20: every arm multiplies by the reciprocal
    ],
)
def test_either_side_of_a_voxel_edge(language: str, voxel: float, x: float, wanted: tuple[int, int, int]) -> None:
    """The ray runs along z, so that x stays what it is; block, local index and voxel of every sample."""
    given = scene(np.array([[x, 0.0, 3.0]]), (x, 0.0, -10.0))
    volume = fuse(language, given, VolumeConfig(8, voxel))
    offsets = volume.record_offsets(given)
    blocks, local = volume.coords[offsets // 512, 0], offsets % 512 & 7
    assert len(offsets) >= 2 * STEPS
    assert {(int(8 * b + v), int(b), int(v)) for b, v in zip(blocks, local, strict=True)} == {wanted}


# --- the surface ----------------------------------------------------------------------------------------------------


def test_sphere_surface_is_closed_and_in_place() -> None:
    """The paper's figures at base: 846,288 vertices, mean |r - R| 0.000015 m. Every edge is met once each way."""
    volume = fuse("cuda", BASE.scene(), BASE.config)
    triangles, colors = volume.extract()
    radius = np.linalg.norm(triangles.reshape(-1, 3).astype(np.float64), axis=1)
    assert triangles.shape == (282_096, 3, 3)
    assert colors.shape == (282_096, 3, 3)
    assert np.abs(radius - 0.5).mean() == pytest.approx(1.54e-5, abs=2e-7)

    vertices, inverse = np.unique(triangles.reshape(-1, 3), axis=0, return_inverse=True)
    faces = inverse.reshape(-1, 3).astype(np.int64)
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    there, back = edges @ [len(vertices), 1], edges @ [1, len(vertices)]
    assert len(np.unique(there)) == len(there)
    assert np.array_equal(np.sort(there), np.sort(back))
    assert len(vertices) - len(edges) // 2 + len(faces) == 2  # Euler's number of a sphere

    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    assert ((normals * triangles.mean(axis=1)).sum(axis=1) < 0).all()  # towards the camera in the middle


def test_extract_from_a_loaded_volume() -> None:
    """A fused volume read back from a file gives the surface of the volume it came from."""
    volume = fuse("cuda", sphere(0.3, 200, 400), VolumeConfig(1024))
    again = HostVolume(VolumeConfig(512))
    again.load(volume.fused("test"))
    one, other = (v.extract()[0].reshape(-1, 9) for v in (volume, again))
    assert len(one) > 10_000
    assert np.array_equal(one[np.lexsort(one.T)], other[np.lexsort(other.T)])


# --- one layout (needs N25) and no contraction (needs N22) ----------------------------------------------------------


def _compile_and_run(folder: Path, source: str, flags: tuple[str, ...]) -> list[str]:
    compiler, _ = find_compiler()
    (folder / "main.cpp").write_text(source)
    (folder / "volume.cuh").write_text(cpp_header())
    root = Path(__file__).parents[1]
    include = [f"-I{root / 'cuda' / 'host'}", f"-I{folder}"]
    subprocess.run([compiler, *flags, *include, str(folder / "main.cpp"), "-o", str(folder / "main")], check=True)
    return subprocess.run([folder / "main"], check=True, capture_output=True, text=True).stdout.split()


def test_struct_as_the_compiler_lays_it_out(tmp_path: Path) -> None:
    source = '#include "target.cuh"\n#include "volume.cuh"\n#include <cstdio>\n'
    source += "const std::size_t layout[] = {IRR_VOLUME_LAYOUT};\n"
    source += 'int main() { for (auto v : layout) std::printf("%zu ", v); }\n'
    numbers = [int(word) for word in _compile_and_run(tmp_path, source, host_flags())]
    fields = VOLUME_DTYPE.fields or {}
    expected = [n for dtype, offset, *_ in fields.values() for n in (offset, dtype.itemsize)]
    assert numbers == [16, VOLUME_DTYPE.itemsize, *expected]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 3)), "float64"),
        (np.zeros((4, 4), np.float32), r"\(4, 4\)"),
        (np.zeros(12, np.float32), r"\(12,\)"),
        (np.zeros((3, 4), np.float32).T, "contiguous"),
    ],
)
def test_arrays_are_never_converted(array: np.ndarray, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        checked(array, np.float32, 3, "points")


FUSED_INSTRUCTION = re.compile(r"\bvfn?m(add|sub)")


def _disassembly(path: Path) -> str:
    if shutil.which("objdump") is None:
        pytest.skip("no objdump here")
    return subprocess.run(["objdump", "-d", str(path)], check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86-64's instruction sets")
def test_no_contraction_whatever_the_instruction_set(tmp_path: Path) -> None:
    """With FMA in reach the library has none and a * b + c gives 0; a control that contracts shows both otherwise."""
    assert not FUSED_INSTRUCTION.search(_disassembly(build_host().path))
    wide = build_host(extra=("-march=x86-64-v3",), kernels=["cuda/allocate/plain", "cuda/update/plain"])
    assert not FUSED_INSTRUCTION.search(_disassembly(wide.path))

    saxpy = "#include <cstdio>\nvolatile float a = 1.000244140625f, y = -1.00048828125f;\n"
    saxpy += 'int main() { float s = a, t = y; std::printf("%.17g", static_cast<double>(s * s + t)); }\n'
    has_fma = "fma" in Path("/proc/cpuinfo").read_text()
    for flags, value in ((("-march=x86-64-v3",), 0.0), (("-march=x86-64-v3", "-ffp-contract=fast"), 2.0**-24)):
        if not has_fma:
            pytest.skip("this CPU has no FMA")
        folder = tmp_path / str(len(flags))
        folder.mkdir()
        assert [float(w) for w in _compile_and_run(folder, saxpy, host_flags(flags))] == [value]
        assert bool(FUSED_INSTRUCTION.search(_disassembly(folder / "main"))) == (value != 0)


def test_a_kernel_that_is_not_there() -> None:
    from harness.device.host import host_library

    volume = HostVolume(VolumeConfig(1))
    with pytest.raises(IrrError, match="no kernel nonsense"):
        host_library("cuda").launch("nonsense", volume.struct, line(1).points, None, 1, line(1).camera)


def test_only_built_blocks_are_cleared() -> None:
    volume = fuse("cuda", line(3), VolumeConfig(8))
    volume.voxels[:, 5] = 7  # a block that is not built
    volume.clear_voxels()
    assert not volume.voxels[:, :3].any()
    assert (volume.voxels[:, 5] == 7).all()
    assert len(volume.voxels) == len(VOXEL_FIELDS)


def test_one_probe_chain(language: str) -> None:
    """Blocks whose keys share a home slot at the table's end: the chain wraps and every block is found."""
    blocks = np.array([(x, 0, 0) for x in range(-2000, 2000)], np.int32)
    chain = blocks[block_hash(blocks, 63) == 63][:20]
    assert len(chain) == 20
    x = (8.0 * chain[:, 0] + 4.4) * H
    given = scene(np.stack([x, np.full(20, 0.035), np.full(20, 0.035)], axis=-1), (-200.0, 0.035, 0.035))
    config = VolumeConfig(32, table=64)
    fused = fuse(language, given, config).fused("test")
    assert np.array_equal(fused.coords, exact_blocks(given, config))
    assert (fused.failed_inserts, fused.dropped_points) == (0, 0)


# --- variants that also build for the host ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernels",
    [
        ("cuda/allocate/nowait", "cuda/update/plain"),
        ("cuda/allocate/ray", "cuda/update/ray"),
        ("cuda/integrate/ray",),
    ],
    ids=lambda kernels: kernels[0].replace("/", "-"),
)
@pytest.mark.parametrize("pool", [2048, 600])
def test_variants_fuse_the_same_volume(kernels: tuple[str, ...], pool: int) -> None:
    given, config = BASE.scene(), VolumeConfig(pool)
    exact = evaluate(given, config)
    volume = HostVolume(config)
    for kernel in kernels:
        volume.launch(kernel, given)
    fused = volume.fused("test")
    kept = np.isin(exact.keys, pack(fused.coords))
    assert kept.sum() == min(pool, BASE.blocks)
    assert np.array_equal(fused.weight, exact.weight[kept])
    assert np.array_equal(fused.g, exact.g[kept])
    assert (np.abs(fused.tsdf - exact.tsdf[kept]) <= exact.bound[kept]).all()
    assert fused.dropped_points == exact.block_samples[~kept].sum()


@pytest.mark.parametrize("kernels", [("cuda/allocate/nowait", "cuda/update/ray"), ("cuda/integrate/ray",)])
def test_a_variants_cap_is_exact_in_one_thread(kernels: tuple[str, ...]) -> None:
    given = sphere(0.1, 40, 80)
    exact = evaluate(given, VolumeConfig(256))
    volume = HostVolume(VolumeConfig(256, cap=3), threads=1)
    for kernel in kernels:
        volume.launch(kernel, given)
    fused = volume.fused("test")
    assert (exact.weight > 3).any() and fused.dropped_points == 0
    assert np.array_equal(fused.weight, np.minimum(exact.weight, 3))
