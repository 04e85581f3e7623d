"""The kernel table: every compiled entry of the project, one row each, and the arms made of them.

Adding a kernel is its source and one row here. Builders, gates, the schedule and the manifests read the row;
nothing else lists kernels.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError

SCRATCH_SLOTS = 65_536
"""Scratch addresses of the static Triton probe (i64 each): slot = (program * 256 + lane) mod 65,536."""

ARCHITECTURES = (80, 86, 89, 90, 100, 120)
"""Compute capabilities that every kernel is built for unless its row says otherwise."""


@dataclass(frozen=True)
class Kernel:
    """One compiled entry.

    Attributes:
        name: language/stage/variant.
        source: file or crate, relative to the repository.
        entry: symbol in the cubin (the function's name for Triton).
        threads: threads a block. points: points a block handles (one a thread unless a tile says otherwise).
        waits: whether an insert waits for the block's index, as `plain` does (algorithm: Insert).
        bounded: whether the probe is bounded, so that loss is declared and not an error.
        scratch: i64 scratch slots the kernel needs as its last parameter, 0 for none.
        host: whether the same source also builds for the host (no warp, shared-memory or inline instructions).
        voxels: `arrays` (five) or `packed` (tsdf, weight, r, g interleaved, b apart).
        min_arch: lowest architecture it compiles for.
        constants: compile-time constants (Triton constexpr, C++ template arguments), part of the identity.
        matrix: whether it belongs to the standard matrix, or only to a study.
        slow_build: left out of a default build, because compiling it takes minutes.
        contract: built with the compiler's default contraction, not with it off (the contraction study's `default`).
        registers: most registers a thread that ptxas may use; 0 for its own choice.
        breaks: what a variant gives up to answer its question, in words; such a kernel is timed and never judged, and
            never fuses for anybody. Empty for every kernel that must pass the gates.
    """

    name: str
    source: str
    entry: str
    threads: int = 256
    points: int = 256
    waits: bool = False
    bounded: bool = False
    scratch: int = 0
    host: bool = False
    voxels: str = "arrays"
    min_arch: int = 75
    constants: Mapping[str, int] = field(default_factory=dict)
    matrix: bool = True
    slow_build: bool = False
    contract: bool = False
    registers: int = 0
    breaks: str = ""

    @property
    def takes_volume(self) -> bool:
        """Whether the first parameter is the volume; the contraction study's kernels take none."""
        return self.stage != "fma"

    @property
    def parameters(self) -> tuple[tuple[str, int], ...]:
        """Declared parameters after the volume, as (name, bytes), the scratch pointer included."""
        keys = (f"{self.stage}/{self.variant}", f"{self.stage}/{self.variant.split('-')[0]}", self.stage)
        declared = next(PARAMETERS[key] for key in keys if key in PARAMETERS)
        return (*declared, ("scratch", 8)) if self.scratch else declared

    @property
    def language(self) -> str:
        return self.name.split("/")[0]

    @property
    def stage(self) -> str:
        return self.name.split("/")[1]

    @property
    def variant(self) -> str:
        return self.name.split("/", 2)[2]

    @property
    def file_stem(self) -> str:
        """File name without extension: the name with / as --."""
        return self.name.replace("/", "--")


# stage, or stage/variant where one variant differs -> parameters after the volume, as (name, bytes); the volume itself
# and a Triton kernel's trailing nulls are the builder's business. Order: volume, points, [colours], n, cx, cy, cz,
# [scratch].
PARAMETERS: dict[str, tuple[tuple[str, int], ...]] = {
    "allocate": (("points", 8), ("n", 4), ("cx", 4), ("cy", 4), ("cz", 4)),
    "update": (("points", 8), ("colors", 8), ("n", 4), ("cx", 4), ("cy", 4), ("cz", 4)),
    "integrate": (("points", 8), ("colors", 8), ("n", 4), ("cx", 4), ("cy", 4), ("cz", 4)),
    "extract": (("vertices", 8), ("colors", 8), ("n", 4), ("triangles", 8)),
    "floor": (("points", 8), ("n", 4), ("cx", 4), ("cy", 4), ("cz", 4)),
    "floor/atomics": (("offsets", 8), ("n", 4)),
    "floor/record": (("points", 8), ("n", 4), ("cx", 4), ("cy", 4), ("cz", 4), ("offsets", 8)),
    "fma/saxpy": (("n", 4), ("a", 4), ("x", 8), ("y", 8)),
    "fma/mandelbrot": (("width", 4), ("height", 4), ("limit", 4), ("out", 8)),
}


