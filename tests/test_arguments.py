"""Parameter blocks: every value is what its parameter is, or refused (N25)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.build.kernels import KERNELS
from harness.build.manifest import Parameter
from harness.device.arguments import ParameterBlock, address, scalar
from harness.device.driver import check_parameters
from harness.errors import IrrError
from harness.workload.volume import FIELDS, VOLUME_DTYPE, VolumeConfig, cpp_header

CONFIG = VolumeConfig(16)
STRUCT = CONFIG.struct({"table": 0x1000, "coords": 0x2000, "tsdf": 0x3000})


@pytest.mark.parametrize("alpha", [2, 2.0, np.float64(2.0), np.float32(2.0), np.int64(2)])
def test_a_float_parameter_is_always_float32(alpha: Any) -> None:
    value = scalar("a", "<f4", alpha)
    assert type(value) is np.float32 and value == 2


def test_an_int_parameter_has_its_declared_width() -> None:
    value = scalar("n", "<i4", 5)
    assert type(value) is np.int32 and value.nbytes == 4
    assert scalar("n", "<i4", 5.0) == 5
    for wrong in (2.5, True, "5", None, np.array([5])):
        with pytest.raises(TypeError):
            scalar("n", "<i4", wrong)
    with pytest.raises(OverflowError):
        scalar("n", "<i4", 1 << 31)
    with pytest.raises(OverflowError):
        scalar("a", "<f4", 1e300)


@given(st.floats(width=32, allow_nan=False))
def test_float32_goes_through_unchanged(value: float) -> None:
    assert float(scalar("cx", "<f4", value)) == value


def test_arrays_must_be_what_the_kernel_reads() -> None:
    points = np.zeros((4, 3), np.float32)
    assert address("points", "<f4", points) == points.ctypes.data
    assert address("scratch", "<i8", None) == 0
    with pytest.raises(TypeError, match="float64"):
        address("points", "<f4", points.astype(np.float64))
    with pytest.raises(ValueError, match="contiguous"):
        address("points", "<f4", points[:, :2])
    with pytest.raises(TypeError):
        address("points", "<f4", 12345)


def struct_parameters() -> list[Parameter]:
    return [
        Parameter("volume", 0, 112),
        Parameter("points", 112, 8),
        Parameter("n", 120, 4),
        Parameter("cx", 124, 4),
        Parameter("cy", 128, 4),
        Parameter("cz", 132, 4),
    ]


def test_struct_block() -> None:
    points = np.arange(6, dtype=np.float32).reshape(2, 3)
    values = {"volume": STRUCT, "points": points, "n": 2, "cx": 1, "cy": 2.5, "cz": np.float64(-1)}
    block = ParameterBlock(struct_parameters(), 0, values)
    raw = block.bytes.tobytes()
    assert raw[:112] == np.asarray(STRUCT).tobytes()
    assert int.from_bytes(raw[112:120], "little") == points.ctypes.data
    assert np.frombuffer(raw[120:136], "<i4,<f4,<f4,<f4")[0].tolist() == (2, 1.0, 2.5, -1.0)
    base = block.bytes.ctypes.data
    assert [pointer - base for pointer in block.pointers] == [0, 112, 120, 124, 128, 132]


def test_flat_block_with_scratch_and_trailing_nulls() -> None:
    parameters, at = [], 0
    for field in FIELDS:
        size = np.dtype(field.numpy).itemsize
        at = -(-at // size) * size
        parameters.append(Parameter(field.name, at, size))
        at += size
    for name, size in (("points", 8), ("n", 4), ("scratch", 8), ("null0", 8), ("null1", 8)):
        at = -(-at // size) * size
        parameters.append(Parameter(name, at, size))
        at += size
    scratch = np.zeros(8, np.int64)
    values = {"volume": STRUCT, "points": np.zeros((1, 3), np.float32), "n": 1, "scratch": scratch}
    block = ParameterBlock(parameters, 2, values)
    found = {p.name: block.bytes[p.offset : p.offset + p.size].tobytes() for p in parameters}
    assert int.from_bytes(found["table"], "little") == 0x1000
    assert np.frombuffer(found["inv_voxel"], "<f4")[0] == CONFIG.inv
    assert int.from_bytes(found["scratch"], "little") == scratch.ctypes.data
    assert found["null0"] == found["null1"] == bytes(8)


@pytest.mark.parametrize(
    ("parameters", "values", "error"),
    [
        ([Parameter("n", 0, 8)], {"n": 1}, IrrError),  # the kernel was built with another width
        ([Parameter("mystery", 0, 4)], {}, IrrError),
        ([Parameter("mystery", 0, 4)], {"mystery": 1}, IrrError),
        ([Parameter("volume", 0, 112)], {"volume": np.zeros(())}, TypeError),
        ([Parameter("n", 0, 4)], {"n": 1.5}, TypeError),
    ],
)
def test_what_does_not_fit_is_refused(parameters: list[Parameter], values: dict[str, Any], error: type) -> None:
    with pytest.raises(error):
        ParameterBlock(parameters, 0, values)


def test_every_row_of_the_kernel_table_has_declared_types() -> None:
    from harness.device.arguments import POINTEES, SCALARS

    named = {name for row in KERNELS.values() for name, _ in row.parameters}
    assert named <= {*POINTEES, *SCALARS}
    for row in KERNELS.values():
        for name, size in row.parameters:
            assert size == (8 if name in POINTEES else np.dtype(SCALARS[name]).itemsize), (row.name, name)


def test_manifest_against_driver() -> None:
    listed = struct_parameters()
    exact = [(p.offset, p.size) for p in listed]
    check_parameters("k", listed, exact)
    check_parameters("k", listed, None)  # a driver that cannot say
    with pytest.raises(IrrError, match="6 parameters, the driver 5"):
        check_parameters("k", listed, exact[:-1])
    with pytest.raises(IrrError, match="parameter n"):
        check_parameters("k", listed, [(o, 8) if o == 120 else (o, s) for o, s in exact])


def test_struct_is_as_large_as_c_says(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ here")
    (tmp_path / "volume.cuh").write_text(cpp_header())
    lines = ["#include <cstddef>", "#include <cstdio>", "#define __align__(n) alignas(n)", '#include "volume.cuh"']
    prints = [f'std::printf("%zu ", offsetof(Volume, {field.name}));' for field in FIELDS]
    source = tmp_path / "size.cpp"
    source.write_text("\n".join([*lines, "int main() {", *prints, 'std::printf("%zu\\n", sizeof(Volume)); }']))
    program = tmp_path / "size"
    subprocess.run([compiler, "-std=c++17", "-w", str(source), "-o", str(program)], check=True, timeout=60)
    numbers = [int(n) for n in subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()]
    fields = VOLUME_DTYPE.fields or {}
    assert numbers == [*(fields[field.name][1] for field in FIELDS), VOLUME_DTYPE.itemsize]
