"""allocate_static with the scratch swaps replaced by loads: what is left is not the compare-and-swap (P40)."""

import triton
import triton.language as tl

from ..allocate_static import insert_bounded
from ..band import lane_points, sample, view_ray
from ..table import scratch_slot
from .claim_predicated import claim_load


@triton.jit
def allocate_static_load(
    volume, points, n, cx, cy, cz, scratch, LANES: tl.constexpr, SLOTS: tl.constexpr, BOUND: tl.constexpr
):
    i, exists = lane_points(n, LANES)
    px, py, pz, ux, uy, uz, distance, walked = view_ray(points, i, exists, cx, cy, cz)
    mine = scratch_slot(scratch, LANES, SLOTS)
    s = -volume.steps
    while s <= volume.steps:
        x, y, z, sdf, near = sample(volume, px, py, pz, ux, uy, uz, distance, cx, cy, cz, s)
        insert_bounded(volume, x >> 3, y >> 3, z >> 3, walked & near, mine, BOUND, claim_load)
        s += 1
