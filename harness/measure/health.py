"""What the clocks say about a run: throttled samples and drift, as flags. Samples are kept, whatever they say.

A guard that discards slow-clock samples can discard them all and leave nothing to report; here nothing is discarded.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.archive.schema import Note
from harness.device.nvml import SLOWING, throttle_names

SLOW_SHARE = 0.75
"""Below this share of the card's clock a sample counts as throttled even where no reason is given (nvbench's limit)."""

DRIFT_SHARE = 0.03
"""Passes whose median SM clocks differ by more than this are flagged: the noise floor of a ratio is below 1 %, but
ratios are taken within a round, where both sides have the same clock."""


def is_throttled(row: Mapping[str, Any], clock_mhz: float | None) -> bool:
    """Whether a sample ran on a slowed card.

    Args:
        row: with `throttle` (mask) and `sm_clock_mhz`, either may be None.
        clock_mhz: what the card runs at unhindered; None where it is not known.
    """
    if int(row.get("throttle") or 0) & SLOWING:
        return True
    clock = row.get("sm_clock_mhz")
    return clock is not None and clock_mhz is not None and clock < SLOW_SHARE * clock_mhz


def throttle_flags(rows: Iterable[Mapping[str, Any]], clocks: Mapping[str, float | None]) -> list[Note]:
    """One flag a pass and device that has throttled samples: how many, and the reasons.

    Args:
        rows: samples with pass, device_uuid, throttle, sm_clock_mhz. clocks: the unhindered clock of each device.
    """
    seen: dict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        seen[row["pass"], row["device_uuid"]].append(row)
    flags = []
    for (number, uuid), samples in sorted(seen.items()):
        slow = [row for row in samples if is_throttled(row, clocks.get(uuid))]
        if not slow:
            continue
        mask = 0
        for row in slow:
            mask |= int(row.get("throttle") or 0) & SLOWING
        reasons = ", ".join(throttle_names(mask)) or "no reason given; the clock is low"
        what = f"throttled: pass {number} on {uuid}"
        flags.append(
            Note(what=what, why=f"{len(slow)} of {len(samples)} samples (mask {mask:#x}: {reasons}); all kept")
        )
    return flags


def drift_flags(rows: Iterable[Mapping[str, Any]]) -> list[Note]:
    """A flag for each device whose passes ran at different clocks."""
    clocks: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.get("sm_clock_mhz") is not None:
            clocks[row["device_uuid"]][row["pass"]].append(float(row["sm_clock_mhz"]))
    flags = []
    for uuid, passes in sorted(clocks.items()):
        medians = {number: statistics.median(values) for number, values in sorted(passes.items())}
        low, high = min(medians.values()), max(medians.values())
        if high > 0 and (high - low) / high > DRIFT_SHARE:
            told = ", ".join(f"{number}: {value:.0f}" for number, value in medians.items())
            flags.append(Note(what=f"drift between passes on {uuid}", why=f"median SM clock, MHz, by pass: {told}"))
    return flags


def median_us(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Median time of samples, None of none: a summary is a number or absent, never NaN."""
    times = [float(row["us"]) for row in rows if row.get("us") is not None]
    return statistics.median(times) if times else None
