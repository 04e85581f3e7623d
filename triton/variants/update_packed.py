"""Update of packed voxels, otherwise as `update` with the unbounded look-up: tsdf, weight, r, g of a voxel side by side
in the memory of the first four arrays, b in its own (cuda/device/packed.cuh).

`tl.atomic_add` of a tile of four columns goes through shared memory and adds one float at a time, so the four go by
inline assembly, under a predicate, and the interpreter cannot run them.
"""

import triton
import triton.language as tl

from ..band import lane_points, sample, view_ray
from ..update import find_unbounded


@triton.jit
def add_four(four, tsdf, weight, red, green, open_):
    """One reduction a lane: add to the four floats at `four` (LANES,), aligned to 16 bytes, where the lane is open.

    For programs of no fewer lanes than threads: a lane that two threads held would be added twice.
    """
    tl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.ne.s32 p, $6, 0;
        @p red.global.relaxed.gpu.add.v4.f32 [$1], {$2, $3, $4, $5};
        mov.b32 $0, 0;
        }""",
        "=r,l,f,f,f,f,r",
        # The address as a number: Triton refuses a pointer beside floats.
        [four.to(tl.int64), tsdf, weight, red, green, open_.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def accumulate_packed(volume, index, x, y, z, sdf, red, green, blue, held):
    """As `accumulate`: weight 1, clamped distance and colour of each held lane, unless its voxel is at the cap."""
    local = (x & 7) + 8 * (y & 7) + 64 * (z & 7)
    voxel = index.to(tl.int64) * 512 + local
    four = volume.tsdf + 4 * voxel
    capped = held & (volume.cap > 0)
    weight = tl.load(four + 1, mask=capped, other=0.0)
    open_ = held & ((capped & (weight >= volume.cap)) == 0)
    value = tl.minimum(tl.maximum(sdf * volume.inv_trunc, -1.0), 1.0)
    add_four(four, value, tl.full(sdf.shape, 1.0, tl.float32), red, green, open_)
    tl.atomic_add(volume.b + voxel, blue, mask=open_, sem="relaxed")


@triton.jit
def update_packed(volume, points, colors, n, cx, cy, cz, LANES: tl.constexpr):
    i, exists = lane_points(n, LANES)
    px, py, pz, ux, uy, uz, distance, walked = view_ray(points, i, exists, cx, cy, cz)
    red = tl.load(colors + 3 * i, mask=walked, other=0).to(tl.float32)
    green = tl.load(colors + 3 * i + 1, mask=walked, other=0).to(tl.float32)
    blue = tl.load(colors + 3 * i + 2, mask=walked, other=0).to(tl.float32)
    s = -volume.steps
    while s <= volume.steps:
        x, y, z, sdf, near = sample(volume, px, py, pz, ux, uy, uz, distance, cx, cy, cz, s)
        active = walked & near
        index = find_unbounded(volume, x >> 3, y >> 3, z >> 3, active)
        dropped = active & (index < 0)
        here = volume.dropped_points + tl.zeros_like(x)
        tl.atomic_add(here, tl.full(x.shape, 1, tl.int64), mask=dropped, sem="relaxed")
        accumulate_packed(volume, index, x, y, z, sdf, red, green, blue, active & (index >= 0))
        s += 1
