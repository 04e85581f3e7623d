"""The Triton kernels: what the interpreter computes, what the compiler makes of them, and what the language refuses.

The interpreter proves logic and no concurrency; the same scenes run on the GPU in the gates.
"""

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

from harness.build import assemble, triton_aot, triton_facts
from harness.build.kernels import ARMS, KERNELS, Kernel
from harness.build.manifest import Emitted, ToolMissing, ToolUnsupported
from harness.build.toolchain import find_toolkit
from harness.device.host import HostHung
from harness.device.interpreter import Job, fuse, run_jobs
from harness.environment import ROOT
from harness.errors import IrrError
from harness.workload.fused import RawVolume
from harness.workload.reference import Reference, evaluate, walk
from harness.workload.scenes import Scene, sphere
from harness.workload.table import block_hash, pack
from harness.workload.volume import FIELDS, INDEX_TOMBSTONE, KEY_EMPTY, VolumeConfig

pytest.importorskip("triton")

WHILE = ("triton/allocate/while", "triton/update/while")
STATIC = ("triton/allocate/static8", "triton/update/static8")
PACKED = ("triton/allocate/while", "triton/update/packed")


def probe(bound: int, lanes: int = 8) -> Kernel:
    """Inserts of given blocks: bound 0 as `while` does, else as `static8` does with that bound."""
    return Kernel(
        f"triton/allocate/probe{bound}",
        "triton/probes/insert_blocks.py",
        "insert_blocks",
        threads=32,
        points=lanes,
        scratch=256,
        constants={"BOUND": bound},
    )


def given_blocks(blocks: list[tuple[int, int, int]]) -> Scene:
    """A scene whose points are block coordinates, for `probe`."""
    points = np.array(blocks, np.float32).reshape(-1, 3)
    return Scene(points, np.zeros(points.shape, np.uint8), np.zeros(3, np.float32))


def built(raw: RawVolume) -> set[tuple[int, ...]]:
    return {tuple(int(v) for v in row) for row in raw.coords[: raw.count]}