def _rows() -> list[Kernel]:
    return [
        Kernel("cuda/allocate/plain", "cuda/allocate.cu", "allocate", waits=True, host=True),
        Kernel("cuda/allocate/nowait", "cuda/variants/allocate_nowait.cu", "allocate_nowait", host=True),
        Kernel("cuda/update/plain", "cuda/update.cu", "update", host=True),
        Kernel("cuda/extract/plain", "cuda/extract.cu", "extract", host=True),
        Kernel("cuda/floor/null", "cuda/probes/null.cu", "floor_null", host=True),
        Kernel("cuda/floor/geometry", "cuda/probes/geometry.cu", "floor_geometry", host=True),
        Kernel("cuda/floor/atomics", "cuda/probes/atomics.cu", "floor_atomics", host=True),
        Kernel("cuda/floor/record", "cuda/probes/record.cu", "record_offsets", host=True, matrix=False),
    ]


CUDA_BLOCKS = (64, 128, 512)
"""Threads a block swept beside 256, which the paper's kernels have: the source is the same."""


def _cuda_study_rows() -> list[Kernel]:
    """CUDA's variants of the attribution study, each named for what it changes: `ray` asks no block twice along a ray,
    `warp` lets one lane a warp insert a block, `run` one lane for a run of neighbours, `walls` finds a ray's blocks by
    the walls between them, `packed` is the voxel layout; `integrate` is allocate and update in one pass. None but plain
    waits for an index that it does not use."""
    folder = "cuda/variants"
    study: dict[str, Any] = {"matrix": False}
    packed: dict[str, Any] = {"matrix": False, "voxels": "packed", "min_arch": 90}
    rows = [
        Kernel("cuda/allocate/ray", f"{folder}/allocate_ray.cu", "allocate_ray", host=True, **study),
        Kernel("cuda/allocate/warp", f"{folder}/allocate_warp.cu", "allocate_warp", **study),
        Kernel("cuda/allocate/ray-warp", f"{folder}/allocate_ray_warp.cu", "allocate_ray_warp", **study),
        Kernel("cuda/allocate/ray-run", f"{folder}/allocate_ray_run.cu", "allocate_ray_run", **study),
        Kernel("cuda/allocate/walls", f"{folder}/allocate_walls.cu", "allocate_walls", host=True, **study),
        Kernel("cuda/allocate/walls-run", f"{folder}/allocate_walls_run.cu", "allocate_walls_run", **study),
        Kernel("cuda/update/ray", f"{folder}/update_ray.cu", "update_ray", host=True, **study),
        Kernel("cuda/update/run", f"{folder}/update_run.cu", "update_run", **study),
        Kernel("cuda/update/packed", f"{folder}/update_packed.cu", "update_packed", **packed),
        Kernel("cuda/update/packed-ray", f"{folder}/update_packed_ray.cu", "update_packed_ray", **packed),
        Kernel("cuda/update/packed-run", f"{folder}/update_packed_run.cu", "update_packed_run", **packed),
        Kernel("cuda/integrate/ray", f"{folder}/integrate.cu", "integrate", waits=True, host=True, **study),
        Kernel("cuda/integrate/packed", f"{folder}/integrate_packed.cu", "integrate_packed", waits=True, **packed),
        Kernel(
            "cuda/integrate/packed-run",
            f"{folder}/integrate_packed_run.cu",
            "integrate_packed_run",
            waits=True,
            **packed,
        ),
    ]
    for block in CUDA_BLOCKS:
        size: dict[str, Any] = {"threads": block, "points": block, "matrix": False}
        rows.append(Kernel(f"cuda/allocate/plain-b{block}", "cuda/allocate.cu", "allocate", waits=True, **size))
        rows.append(Kernel(f"cuda/update/plain-b{block}", "cuda/update.cu", "update", **size))
    return rows


