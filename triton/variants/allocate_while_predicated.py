"""allocate_while with the compare-and-swap predicated by inline assembly: no scratch region is touched."""

import triton
import triton.language as tl

from ..allocate_while import insert_unbounded
from ..band import lane_points, sample, view_ray
from ..table import scratch_slot
from .claim_predicated import claim_predicated


@triton.jit
def allocate_while_predicated(
    volume, points, n, cx, cy, cz, scratch, LANES: tl.constexpr, SLOTS: tl.constexpr, WAIT: tl.constexpr
):
    i, exists = lane_points(n, LANES)
    px, py, pz, ux, uy, uz, distance, walked = view_ray(points, i, exists, cx, cy, cz)
    mine = scratch_slot(scratch, LANES, SLOTS)
    s = -volume.steps
    while s <= volume.steps:
        x, y, z, sdf, near = sample(volume, px, py, pz, ux, uy, uz, distance, cx, cy, cz, s)
        insert_unbounded(volume, x >> 3, y >> 3, z >> 3, walked & near, mine, WAIT, claim_predicated)
        s += 1
