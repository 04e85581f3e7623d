"""Agreement of two arms, without the oracle: last in the order, since arms can be wrong together."""

from __future__ import annotations

import numpy as np

from harness.gates.result import GateResult, judge
from harness.gates.surface import SURFACE_VOXELS, surfaces_apart
from harness.workload.fused import Fused
from harness.workload.reference import UNIT_ROUNDOFF, tsdf_bound
from harness.workload.table import pack

TIER = "cross-arm"


def cross_gate(a: Fused, b: Fused, subject: str) -> GateResult:
    """Two arms' volumes of one scene: sets, weights and colours equal bit by bit, tsdf within twice the bound.

    Both tsdf sums have the same n addends, |x| <= 1, so sum|x| <= n and each lies within (n - 1) u n of the exact sum;
    nothing of the oracle is used. Colours are equal only while their sums stay below 2^24. The distance of the two
    surfaces is told, not judged.
    """
    same_set = np.array_equal(a.coords, b.coords)
    _, here, there = np.intersect1d(pack(a.coords), pack(b.coords), return_indices=True)
    n = a.weight[here].astype(np.float64)
    weights = int((a.weight[here] != b.weight[there]).sum())
    colours = sum(_differing(getattr(a, c)[here], getattr(b, c)[there], n) for c in "rgb")
    difference = np.abs(a.tsdf[here].astype(np.float64) - b.tsdf[there])
    beyond = int((~(difference <= 2 * tsdf_bound(n, n))).sum())
    apart = surfaces_apart(a, b) if n.size <= SURFACE_VOXELS else None
    config = all(getattr(a, f) == getattr(b, f) for f in ("voxel", "truncation", "cap", "steps"))
    return judge(
        "cross-arm",
        TIER,
        subject,
        n.size,
        {
            "configuration": (config, "the volumes differ in voxel, truncation, cap or steps"),
            "arms": (a.arm != b.arm, f"both volumes are {a.arm}'s"),
            "set": (same_set, f"block sets differ: {len(a.coords)} and {len(b.coords)} blocks, {len(here)} common"),
            "weight": (weights == 0, f"{weights} weights differ"),
            "colour": (colours == 0, f"{colours} colour sums differ"),
            "tsdf": (beyond == 0, f"{beyond} tsdf sums differ by more than twice the rounding bound"),
        },
        {
            "blocks": len(here),
            "voxels": int(n.size),
            "weights_differing": weights,
            "colours_differing": colours,
            "tsdf_beyond": beyond,
            "tsdf_worst": float(difference.max()) if n.size else None,
            "hausdorff_m": apart.most if apart else None,
            "mean_m": apart.mean if apart else None,
            "vertices": list(apart.vertices) if apart else None,
        },
    )


def _differing(x: np.ndarray, y: np.ndarray, n: np.ndarray) -> int:
    """Sums that differ; beyond 2^24 by more than the rounding of n additions on each side."""
    large = np.maximum(x, y) >= 2.0**24
    allowed = np.where(large, 2 * n * UNIT_ROUNDOFF * np.maximum(x, y), 0.0)
    return int((~(np.abs(x.astype(np.float64) - y) <= allowed)).sum())
