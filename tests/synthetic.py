"""Small archives for tests, made from numbers that are plainly invented: device "Synthetic Device (no GPU)"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.archive import fingerprint
from harness.archive.schema import (
    SAMPLES,
    SCHEMA,
    CellFacts,
    Evidence,
    Gate,
    Pass,
    PlanEntry,
    Reduction,
    Run,
)
from harness.archive.write import ArchiveWriter
from harness.workload.cells import load_cells

DEVICE = "Synthetic Device (no GPU)"
UUID = "GPU-00000000-0000-0000-0000-000000000001"
REGIME = {"launch": "serial", "table": "fresh", "l2": "asreset", "load": "aot"}
CLOCK = 1500.0

Key = tuple[str, str]
"""(kernel, cell); a regime that is not the default follows as a word: (kernel, cell, "filled")."""


def cell_facts(names: Sequence[str]) -> dict[str, CellFacts]:
    """Facts of cells by name; a variant (base+blocked) has its cell's, an unknown one invented ones."""
    known = load_cells()
    facts = {}
    for name in names:
        cell = known.get(name.split("+")[0])
        if cell is None:
            facts[name] = CellFacts(
                blocks=1000, samples=1_000_000, pool=4096, table=8192, points=300_000, load_factor=0.122,
                axis="real" if name.startswith("real") else "",
            )  # fmt: skip
        else:
            facts[name] = CellFacts(
                blocks=cell.blocks, samples=cell.samples, pool=cell.config.capacity, table=cell.config.slots,
                points=len(cell.scene()) if cell.kind != "sphere" else _points(cell.arguments),
                load_factor=cell.load_factor, axis=cell.axis,
            )  # fmt: skip
    return facts


def _points(arguments: Sequence[tuple[str, float | int]]) -> int:
    named = dict(arguments)
    return int(named["rows"] * named["columns"])


def sample_rows(
    times: Mapping[tuple[str, ...], float],
    *,
    passes: int = 3,
    rounds: int = 6,
    noise: float = 0.001,
    seed: int = 1,
    uuid: str = UUID,
    twins: bool = True,
    clock: Mapping[str, float] | None = None,
    power: Mapping[str, float] | None = None,
    loss: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    launches: int = 8,
) -> list[dict[str, Any]]:
    """One row per kernel, cell, regime, round and pass, around the given microseconds.

    Args:
        times: (kernel, cell, words of a regime that is not the default...) -> us.
        twins: add `@twin` of every kernel named plain (fma: the C++ kernels).
        clock, power: by kernel, where they are not the default. loss: by (kernel, cell), columns to set.
    """
    random = np.random.default_rng(seed)
    rows = []
    planned = dict(times)
    if twins:
        planned |= {
            (f"{key[0]}@twin", *key[1:]): us
            for key, us in times.items()
            if key[0] in ("cuda/allocate/plain", "cuda/update/plain") or key[0].startswith("cuda/fma/")
        }
    for number in range(passes):
        for turn in range(rounds):
            for position, (key, us) in enumerate(planned.items()):
                kernel, cell, *words = key
                regime = dict(REGIME)
                for word in words:
                    name = {"concurrent": "launch", "filled": "table", "flushed": "l2", "jit": "load"}[word]
                    regime[name] = word
                value = us * float(np.exp(random.normal(0, noise)))
                base = kernel.removesuffix("@twin")
                mhz = (clock or {}).get(base, CLOCK)
                row = {
                    "pass": number, "device_uuid": uuid, "arch": 90, "cell": cell, "kernel": kernel,
                    "stage": kernel.split("/")[1], **regime, "round": turn, "position": position,
                    "t_s": 0.1 * (turn * len(planned) + position), "launches": launches, "us": value,
                    "cycles": value * mhz, "blocks": 1160, "lost_blocks": 0, "failed_inserts": 0, "dropped_points": 0,
                    "sm_clock_mhz": mhz, "temperature_c": 40 + number, "power_w": (power or {}).get(base, 300.0),
                    "throttle": 0, "status": "ok",
                }  # fmt: skip
                row |= (loss or {}).get((kernel, cell), {})
                rows.append(row)
    return rows