def same_hash(count: int, mask: int) -> list[tuple[int, int, int]]:
    """Blocks that all begin their probe in one slot."""
    x, y, z = (axis.ravel() for axis in np.meshgrid(*[np.arange(-20, 20)] * 3, indexing="ij"))
    blocks = np.stack([x, y, z], axis=-1).astype(np.int32)
    slots = block_hash(blocks, mask)
    chosen = blocks[slots == slots[len(slots) // 3]][:count]
    assert len(chosen) == count
    return [tuple(int(v) for v in row) for row in chosen]


def distances(raw: RawVolume) -> dict[tuple[int, ...], int]:
    """Slots that a look-up passes before each built block."""
    mask = len(raw.table) - 1
    found = {}
    for block in built(raw):
        key = pack(np.array([block], np.int32))[0]
        slot = int(block_hash(np.array([block], np.int32), mask)[0])
        steps = 0
        while raw.table["key"][(slot + steps) & mask] != key:
            assert raw.table["key"][(slot + steps) & mask] != KEY_EMPTY, f"{block} is not reachable from its hash"
            steps += 1
        found[block] = steps
    return found


def assert_exact(raw: RawVolume, reference: Reference) -> None:
    """Set, weights and colours equal the oracle's, tsdf within its bound."""
    order = raw.order()
    assert np.array_equal(raw.coords[order], reference.coords)
    for name in ("weight", "r", "g", "b"):
        assert np.array_equal(raw.voxels[name][order], getattr(reference, name)), name
    assert (np.abs(raw.voxels["tsdf"][order] - reference.tsdf) <= reference.bound).all()
    assert (raw.failed_inserts, raw.dropped_points) == (0, 0)
    assert raw.voxels["weight"].sum(dtype=np.float64) == reference.samples > 0


# --- the interpreter against the oracle -------------------------------------------------------------------------------

SPARSE = VolumeConfig(400, table=8192)


@pytest.fixture(scope="module")
def small() -> Scene:
    """200 blocks, 848 samples."""
    return sphere(0.5, 8, 12)


@pytest.mark.parametrize("lanes", [None, 65_536], ids=["own-lanes", "wide"])
def test_every_form_equals_the_oracle(small: Scene, lanes: int | None) -> None:
    pairs = [WHILE, STATIC, ("triton/allocate/while-nowait", "triton/update/static8")]
    pairs.append(("triton/allocate/static8-s256", "triton/update/while"))
    reference = evaluate(small, SPARSE)
    for raw in run_jobs([Job(pair, small, SPARSE, lanes) for pair in pairs]):
        assert max(distances(raw).values()) < 8, "the bounded forms lose nothing here"
        assert_exact(raw, reference)


def test_static32_equals_the_oracle_where_static8_loses() -> None:
    blocks = same_hash(20, 511)
    eight, more = run_jobs(
        [Job((probe(bound),), given_blocks(blocks), VolumeConfig(64, table=512)) for bound in (8, 32)]
    )
    assert (eight.count, eight.failed_inserts) == (8, 12)
    assert (more.count, more.failed_inserts) == (20, 0)
    assert built(more) == set(blocks)


def test_base_scene_in_wide_programs() -> None:
    from harness.workload.cells import load_cells

    base = load_cells()["base"]
    raw = fuse(WHILE, base.scene(), base.config)
    assert raw.count == base.blocks
    assert (raw.failed_inserts, raw.dropped_points) == (0, 0)
    assert raw.voxels["weight"].sum(dtype=np.float64) == base.samples


def test_the_cap_stops_a_voxel_and_drops_nothing(small: Scene) -> None:
    near = Scene(np.repeat(small.points[:1], 4, axis=0), np.full((4, 3), 7, np.uint8), small.camera)
    # One lane a program: a plain read of the weight sees every earlier point, so the cap is exact here.
    capped, free = run_jobs([Job(WHILE, near, VolumeConfig(64, cap=cap), 1) for cap in (3.0, 0.0)])
    weight, unlimited = (raw.voxels["weight"][raw.order()] for raw in (capped, free))
    assert unlimited.max() > 3
    assert np.array_equal(weight, np.minimum(unlimited, 3))
    assert np.array_equal(capped.voxels["r"], 7 * capped.voxels["weight"])
    assert capped.dropped_points == 0


def test_only_triton_kernels_are_interpreted(small: Scene) -> None:
    with pytest.raises(IrrError, match="cuda/allocate/plain is not a Triton kernel"):
        fuse(("cuda/allocate/plain",), small, SPARSE)


# --- N23: atomic_cas has no mask --------------------------------------------------------------------------------------

FIVE = [(1, 2, 3), (4, 5, 6), (-7, 8, 9), (10, -11, 12), (13, 14, -15)]
NINE = [*FIVE, (20, 1, 1), (21, 1, 1), (22, 1, 1), (23, 1, 1)]
KEY_SETS = {"5": FIVE, "1": FIVE[:1], "8": NINE[:8], "9": NINE, "0": [], "all equal": [FIVE[0]] * 8}


@pytest.fixture(scope="module")
def inserted() -> dict[tuple[int, str], RawVolume]:
    """Every key set by both forms of the insert, eight lanes a program."""
    cases = [(bound, name) for bound in (0, 8) for name in KEY_SETS]
    config = VolumeConfig(16, table=1024)
    raws = run_jobs([Job((probe(b),), given_blocks(KEY_SETS[name]), config, None) for b, name in cases])
    return dict(zip(cases, raws, strict=True))


@pytest.mark.parametrize("name", KEY_SETS)
@pytest.mark.parametrize("bound", [0, 8], ids=["while", "static8"])
def test_padding_lanes_insert_nothing(inserted: dict[tuple[int, str], RawVolume], bound: int, name: str) -> None:
    raw, blocks = inserted[bound, name], set(KEY_SETS[name])
    assert built(raw) == blocks and (0, 0, 0) not in built(raw)
    assert raw.count == len(blocks) and raw.failed_inserts == 0
    keys = raw.table["key"][raw.table["key"] != KEY_EMPTY]
    assert sorted(keys) == sorted(pack(np.array(sorted(blocks), np.int32).reshape(-1, 3)))
    # Block (0, 0, 0), which a padding lane would hold, begins at slot 0.
    assert raw.table[0].tolist() == (-1, -1, 0)


@pytest.mark.parametrize("pair", [WHILE, STATIC], ids=["while", "static8"])
def test_a_program_that_is_not_full_sees_its_points_only(pair: tuple[str, str]) -> None:
    rng = np.random.default_rng(5)
    ray = rng.normal(size=(33, 3)).astype(np.float32)
    far = Scene(
        (np.float32([2, -2, 2]) + np.float32(0.3) * ray), np.full((33, 3), 9, np.uint8), np.zeros(3, np.float32)
    )
    config = VolumeConfig(600, table=8192)
    counts = (0, 1, 5, 31, 32, 33)
    jobs = [Job(pair, Scene(far.points[:n], far.colors[:n], far.camera), config, None) for n in counts]
    for n, job, raw in zip(counts, jobs, run_jobs(jobs), strict=True):
        if n == 0:
            assert (raw.count, raw.failed_inserts, raw.dropped_points) == (0, 0, 0)
        else:
            assert_exact(raw, evaluate(job.scene, config))


# --- loss, counted exactly --------------------------------------------------------------------------------------------


def test_one_probe_chain_exhausts_the_bound_and_is_counted() -> None:
    chain = same_hash(12, 511)
    config = VolumeConfig(64, table=512)
    static, unbounded = run_jobs([Job((probe(bound),), given_blocks(chain), config, None) for bound in (8, 0)])
    assert (static.count, static.failed_inserts) == (8, 4)
    assert built(static) < set(chain)
    assert (unbounded.count, unbounded.failed_inserts) == (12, 0)
    assert built(unbounded) == set(chain)
    assert sorted(distances(unbounded).values()) == list(range(12))


def test_the_bounded_look_up_drops_exactly_what_lies_beyond(small: Scene) -> None:
    config = VolumeConfig(200, table=256)  # load 0.78
    unbounded, bounded = run_jobs([Job((WHILE[0], update), small, config) for update in (WHILE[1], STATIC[1])])
    assert unbounded.dropped_points == 0
    far = {block for block, steps in distances(bounded).items() if steps >= 8}
    assert far, "the table is dense enough for the bound to matter"
    samples = [tuple(b) for _, voxels, _ in walk(small.points, small.camera, config) for b in (voxels >> 3).tolist()]
    assert bounded.dropped_points == sum(block in far for block in samples)


@pytest.mark.parametrize("allocate", ["triton/allocate/while", "triton/allocate/static8"])
def test_a_small_pool_ends_and_counts(small: Scene, allocate: str) -> None:
    reference = evaluate(small, SPARSE)
    config = VolumeConfig(16, table=8192)
    raw = fuse((allocate, "triton/update/while"), small, config, deadline_s=60)
    assert raw.count == 16
    assert raw.failed_inserts == len(reference.coords) - 16, "one winner for every block beyond the pool"
    assert int((raw.table["index"] == INDEX_TOMBSTONE).sum()) == len(reference.coords) - 16
    kept = [index for index, block in enumerate(map(tuple, reference.coords.tolist())) if block in built(raw)]
    assert raw.dropped_points == reference.samples - reference.block_samples[kept].sum()
    assert raw.voxels["weight"].sum(dtype=np.float64) == reference.block_samples[kept].sum() > 0


def test_a_full_table_ends_and_counts() -> None:
    blocks = [(i, -i, 2 * i + 1) for i in range(65)]
    config = VolumeConfig(64, table=64)
    full, over = run_jobs([Job((probe(0),), given_blocks(blocks[:n]), config) for n in (64, 65)], deadline_s=60)
    assert (full.count, full.failed_inserts) == (64, 0)
    assert built(full) == set(blocks[:64])
    assert (over.count, over.failed_inserts) == (64, 1)


def test_a_table_of_two_slots_ends(small: Scene) -> None:
    config = VolumeConfig(2, table=2)
    reference = evaluate(small, config)
    raw = fuse(WHILE, small, config, deadline_s=60)
    assert raw.count == 2
    kept = sum(
        int(n)
        for n, b in zip(reference.block_samples, reference.coords.tolist(), strict=True)
        if tuple(b) in built(raw)
    )
    assert raw.dropped_points == raw.failed_inserts == reference.samples - kept


# --- packed voxels ----------------------------------------------------------------------------------------------------

FOUR_ADDS = "\n".join(
    f"    tl.atomic_add(four + {k}, {value}, mask=open_, sem='relaxed')"
    for k, value in enumerate(("tsdf", "weight", "red", "green"))
)


def with_four_adds(folder: Path) -> Path:
    """A checkout whose vector reduction, which the interpreter cannot run, is what it stands for: four additions."""
    shutil.copytree(ROOT / "triton", folder / "triton", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "triton" / "variants" / "update_packed.py"
    text, replaced = re.subn(
        r"(?ms)^    tl\.inline_asm_elementwise\(.*?^    \)$", FOUR_ADDS, path.read_text(encoding="utf-8")
    )
    assert replaced == 1
    path.write_text(text, encoding="utf-8")
    return folder


def test_packed_voxels_equal_the_oracle(small: Scene, tmp_path: Path) -> None:
    root = with_four_adds(tmp_path)
    reference = evaluate(small, SPARSE)
    for raw in run_jobs([Job(PACKED, small, SPARSE, lanes) for lanes in (None, 65_536)], root=root):
        assert_exact(raw, reference)


def test_packed_voxels_of_a_small_pool_and_at_the_cap(small: Scene, tmp_path: Path) -> None:
    root = with_four_adds(tmp_path)
    near = Scene(np.repeat(small.points[:1], 4, axis=0), np.full((4, 3), 7, np.uint8), small.camera)
    pool, capped, free = run_jobs(
        [
            Job(PACKED, small, VolumeConfig(16, table=8192)),
            *(Job(PACKED, near, VolumeConfig(64, cap=cap), 1) for cap in (3.0, 0.0)),
        ],
        root=root,
    )
    assert pool.count == 16 and pool.dropped_points > 0
    assert pool.dropped_points + pool.voxels["weight"].sum(dtype=np.float64) == evaluate(small, SPARSE).samples
    assert free.voxels["weight"].max() > 3
    assert np.array_equal(capped.voxels["weight"], np.minimum(free.voxels["weight"], 3))
    for channel in ("r", "g", "b"):
        assert np.array_equal(capped.voxels[channel], 7 * capped.voxels["weight"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("volume.tsdf + 4 * voxel", "volume.tsdf + voxel"),
        ("tl.float32), red, green, open_", "tl.float32), green, red, open_"),
        ("blue, mask=open_", "red, mask=open_"),
    ],
    ids=["not-packed", "colours", "blue"],
)
def test_planted_faults_of_packed_voxels_show(small: Scene, tmp_path: Path, old: str, new: str) -> None:
    root = with_four_adds(tmp_path)
    path = root / "triton" / "variants" / "update_packed.py"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(AssertionError):
        assert_exact(run_jobs([Job(PACKED, small, SPARSE)], root=root)[0], evaluate(small, SPARSE))


# --- faults -----------------------------------------------------------------------------------------------------------


def with_fault(folder: Path, file: str, old: str, new: str) -> Path:
    """A checkout whose triton/ has one error."""
    shutil.copytree(ROOT / "triton", folder / "triton", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "triton" / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    return folder


def test_a_waiter_without_a_tombstone_hangs_and_is_killed(small: Scene, tmp_path: Path) -> None:
    root = with_fault(tmp_path, "table.py", "tl.where(fits, index, -2), mask=won,", "index, mask=fits,")
    with pytest.raises(HostHung, match="did not end within 8 s"):
        fuse(WHILE[:1], small, VolumeConfig(16, table=8192), root=root, deadline_s=8)


def test_an_unmasked_claim_is_seen(tmp_path: Path) -> None:
    old = "address = tl.where(empty, key_at(volume, slot), scratch)"
    root = with_fault(tmp_path, "table.py", old, "address, empty = key_at(volume, slot), empty | (slot == slot)")
    raw = run_jobs([Job((probe(8),), given_blocks(FIVE), VolumeConfig(16, table=1024), None)], root=root)[0]
    assert pack(np.zeros((1, 3), np.int32))[0] in raw.table["key"], "the padding lanes' block (0, 0, 0) is in the table"


# --- the compiler -----------------------------------------------------------------------------------------------------

ATOMICS = {
    "triton/allocate/while": {"cas.b64": 1, "exch.b32": 1, "add.u32": 2, "add.u64": 2},
    "triton/allocate/static8": {"cas.b64": 8, "exch.b32": 8, "add.u32": 16, "add.u64": 9},
    "triton/update/while": {"add.f32": 5, "add.u64": 1},
    "triton/update/static8": {"add.f32": 5, "add.u64": 1},
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("triton")


_emitted: dict[tuple[str, int], Emitted] = {}


def emitted_once(name: str, arch: int, work: Path) -> Emitted:
    """The contraction-free PTX of a row; tests that look at the same text compile it once."""
    if (name, arch) not in _emitted:
        _emitted[name, arch] = triton_aot.emit(KERNELS[name], arch, False, work)
    return _emitted[name, arch]


@pytest.mark.parametrize("arch", [80, 90, 120])
@pytest.mark.parametrize("name", ATOMICS)
def test_ptx_holds_what_the_algorithm_says(work: Path, name: str, arch: int) -> None:
    kernel = KERNELS[name]
    emitted = emitted_once(name, arch, work)
    text = emitted.ptx
    found: dict[str, int] = {}
    for word in re.findall(r"\b(?:atom|red)\.global\.[\w.]*?(cas\.b64|exch\.b32|add\.u32|add\.u64|add\.f32)\b", text):
        found[word] = found.get(word, 0) + 1
    assert found == ATOMICS[name]
    # One rounding an operation, every root and quotient rounded to nearest, no flushing (Triton's default floor does).
    assert not re.search(r"\bfma\.|\bmad\.\w+\.f32|\.approx|\.ftz", text)
    assert len(re.findall(r"sqrt\.rn\.f32", text)) == 2 and len(re.findall(r"div\.rn\.f32", text)) == 3
    # The exchange publishes: it releases. Everything else is relaxed.
    assert len(re.findall(r"\.release\.", text)) == found.get("exch.b32", 0)
    assert not re.search(r"acq_rel|\.sys\.", text)
    # Waiting re-reads past L1.
    assert len(re.findall(r"ld\.volatile\.global\.b32", text)) == (1 if kernel.waits else 0)
    assert (emitted.volume, emitted.trailing_nulls, emitted.entry) == ("flat", 2, kernel.entry)
    assert (emitted.threads, emitted.points, emitted.shared) == (kernel.threads, kernel.points, 0)
    assert re.search(rf"\.reqntid {kernel.threads}\b", text)


@pytest.mark.parametrize("arch", [90, 100, 120])
def test_a_sample_of_packed_voxels_is_two_predicated_reductions(work: Path, arch: int) -> None:
    kernel = KERNELS[PACKED[1]]
    emitted = emitted_once(kernel.name, arch, work)
    adds = [line.split() for line in emitted.ptx.splitlines() if re.search(r"\.add\.(?:v4\.)?f32\b", line)]
    # Both under a predicate; the second is Triton's own, whose result nobody reads.
    assert [(words[0][0], words[1]) for words in adds] == [
        ("@", "red.global.relaxed.gpu.add.v4.f32"),
        ("@", "atom.global.gpu.relaxed.add.f32"),
    ]
    assert not re.search(r"\bfma\.|\bmad\.\w+\.f32|\.approx|\.ftz|\.shared", emitted.ptx)
    assert emitted.shared == 0
    assert triton_aot.ptx_parameter_sizes(emitted.ptx) == triton_aot.flat_sizes(kernel)
    toolkit = find_toolkit()
    made = assemble.assemble(
        emitted.ptx, emitted.entry, arch, False, assemble.Assembler(toolkit.ptxas), toolkit.nvdisasm
    )
    reductions = re.findall(r"\bREDG?\.E\.ADD\.(F32x4|F32|64)\b", made.sass)
    assert sorted(reductions) == ["64", "F32", "F32x4"], "the third counts the drops"
    assert "ATOMG" not in made.counts and "ATOM" not in made.counts


ROWS_OF_FOUR = """
import triton
import triton.language as tl


@triton.jit
def rows_of_four(volume, points, n, cx, cy, cz, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    a, b = tl.load(points + lane), tl.load(points + LANES + lane)
    four = tl.reshape(tl.join(tl.join(a, b), tl.join(b, a)), (LANES, 4))
    address = volume.tsdf + 4 * tl.load(volume.count + lane)[:, None] + tl.arange(0, 4)[None, :]
    tl.atomic_add(address, four, sem="relaxed")
"""


def test_triton_has_no_vector_reduction_of_its_own(work: Path, tmp_path: Path) -> None:
    """Why the kernel of packed voxels has inline assembly. Should this fail, it may do without."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "rows.py").write_text(ROWS_OF_FOUR, encoding="utf-8")
    row = Kernel("triton/allocate/rows", "triton/rows.py", "rows_of_four", threads=32, points=32)
    emitted = triton_aot.emit(row, 90, False, work, root=tmp_path)
    assert re.findall(r"(?:atom|red)\.global[\w.]*add[\w.]*", emitted.ptx) == ["atom.global.gpu.relaxed.add.f32"] * 4
    assert emitted.shared > 0


def test_parameters_are_the_field_table(work: Path) -> None:
    sizes = {"*": 8, "f": 4, "i": 4}
    for name, extra in (("triton/allocate/while", "*ifff*"), ("triton/update/while", "**ifff")):
        expected = [sizes[field.triton[0]] for field in FIELDS] + [sizes[c] for c in extra] + [8, 8]
        emitted = emitted_once(name, 90, work)
        assert triton_aot.ptx_parameter_sizes(emitted.ptx) == expected == triton_aot.flat_sizes(KERNELS[name])


def test_a_row_that_does_not_fit_its_kernel_is_refused(work: Path) -> None:
    row = KERNELS["triton/allocate/while"]
    with pytest.raises(IrrError, match=r"takes .*'colors'.* its row gives"):
        triton_aot.emit(
            Kernel("triton/allocate/x", "triton/update.py", "update", constants={"BOUND": 0}), 90, False, work
        )
    with pytest.raises(IrrError, match="no value for BOUND"):
        triton_aot.emit(
            Kernel("triton/allocate/x", "triton/allocate_static.py", "allocate_static", scratch=1), 90, False, work
        )
    assert row.waits and triton_aot.constants(row, ["WAIT"]) == {"WAIT": 1}


def test_the_default_contracts_and_nothing_else_changes(work: Path) -> None:
    kernel = KERNELS["triton/update/while"]
    off, on = emitted_once(kernel.name, 90, work), triton_aot.emit(kernel, 90, True, work)
    assert "fma.rn.f32" in on.ptx and "fma" not in off.ptx
    assert "enable_fp_fusion=True" in on.flags and "enable_fp_fusion=False" in off.flags


@pytest.mark.smoke
def test_two_builds_give_the_same_ptx_and_no_path(work: Path, tmp_path: Path) -> None:
    kernel = KERNELS["triton/allocate/while"]
    elsewhere = tmp_path / "another checkout"
    shutil.copytree(ROOT / "triton", elsewhere / "triton")
    first = emitted_once(kernel.name, 90, work)
    second = triton_aot.emit(kernel, 90, False, tmp_path / "work", root=elsewhere)
    assert first.ptx == second.ptx and first.sources == second.sources
    assert not re.search(r"\.file|\.loc\b|/(?:home|root|tmp|work)/", first.ptx)
    assert str(ROOT) not in first.ptx


def test_the_callers_settings_do_not_reach_the_compiler(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KERNELS["triton/update/while"]
    plain = emitted_once(kernel.name, 90, work)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    assert triton_aot.emit(kernel, 90, False, work).ptx == plain.ptx


def test_bundled_differs_in_the_ptx_version_only(work: Path) -> None:
    kernel = KERNELS["triton/allocate/while"]
    ours, theirs = emitted_once(kernel.name, 90, work), triton_aot.emit(kernel, 90, False, work, bundled=True)
    changed = [(a, b) for a, b in zip(ours.ptx.splitlines(), theirs.ptx.splitlines(), strict=True) if a != b]
    assert [a.split()[0] for a, _ in changed] == [".version"]
    found = triton_aot.find_assembler(90, bundled=True)
    assert found.name == "bundled" and found.version.startswith("12.")
    made = assemble.run_ptxas(theirs.ptx, assemble.target(theirs.ptx, 90), False, found.path)
    assert made[0][:4] == b"\x7fELF"


@pytest.mark.parametrize(
    "cuda, expected", [("12.4", 84), ("12.8.93", 87), ("12.9.86", 88), ("13.0.88", 90), ("unknown", 90)]
)
def test_ptx_version_of_a_release(cuda: str, expected: int) -> None:
    assert triton_aot.ptx_version(cuda) == expected


# --- N12: a ptxas that does not know the card -------------------------------------------------------------------------


def stub_ptxas(path: Path) -> Path:
    path.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "Cuda compilation tools, release 12.3, V12.3.107"; exit 0; fi\n'
        "echo \"ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\" >&2\nexit 255\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_named_ptxas_is_used_and_named(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = stub_ptxas(tmp_path / "ptxas")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(stub))
    found = triton_aot.find_assembler(90)
    assert (found.path, found.version, found.name) == (stub, "12.3.107", "TRITON_PTXAS_PATH")
    # sm_100 and up have a variable of their own, as in Triton.
    assert triton_aot.find_assembler(120).name == "pinned"
    emitted = triton_aot.emit(KERNELS["triton/update/while"], 90, False, work)
    assert ".version 8.3" in emitted.ptx
    assert emitted.extra["deviations"] == ["unpinned toolchain: ptxas 12.3.107 (TRITON_PTXAS_PATH)"]
    with pytest.raises(ToolUnsupported, match=rf"12\.3\.107 at {re.escape(str(stub))} does not know sm_90a"):
        assemble.run_ptxas(emitted.ptx, assemble.target(emitted.ptx, 90), False, found.path)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "gone"))
    with pytest.raises(ToolMissing, match=r"TRITON_PTXAS_PATH=.*gone is not a file"):
        triton_aot.find_assembler(90)


# --- what the language refuses ----------------------------------------------------------------------------------------


def test_p32_the_bound_must_be_a_constant(work: Path) -> None:
    assert triton_facts.outcome("runtime_bound", work) == "error-with-location"


def test_p35_an_unbounded_probe_compiles(work: Path) -> None:
    assert triton_facts.outcome("unbounded", work) == "compiles"
    # No trip count: the loop of the probe goes back on a condition of the tile.
    text = triton_aot.emit(KERNELS["triton/allocate/while-nowait"], 90, False, work).ptx
    assert len(re.findall(r"redux\.sync\.max", text)) == 2 and text.count("cas.b64") == 1


def test_p36_an_atomic_on_a_scalar_pointer_does_not_abort(work: Path) -> None:
    found = {name: triton_facts.outcome(name, work) for name in triton_facts.SCALAR_ATOMICS}
    assert {name for name, outcome in found.items() if outcome == "compiles"} == {
        "scalar_add",
        "scalar_exchange",
        "scalar_cas",
    }
    assert set(found.values()) == {"compiles", "error-with-location"}


def test_p37_atomic_cas_takes_no_mask(work: Path) -> None:
    assert triton_facts.atomic_cas_parameters() == ["pointer", "cmp", "val", "sem", "scope"]
    assert triton_facts.outcome("masked_cas", work) == "error-with-location"


@pytest.mark.slow
def test_p32_code_grows_with_the_bound(work: Path) -> None:
    seconds, size = triton_facts.compile_cost("static8", work)
    larger, bigger = triton_facts.compile_cost("static16", work)
    assert bigger > 1.3 * size
    assert seconds > 0 and larger > 0  # recorded, not judged


# --- rows -------------------------------------------------------------------------------------------------------------


def test_rows_are_the_papers_configurations() -> None:
    assert (KERNELS["triton/allocate/static8"].points, KERNELS["triton/allocate/static8"].threads) == (256, 256)
    assert KERNELS["triton/allocate/static8"].scratch == 65_536
    assert KERNELS["triton/allocate/static8-s256"].scratch == 256
    assert (KERNELS["triton/allocate/while"].points, KERNELS["triton/allocate/while"].threads) == (32, 32)
    assert KERNELS["triton/allocate/while"].waits and not KERNELS["triton/allocate/while-nowait"].waits
    assert ARMS["triton-update"].allocate == "cuda/allocate/plain"
    triton_rows = [kernel for kernel in KERNELS.values() if kernel.language == "triton"]
    assert all((ROOT / kernel.source).is_file() and kernel.threads % 32 == 0 for kernel in triton_rows)


def test_study_variants_compile(work: Path) -> None:
    for name in ("triton/allocate/static8-load", "triton/allocate/while-predicated", "triton/allocate/while-w64x2"):
        kernel = KERNELS[name]
        emitted = triton_aot.emit(kernel, 90, False, work)
        assert emitted.threads == kernel.threads and "cas.b64" in emitted.ptx
    assert triton_aot.emit(KERNELS["triton/allocate/while-w64x2"], 90, False, work).shared > 0