def _triton_rows() -> list[Kernel]:
    """Triton's kernels. A program's points are its lanes, SLOTS is the scratch, WAIT whether it waits."""
    static, loop = "triton/allocate_static.py", "triton/allocate_while.py"
    bounded: dict[str, Any] = {"bounded": True, "scratch": SCRATCH_SLOTS}
    warp: dict[str, Any] = {"threads": 32, "points": 32}
    return [
        Kernel("triton/allocate/static8", static, "allocate_static", **bounded, constants={"BOUND": 8}),
        # slot = lane: every program shares 256 addresses, the paper's first form (P25, P27)
        Kernel(
            "triton/allocate/static8-s256", static, "allocate_static", bounded=True, scratch=256, constants={"BOUND": 8}
        ),
        Kernel(
            "triton/allocate/static32", static, "allocate_static", **bounded, constants={"BOUND": 32}, slow_build=True
        ),
        Kernel("triton/allocate/while", loop, "allocate_while", **warp, waits=True, scratch=SCRATCH_SLOTS),
        Kernel("triton/allocate/while-nowait", loop, "allocate_while", **warp, scratch=SCRATCH_SLOTS),
        Kernel("triton/update/static8", "triton/update.py", "update", bounded=True, constants={"BOUND": 8}),
        Kernel("triton/update/while", "triton/update.py", "update", **warp, constants={"BOUND": 0}),
    ]


FMA_BLOCKS = (128, 256, 512)
"""Threads a block in the contraction study: the block size moved the blog's gap (B5)."""

FUSED_BY_HAND = "mandelbrot-oxide"
"""Fuses by explicit operations, so there is nothing to switch off."""

# language -> (source, {program: entry}); `mandelbrot-u32` is C++ with Rust's unsigned integers, the variable that the
# blog left open (B14).
FMA_SOURCES: dict[str, tuple[str, dict[str, str]]] = {
    "cuda": (
        "cuda/fma/study.cu",
        {
            "saxpy": "saxpy",
            "mandelbrot": "mandelbrot",
            "mandelbrot-u32": "mandelbrot_u32",
            FUSED_BY_HAND: "mandelbrot_oxide",
        },
    ),
    "rust-nvptx": ("rust/nvptx/src/fma.rs", {"saxpy": "saxpy", "mandelbrot": "mandelbrot"}),
    "rust-oxide": ("rust/oxide/src/lib.rs", {"saxpy": "saxpy", "mandelbrot": "mandelbrot"}),
    "triton": ("triton/fma/study.py", {"saxpy": "saxpy", "mandelbrot": "mandelbrot"}),
}


def _fma_rows() -> list[Kernel]:
    """Every program of the contraction study: default and off, at three block sizes."""
    return [
        Kernel(
            f"{language}/fma/{program}-{'default' if contract else 'off'}-b{block}",
            source,
            entry,
            threads=block,
            points=block,
            matrix=False,
            contract=contract,
        )
        for language, (source, programs) in FMA_SOURCES.items()
        for program, entry in programs.items()
        for contract in ((True,) if program == FUSED_BY_HAND else (True, False))
        for block in FMA_BLOCKS
    ]


TRITON_SCRATCH = (1024, 4096, 16_384, 262_144, 524_288)
"""Scratch sizes swept beside 256 and 65,536: the last is more than a slot a lane at base (P26)."""

TRITON_TILES = ((64, 1), (64, 2), (128, 1), (128, 2), (128, 4), (256, 1), (256, 2), (256, 4), (256, 8))
"""Lanes and warps of a program, swept beside 32 and 1."""


