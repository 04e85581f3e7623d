"""How samples become numbers (method: Statistics, A/A, Order)."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.archive.read import load
from harness.claims import statistics
from harness.claims.registry import View
from harness.claims.statistics import CONCURRENT, Ratio, Regime, Table, different
from tests.synthetic import gate, sample_rows, write_archive

CA = "cuda/allocate/plain"
OTHER = "rust-nvptx/allocate/plain"


def table(*changes: tuple[int, str, object], **more: object) -> Table:
    """Two kernels of 10 and 20 us without noise; changes: (row, column, value)."""
    rows = sample_rows({(CA, "base"): 10.0, (OTHER, "base"): 20.0}, noise=0.0, **more)  # type: ignore[arg-type]
    for row, column, value in changes:
        rows[row][column] = value
    return Table(pd.DataFrame(rows))


def ratio(*passes: float, rounds: int = 30) -> Ratio:
    return Ratio(passes, ("d",) * len(passes), rounds, 0)


def test_a_ratio_pairs_within_the_round() -> None:
    # In round 0 of pass 0 both kernels are ten times slower: the ratio within the round does not move.
    found = statistics.ratio(table((0, "us", 100.0), (1, "us", 200.0)), OTHER, CA, "base")
    assert found is not None and found.passes == (2.0, 2.0, 2.0) and found.rounds == 18


def test_rounds_that_one_kernel_lacks_are_left_out() -> None:
    found = statistics.ratio(table((1, "status", "lossy"), (4, "us", math.nan)), OTHER, CA, "base")
    assert found is not None and found.rounds == 16
    assert statistics.ratio(table(), OTHER, "cuda/allocate/none", "base") is None


def test_the_floor_is_the_largest_departure_of_a_twin_over_passes() -> None:
    rows = sample_rows({(CA, "base"): 10.0}, noise=0.0)
    for row in rows:
        if row["kernel"].endswith("@twin") and row["pass"] == 1:
            row["us"] *= 0.97
    found = Table(pd.DataFrame(rows))
    assert found.floor("base", "allocate") == pytest.approx(0.03)
    assert found.floor("base", "update") is None and found.floor("base", "allocate", CONCURRENT) is None


def test_the_reference_row_is_serial_over_concurrent_of_the_same_round() -> None:
    rows = sample_rows({(OTHER, "base"): 20.0, (CA, "base", "concurrent"): 5.0}, noise=0.0)
    found = statistics.reference(Table(pd.DataFrame(rows)), OTHER, CA, "base")
    assert found is not None and found.passes == (4.0, 4.0, 4.0)


@pytest.mark.parametrize(
    ("us", "cycles", "floor", "side"),
    [
        (ratio(1.2, 1.21, 1.19), ratio(1.2, 1.2, 1.2), 0.01, 1),
        (ratio(0.8, 0.81, 0.79), ratio(0.8, 0.8, 0.8), 0.01, -1),
        (ratio(1.2, 0.9, 1.2), ratio(1.2, 1.2, 1.2), 0.01, 0),  # a pass on the other side
        (ratio(1.2, 1.005, 1.2), ratio(1.2, 1.2, 1.2), 0.01, 0),  # the range touches the floor
        (ratio(1.2, 1.2, 1.2), ratio(1.0, 1.0, 1.0), 0.01, 0),  # in time, not in cycles: the clock moved
        (ratio(1.2, 1.2, 1.2), ratio(0.8, 0.8, 0.8), 0.01, 0),
        (ratio(1.2, 1.2, 1.2), None, 0.01, 0),
        (ratio(1.2, 1.2, 1.2), ratio(1.2, 1.2, 1.2), None, 0),  # no control, no verdict
        (ratio(1.2), ratio(1.2), 0.01, 0),  # one pass has no range
    ],
)
def test_different(us: Ratio, cycles: Ratio | None, floor: float | None, side: int) -> None:
    found = different(us, cycles, floor)
    assert found.side == side and found.reason


def test_cycles_fall_back_on_time_and_clock_together() -> None:
    rows = sample_rows({(CA, "base"): 10.0}, noise=0.0, passes=1, rounds=1, twins=False)
    rows[0] |= {"cycles": None, "sm_clock_mhz": 1200.0}
    assert list(Table(pd.DataFrame(rows)).series(CA, "base", value="cycles").values()) == [12_000.0]


def test_percentiles_are_nearest_rank_and_absent_below_their_count() -> None:
    values = list(range(1, 201))
    assert [statistics.percentile(values, p) for p in (50, 95, 99)] == [100, 190, 198]
    assert statistics.percentile(values[:39], 95) is None and statistics.percentile(values[:40], 95) == 38
    assert statistics.percentile(values[:199], 99) is None and statistics.percentile([], 50) is None


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=50))
def test_a_percentile_is_a_sample_and_the_median_lies_between(values: list[float]) -> None:
    assert statistics.percentile(values, 50) in values
    assert min(values) <= statistics.median(values) <= max(values)
    assert statistics.median(values) == statistics.median(values[::-1])


def test_an_interval_comes_from_six_passes_on_and_is_frozen() -> None:
    assert ratio(1, 2, 3, 4, 5).interval is None
    assert ratio(1.0, 1.1, 1.2, 1.3, 1.4, 1.5).interval == pytest.approx((1.05, 1.45))
    # The stream itself is pinned: another one would give other intervals for archived runs.
    assert statistics._stream("6", 8, 6) == [0, 3, 1, 3, 4, 1, 5, 5]


def test_devices_are_strata_of_the_interval() -> None:
    # Two devices far apart: each resample has three passes of each, so the median never lies on one device alone.
    both = Ratio((1.0, 1.0, 1.0, 3.0, 3.0, 3.0), ("a",) * 3 + ("b",) * 3, 180, 0)
    assert both.interval == (2.0, 2.0)
    assert ratio(1.0, 1.0, 1.0, 3.0, 3.0, 3.0).interval == (1.0, 3.0)


def test_drift_is_second_half_over_first() -> None:
    series = {("d", 0, turn): 10.0 if turn < 3 else 12.0 for turn in range(6)}
    assert statistics.drift(series) == pytest.approx(1.2)
    assert statistics.drift({("d", 0, 0): 1.0, ("d", 0, 1): 2.0}) is None


def test_a_table_tells_what_was_sampled() -> None:
    found = table()
    assert found.kernels("allocate") == [CA, f"{CA}@twin", OTHER] and found.kernels("update") == []
    assert found.cells(CA) == ["base"] and found.cells(CA, CONCURRENT) == [] and found.regimes() == [Regime()]


# --- a table asked in lists is the table asked in pandas --------------------------------------------------------------


def test_a_table_says_what_its_rows_say() -> None:
    """Every kernel, cell, regime and status, against the rows themselves."""
    rows = sample_rows({(CA, "base"): 10.0, (OTHER, "base"): 20.0, (OTHER, "pts-20k"): 5.0})
    rows += [{**row, "launch": "concurrent", "us": 2 * row["us"]} for row in rows]
    for place, row in enumerate(rows):
        row["status"] = ("ok", "ok", "lossy")[place % 3]
        row["cycles"] = None if place % 2 else 1000.0 + place
    frame = pd.DataFrame(rows)
    asked = Table(frame)
    assert asked.regimes() == [CONCURRENT, statistics.SERIAL]
    for kernel in (CA, OTHER, "absent"):
        for cell in ("base", "pts-20k"):
            for regime in (CONCURRENT, statistics.SERIAL):
                for status in (("ok",), ("ok", "lossy"), ()):
                    fits = (frame["kernel"] == kernel) & (frame["cell"] == cell) & (frame["launch"] == regime.launch)
                    right = frame[fits & frame["status"].isin(status)]
                    assert asked.select(kernel, cell, regime, status).equals(right)
                    keys = list(zip(right["device_uuid"], right["pass"], right["round"], strict=True))
                    assert asked.series(kernel, cell, regime, "us", status) == dict(zip(keys, right["us"], strict=True))
                    cycles = right["cycles"].fillna(right["us"] * right["sm_clock_mhz"])
                    found = asked.series(kernel, cell, regime, "cycles", status)
                    assert found == dict(zip(keys, cycles, strict=True))


def test_gates_are_found_by_any_field(tmp_path: Path) -> None:
    gates = [
        msgspec.structs.replace(gate(arm, "gpu", cell, tier=tier), skipped=why)
        for arm in ("cuda", "triton")
        for cell in ("base", "pts-20k")
        for tier in ("exact", "analytic")
        for why in (None, "not here")
    ]
    view = View(load(write_archive(tmp_path / "a", cells=["base"], gates=gates)))
    ran = [g for g in view.archive.gates if g.skipped is None]
    assert len(ran) == len(gates) // 2 and view.gates() == ran
    assert view.gates("exact") == [g for g in ran if g.tier == "exact"]
    assert view.gates("exact", arm="cuda", cell="base") == [
        g for g in ran if (g.tier, g.arm, g.cell) == ("exact", "cuda", "base")
    ]
    assert view.gates(arm="triton") == [g for g in ran if g.arm == "triton"]
    assert view.gates("no such tier") == view.gates(arm="nobody") == []
