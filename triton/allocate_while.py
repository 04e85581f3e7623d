"""allocate with a probe that ends when the tile's last lane is done, and loses nothing.

Triton has a `while` over a scalar condition; a reduction over the tile makes one. A tile takes the steps of its slowest
lane, so it is one warp wide (128 lanes and 4 warps are 1.5 times slower on an H200). The swap, which has no mask, stands
behind `if any lane saw an empty slot`: most steps find a key.
"""

import triton
import triton.language as tl

from .band import lane_points, sample, view_ray
from .table import block_hash, block_key, claim, count_failed, key_at, scratch_slot, wait_index


@triton.jit
def insert_unbounded(volume, bx, by, bz, active, scratch, WAIT: tl.constexpr, CLAIM: tl.constexpr):
    """Insert one block a lane, at most mask + 1 slots. With WAIT a lane that found its key waits for the index.

    The wait comes after the probe: by then every winner of the tile has published. CLAIM is `claim` or a variant.
    """
    want = block_key(bx, by, bz)
    slot = block_hash(bx, by, bz, volume.mask)
    probes = tl.zeros_like(slot)
    todo = active
    waiting = active
    while tl.max(todo.to(tl.int32), 0) > 0:
        key = tl.load(key_at(volume, slot), mask=todo, other=0)
        done = todo & (key == want)
        empty = todo & (key == -1)
        if tl.max(empty.to(tl.int32), 0) > 0:
            claimed, won = CLAIM(volume, slot, want, bx, by, bz, empty, scratch)
            done = done | claimed
            waiting = waiting & (won == 0)
        moved = todo & (done == 0)
        probes += moved.to(tl.int32)
        full = moved & (probes > volume.mask)
        count_failed(volume, full)
        waiting = waiting & (full == 0)
        todo = moved & (full == 0)
        slot = tl.where(todo, (slot + 1) & volume.mask, slot)
    if WAIT:
        wait_index(volume, slot, waiting)


@triton.jit
def allocate_while(
    volume, points, n, cx, cy, cz, scratch, LANES: tl.constexpr, SLOTS: tl.constexpr, WAIT: tl.constexpr
):
    i, exists = lane_points(n, LANES)
    px, py, pz, ux, uy, uz, distance, walked = view_ray(points, i, exists, cx, cy, cz)
    mine = scratch_slot(scratch, LANES, SLOTS)
    s = -volume.steps
    while s <= volume.steps:
        x, y, z, sdf, near = sample(volume, px, py, pz, ux, uy, uz, distance, cx, cy, cz, s)
        insert_unbounded(volume, x >> 3, y >> 3, z >> 3, walked & near, mine, WAIT, claim)
        s += 1
