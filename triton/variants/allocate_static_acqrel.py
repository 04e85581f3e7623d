"""allocate_static with Triton's default memory order on the compare-and-swap: acquire and release instead of relaxed.

What a programmer writes who does not name an order. The algorithm needs none there, so the difference is the price of
the default.
"""

import triton
import triton.language as tl

from ..allocate_static import insert_bounded
from ..band import lane_points, sample, view_ray
from ..table import key_at, publish, scratch_slot


@triton.jit
def claim_acqrel(volume, slot, want, bx, by, bz, empty, scratch):
    """As `claim`, in Triton's default order."""
    nobody = tl.full(want.shape, -1, tl.int64)
    address = tl.where(empty, key_at(volume, slot), scratch)
    previous = tl.atomic_cas(address, nobody, tl.where(empty, want, nobody))
    won = empty & (previous == -1)
    publish(volume, slot, bx, by, bz, won)
    return won | (empty & (previous == want)), won


@triton.jit
def allocate_static_acqrel(
    volume, points, n, cx, cy, cz, scratch, LANES: tl.constexpr, SLOTS: tl.constexpr, BOUND: tl.constexpr
):
    i, exists = lane_points(n, LANES)
    px, py, pz, ux, uy, uz, distance, walked = view_ray(points, i, exists, cx, cy, cz)
    mine = scratch_slot(scratch, LANES, SLOTS)
    s = -volume.steps
    while s <= volume.steps:
        x, y, z, sdf, near = sample(volume, px, py, pz, ux, uy, uz, distance, cx, cy, cz, s)
        insert_bounded(volume, x >> 3, y >> 3, z >> 3, walked & near, mine, BOUND, claim_acqrel)
        s += 1
