"""The contraction study without a GPU: the emulation, the comparison that can fail, the loop parser."""

import base64
import zlib

import numpy as np
import pytest

from harness.build.emulation import PATTERNS, check_object_code, fused_operations, load_emulation
from harness.build.kernels import KERNELS
from harness.build.loops import floating_loop, function_text, loops
from harness.claims.evaluate import judge_findings
from harness.errors import IrrError, UsageError
from harness.gates.images import (
    border,
    compare_images,
    detects,
    escape_time,
    image_hash,
    plane_axes,
    plant_one_ulp,
)
from harness.measure import fma
from harness.measure.plan import program_plan
from harness.workload.programs import FUSED, SEPARATE, A, X, Y, load_programs

LIMIT = 200


@pytest.fixture(scope="module")
def emulation(tmp_path_factory):
    return load_emulation(tmp_path_factory.mktemp("fma"))


def numpy_image(size: int, limit: int) -> np.ndarray:
    """The strict image by another route: whole-plane NumPy float32, one rounding an operation."""
    cx, cy = (axis.astype(np.float32) for axis in plane_axes(size))
    cx, cy = np.broadcast_arrays(cx[None, :], cy[:, None])
    zx, zy = np.zeros_like(cx), np.zeros_like(cx)
    n = np.zeros(cx.shape, np.int32)
    alive = np.ones(cx.shape, bool)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(limit):
            alive &= zx * zx + zy * zy <= np.float32(4)
            n += alive
            zx, zy = zx * zx - zy * zy + cx, np.float32(2) * zx * zy + cy
    return n


def test_strict_equals_numpy(emulation):
    # 97 is no multiple of the vector width: the last lanes of a row must not leak.
    assert np.array_equal(emulation.image("strict", 97, LIMIT), numpy_image(97, LIMIT))


def test_threads_do_not_change_an_image(emulation):
    assert image_hash(emulation.image("oxide", 64, LIMIT, 1)) == image_hash(emulation.image("oxide", 64, LIMIT, 7))


def test_fusing_the_escape_test_moves_no_pixel_and_the_difference_does(emulation):
    images = {name: emulation.image(name, 512, LIMIT) for name in PATTERNS}
    for name in ("nvcc", "oxide"):
        assert compare_images(images[name], images[f"{name}+escape"], LIMIT).pixels == 0
    assert compare_images(images["strict"], images["nvcc"], LIMIT).pixels > 0
    assert compare_images(images["nvcc"], images["oxide"], LIMIT).pixels > 0


def test_object_code_check_refuses_a_library_that_fuses_on_its_own(emulation):
    check_object_code(emulation.fused)
    with pytest.raises(IrrError, match="fuses"):
        check_object_code({**emulation.fused, "strict": 1})
    with pytest.raises(IrrError, match="fuses"):
        check_object_code(dict.fromkeys(PATTERNS, 0))
    with pytest.raises(IrrError, match="row_strict"):
        fused_operations("nothing here")


def test_a_comparison_sees_one_ulp_in_one_pixel(emulation):
    strict, nvcc = (emulation.image(name, 512, LIMIT) for name in ("strict", "nvcc"))
    planted, _ = plant_one_ulp(strict, border([strict, nvcc], LIMIT), LIMIT)
    assert detects(nvcc, strict, planted, LIMIT)
    assert not detects(nvcc, strict, strict, LIMIT)


def test_one_ulp_cannot_be_planted_where_nothing_moves(emulation):
    image = emulation.image("strict", 64, 1)
    with pytest.raises(IrrError, match="one ulp"):
        plant_one_ulp(image, np.array([[0, 0], [5, 5]]), 1)


def test_empty_and_unlike_images_are_refused():
    empty = np.zeros((0, 0), np.int32)
    with pytest.raises(IrrError):
        compare_images(empty, empty, 1)
    with pytest.raises(IrrError):
        compare_images(np.zeros((2, 2), np.int32), np.zeros((2, 3), np.int32), 1)


def test_difference_numbers():
    a = np.array([[1, 5], [5, 3]], np.int32)
    b = np.array([[1, 2], [5, 5]], np.int32)
    assert compare_images(a, b, 5).as_json() == {"pixels": 2, "max": 3, "class": 2, "net": -1}


SASS = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   FADD R0, R3, -R0 ;
        /*0020*/                   FFMA R7, R3, R7, R9 ;
        /*0030*/                   FMUL R3, R3, R3 ;
        /*0040*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0050*/              @!P0 BRA P1, `(.L_x_1) ;
        /*0060*/                   EXIT ;
.L_x_2:
        /*0070*/                   BRA `(.L_x_2);
        /*0080*/                   NOP;
