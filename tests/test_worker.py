"""What a worker writes down: the order it timed in, and which of its samples lost something."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.archive.read import load
from harness.archive.schema import SAMPLES, PlanEntry
from harness.archive.write import ArchiveWriter
from harness.device.reading import Counters, Reading
from harness.environment import ROOT
from harness.measure.heartbeat import Heartbeat
from harness.measure.manager import Manager, Request, empty_run
from harness.measure.plan import shuffled
from harness.measure.worker import CellRun, Orders, Telemetry, utc_now
from harness.workload.cells import load_cells

SIMULATED = ROOT / "tests" / "simulated"
sys.path.append(str(SIMULATED))

import stations  # noqa: E402

UUIDS = ["GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"]
KERNELS = [f"cuda/{stage}/{variant}" for stage in ("allocate", "update") for variant in ("plain", "ray")]
ROUNDS, SEED = 4, 7


def entries(cell: str, kernels: Iterable[str] = KERNELS) -> list[PlanEntry]:
    """Every kernel serial and concurrent: two entries of one name, which the order tells apart by their regime."""
    return [
        PlanEntry(cell=cell, kernel=k, stage=k.split("/")[1], launch=launch, table="fresh", l2="asreset", load="aot")
        for k in kernels
        for launch in ("serial", "concurrent")
    ]


def test_the_archives_order_is_the_seeds_and_another_one_each_round(tmp_path: Path) -> None:
    cells = load_cells()
    plan = entries("pts-20k") + entries("r-0.25")
    request = Request(
        study="matrix", station=f"{SIMULATED / 'stations.py'}:Scripted", devices=UUIDS, plan=plan, passes=2,
        rounds=ROUNDS, seed=SEED, batch=2, build="build", command=["irr", "test"], created_utc=utc_now(), gates=False,
    )  # fmt: skip
    writer = ArchiveWriter.create(tmp_path / "a", empty_run(request, cells))
    samples = load(Manager(writer, request, cells, lambda line: None).run()).samples
    assert len(samples) == 2 * 2 * ROUNDS * len(plan)
    orders: dict[Any, list[tuple[str, str]]] = {}
    for key, group in samples.groupby(["pass", "device_uuid", "cell", "round"]):
        number, uuid, cell, turn = key
        found = group.sort_values("position")
        assert list(found["position"]) == list(range(len(found)))
        assert found["t_s"].is_monotonic_increasing, "timed in another order than the one written down"
        orders[key] = list(zip(found["kernel"], found["launch"], strict=True))
        wanted = shuffled(entries(str(cell)), SEED, int(number), str(uuid), int(turn))
        assert orders[key] == [(entry.kernel, entry.launch) for entry in wanted]
    # The eight entries in the order of the plan in no round, and no two rounds alike.
    alike = pd.Series([str(order) for order in orders.values()])
    assert len(orders) == 2 * 2 * 2 * ROUNDS and alike.is_unique
    assert not any(order == [(e.kernel, e.launch) for e in entries("pts-20k")] for order in orders.values())


LOSSES = dict(zip(KERNELS, [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], strict=True))
"""Kernel -> blocks lost, failed inserts, points dropped."""


class Losing(stations.Scripted):
    """A device on which each kernel has losses of its own."""

    def open(self, cell: Any, size: int) -> Any:
        rig = super().open(cell, size)

        def batch(label: str, *_: Any) -> Any:
            found = stations.ScriptedBatch(rig, label)
            lost, failed, dropped = LOSSES[label]
            found.collect = lambda: Reading(1.0, None, Counters(cell.blocks - lost, failed, dropped))
            return found

        rig.batch = batch
        return rig


def test_each_loss_figure_alone_makes_a_sample_lossy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUIDS[0])
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    orders = Orders(
        station="", uuid=UUIDS[0], pass_number=0, plan=entries("base"), rounds=2, seed=SEED, batch=2, build="",
        references="", journal="", heartbeat="", parent=0, gates=False, gates_after=False,
    )  # fmt: skip
    station = Losing({"uuid": UUIDS[0], "pass_number": 0})
    heart, telemetry = Heartbeat(tmp_path / "beat", create=True), Telemetry(station, 0.0)
    run = CellRun(orders, "base", load_cells()["base"], station, heart, telemetry)
    record = run.run()
    columns = [column.name for column in SAMPLES]
    rows = [dict(zip(columns, row, strict=True)) for row in record["samples"]]
    assert len(rows) == 2 * len(orders.plan)
    for row in rows:
        figures = (row["lost_blocks"], row["failed_inserts"], row["dropped_points"])
        assert figures == LOSSES[row["kernel"]]
        assert row["status"] == ("lossy" if any(figures) else "ok"), row
