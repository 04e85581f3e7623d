"""Agreement of two arms, without the oracle: last in the order, since arms can be wrong together."""

from __future__ import annotations

import numpy as np

from harness.gates.result import GateResult, judge
from harness.workload.fused import Fused
from harness.workload.reference import UNIT_ROUNDOFF, tsdf_bound
from harness.workload.table import pack

TIER = "cross-arm"


def cross_gate(a: Fused, b: Fused, subject: str) -> GateResult:
    """Two arms' volumes of one scene: sets, weights and colours equal bit by bit, tsdf within twice the bound.

    Both tsdf sums have the same n addends, |x| <= 1, so sum|x| <= n and each lies within (n - 1) u n of the exact
    sum; nothing of the oracle is used. Colours are equal only while their sums stay below 2^24.
    """
    same_set = np.array_equal(a.coords, b.coords)
    _, here, there = np.intersect1d(pack(a.coords), pack(b.coords), return_indices=True)
    n = a.weight[here].astype(np.float64)
    weights = int((a.weight[here] != b.weight[there]).sum())
    colours = sum(_differing(getattr(a, c)[here], getattr(b, c)[there], n) for c in "rgb")
    difference = np.abs(a.tsdf[here].astype(np.float64) - b.tsdf[there])
    beyond = int((~(difference <= 2 * tsdf_bound(n, n))).sum())
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
        },
    )


def _differing(x: np.ndarray, y: np.ndarray, n: np.ndarray) -> int:
    """Sums that differ; beyond 2^24 by more than the rounding of n additions on each side."""
    large = np.maximum(x, y) >= 2.0**24
    allowed = np.where(large, 2 * n * UNIT_ROUNDOFF * np.maximum(x, y), 0.0)
    return int((~(np.abs(x.astype(np.float64) - y) <= allowed)).sum())


def distinct(vertices: np.ndarray) -> np.ndarray:
    """Vertices (k, 3) that differ in any bit, once each: cubes share them, and a tree of equal points is slow.

    Told apart by a 64-bit hash of their bits; a collision (1e-9 for a million vertices) would leave one out.
    """
    bits = np.ascontiguousarray(vertices, np.float64).view(np.uint64).reshape(-1, 3)
    with np.errstate(over="ignore"):
        mixed = bits * np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
        mixed ^= mixed >> np.uint64(29)
        code = (mixed * np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93], np.uint64)).sum(axis=1)
    return np.asarray(vertices)[np.unique(code, return_index=True)[1]]


def hausdorff(a: np.ndarray, b: np.ndarray) -> float:
    """Largest distance, metres, of a vertex of either surface (k, 3) from the other's nearest; inf if one is empty."""
    from scipy.spatial import cKDTree

    if not len(a) or not len(b):
        return float("inf")
    a, b = distinct(a), distinct(b)
    return float(max(cKDTree(b).query(a)[0].max(), cKDTree(a).query(b)[0].max()))