"""

PTX = """
.visible .entry mandelbrot(.param .u32 p)
{
$L__BB0_2:
	mul.f32 	%f1, %f2, %f2;
	fma.rn.f32 	%f3, %f1, %f2, %f4;
	mul.rn.f32 	%f5, %f2, %f2;
	add.s32 	%r1, %r1, 1;
	@%p1 bra 	$L__BB0_2;
	ret;
}
"""


def test_loops_of_sass_and_ptx():
    assert [loop.label for loop in loops(SASS)] == [".L_x_1"]
    loop = floating_loop(SASS)
    assert loop is not None
    assert (len(loop.instructions), loop.fused, loop.floating, loop.branches) == (5, 1, 3, 1)
    loop = floating_loop(PTX)
    assert loop is not None
    assert (len(loop.instructions), loop.fused, loop.floating, loop.may_fuse, loop.branches) == (5, 1, 3, 1, 1)
    assert floating_loop("") is None


def test_one_kernel_of_a_listing():
    two = PTX + PTX.replace("mandelbrot", "saxpy").replace("fma.rn", "sub.rn")
    for entry, fused in (("mandelbrot", 1), ("saxpy", 0)):
        loop = floating_loop(function_text(two, entry))
        assert loop is not None and loop.fused == fused
    with pytest.raises(IrrError, match="julia"):
        function_text(two, "julia")


def test_document_has_every_pattern_and_pair_and_the_planted_change_is_seen(emulation):
    images = fma.emulate(emulation, 256, LIMIT)
    document, gates = fma.compare_all(images, LIMIT)
    assert set(document["patterns"]) == set(PATTERNS)
    assert len(document["pairs"]) == len(gates) == 10
    assert all(gate.ok and gate.compared == 256 * 256 for gate in gates)
    assert "nvcc+escape" in fma.as_text(document)
    # Images in which no pixel can move: the study must say so, not report ten equal pairs.
    empty = np.full((64, 64), LIMIT, np.int32)
    with pytest.raises(IrrError, match="one ulp"):
        fma.compare_all(dict.fromkeys(PATTERNS, empty), LIMIT)


def test_equal_images_are_still_shown_to_be_comparable(emulation):
    strict = emulation.image("strict", 256, LIMIT)
    document, gates = fma.compare_all({"a": strict, "b": strict.copy()}, LIMIT)
    assert document["pairs"] == [{"a": "a", "b": "b", "pixels": 0, "max": 0, "class": 0, "net": 0}]
    assert gates[0].ok


def test_one_point_by_another_route(emulation):
    image = emulation.image("strict", 64, LIMIT)
    cxs, cys = plane_axes(64)
    for row, column in ((0, 0), (31, 20), (20, 40), (33, 30)):
        assert escape_time(np.float32(cxs[column]), np.float32(cys[row]), LIMIT) == image[row, column]


def test_two_trivial_pixels_say_equal_under_any_arithmetic(emulation):
    images = fma.emulate(emulation, 512, LIMIT)
    document, _ = fma.compare_all(images, LIMIT)
    found = {row["name"]: row["value"] for row in fma.evidence(document, images, "nvcc", "oxide", "emulated")}
    table = np.frombuffer(zlib.decompress(base64.b64decode(found["fma.difference"]["pixels"])), "<i2").reshape(-1, 3)
    assert len(table) == found["fma.trivial_pixels.images_differ"]
    row, column, change = table[0]
    assert images["oxide"][row, column] - images["nvcc"][row, column] == change
    assert found["fma.trivial_pixels.equal"] is True
    assert found["fma.trivial_pixels.images_differ"] > 0


@pytest.mark.parametrize(("size", "limit"), [(0, 500), (63, 500), (10**6, 500), (128, 1)])
def test_an_image_that_is_none_is_wrong_use(size, limit):
    with pytest.raises(UsageError):
        fma.study(size, limit)


def test_the_plan_has_twins_block_sizes_and_ptx_of_both_cards():
    programs = list(load_programs().values())
    names = [name for name, row in KERNELS.items() if row.stage == "fma"]
    names.append("rust-oxide/fma/mandelbrot-default-b256@nofmad")
    plan = program_plan(programs, names)
    keys = [(e.cell, e.kernel, e.load) for e in plan]
    assert len(set(keys)) == len(keys)
    assert {e.cell for e in plan} == {"mandelbrot", "saxpy"} and {e.stage for e in plan} == {"fma"}
    base = "cuda/fma/mandelbrot-default-b256"
    for wanted in (
        ("mandelbrot", base, "aot"),
        ("mandelbrot", base + "@twin", "aot"),
        ("mandelbrot", base, "jit"),
        ("mandelbrot", base + "@sm80", "jit"),
        ("mandelbrot", "rust-oxide/fma/mandelbrot-default-b512", "aot"),
        ("mandelbrot", "rust-oxide/fma/mandelbrot-default-b256@nofmad", "aot"),
        ("saxpy", "triton/fma/saxpy-off-b256", "aot"),
    ):
        assert wanted in keys
    assert ("mandelbrot", "triton/fma/mandelbrot-off-b512", "aot") not in keys  # no claim asks for it
    # What is not built is not planned.
    assert not program_plan(programs, [])


def test_the_value_that_tells_one_rounding_from_two():
    separate = A * X + Y
    fused = np.float32(np.float64(A) * np.float64(X) + np.float64(Y))
    assert (separate, fused) == (SEPARATE, FUSED)


def test_the_cpu_part_decides_its_claims_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(fma, "BUILD", tmp_path)  # nothing is built: the images alone
    findings, gates = fma.study(128, LIMIT)
    assert findings[0]["name"] == "fma.images" and all(gate.ok for gate in gates)
    decided = {row["id"]: row["verdict"] for row in judge_findings(findings, "B")}
    # Claims on the blog's figures want the blog's image; those on the method do not.
    assert decided["B15"] == "reproduced"
    assert "B6" not in decided and "B2" not in decided