def _triton_study_rows() -> list[Kernel]:
    """Triton's variants of the attribution study: one thing changed each."""
    static, loop, update = "triton/allocate_static.py", "triton/allocate_while.py", "triton/update.py"
    bounded: dict[str, Any] = {"bounded": True, "matrix": False}
    load, predicated, acqrel = "allocate_static_load", "allocate_while_predicated", "allocate_static_acqrel"
    rows = [
        Kernel(f"triton/allocate/static8-s{n}", static, "allocate_static", **bounded, scratch=n, constants={"BOUND": 8})
        for n in TRITON_SCRATCH
    ]
    rows += [
        Kernel(
            "triton/allocate/static16", static, "allocate_static", **bounded, scratch=SCRATCH_SLOTS,
            constants={"BOUND": 16},
        ),
        Kernel(
            "triton/allocate/static8-acqrel", f"triton/variants/{acqrel}.py", acqrel, **bounded, scratch=SCRATCH_SLOTS,
            constants={"BOUND": 8},
        ),
        Kernel(
            "triton/allocate/static8-load", f"triton/variants/{load}.py", load, **bounded, scratch=SCRATCH_SLOTS,
            constants={"BOUND": 8},
        ),
        Kernel(
            "triton/allocate/while-predicated", f"triton/variants/{predicated}.py", predicated, threads=32, points=32,
            waits=True, scratch=SCRATCH_SLOTS, matrix=False,
        ),
        Kernel(
            "triton/update/packed", "triton/variants/update_packed.py", "update_packed", threads=32, points=32,
            voxels="packed", min_arch=90, matrix=False,
        ),
    ]  # fmt: skip
    for lanes, warps in TRITON_TILES:
        tile: dict[str, Any] = {"threads": 32 * warps, "points": lanes, "matrix": False}
        name = f"while-w{lanes}x{warps}"
        rows += [
            Kernel(f"triton/allocate/{name}", loop, "allocate_while", **tile, waits=True, scratch=SCRATCH_SLOTS),
            Kernel(f"triton/update/{name}", update, "update", **tile, constants={"BOUND": 0}),
        ]
    return rows


def _rust_rows() -> list[Kernel]:
    """rust/core under stock rustc, and under cuda-oxide: reads of a slot plain (the paper's final form), the index by a
    scoped load (its first), volatile, and with atomics that say .global."""
    oxide = "rust/oxide/src/lib.rs"
    return [
        Kernel("rust-nvptx/allocate/plain", "rust/nvptx/src/allocate.rs", "allocate", waits=True, host=True),
        Kernel("rust-nvptx/update/plain", "rust/nvptx/src/update.rs", "update", host=True),
        *(
            Kernel(f"rust-oxide/allocate/{variant}", oxide, f"allocate_{variant}", waits=True)
            for variant in ("plain", "scoped", "volatile", "global")
        ),
        *(Kernel(f"rust-oxide/update/{variant}", oxide, f"update_{variant}") for variant in ("plain", "global")),
    ]


SLOTS_AS_INDICES = "indices are slots: the pool must be as large as the table"
SPARE_INDICES = "an index taken by the loser of a slot is lost to the pool"
NARROW_SCOPE = "other blocks claim the same slots, which the scope leaves out"
NO_COUNTER = "blocks are neither numbered nor counted"
NO_STORE = "no index is published, so no look-up finds a block"
OTHER_HASH = "a look-up with the paper's hash does not find the blocks"

FEWEST_REGISTERS = 24
"""Below what either compiler takes for allocate (26 and 27 on sm_90): the causes study's launch bound."""