def gate(arm: str, place: str, cell: str, name: str = "exact-set", tier: str = "exact", **more: Any) -> Gate:
    """A gate that passed, unless `ok` says otherwise."""
    return Gate(
        **{
            "gate": name, "tier": tier, "subject": f"{arm} on {cell}", "ok": True, "compared": 1160, "arm": arm,
            "place": place, "cell": cell, "device_uuid": UUID, **more,
        }
    )  # fmt: skip


def judged(samples: Sequence[Mapping[str, Any]]) -> list[Gate]:
    """A gate that passed for every kernel of the samples, before and after timing, in every pass of every device."""
    kernels = dict.fromkeys((row["pass"], row["device_uuid"], row["cell"], row["kernel"]) for row in samples)
    return [
        gate(kernel, "gpu", cell, when=when, pass_number=number, device_uuid=uuid)
        for number, uuid, cell, kernel in kernels
        for when in ("before", "after")
        if "@twin" not in kernel and "+" not in cell
    ]


def planned(samples: Iterable[Mapping[str, Any]]) -> list[PlanEntry]:
    """The plan that these samples follow."""
    names = PlanEntry.__struct_fields__
    return [PlanEntry(**dict(zip(names, key, strict=True))) for key in {tuple(r[n] for n in names): 0 for r in samples}]


def write_archive(
    root: Path,
    *,
    samples: Sequence[Mapping[str, Any]] = (),
    evidence: Mapping[str, Any] | None = None,
    gates: Sequence[Gate] = (),
    counters: Sequence[Mapping[str, Any]] = (),
    manifests: Sequence[Mapping[str, Any]] = (),
    files: Mapping[str, bytes] | None = None,
    cells: Sequence[str] = (),
    reductions: Sequence[Reduction] = (),
    device_name: str = DEVICE,
    uuid: str = UUID,
    finish: bool = True,
    **run: Any,
) -> Path:
    """Write one archive; further keywords are fields of run.json."""
    names = list(dict.fromkeys([*cells, *(str(row["cell"]) for row in samples)]))
    numbers = sorted({int(row["pass"]) for row in samples})
    gpu = run.pop("gpu", bool(samples) or bool(counters))
    document = Run(
        **{
            "schema": SCHEMA, "irr": "0", "commit": "0" * 40, "dirty": False, "study": "matrix", "quick": False,
            "gpu": gpu, "created_utc": "2026-01-02T03:04:05Z", "command": ["irr", "reproduce"], "seed": 1,
            "rounds": 1 + max((int(row["round"]) for row in samples), default=5), "batch": 8, "plan": planned(samples),
            "cells": cell_facts(names), "reductions": list(reductions),
            "passes": [
                Pass(
                    number=n, device_uuid=uuid, device_name=device_name, arch=90,
                    started_utc="2026-01-02T03:04:05Z", complete=True,
                )
                for n in numbers
            ],
            **run,
        }
    )  # fmt: skip
    writer = ArchiveWriter.create(root, document)
    devices = [{"uuid": uuid, "name": device_name, "arch": 90}] if gpu else []
    writer.json("fingerprint.json", fingerprint.make({"toolkit": "13.0"}, {"driver": "580.0"}, devices))
    writer.json("gates.json", list(gates))
    writer.rows("samples.csv", samples)
    if counters:
        writer.rows("counters.csv", counters)
    if evidence:
        items = [Evidence(name=k, value=v, unit="", how="invented for a test") for k, v in evidence.items()]
        writer.json("evidence.json", items)
    for manifest in manifests:
        stem = str(manifest["kernel"]).replace("/", "--")
        writer.json(f"builds/sm_{manifest.get('arch', 90)}/{stem}.json", manifest)
    for name, data in (files or {}).items():
        writer.file(name, data)
    if finish:
        writer.finish(document)
    return root


COLUMNS = [column.name for column in SAMPLES]
