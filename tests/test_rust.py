"""rust/: the core on the host against the oracle, its PTX, its layout, and the faults that each check must catch."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from harness.build import abi, cargo, nvcc, rustc
from harness.build.assemble import Assembled, Assembler, assemble, count_ptx
from harness.build.kernels import KERNELS, Kernel
from harness.build.loops import Loop, function_text, loops
from harness.build.manifest import ToolMissing, ToolUnsupported
from harness.build.toolchain import find_toolkit
from harness.device.host import HostLibrary, HostVolume, run_with_deadline
from harness.environment import ROOT
from harness.errors import IrrError
from harness.workload import volume
from harness.workload.cells import load_cells
from harness.workload.reference import evaluate
from harness.workload.scenes import Scene, plane, sphere
from harness.workload.volume import INDEX_UNPUBLISHED, VolumeConfig

ALLOCATE, UPDATE = KERNELS["rust-nvptx/allocate/plain"], KERNELS["rust-nvptx/update/plain"]
PACKED = KERNELS["rust-nvptx/update/packed"]


@pytest.fixture(scope="session")
def library() -> HostLibrary:
    try:
        return HostLibrary(cargo.build_host())
    except ToolMissing as missing:
        pytest.skip(missing.what)


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's own build folder where `core` is already there, since it takes 14 s; else a new one."""
    try:
        cargo.find_gpu_rustc()
    except ToolMissing as missing:
        pytest.skip(missing.what)
    return ROOT / "build" / "work" if os.access(ROOT, os.W_OK) else tmp_path_factory.mktemp("work")


def altered(tmp_path: Path, file: str, old: str, new: str) -> Path:
    """A copy of rust/ with one thing changed."""
    shutil.copytree(ROOT / "rust", tmp_path / "rust", ignore=shutil.ignore_patterns("target"))
    path = tmp_path / "rust" / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{file} has {text.count(old)} places like {old!r}"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return tmp_path


# --- the source -------------------------------------------------------------------------------------------------------


def test_struct_is_the_field_tables() -> None:
    committed = (ROOT / "rust/core/src/volume.rs").read_text(encoding="utf-8")
    assert committed == volume.rust_source(), "write harness.workload.volume.rust_source() to rust/core/src/volume.rs"


def test_core_names_no_target() -> None:
    """The same bytes for stock rustc, for cuda-oxide and for the host: nothing in them may ask who compiles."""
    sources = sorted((ROOT / "rust/core/src").glob("*.rs"))
    assert len(sources) >= 4
    for path in sources:
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        assert not re.search(r"\bcfg\b|\basm!|\btarget_arch\b|\bstd::|cuda_device|\bfeature\b", text), path


def test_lock_names_no_registry() -> None:
    lock = (ROOT / "rust/Cargo.lock").read_text(encoding="utf-8")
    assert "irr-core" in lock and "source =" not in lock


# --- the host ---------------------------------------------------------------------------------------------------------


def fuse(
    library: HostLibrary, scene: Scene, config: VolumeConfig, threads: int | None = None, update: Kernel = UPDATE
) -> HostVolume:
    host = HostVolume(config, library, threads)
    host.launch(ALLOCATE, scene)
    host.launch(update, scene)
    return host


