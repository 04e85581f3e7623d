"""allocate, as the paper's Triton kernel does it: a probe of BOUND steps, unrolled, that may give up.

`tl.static_range` wants a constant and unrolls: the bound is paid in compile time and code, and what lies beyond it is
lost. The loss is counted in failed_inserts, once for every call that gives up. Nobody waits for an index.
"""

import triton
import triton.language as tl

from .band import lane_points, sample, view_ray
from .table import block_hash, block_key, claim, count_failed, key_at, scratch_slot


@triton.jit
def insert_bounded(volume, bx, by, bz, active, scratch, BOUND: tl.constexpr, CLAIM: tl.constexpr):
    """Insert one block a lane within BOUND slots; CLAIM is `claim` (every lane swaps in every step) or a variant."""
    want = block_key(bx, by, bz)
    slot = block_hash(bx, by, bz, volume.mask)
    todo = active
    for _ in tl.static_range(BOUND):
        key = tl.load(key_at(volume, slot), mask=todo, other=0)
        claimed, _won = CLAIM(volume, slot, want, bx, by, bz, todo & (key == -1), scratch)
        todo = todo & (key != want) & (claimed == 0)
        slot = (slot + 1) & volume.mask
    count_failed(volume, todo)


@triton.jit
def allocate_static(
    volume, points, n, cx, cy, cz, scratch, LANES: tl.constexpr, SLOTS: tl.constexpr, BOUND: tl.constexpr
):
    i, exists = lane_points(n, LANES)
    px, py, pz, ux, uy, uz, distance, walked = view_ray(points, i, exists, cx, cy, cz)
    mine = scratch_slot(scratch, LANES, SLOTS)
    s = -volume.steps
    while s <= volume.steps:
        x, y, z, sdf, near = sample(volume, px, py, pz, ux, uy, uz, distance, cx, cy, cz, s)
        insert_bounded(volume, x >> 3, y >> 3, z >> 3, walked & near, mine, BOUND, claim)
        s += 1
