"""Kernels with warp operations, without a GPU: 32 host threads stand for a warp. Shows logic, not timing."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from harness.build.host import find_compiler, host_flags
from harness.build.kernels import KERNELS, Kernel
from harness.build.manifest import ToolMissing
from harness.device.host import HostVolume
from harness.environment import ROOT
from harness.workload.reference import Reference, evaluate
from harness.workload.scenes import Scene, sphere
from harness.workload.table import pack
from harness.workload.volume import VOLUME_DTYPE, VolumeConfig, cpp_header

VARIANTS = [
    kernel
    for kernel in KERNELS.values()
    if kernel.source.startswith("cuda/variants/")
    and not kernel.host
    and kernel.language == "cuda"
    and not kernel.breaks
]


def make_scene() -> Scene:
    """Long runs, short runs, none, and points without a direction in between; the last warp is not full."""
    close = sphere(0.15, 20, 1500).points[10 * 1500 : 10 * 1500 + 130]
    apart = sphere(0.15, 40, 80).points[1200:1330]
    points = np.concatenate([close, apart])
    points[[0, 5, 40, 41, 140, len(points) - 1]] = 0
    colors = np.random.default_rng(1).integers(0, 256, points.shape).astype(np.uint8)
    return Scene(np.ascontiguousarray(points), colors, np.zeros(3, np.float32))


SCENE = make_scene()


@pytest.fixture(scope="module")
def exact() -> Reference:
    return evaluate(SCENE, VolumeConfig(256))


def build(kernel: Kernel, folder: Path) -> ctypes.CDLL:
    """The kernel with the emulation's target header; the one inline instruction, a vector reduction, as four adds."""
    (folder / "volume.cuh").write_text(cpp_header())
    for header in ("in_step.cuh", "run_update.cuh"):
        shutil.copy(ROOT / "cuda" / "device" / header, folder)
    packed = (ROOT / "cuda" / "device" / "packed.cuh").read_text()
    four = "float* four = &packed_voxel(volume, voxel)->x;\n"
    four += "  add(four[0], tsdf), add(four[1], weight), add(four[2], color.r), add(four[3], color.g);"
    packed, replaced = re.subn(r"asm volatile\(.*?\);", four, packed, flags=re.DOTALL)
    assert replaced == 1
    (folder / "packed.cuh").write_text(packed)
    arguments = ", ".join(["*volume", *(name for name, _ in kernel.parameters)])
    library = folder / "emulated.so"
    flags = [flag for flag in host_flags() if not flag.startswith(("-std=", "-O"))]
    here = Path(__file__).parent / "emulated"
    command = [find_compiler()[0], "-std=c++20", "-O1", *flags, "-shared", f"-I{here}", f"-I{folder}"]
    command += [f"-I{ROOT / 'cuda'}", f'-DKERNEL="{ROOT / kernel.source}"', f"-DCALL={kernel.entry}({arguments})"]
    subprocess.run([*command, str(here / "warp.cpp"), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("kernel", VARIANTS, ids=lambda kernel: kernel.name.replace("/", "-"))
def test_warp_kernels_fuse_the_exact_volume(kernel: Kernel, exact: Reference, tmp_path: Path) -> None:
    try:
        library = build(kernel, tmp_path)
    except ToolMissing as error:
        pytest.skip(error.what)
    for pool in (256, 20):
        config = VolumeConfig(pool)
        volume = HostVolume(config)
        if kernel.stage == "update":
            volume.launch("cuda/allocate/plain", SCENE)
        struct = np.array(volume.struct, VOLUME_DTYPE)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (struct, SCENE.points, SCENE.colors)]
        library.emulate(*pointers, len(SCENE), *(ctypes.c_float(float(c)) for c in SCENE.camera))
        if kernel.stage == "allocate":
            volume.launch("cuda/update/plain", SCENE)
        fused = volume.fused("test", kernel.voxels)
        kept = np.isin(exact.keys, pack(fused.coords))
        assert kept.sum() == min(pool, len(exact.coords))
        assert np.array_equal(fused.weight, exact.weight[kept])
        assert np.array_equal(fused.r, exact.r[kept])
        assert np.array_equal(fused.b, exact.b[kept])
        assert (np.abs(fused.tsdf - exact.tsdf[kept]) <= exact.bound[kept]).all()
        assert fused.dropped_points == exact.block_samples[~kept].sum()


def test_there_are_warp_kernels() -> None:
    assert len(VARIANTS) >= 9
