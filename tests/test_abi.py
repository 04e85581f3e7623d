"""One ABI in every language: the field table against C++, Rust, Triton and NumPy, with a swap planted in each."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.build import abi, assemble, cargo, nvcc, sources, triton_aot
from harness.build.cubin import RawParameter
from harness.build.kernels import KERNELS, PARAMETERS, Kernel
from harness.build.manifest import Manifest, Parameter, ToolMissing
from harness.build.toolchain import Toolkit, find_toolkit
from harness.environment import ROOT
from harness.errors import IrrError
from harness.workload.volume import FIELDS, VOLUME_DTYPE

try:
    TOOLKIT: Toolkit | None = find_toolkit()
except IrrError:
    TOOLKIT = None
try:
    cargo.find_gpu_rustc()
    RUST = True
except ToolMissing:
    RUST = False
needs_nvcc = pytest.mark.skipif(TOOLKIT is None or shutil.which("g++") is None, reason="no CUDA toolkit or g++ here")
needs_rust = pytest.mark.skipif(not RUST or TOOLKIT is None, reason="no rustc that makes PTX here")

LAYOUT = Kernel("cuda/floor/layout", "cuda/probes/layout.cu", "none")


def ptxas(ptx: str) -> bytes:
    assert TOOLKIT is not None
    return assemble.run_ptxas(ptx, assemble.target(ptx, 90), False, TOOLKIT.ptxas)[0]


def cpp_cubin(work: Path, root: Path = ROOT) -> bytes:
    """The layout probe's cubin: it has a constant and no kernel, so the emitter's own check does not apply."""
    assert TOOLKIT is not None
    work.mkdir(parents=True, exist_ok=True)
    stamp = tuple(sources.generated_headers().values())
    return ptxas(nvcc._compile(TOOLKIT, LAYOUT.source, 90, False, work, root, stamp)[0])


def swap(text: str, first: str, second: str) -> str:
    """The text with two whole lines exchanged; each must be there once."""
    lines = text.splitlines(keepends=True)
    places = [next(i for i, line in enumerate(lines) if re.search(pattern, line)) for pattern in (first, second)]
    lines[places[0]], lines[places[1]] = lines[places[1]], lines[places[0]]
    return "".join(lines)


def swapped_message(layout: abi.Layout) -> str:
    with pytest.raises(IrrError, match="ABI: ") as caught:
        abi.check_layouts([layout])
    return caught.value.what


# --- agreement --------------------------------------------------------------------------------------------------------


def test_the_volume_is_112_bytes() -> None:
    layout = abi.table_layout()
    assert (layout.entry, layout.total) == (16, 112)
    assert list(layout.fields) == [field.name for field in FIELDS]


def test_numpy_agrees() -> None:
    assert abi.differences(abi.numpy_layout()) == []


@pytest.mark.smoke
@needs_nvcc
def test_cpp_agrees(tmp_path: Path) -> None:
    layout = abi.cubin_layout("C++", cpp_cubin(tmp_path))
    assert layout.fields == abi.table_layout().fields  # sizes too
    assert abi.differences(layout) == []


@needs_rust
@pytest.mark.parametrize("name", ["rust-nvptx/allocate/plain", "rust-nvptx/update/plain"])
def test_rust_agrees(name: str, tmp_path: Path) -> None:
    cubin = ptxas(cargo.emit(KERNELS[name], 90, False, tmp_path).ptx)
    assert abi.has_layout(cubin)
    assert abi.differences(abi.cubin_layout("Rust", cubin)) == []


@pytest.mark.smoke
def test_triton_agrees() -> None:
    layout = abi.tuple_layout("Triton", triton_aot.Volume._fields)
    assert list(layout.fields) == list(abi.table_layout().fields)
    flat = abi.expected_parameters(KERNELS["triton/update/while"], "flat", 2)
    assert [p.name for p in flat[: len(FIELDS)]] == list(triton_aot.Volume._fields)
    assert [p.size for p in flat] == triton_aot.flat_sizes(KERNELS["triton/update/while"])


# --- a swap in each language ------------------------------------------------------------------------------------------


def test_a_swap_in_numpy_is_caught() -> None:
    names = [(field.name, field.numpy) for field in FIELDS]
    place = [name for name, _ in names].index("tsdf")
    names[place], names[place + 1] = names[place + 1], names[place]
    assert "NumPy: tsdf is at 56" in swapped_message(abi.numpy_layout(np.dtype(names, align=True)))


@needs_nvcc
def test_a_swap_in_cpp_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = sources.generated_headers()["volume.cuh"]
    swapped = {"volume.cuh": swap(header, r"float\* tsdf;", r"float\* weight;")}
    for module in (sources, nvcc):
        monkeypatch.setattr(module, "generated_headers", lambda: swapped)
    assert "C++: tsdf is at 56" in swapped_message(abi.cubin_layout("C++", cpp_cubin(tmp_path)))


@needs_nvcc
def test_another_size_in_cpp_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = sources.generated_headers()["volume.cuh"].replace("unsigned int mask;", "unsigned short mask;")
    for module in (sources, nvcc):
        monkeypatch.setattr(module, "generated_headers", lambda: {"volume.cuh": header})
    assert "C++: mask is at 8 (2 bytes)" in swapped_message(abi.cubin_layout("C++", cpp_cubin(tmp_path)))


@needs_rust
def test_a_swap_in_rust_is_caught(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "rust", tmp_path / "rust", ignore=shutil.ignore_patterns("target"))
    path = tmp_path / "rust/core/src/volume.rs"
    path.write_text(swap(path.read_text(), r"pub tsdf: ", r"pub weight: "))
    # The build's work folder holds `core`, which is made once: 14 s.
    emitted = cargo.emit(KERNELS["rust-nvptx/update/plain"], 90, False, ROOT / "build/work", root=tmp_path)
    assert "Rust: tsdf is at 56" in swapped_message(abi.cubin_layout("Rust", ptxas(emitted.ptx)))


def test_a_swap_in_triton_is_caught() -> None:
    fields = list(triton_aot.Volume._fields)
    place = fields.index("tsdf")
    fields[place], fields[place + 1] = fields[place + 1], fields[place]
    assert "Triton: tsdf is at 56" in swapped_message(abi.tuple_layout("Triton", fields))
    assert "no field steps" in swapped_message(abi.tuple_layout("Triton", triton_aot.Volume._fields[:-1]))


@given(st.permutations(range(len(FIELDS))))
def test_every_permutation_but_the_identity_is_caught(order: list[int]) -> None:
    names = [FIELDS[i].name for i in order]
    layouts = [
        abi.tuple_layout("Triton", names),
        abi.numpy_layout(np.dtype([(FIELDS[i].name, FIELDS[i].numpy) for i in order], align=True)),
    ]
    for layout in layouts:
        assert bool(abi.differences(layout)) == (order != sorted(order))


# --- parameters -------------------------------------------------------------------------------------------------------


def raw(parameters: list[Parameter]) -> list[RawParameter]:
    return [RawParameter(i, p.offset, p.size) for i, p in enumerate(parameters)]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda k: k.name)
def test_every_row_has_parameters(kernel: Kernel) -> None:
    volume, nulls = ("flat", 2) if kernel.language == "triton" else ("struct", 0)
    expected = abi.expected_parameters(kernel, volume, nulls)
    assert all(p.offset % p.size == 0 for p in expected if p.name != "volume")
    first = VOLUME_DTYPE.itemsize if kernel.takes_volume else 0
    declared = [(p.name, p.size) for p in expected if p.offset >= first][: len(kernel.parameters)]
    assert declared == list(kernel.parameters)
    assert abi.name_parameters(kernel, raw(expected), expected) == expected


def test_a_kernel_with_other_parameters_is_refused() -> None:
    kernel = KERNELS["cuda/update/plain"]
    expected = abi.expected_parameters(kernel, "struct", 0)
    assert [p.name for p in expected[1:]] == [name for name, _ in PARAMETERS["update"]]
    with pytest.raises(IrrError, match="6 parameters in the cubin, 7 in the kernel table"):
        abi.name_parameters(kernel, raw(expected[:-1]), expected)
    with pytest.raises(IrrError, match=r"parameter 2 \(colors\) is 4 bytes at 120 in the cubin, 8 at 120"):
        changed = [dataclasses.replace(p, size=4) if p.name == "colors" else p for p in expected]
        abi.name_parameters(kernel, raw(changed), expected)


def test_a_cubin_of_another_build_is_refused_when_loaded() -> None:
    parameters = abi.expected_parameters(KERNELS["cuda/allocate/plain"], "struct", 0)
    manifest = Manifest("cuda/allocate/plain", 90, "allocate", "allocate", "cuda", False, "ok", parameters=parameters)
    driver = [(p.offset, p.size) for p in parameters]
    abi.check_loaded(manifest, driver)
    with pytest.raises(IrrError, match=r"sm_90: the driver says 5 parameters, 6 in the manifest"):
        abi.check_loaded(manifest, driver[:-1])
    with pytest.raises(IrrError, match=r"parameter 0 \(volume\) is 104 bytes at 0, 112 at 0 in the manifest"):
        abi.check_loaded(manifest, [(0, 104), *driver[1:]])
