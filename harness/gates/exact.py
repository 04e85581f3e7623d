"""Gates against the NumPy evaluation of algorithm.md (harness/workload/reference.py), cap off."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from harness.gates.once import Once
from harness.gates.result import GateResult, judge
from harness.gates.surface import SURFACE_VOXELS, surface_distance
from harness.workload.fused import Fused
from harness.workload.reference import EXACT_INTEGERS, UNIT_ROUNDOFF, Reference
from harness.workload.table import pack
from harness.workload.volume import VOXEL_FIELDS

TIER = "exact"


NO_KEYS = np.empty(0, np.int64)


def exact_gates(
    fused: Fused, reference: Reference, subject: str, may_lose: bool = False, beyond: np.ndarray = NO_KEYS
) -> list[GateResult]:
    """Six gates: set, samples, weight, colour, tsdf, surface (up to SURFACE_VOXELS, and not of a volume that has lost
    blocks as it may). With a cap only the set is exact, so only that is judged.

    Sums are compared on the blocks that both have, so that each gate answers its own question; a block too many or
    too few is the set's to tell.

    Args:
        beyond: keys of blocks that a bounded look-up cannot reach: their sums are the loss gate's.
    """
    mine, theirs = pack(fused.coords), reference.keys
    results = [_set_gate(mine, theirs, subject, may_lose)]
    if float(fused.cap) > 0:
        return results
    _, here, there = np.intersect1d(mine, theirs, assume_unique=False, return_indices=True)
    missing = len(here) < len(theirs)
    reached = ~np.isin(mine[here], beyond)
    here, there, missing = here[reached], there[reached], missing or not reached.all()
    results += [
        _samples_gate(fused, reference, subject),
        _integer_gate("exact-weight", ("weight",), fused, reference, here, there, subject),
        _integer_gate("exact-colour", ("r", "g", "b"), fused, reference, here, there, subject),
        _tsdf_gate(fused, reference, here, there, subject),
    ]
    if fused.weight.size <= SURFACE_VOXELS and not (may_lose and missing):
        results.append(_surface_gate(fused, reference, subject))
    return results


def _set_gate(mine: np.ndarray, theirs: np.ndarray, subject: str, may_lose: bool) -> GateResult:
    extra, missing = len(np.setdiff1d(mine, theirs)), len(np.setdiff1d(theirs, mine))
    ordered = bool((mine[1:] > mine[:-1]).all())
    return judge(
        "exact-set",
        TIER,
        subject,
        min(len(mine), len(theirs)),
        {
            "extra": (extra == 0, f"{extra} blocks too many"),
            "missing": (may_lose or missing == 0, f"{missing} blocks missing"),
            "order": (ordered, "coordinates are not in lexicographic order, or one stands twice"),
        },
        {"blocks": len(mine), "expected": len(theirs), "extra": extra, "missing": missing},
    )


def _samples_gate(fused: Fused, reference: Reference, subject: str) -> GateResult:
    total = float(fused.weight.sum(dtype=np.float64))
    off = total + fused.dropped_points - reference.samples
    return judge(
        "exact-samples",
        TIER,
        subject,
        reference.samples,
        {"sum": (off == 0, f"weights and dropped points add up to {off:+.0f} of {reference.samples} samples")},
        {"weight_sum": total, "dropped_points": fused.dropped_points, "expected": reference.samples},
    )


def _integer_gate(
    gate: str,
    names: tuple[str, ...],
    fused: Fused,
    reference: Reference,
    here: np.ndarray,
    there: np.ndarray,
    subject: str,
) -> GateResult:
    """Sums of integers: equal, bit by bit, where float32 holds them exactly; where a sum passes 2^24 its rounding
    bound (n - 1) u S takes over, and the number of such voxels is told."""
    differing = inexact = voxels = 0
    worst = 0.0
    n = reference.weight[there]
    for name in names:
        exact = getattr(reference, name)[there]
        large = exact > EXACT_INTEGERS
        error = np.abs(getattr(fused, name)[here].astype(np.float64) - exact)
        allowed = np.where(large, np.maximum(n - 1, 0) * UNIT_ROUNDOFF * exact, 0.0)
        differing += int((~(error <= allowed)).sum())
        inexact += int(large.sum())
        voxels += error.size
        worst = max(worst, float(error.max()) if error.size else 0.0)
    what = gate.removeprefix("exact-")
    return judge(
        gate,
        TIER,
        subject,
        voxels,
        {"equal": (differing == 0, f"{differing} of {voxels} {what} sums differ, by up to {worst:.6g}")},
        {"voxels": voxels, "differing": differing, "worst": worst, "beyond_exact": inexact},
    )


def _tsdf_gate(fused: Fused, reference: Reference, here: np.ndarray, there: np.ndarray, subject: str) -> GateResult:
    bound = reference.bound[there]
    error = np.abs(fused.tsdf[here].astype(np.float64) - reference.tsdf[there])
    beyond = int((~(error <= bound)).sum())
    detail: dict[str, Any] = {"voxels": error.size, "beyond": beyond}
    if error.size:
        share = np.divide(error, bound, out=np.zeros_like(error), where=bound > 0)
        detail |= {"worst": float(error.max()), "worst_share_of_bound": float(share.max())}
    return judge(
        "exact-tsdf",
        TIER,
        subject,
        error.size,
        {"bound": (beyond == 0, f"{beyond} of {error.size} tsdf sums lie beyond the rounding bound")},
        detail,
    )


_EXACT: Once[Reference, Fused] = Once()


def _as_fused(reference: Reference, like: Fused) -> Fused:
    """The exact volume as if an arm had fused it; all arms of a cell have one voxel and truncation."""
    sums = {name: getattr(reference, name).astype(np.float32) for name in VOXEL_FIELDS}
    return dataclasses.replace(like, coords=reference.coords, **sums)


def _surface_gate(fused: Fused, reference: Reference, subject: str) -> GateResult:
    """The surface is the exact volume's, within a thousandth of a voxel (rounding of the sums moves it by 1e-7 m at
    base); blocks too many do not matter here, as long as they hold no surface."""
    exact = _EXACT(reference, lambda: _as_fused(reference, fused))
    apart, limit = surface_distance(fused, exact), float(fused.voxel) / 1000
    return judge(
        "exact-surface",
        TIER,
        subject,
        int((exact.weight > 0).sum()),
        {"apart": (apart <= limit, f"the surface is {apart:.3g} m from the exact one, more than {limit:.3g} m")},
        {"hausdorff_m": apart, "limit_m": limit},
    )
