"""The schedule: what is timed where, and in which order; the sampler's steps; flags from clocks."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from harness.archive.schema import LAUNCHES, SAMPLES, PlanEntry, csv_bytes
from harness.build.kernels import KERNELS
from harness.device.reading import Counters, Reading
from harness.environment import ROOT
from harness.errors import UsageError
from harness.measure import health, progress
from harness.measure.heartbeat import Beat
from harness.measure.plan import (
    HOST,
    ONLY_ON,
    QUICK,
    TWIN,
    TWINS,
    blocked,
    control_plan,
    file_name,
    make_plan,
    matrix_kernels,
    quick_cells,
    row_of,
    shuffled,
    variant_of,
)
from harness.measure.sampler import measure
from harness.measure.worker import status_of
from harness.workload.cells import load_cells, select_cells

CELLS = list(load_cells().values())
ROWS = matrix_kernels(KERNELS.values())


@pytest.fixture(scope="module")
def plan() -> list[PlanEntry]:
    return make_plan(CELLS, ROWS)


def regimes(plan: list[PlanEntry], kernel: str, cell: str = "base") -> set[tuple[str, str, str]]:
    return {(e.launch, e.table, e.l2) for e in plan if e.kernel == kernel and e.cell == cell}


def test_no_entry_stands_twice_and_every_kernel_is_serial_and_fresh_everywhere(plan: list[PlanEntry]) -> None:
    keys = [(e.cell, e.kernel, e.launch, e.table, e.l2, e.load) for e in plan]
    assert len(keys) == len(set(keys))
    for row in ROWS:
        cells = {
            e.cell for e in plan if e.kernel == row.name and (e.launch, e.table, e.l2) == ("serial", "fresh", "asreset")
        }
        assert cells == set(ONLY_ON.get(row.name, [cell.name for cell in CELLS])), row.name


def test_regimes_of_the_matrix(plan: list[PlanEntry]) -> None:
    serial, filled = ("serial", "fresh", "asreset"), ("serial", "filled", "asreset")
    concurrent, flushed = ("concurrent", "fresh", "asreset"), ("serial", "fresh", "flushed")
    assert regimes(plan, "cuda/allocate/plain") == {serial, filled, concurrent, flushed}
    assert regimes(plan, "cuda/allocate/plain", "r-1.0") == {serial, filled, concurrent}
    assert regimes(plan, "cuda/update/plain") == {serial, concurrent, flushed}
    assert regimes(plan, "cuda/allocate/nowait", "pts-20k") == {serial, filled}
    assert regimes(plan, "triton/allocate/while", "pts-20k") == {serial, filled, concurrent}
    assert regimes(plan, "cuda/floor/null", "pts-20k") == {serial}
    assert {e.cell for e in plan if e.l2 == "flushed"} == {"base", "pts-1280k", "lf-566"}
    assert not any(e.stage == "extract" or e.kernel == "cuda/floor/record" for e in plan)
    assert all(e.table == "fresh" for e in plan if e.stage != "allocate")


def test_twins_stand_beside_their_kernel_in_every_regime(plan: list[PlanEntry]) -> None:
    for name in TWINS:
        for cell in CELLS:
            assert regimes(plan, name, cell.name) == regimes(plan, name + TWIN, cell.name)
    assert {file_name(e.kernel) for e in plan if e.kernel.endswith(TWIN)} == set(TWINS)


def test_names_lead_back_to_the_table() -> None:
    for label in ("triton/allocate/static8@bundled", "cuda/allocate/plain@twin", "cuda/update/plain/fma"):
        assert row_of(label).name == label.split("@")[0].removesuffix("/fma")
    assert file_name("triton/allocate/static8@bundled").endswith("@bundled")  # another cubin
    assert variant_of("base+cap32") == ("base", "cap32") and variant_of("base") == ("base", "")


def test_quick_is_serial_on_three_cells() -> None:
    cells = quick_cells(CELLS)
    plan = make_plan(cells, ROWS, QUICK)
    assert {e.cell for e in plan} == {"base", "pts-20k", "plane-320k"}
    assert {e.launch for e in plan} == {"serial"} and {e.l2 for e in plan} == {"asreset"}
    with pytest.raises(UsageError, match="quick"):
        quick_cells(select_cells("r-2.0"))


def test_host_has_one_regime() -> None:
    plan = make_plan(CELLS[:1], ROWS, HOST)
    assert plan and all((e.launch, e.table, e.l2) == ("serial", "fresh", "asreset") for e in plan)
    assert all(row_of(e.kernel).host and e.stage in ("allocate", "update") for e in plan)


def test_controls_only_where_their_counterpart_is(plan: list[PlanEntry]) -> None:
    controls = control_plan(plan)
    assert {variant_of(e.cell)[1] for e in controls} == {"blocked", "shared", "nograph", "cap32"}
    assert all(e.launch in LAUNCHES for e in controls)
    assert control_plan([e for e in plan if e.cell != "base"]) == []


def test_devices_at_once_have_a_control_of_one_alone(plan: list[PlanEntry]) -> None:
    """The same kernels as in base, twins too, before the controls that load the device otherwise."""
    controls = control_plan(plan, together=True)
    alone = [e for e in controls if e.cell == "base+alone"]
    assert controls[: len(alone)] == alone and controls[len(alone) :] == control_plan(plan)
    usual = ("serial", "fresh", "asreset", "aot")
    base = [e.kernel for e in plan if e.cell == "base" and (e.launch, e.table, e.l2, e.load) == usual]
    assert [e.kernel for e in alone] == base and {"cuda/allocate/plain@twin", "triton/update/static8"} <= set(base)
    assert {(e.launch, e.table, e.l2, e.load) for e in alone} == {usual}


def test_order_is_a_permutation_that_depends_on_seed_pass_device_cell_and_round(plan: list[PlanEntry]) -> None:
    entries = [e for e in plan if e.cell == "pts-20k"]
    order = shuffled(entries, 1, 0, "GPU-a", 0)
    assert Counter(map(id, order)) == Counter(map(id, entries)) and order != entries
    assert order == shuffled(entries, 1, 0, "GPU-a", 0)
    for other in ((2, 0, "GPU-a", 0), (1, 1, "GPU-a", 0), (1, 0, "GPU-b", 0), (1, 0, "GPU-a", 1)):
        assert order != shuffled(entries, *other)


def test_order_is_the_same_in_every_process() -> None:
    code = (
        "from harness.measure.plan import *; from harness.build.kernels import KERNELS; from harness.workload.cells "
        "import load_cells; p = make_plan([load_cells()['base']], matrix_kernels(KERNELS.values())); "
        "print([e.kernel + e.launch for e in shuffled(p, 1, 0, 'u', 3)])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": "/tmp"},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(told) == 1


def test_blocked_order_has_the_same_samples() -> None:
    entries = make_plan(CELLS[:1], [KERNELS["cuda/allocate/plain"]])
    runs = blocked(entries, 5)
    assert [len(run) for run in runs] == [5] * len(entries)
    assert [run[0] for run in runs] == entries


# --- sampler ----------------------------------------------------------------------------------------------------------


class FakeBatch:
    launches = 8

    def __init__(self, flushed: bool) -> None:
        self.flushed, self.steps = flushed, []

    def __getattr__(self, name: str):  # every step of the protocol
        def step() -> Reading | None:
            self.steps.append(name)
            return Reading(1.0, 1000.0, None) if name == "collect" else None

        return step


@pytest.mark.parametrize("flushed", [False, True])
def test_steps_of_a_batch(flushed: bool) -> None:
    """The state is restored (and L2 written) before the stamp; events stand inside the stamps; nothing after."""
    batch = FakeBatch(flushed)
    assert measure(batch).us == 1.0
    flush = ["flush"] if flushed else []
    assert batch.steps == ["reset", *flush, "stamp", "start", "launch", "stop", "stamp_again", "collect"]


def test_cycles_are_time_times_clock() -> None:
    assert Reading(10.0, 1500.0, None).cycles == 15000
    assert Reading(10.0, None, None).cycles is None


@pytest.mark.parametrize(
    ("lost", "counters", "status"),
    [
        (0, Counters(10, 0, 0), "ok"),
        (1, Counters(9, 0, 0), "lossy"),
        (0, Counters(10, 1, 0), "lossy"),
        (0, Counters(10, 0, 1), "lossy"),
        (None, None, "ok"),
    ],
)
def test_any_loss_makes_a_sample_lossy(lost: int | None, counters: Counters | None, status: str) -> None:
    assert status_of(lost, Reading(1.0, None, counters)) == status


# --- progress ---------------------------------------------------------------------------------------------------------


def test_the_time_left_is_that_of_the_passes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices, three passes each: what ran before the first beat and what runs after the passes say nothing."""
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    monkeypatch.setattr(progress, "LINE_S", 1e9)
    lines: list[str] = []
    told = progress.Progress(6, lines.append)
    now += 500  # compute-sanitizer
    told.update(0, "GPU-a", Beat(0.0, 0, 100, ""))
    assert told.left() == ""
    now += 60
    told.update(0, "GPU-a", Beat(0.0, 90, 100, ""))
    told.update(0, "GPU-b", Beat(0.0, 30, 100, ""))
    assert told.left() == "4 min left"  # 1.2 of 6 passes in a minute
    told.finished(0, "GPU-a")
    assert lines == ["pass 1 on GPU-a is done (1 of 6), 4 min left"]
    for number, uuid in [(1, "GPU-a"), (2, "GPU-a"), (0, "GPU-b"), (1, "GPU-b"), (2, "GPU-b")]:
        told.finished(number, uuid)
    assert lines[-1] == "pass 3 on GPU-b is done (6 of 6)"
    told.update(2, "GPU-a", Beat(0.0, 5, 100, ""), after="controls")
    assert told.left() == ""