def _cause_rows() -> list[Kernel]:
    """Variants that answer why, one thing changed each: the causes that the paper ruled out for Rust (P29), its two
    failed designs in both languages (P41), another hash (P5); and stock Rust's own best."""
    causes, oxide = "rust/causes/src/lib.rs", "rust/oxide/src/lib.rs"
    study: dict[str, Any] = {"matrix": False}
    rows = [
        Kernel("rust-oxide/allocate/clamp", causes, "allocate_clamp", waits=True, **study),
        Kernel("rust-oxide/allocate/reread", causes, "allocate_reread", waits=True, **study),
        Kernel("rust-oxide/allocate/cta", causes, "allocate_cta", waits=True, breaks=NARROW_SCOPE, **study),
        Kernel("rust-oxide/allocate/sys", causes, "allocate_sys", waits=True, **study),
        Kernel("rust-oxide/allocate/nocounter", causes, "allocate_nocounter", waits=True, breaks=NO_COUNTER, **study),
        Kernel("rust-oxide/allocate/nofence", causes, "allocate_nofence", waits=True, **study),
        Kernel("rust-oxide/allocate/nowait", causes, "allocate_nowait", **study),
        Kernel("rust-oxide/allocate/nostore", causes, "allocate_nostore", breaks=NO_STORE, **study),
        *(
            Kernel(
                f"rust-nvptx/allocate/{name}", f"rust/nvptx/src/allocate_{name}.rs", f"allocate_{name}", host=True,
                **study,
            )
            for name in ("nowait", "ray", "walls")
        ),
        Kernel("rust-nvptx/update/packed", "rust/nvptx/src/update_packed.rs", "update_packed", voxels="packed",
               min_arch=90, **study),
        Kernel("cuda/allocate/otherhash", "cuda/variants/allocate_otherhash.cu", "allocate_otherhash", waits=True,
               breaks=OTHER_HASH, **study),
    ]  # fmt: skip
    for language, slot, wide in (
        ("cuda", "cuda/variants/allocate_slotindex.cu", "cuda/variants/allocate_cas128.cu"),
        ("rust-oxide", causes, causes),
    ):
        rows += [
            Kernel(f"{language}/allocate/slotindex", slot, "allocate_slotindex", breaks=SLOTS_AS_INDICES, **study),
            Kernel(f"{language}/allocate/cas128", wide, "allocate_cas128", breaks=SPARE_INDICES, min_arch=90, **study),
        ]
    for language, source, entry in (
        ("cuda", "cuda/allocate.cu", "allocate"),
        ("rust-oxide", oxide, "allocate_plain"),
    ):
        name = f"{language}/allocate/plain-r{FEWEST_REGISTERS}"
        rows.append(Kernel(name, source, entry, waits=True, registers=FEWEST_REGISTERS, **study))
    return rows


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        *_rows(),
        *_cuda_study_rows(),
        *_rust_rows(),
        *_cause_rows(),
        *_triton_rows(),
        *_triton_study_rows(),
        *_fma_rows(),
    )
}


@dataclass(frozen=True)
class Arm:
    """A set of kernels that does the whole job.

    Attributes:
        allocate, update: kernel names, or None where a library does the work (open3d).
        place: `gpu`, `host` or `library`.
    """

    name: str
    allocate: str | None
    update: str | None
    place: str = "gpu"


ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("open3d", None, None, "library"),
        Arm("cpu", "cuda/allocate/plain", "cuda/update/plain", "host"),
        Arm("cuda", "cuda/allocate/plain", "cuda/update/plain"),
        Arm("cuda-packed", "cuda/allocate/plain", "cuda/update/packed"),
        Arm("rust-cpu", "rust-nvptx/allocate/plain", "rust-nvptx/update/plain", "host"),
        Arm("rust-nvptx", "rust-nvptx/allocate/plain", "rust-nvptx/update/plain"),
        Arm("rust-oxide", "rust-oxide/allocate/plain", "rust-oxide/update/plain"),
        Arm("rust-global", "rust-oxide/allocate/global", "rust-oxide/update/global"),
        Arm("triton-update", "cuda/allocate/plain", "triton/update/static8"),
        Arm("triton", "triton/allocate/static8", "triton/update/static8"),
        Arm("triton-while", "triton/allocate/while", "triton/update/while"),
    )
}


def select_kernels(pattern: str | None) -> list[Kernel]:
    """Kernels matched by comma-separated globs of kernel names or by arm names; None for all.

    Raises:
        UsageError: a part matches nothing.
    """
    if pattern is None:
        return list(KERNELS.values())
    chosen: dict[str, Kernel] = {}
    for part in (p.strip() for p in pattern.split(",") if p.strip()):
        if part in ARMS:
            names = [n for n in (ARMS[part].allocate, ARMS[part].update) if n is not None]
        else:
            names = [n for n in KERNELS if fnmatch.fnmatchcase(n, part) or n.split("/")[0] == part]
        if not names and part not in ARMS:
            raise UsageError(f"no kernel or arm is named {part!r}", f"arms: {', '.join(ARMS)}")
        chosen |= {name: KERNELS[name] for name in names}
    return [kernel for kernel in KERNELS.values() if kernel.name in chosen]