def assert_is_reference(host: HostVolume, scene: Scene, layout: str = "arrays") -> None:
    """Blocks, weights and colours equal the oracle's; tsdf within its bound."""
    wanted, found = evaluate(scene, host.config), host.fused("rust-cpu", layout)
    assert len(wanted.coords) > 0
    np.testing.assert_array_equal(found.coords, wanted.coords)
    for name in ("weight", "r", "g", "b"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
    assert (np.abs(found.tsdf.astype(np.float64) - wanted.tsdf) <= wanted.bound).all()
    assert found.weight.sum(dtype=np.float64) == wanted.samples
    assert (found.failed_inserts, found.dropped_points) == (0, 0)


@pytest.mark.parametrize("update", [UPDATE, PACKED], ids=lambda kernel: kernel.variant)
@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize(
    ("scene", "config"),
    [
        (sphere(0.1, 40, 80), VolumeConfig(256)),
        (sphere(0.1, 40, 80), VolumeConfig(96, table=128)),
        (plane(33), VolumeConfig(2048)),
        (sphere(0.02, 1, 1), VolumeConfig(64)),
    ],
    ids=["sphere", "full-table", "plane", "one-point"],
)
def test_host_is_the_reference(
    library: HostLibrary, scene: Scene, config: VolumeConfig, threads: int, update: Kernel
) -> None:
    assert_is_reference(fuse(library, scene, config, threads, update), scene, update.voxels)


def test_base_is_the_reference(library: HostLibrary) -> None:
    cell = load_cells()["base"]
    host = fuse(library, cell.scene(), cell.config)
    assert host.count == 1160
    assert_is_reference(host, cell.scene())


def test_small_pool_ends_and_counts(library: HostLibrary) -> None:
    scene = sphere(0.1, 40, 80)
    config = VolumeConfig(256)
    needed, pool = len(evaluate(scene, config).coords), 20
    small = VolumeConfig(pool, table=512)
    raw = run_with_deadline(library.path, [ALLOCATE, UPDATE], scene, small, 30, threads=8)
    assert raw.count == pool
    assert raw.failed_inserts == needed - pool, "with a large table every lost block is one failed insert"
    assert (raw.table["index"] == -2).sum() == needed - pool
    assert (
        raw.dropped_points + sum(raw.voxels["weight"].sum(axis=1, dtype=np.float64)) == evaluate(scene, config).samples
    )


def test_packed_voxels_of_a_small_pool_and_at_the_cap(library: HostLibrary) -> None:
    scene = sphere(0.1, 40, 80)
    needed = evaluate(scene, VolumeConfig(256))
    raw = fuse(library, scene, VolumeConfig(20, table=512), 2, PACKED).raw(PACKED.voxels)
    assert raw.count == 20 < len(needed.coords)
    assert raw.dropped_points + raw.voxels["weight"].sum(dtype=np.float64) == needed.samples
    # One thread: a plain read sees every earlier sample, so the cap is exact.
    capped = fuse(library, scene, VolumeConfig(256, cap=3.0), 1, PACKED).fused("capped", PACKED.voxels)
    assert needed.weight.max() > 3
    assert np.array_equal(capped.weight, np.minimum(needed.weight, 3))
    assert capped.dropped_points == 0


def test_planted_faults_of_packed_voxels_show(tmp_path: Path) -> None:
    scene, config = sphere(0.1, 40, 80), VolumeConfig(256)
    for number, (old, new) in enumerate(
        {
            "volume.tsdf.add(4 * voxel)": "volume.tsdf.add(voxel)",
            "1.0, color.r, color.g]": "1.0, color.g, color.r]",
            "volume.b.add(voxel), color.b": "volume.b.add(voxel), color.r",
        }.items()
    ):
        folder = tmp_path / str(number)
        faulty = HostLibrary(cargo.build_host(altered(folder, "core/src/packed.rs", old, new), folder / "builds"))
        with pytest.raises(AssertionError):
            assert_is_reference(fuse(faulty, scene, config, 1, PACKED), scene, PACKED.voxels)


def _update_with_an_index_missing(library: Path, answer: Connection) -> None:
    """In a process of its own: fuse a scene whose first block has lost its index; tell what was dropped and lost."""
    scene = sphere(0.1, 40, 80)
    host = HostVolume(VolumeConfig(256), HostLibrary(library))
    host.launch(ALLOCATE, scene)
    lost = host.table["index"] == 0
    host.table["index"][lost] = INDEX_UNPUBLISHED
    host.launch(UPDATE, scene)
    wanted = evaluate(scene, host.config)
    block = (wanted.coords == host.coords[0]).all(axis=1)
    answer.send((int(host.counters["dropped_points"][0]), int(wanted.block_samples[block].sum())))


def look_up_without_index(library: Path, deadline_s: float) -> tuple[int, int] | None:
    """(dropped samples, samples of the block without an index); None where the update did not end and was killed."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_update_with_an_index_missing, args=(library, theirs))
    child.start()
    try:
        return ours.recv() if ours.poll(deadline_s) else None
    finally:
        child.kill()
        child.join()


def test_a_look_up_waits_for_nobody(library: HostLibrary, tmp_path: Path) -> None:
    """Nobody inserts while update runs: an index that is not there is a drop, not something to wait for."""
    found = look_up_without_index(library.path, 60)
    assert found is not None and found[0] == found[1] > 0
    plain = "return T::plain_index(&raw const (*entry).index);"
    source = altered(tmp_path, "core/src/insert.rs", plain, "return wait::<T>(entry);")
    assert look_up_without_index(cargo.build_host(source, tmp_path / "builds"), 5) is None


def test_unknown_kernel_is_refused(library: HostLibrary) -> None:
    scene = sphere(0.1, 4, 4)
    host = HostVolume(VolumeConfig(8), library)
    with pytest.raises(IrrError, match="has no kernel nothing"):
        library.launch("nothing", host.struct, scene.points, scene.colors, len(scene), scene.camera)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.x >> 3, self.y >> 3, self.z >> 3", "self.x >> 3, self.y >> 3, self.z / 8"),
        ("8 * (self.y & 7) + 64 * (self.z & 7)", "64 * (self.y & 7) + 8 * (self.z & 7)"),
        ("sdf < -volume.trunc", "sdf <= 0.0"),
        ("while s <= volume.steps", "while s < volume.steps"),
    ],
    ids=["division", "axes", "occlusion", "short-band"],
)
def test_planted_faults_of_the_walk_show(tmp_path: Path, library: HostLibrary, old: str, new: str) -> None:
    source = altered(tmp_path, "core/src/band.rs", old, new)
    scene = sphere(0.1, 40, 80)
    faulty = HostLibrary(cargo.build_host(source, tmp_path / "builds"))
    with pytest.raises(AssertionError):
        assert_is_reference(fuse(faulty, scene, VolumeConfig(256)), scene)


# --- the PTX ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", [80, 90, 120])
def test_ptx(work: Path, arch: int) -> None:
    for kernel in (ALLOCATE, UPDATE):
        emitted = cargo.emit(kernel, arch, False, work)
        assert f".target sm_{arch}\n" in emitted.ptx
        counts = count_ptx(emitted.ptx, kernel.entry)
        assert counts["red.add.f32"] == (5 if kernel is UPDATE else 0)
        assert counts["atom.cas"] == (0 if kernel is UPDATE else 1)
        assert counts["fma.f32"] == 0 and counts["local"] == 0
        assert "sqrt.rn.f32" in emitted.ptx and "div.rn.f32" in emitted.ptx
        assert re.search(r"rustc|^\d+\.\d+", emitted.version) and emitted.extra["llvm"]
        assert Path("rust/core/src/band.rs") in emitted.sources


def _assembled(kernel: Kernel, ptx: str, arch: int = 90) -> Assembled:
    try:
        toolkit = find_toolkit()
    except IrrError as missing:
        pytest.skip(missing.what)
    return assemble(ptx, kernel.entry, arch, False, Assembler(toolkit.ptxas), toolkit.nvdisasm)


@pytest.mark.parametrize("arch", [90, 120])
def test_a_sample_of_packed_voxels_is_two_reductions(work: Path, arch: int) -> None:
    ptx = cargo.emit(PACKED, arch, False, work).ptx
    adds = re.findall(r"\b(?:atom|red)\.[\w.]*add[\w.]*\.f32\b", ptx)
    assert adds == ["red.global.relaxed.gpu.add.v4.f32", "red.global.relaxed.gpu.add.f32"]
    made = _assembled(PACKED, ptx, arch)
    reductions = re.findall(r"\bREDG?\.E\.ADD\.(F32x4|F32|64)\b", made.sass)
    assert sorted(reductions) == ["64", "F32", "F32x4"], "the third counts the drops"
    assert "ATOMG" not in made.counts and "ATOM" not in made.counts
    scalar = ptx.replace("red.global.relaxed.gpu.add.v4.f32", "red.global.relaxed.gpu.add.u32")
    with pytest.raises(IrrError, match=r"1 native float additions .* 2 \(or a multiple\)"):
        rustc.check_ptx(PACKED, scalar, arch)


def test_packed_voxels_need_the_vector_reduction(work: Path) -> None:
    """Below sm_90 there is none: the row says so, and the assembler."""
    assert PACKED.min_arch == 90
    ptx = cargo.emit(PACKED, 80, False, work).ptx
    with pytest.raises(IrrError, match=r"vector types.* requires \.target sm_90 or higher"):
        _assembled(PACKED, ptx, 80)


def _probe(kernel: Kernel, ptx: str) -> Loop:
    """The innermost loop of the machine code for sm_90 that loads a key."""
    found = [
        loop
        for loop in loops(function_text(_assembled(kernel, ptx).sass, kernel.entry))
        if any(re.search(r"\bLDG?\.E\.64\b", text) for text in loop.instructions)
    ]
    return min(found, key=lambda loop: len(loop.instructions))


@pytest.mark.parametrize("name", ["rust-nvptx/update/plain", "rust-oxide/update/global"])
def test_a_probe_of_the_look_up_costs_no_more_than_cudas(work: Path, name: str) -> None:
    """One load a probe, one way on and one out each for the key found and for the end, and no more instructions."""
    kernel, cuda = KERNELS[name], KERNELS["cuda/update/plain"]
    try:
        emitted, theirs = cargo.emit(kernel, 90, False, work), _probe(cuda, nvcc.emit(cuda, 90, False, work).ptx)
    except ToolMissing as missing:
        pytest.skip(missing.what)
    ours = _probe(kernel, emitted.ptx)
    assert len(ours.instructions) <= len(theirs.instructions)
    assert ours.branches <= theirs.branches == 2
    assert ours.opcodes()["LDG"] + ours.opcodes()["LD"] == theirs.opcodes()["LDG"] == 1
    assert not re.search(r"\bld\.(?:volatile|relaxed)", emitted.ptx), "the look-up re-reads nothing"


def test_contraction_changes_nothing(work: Path) -> None:
    assert cargo.emit(UPDATE, 90, True, work).ptx == cargo.emit(UPDATE, 90, False, work).ptx


def test_ptx_is_the_same_from_another_folder(work: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "rust", tmp_path / "rust", ignore=shutil.ignore_patterns("target"))
    other = tmp_path / "work"
    (other / "rust").mkdir(parents=True)
    gpu = cargo.find_gpu_rustc()
    if not gpu.bundled:
        made = cargo.build_core(gpu.rustc, work)
        shutil.copytree(made, other / "rust" / made.name)
    for kernel in (ALLOCATE, UPDATE):
        here, there = cargo.emit(kernel, 90, False, work), cargo.emit(kernel, 90, False, other, root=tmp_path)
        assert here.ptx == there.ptx
        assert here.flags == there.flags and here.sources == there.sources
        assert str(ROOT) not in here.ptx and str(tmp_path) not in there.ptx


def test_unknown_architecture_is_unsupported(work: Path) -> None:
    with pytest.raises(ToolUnsupported, match="sm_133"):
        cargo.emit(ALLOCATE, 133, False, work)


def test_error_of_the_source_is_one_line(work: Path, tmp_path: Path) -> None:
    source = altered(tmp_path, "nvptx/src/update.rs", "thread_index(), camera", "thread_index()")
    with pytest.raises(IrrError, match=r"rust/nvptx/src/update.rs for sm_90: error.*--> rust/nvptx/src/update.rs:\d+"):
        cargo.emit(UPDATE, 90, False, work, root=source)


def test_no_compiler_is_a_missing_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IRR_RUSTC", str(tmp_path / "rustc"))
    with pytest.raises(ToolMissing, match="no rustc that makes PTX"):
        cargo.emit(ALLOCATE, 90, False, tmp_path)
    with pytest.raises(ToolMissing, match="rustc is missing"):
        cargo.build_host(builds=tmp_path)


def _edited(kernel: Kernel, work: Path, old: str, new: str) -> str:
    ptx = cargo.emit(kernel, 90, False, work).ptx
    assert re.search(old, ptx)
    return re.sub(old, new, ptx)


def test_a_loop_instead_of_a_native_add_is_caught(work: Path) -> None:
    loop = _edited(
        UPDATE, work, r"red\.global\.relaxed\.gpu\.add\.f32 \[(%rd\d+)\], (%r\d+)", r"atom.cas.b32 %r1, [\1], \2, \2"
    )
    with pytest.raises(IrrError, match="0 native float additions and 5 compare-and-swaps"):
        rustc.check_ptx(UPDATE, loop, 90)
    lost = re.sub(r"red\.global[^;]*;", "", _edited(UPDATE, work, "red", "red"), count=1)
    with pytest.raises(IrrError, match="4 native float additions"):
        rustc.check_ptx(UPDATE, lost, 90)


def test_another_architecture_and_another_entry_are_caught(work: Path) -> None:
    ptx = cargo.emit(ALLOCATE, 90, False, work).ptx
    with pytest.raises(ToolUnsupported, match="sm_90 for sm_100"):
        rustc.check_ptx(ALLOCATE, ptx, 100)
    with pytest.raises(IrrError, match="no kernel named update"):
        rustc.check_ptx(UPDATE, ptx, 90)


def test_version_is_that_of_the_inline_ptx() -> None:
    plain = ".version 7.8\n.target sm_90\nred.global.add.f32 [%rd1], %r1;\n"
    assert rustc.with_inline_version(plain) == plain
    vector = plain.replace(".add.f32", ".relaxed.gpu.add.v4.f32")
    assert rustc.with_inline_version(vector) == vector.replace("7.8", "8.1")
    wide = vector + "mov.b128 expected, {%rd1, %rd1};\n"
    assert rustc.with_inline_version(wide) == wide.replace("7.8", "8.3")
    newer = wide.replace("7.8", "8.6")
    assert rustc.with_inline_version(newer) == newer


# --- the ABI ----------------------------------------------------------------------------------------------------------


def _layout(ptx: str, kernel: Kernel) -> abi.Layout:
    return abi.cubin_layout("rust-nvptx", _assembled(kernel, ptx).cubin)


def test_layout_is_the_field_tables(work: Path) -> None:
    for kernel in (ALLOCATE, UPDATE, PACKED):
        assert abi.differences(_layout(cargo.emit(kernel, 90, False, work).ptx, kernel)) == []


def test_two_swapped_fields_are_caught(work: Path, tmp_path: Path) -> None:
    source = altered(tmp_path, "core/src/volume.rs", "pub weight: *mut f32", "pub other: *mut f32")
    path = source / "rust/core/src/volume.rs"
    text = path.read_text(encoding="utf-8").replace("pub tsdf: *mut f32", "pub weight: *mut f32")
    path.write_text(text.replace("pub other: *mut f32", "pub tsdf: *mut f32"), encoding="utf-8")
    lines = abi.differences(_layout(cargo.emit(UPDATE, 90, False, work, root=source).ptx, UPDATE))
    assert len(lines) == 2 and "tsdf" in lines[0] and "weight" in lines[1]