def test_a_pass_without_a_terminal_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line every LINE_S and no more; before the first batch what is going on."""
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    lines: list[str] = []
    told = progress.Progress(1, lines.append)
    told.update(0, "host", Beat(0.0, 0, 0, '["base", "gates", ""]'))
    assert lines == []
    for seconds, beat in [
        (progress.LINE_S, Beat(0.0, 0, 0, '["base", "gates", ""]')),
        (progress.LINE_S / 2, Beat(0.0, 10, 70, "")),
        (progress.LINE_S / 2, Beat(0.0, 14, 70, "")),
        (progress.LINE_S, Beat(0.0, 35, 70, "")),
    ]:
        now += seconds
        told.update(0, "host", beat)
    assert lines == [
        "pass 1 on host: base gates",
        "pass 1 on host: 14 of 70 batches, 2 min left",
        "pass 1 on host: 35 of 70 batches, 45 s left",
    ]
    now += progress.LINE_S
    told.update(0, "host", Beat(0.0, 3, 5, ""), after="controls")
    assert lines[-1].startswith("controls on host: 3 of 5 batches")


def test_steps_are_numbered_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    lines: list[str] = []
    steps = progress.Steps({"a": 10, "b": 30, "c": 60}, lines.append)
    steps.begin("a", "first")
    now += 20
    steps.begin("b", "second")
    now += 60
    steps.begin("c", "third")
    assert lines == [
        "step 1 of 3: a: first",
        "step 2 of 3, about 3 min left: b: second",
        "step 3 of 3, about 2 min left: c: third",
    ]


# --- clocks (N06) -----------------------------------------------------------------------------------------------------


def rows(clocks: list[float], mask: int = 0, number: int = 0, uuid: str = "GPU-a") -> list[dict[str, object]]:
    return [
        {"pass": number, "device_uuid": uuid, "sm_clock_mhz": clock, "throttle": mask, "us": 10.0} for clock in clocks
    ]


def test_a_card_that_is_always_slow_is_flagged_and_keeps_all_its_samples() -> None:
    samples = [row for number in range(3) for row in rows([820.0] * 30, 0x40, number)]
    flags = health.throttle_flags(samples, {"GPU-a": 1410.0})
    assert len(flags) == 3
    assert all("30 of 30" in flag.why and "0x40" in flag.why and "thermal" in flag.why for flag in flags)
    assert health.median_us(samples) == 10.0
    assert health.drift_flags(samples) == []


def test_low_clock_without_a_reason_is_flagged_too() -> None:
    (flag,) = health.throttle_flags(rows([820.0] * 4), {"GPU-a": 1410.0})
    assert "no reason given" in flag.why
    assert health.throttle_flags(rows([1400.0] * 4, 0x1), {"GPU-a": 1410.0}) == []
    assert health.throttle_flags(rows([820.0] * 4), {"GPU-a": None}) == []


def test_drift_between_passes() -> None:
    samples = rows([1965.0] * 9, number=0) + rows([1800.0] * 9, number=1) + rows([1580.0] * 9, number=2)
    (flag,) = health.drift_flags(samples)
    assert "1965" in flag.why and "1580" in flag.why
    assert health.drift_flags(rows([1965.0], number=0) + rows([1950.0], number=1)) == []


def test_no_samples_is_no_number_and_nothing_is_written_as_nan() -> None:
    assert health.median_us([]) is None
    row = dict.fromkeys((column.name for column in SAMPLES), None)
    row |= {"pass": 0, "device_uuid": "u", "arch": 90, "cell": "base", "kernel": "k", "stage": "allocate"}
    row |= {"launch": "serial", "table": "fresh", "l2": "asreset", "load": "aot", "round": 0, "position": 0}
    row |= {"t_s": 0.0, "launches": 8, "status": "ok", "us": float("nan"), "cycles": float("inf")}
    assert b"nan" not in csv_bytes(SAMPLES, [row]).lower() and b"inf" not in csv_bytes(SAMPLES, [row])
