"""Inserts without the walk: block i is the i-th row of `points`, three whole numbers as float32 (exact to 2^24).

For tests of the table alone: any set of keys, on one probe chain if need be, and programs that are not full. The
parameters are allocate's, so that whatever launches allocate launches these.
"""

import triton
import triton.language as tl

from ..allocate_static import insert_bounded
from ..allocate_while import insert_unbounded
from ..band import lane_points
from ..table import claim, scratch_slot


@triton.jit
def insert_blocks(
    volume, points, n, cx, cy, cz, scratch, LANES: tl.constexpr, SLOTS: tl.constexpr, BOUND: tl.constexpr
):
    """BOUND > 0 inserts as static8 does, BOUND = 0 as while does."""
    i, exists = lane_points(n, LANES)
    bx = tl.load(points + 3 * i, mask=exists, other=0.0).to(tl.int32)
    by = tl.load(points + 3 * i + 1, mask=exists, other=0.0).to(tl.int32)
    bz = tl.load(points + 3 * i + 2, mask=exists, other=0.0).to(tl.int32)
    mine = scratch_slot(scratch, LANES, SLOTS)
    if BOUND > 0:
        insert_bounded(volume, bx, by, bz, exists, mine, BOUND, claim)
    else:
        insert_unbounded(volume, bx, by, bz, exists, mine, 1, claim)
