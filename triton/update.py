"""update (algorithm: Update of a sample): look the block up, then five float additions into its voxel.

Two forms that differ in the look-up only: BOUND > 0 gives up after BOUND slots, as the paper's kernel does, and drops
the sample; BOUND = 0 goes on to an empty slot or once round the table.
"""

import triton
import triton.language as tl

from .band import lane_points, sample, view_ray
from .table import block_hash, block_key, index_at, key_at


@triton.jit
def find_bounded(volume, bx, by, bz, active, BOUND: tl.constexpr):
    """Pool index (LANES,) i32 of each lane's block; negative where BOUND slots did not show it."""
    want = block_key(bx, by, bz)
    slot = block_hash(bx, by, bz, volume.mask)
    index = tl.full(slot.shape, -1, tl.int32)
    todo = active
    for _ in tl.static_range(BOUND):
        key = tl.load(key_at(volume, slot), mask=todo, other=0)
        hit = todo & (key == want)
        index = tl.load(index_at(volume, slot), mask=hit, other=index)
        todo = todo & (key != want) & (key != -1)
        slot = (slot + 1) & volume.mask
    return index


@triton.jit
def find_unbounded(volume, bx, by, bz, active):
    """Pool index (LANES,) i32 of each lane's block; negative where the table does not hold it."""
    want = block_key(bx, by, bz)
    slot = block_hash(bx, by, bz, volume.mask)
    probes = tl.zeros_like(slot)
    todo = active
    found = active
    while tl.max(todo.to(tl.int32), 0) > 0:
        key = tl.load(key_at(volume, slot), mask=todo, other=0)
        moved = todo & (key != want) & (key != -1)
        probes += moved.to(tl.int32)
        full = moved & (probes > volume.mask)
        found = found & (((todo & (key == -1)) | full) == 0)
        todo = moved & (full == 0)
        slot = tl.where(todo, (slot + 1) & volume.mask, slot)
    return tl.load(index_at(volume, slot), mask=found, other=-1)


@triton.jit
def accumulate(volume, index, x, y, z, sdf, red, green, blue, held):
    """Weight 1, clamped distance and colour of each held lane, unless its voxel is at the cap (a plain read)."""
    local = (x & 7) + 8 * (y & 7) + 64 * (z & 7)
    voxel = index.to(tl.int64) * 512 + local
    capped = held & (volume.cap > 0)
    weight = tl.load(volume.weight + voxel, mask=capped, other=0.0)
    open_ = held & ((capped & (weight >= volume.cap)) == 0)
    value = tl.minimum(tl.maximum(sdf * volume.inv_trunc, -1.0), 1.0)
    tl.atomic_add(volume.weight + voxel, tl.full(sdf.shape, 1.0, tl.float32), mask=open_, sem="relaxed")
    tl.atomic_add(volume.tsdf + voxel, value, mask=open_, sem="relaxed")
    tl.atomic_add(volume.r + voxel, red, mask=open_, sem="relaxed")
    tl.atomic_add(volume.g + voxel, green, mask=open_, sem="relaxed")
    tl.atomic_add(volume.b + voxel, blue, mask=open_, sem="relaxed")


@triton.jit
def update(volume, points, colors, n, cx, cy, cz, LANES: tl.constexpr, BOUND: tl.constexpr):
    i, exists = lane_points(n, LANES)
    px, py, pz, ux, uy, uz, distance, walked = view_ray(points, i, exists, cx, cy, cz)
    red = tl.load(colors + 3 * i, mask=walked, other=0).to(tl.float32)
    green = tl.load(colors + 3 * i + 1, mask=walked, other=0).to(tl.float32)
    blue = tl.load(colors + 3 * i + 2, mask=walked, other=0).to(tl.float32)
    s = -volume.steps
    while s <= volume.steps:
        x, y, z, sdf, near = sample(volume, px, py, pz, ux, uy, uz, distance, cx, cy, cz, s)
        active = walked & near
        if BOUND > 0:
            index = find_bounded(volume, x >> 3, y >> 3, z >> 3, active, BOUND)
        else:
            index = find_unbounded(volume, x >> 3, y >> 3, z >> 3, active)
        dropped = active & (index < 0)
        here = volume.dropped_points + tl.zeros_like(x)
        tl.atomic_add(here, tl.full(x.shape, 1, tl.int64), mask=dropped, sem="relaxed")
        accumulate(volume, index, x, y, z, sdf, red, green, blue, active & (index >= 0))
        s += 1
