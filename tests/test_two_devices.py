"""Two devices of one host: whether they disturb each other (O9), and both side by side on the page."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.archive.read import load
from harness.archive.schema import Pass
from harness.claims.evaluate import judge
from harness.claims.registry import REGISTRY, Verdict, View
from harness.report.page import report
from tests.synthetic import DEVICE, sample_rows, write_archive
from tests.test_claims import CA, TA, TABLE1, cuda

UUIDS = tuple(f"GPU-0000000{n}-0000-0000-0000-00000000000{n}" for n in (1, 2))
TIMES = {**TABLE1, **cuda()}


def archive(
    root: Path,
    beside: Sequence[float] = (1.0, 1.0, 1.0),
    devices: Sequence[str] = UUIDS,
    alone: bool = True,
    **run: Any,
) -> Path:
    """A matrix on these devices: in pass n the first takes beside[n] times as long as in base+alone."""
    rows = []
    for place, uuid in enumerate(devices):
        rows += sample_rows(TIMES, passes=len(beside), uuid=uuid, seed=place)
    for row in rows:
        if row["device_uuid"] == devices[0]:
            row["us"], row["cycles"] = (row[key] * beside[row["pass"]] for key in ("us", "cycles"))
    if alone:
        quiet = {(key[0], "base+alone"): us for key, us in TIMES.items() if key[1:] == ("base",)}
        control = sample_rows(quiet, passes=1, uuid=devices[0], seed=9)
        rows += [{**row, "pass": len(beside) - 1} for row in control]
    passes = [
        Pass(number=number, device_uuid=uuid, device_name=DEVICE, arch=90, started_utc="2026-01-02T03:04:05Z",
             complete=True)
        for number in range(len(beside)) for uuid in devices
    ]  # fmt: skip
    return write_archive(root, samples=rows, passes=passes, uuid=devices[0], **{"at_once": True, **run})


def verdict(root: Path) -> Verdict:
    return judge(REGISTRY.claims["O9"], View(load(root)))


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ((1.0, 1.0, 1.0), "reproduced"),
        ((1.03, 1.04, 1.05), "refuted"),
        ((0.9, 0.9, 0.9), "refuted"),
        ((1.0, 1.05, 1.05), "undecided"),  # one pass is as alone
        ((1.0,), "undecided"),
    ],
)
def test_what_devices_do_to_each_other_is_told_by_one_alone(
    tmp_path: Path, beside: tuple[float, ...], expected: str
) -> None:
    found = verdict(archive(tmp_path / "a", beside))
    assert found.verdict == expected, found.reason
    if expected in ("reproduced", "refuted"):
        assert found.measured == pytest.approx(sorted(beside)[len(beside) // 2], rel=0.005)
        assert "beside another device" in found.reason and "in cycles" in found.reason
        assert {row["kernel"] for row in found.rows} >= {CA, TA, f"{CA}@twin"}


@pytest.mark.parametrize(("at_once", "words"), [(True, "at once"), (False, "one after another")])
def test_the_page_has_both_devices_side_by_side(tmp_path: Path, at_once: bool, words: str) -> None:
    root = archive(tmp_path / "a", alone=at_once, at_once=at_once)
    page = Path(report(root)).read_text()
    assert f"Study matrix, 6 passes on 2 devices {words} of 6 rounds" in page
    assert all(uuid in page for uuid in UUIDS) and "Do the devices agree?" in page
    with (root / "derived" / "figures" / "devices.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    here = {(row["kernel"], row["cell"]) for row in rows}
    assert (TA, "base") in here and not any("+" in cell for _, cell in here)
    for row in rows:
        a, b = float(row["device0"]), float(row["device1"])
        assert a == pytest.approx(b, rel=0.01) and a != b
        assert float(row["apart"]) == pytest.approx(max(a, b) / min(a, b) - 1, abs=1e-5)
    assert "Devices measured at once read the same as one alone." in page


def test_one_device_and_devices_one_after_another_decide_nothing(tmp_path: Path) -> None:
    assert verdict(archive(tmp_path / "a", devices=UUIDS[:1])).verdict == "needs-two-gpus"
    apart = verdict(archive(tmp_path / "b", alone=False, at_once=False))
    assert apart.verdict == "undecided" and "one after another" in apart.reason
    bare = verdict(archive(tmp_path / "c", alone=False))
    assert bare.verdict == "undecided" and "no sample of base+alone" in bare.reason
