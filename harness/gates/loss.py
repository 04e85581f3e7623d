"""The three loss figures (algorithm: Three loss figures), and what each must be."""

from __future__ import annotations

import numpy as np

from harness.gates.exact import NO_KEYS
from harness.gates.result import GateResult, judge
from harness.workload.fused import Fused
from harness.workload.reference import Reference
from harness.workload.table import pack
from harness.workload.volume import VolumeConfig

TIER = "loss"


def lost_blocks(coords: np.ndarray, exact: np.ndarray) -> int:
    """Blocks of the exact set that a volume lacks, both (m, 3) i32; from coordinates alone, never from a counter."""
    return len(np.setdiff1d(pack(exact), pack(coords)))


def loss_gate(
    fused: Fused,
    reference: Reference,
    config: VolumeConfig,
    bounded: bool,
    subject: str,
    beyond: np.ndarray = NO_KEYS,
    given: bool = False,
) -> GateResult:
    """What a volume lost is what it had to lose.

    A volume that holds the scene loses nothing. A smaller pool (or table) loses exactly needed - pool blocks, and drops
    exactly the samples of the lost blocks, cap or no cap. An arm declared bounded may lose more blocks, and is held to
    the rest.

    Args:
        beyond: keys of blocks that a bounded look-up cannot reach: all their samples are dropped, no others.
        given: frames before the last were there when the arm began, whole; what it lost is of the last frame alone.
    """
    needed = len(reference.coords)
    missing = ~np.isin(reference.keys, pack(fused.coords))
    lost = int(missing.sum())
    unreached = np.isin(reference.keys, beyond) & ~missing
    there = reference.earlier if given else np.zeros(needed, np.int64)
    samples_lost = int((reference.block_samples - there)[missing | unreached].sum())
    written = float(fused.weight[np.isin(pack(fused.coords), beyond)].sum(dtype=np.float64)) - int(
        there[unreached].sum()
    )
    expected = max(0, needed - min(config.capacity, config.slots))
    detail = {
        "needed": needed,
        "pool": config.capacity,
        "slots": config.slots,
        "lost_blocks": lost,
        "failed_inserts": fused.failed_inserts,
        "dropped_points": fused.dropped_points,
        "samples_of_lost_blocks": samples_lost,
        "unreached_blocks": int(unreached.sum()),
    }
    right = lost >= expected if bounded else lost == expected
    checks = {
        "blocks": (right, f"{lost} blocks lost, not {'at least ' if bounded else ''}{expected}"),
        "points": (
            fused.dropped_points == samples_lost,
            f"{fused.dropped_points} points dropped, not the {samples_lost} samples of the lost blocks",
        ),
        "unreached": (written == 0, f"{written:+.0f} samples in blocks beyond the look-up's bound"),
    }
    if not bounded:  # a bounded probe may fail for one thread and succeed for the next
        checks["inserts"] = (
            (fused.failed_inserts == 0) == (lost == 0),
            f"{fused.failed_inserts} failed inserts with {lost} blocks lost",
        )
    return judge("loss", TIER, subject, needed, checks, detail)
