"""Figures of the attribution study: sentences and rows follow from the samples, and what breaks something is said."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.archive.read import find, load
from harness.archive.schema import Note
from harness.claims.evaluate import RESULTS
from harness.claims.registry import View
from harness.measure.studies import FILLED, FRESH, STUDIES, Question
from harness.report import attribution
from harness.report.drawing import Missing, Plot, render
from harness.report.figures import few_passes
from tests.synthetic import UUID, sample_rows, write_archive
from tests.test_claims import CA, CU

TIMES: dict[tuple[str, ...], float] = {
    (CA, "base"): 20.0, (CA, "base", "filled"): 15.0, (CA, "base", "concurrent"): 10.0, (CU, "base"): 150.0,
    ("rust-oxide/allocate/plain", "base"): 20.0, ("rust-oxide/allocate/plain", "base", "filled"): 15.0,
    ("cuda/floor/geometry", "base"): 8.0, ("cuda/floor/atomics", "base"): 160.0,
    ("cuda/allocate/walls-run", "base"): 10.0, ("cuda/update/packed-run", "base"): 30.0,
    ("cuda/integrate/packed-run", "base"): 60.0, ("cuda/allocate/cas128", "base"): 28.0,
    ("cuda/allocate/cas128", "base", "filled"): 21.0, ("rust-oxide/allocate/cas128", "base"): 24.0,
    ("triton/allocate/static8", "base"): 160.0, ("triton/allocate/static8-s256", "base"): 1600.0,
    ("triton/allocate/static8-s524288", "base"): 158.0, ("triton/allocate/while", "base"): 32.0,
    ("triton/allocate/while-w64x1", "base"): 28.0, ("triton/allocate/while-w256x8", "base"): 64.0,
}  # fmt: skip
FLAGS = [
    Note(what="rust-oxide/allocate/nocounter is timed and never judged", why="blocks are not counted"),
    Note(what="cuda/allocate/cas128 is timed and never judged", why="an index is lost"),
]
CAUSES: dict[str, Any] = {
    "hypothesis.wait.ratio": 0.74, "hypothesis.wait.range": [0.73, 0.75],
    "hypothesis.counter.ratio": 0.9, "hypothesis.counter.range": [0.8, 1.1],
    "hypothesis.clamp.ratio": 1.2, "hypothesis.clamp.range": [1.1, 1.3],
}  # fmt: skip
VARIANTS = {"wait": "nowait", "counter": "nocounter", "clamp": "clamp"}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    root = tmp_path_factory.mktemp("attribution") / "run"
    write_archive(root, samples=sample_rows(TIMES), evidence=CAUSES, flags=FLAGS)
    found = View(load(root))
    for name, item in found.archive.evidence.items():
        variant = VARIANTS[name.split(".")[1]]
        item.how = f"rust-oxide/allocate/{variant} / plain on base, serial, fresh table: one thing; breaks: nothing"
    return found


def drawn(plot: Plot) -> Plot:
    svg, pdf = render(plot)
    assert svg.startswith(b"<?xml") and pdf.startswith(b"%PDF") and plot.table.rows
    return plot


def test_a_cause_moves_it_only_where_the_whole_range_is_clear_of_the_floor(view: View) -> None:
    plot = drawn(attribution.causes(view))
    assert "percent in every pass: faster wait 0.74; slower clamp 1.20; no difference counter." in plot.answer
    assert "changes Rust's ratio to CUDA C++ 2.00 times" in plot.answer
    assert "The variants of counter break something" in plot.answer
    row = next(row for row in plot.table.rows if row["cause"] == "counter")
    assert (row["pair"], row["what"], row["breaks"]) == ("nocounter / plain", "one thing", "blocks are not counted")


def test_failed_designs_stand_over_their_own_language(view: View) -> None:
    plot = drawn(attribution.designs(view))
    assert "takes 1.40 (CUDA C++) and 1.20 (Rust) times plain's time" in plot.answer
    assert [row["table"] for row in plot.table.rows] == ["fresh", "filled", "fresh"]
    assert [row["breaks"] for row in plot.table.rows] == ["an index is lost", "an index is lost", None]


def test_scratch_is_ordered_by_size_and_says_where_it_saturates(view: View) -> None:
    plot = drawn(attribution.scratch(view))
    assert [row["slots"] for row in plot.table.rows] == [256, 65_536, 524_288]
    assert (
        "With 256 shared slots" in plot.answer and "65,536 slots, fewer than the cell's 320,000 points" in plot.answer
    )


def test_tiles_name_the_fastest_of_each_stage(view: View) -> None:
    plot = drawn(attribution.tiles(view))
    assert "in allocate the fastest is 64 x 1 on base (0.88), the slowest takes 2.00 times." in plot.answer
    assert "update" not in plot.answer


def test_limits_take_the_fastest_arm_that_breaks_nothing(view: View) -> None:
    plot = drawn(attribution.limits(view))
    kernels = [str(row["kernel"]) for row in plot.table.rows]
    assert "cuda/allocate/cas128" not in kernels and "triton/allocate/while-w64x1" not in kernels
    assert (
        "Fastest allocate, of plain's time: 0.50 on base (cuda/allocate/walls-run, 1.25 times the floor's)."
        in plot.answer
    )
    assert "Fastest integrate, of the two plain stages' time together: 0.35 on base" in plot.answer
    assert "one after the other take 40" in plot.answer.replace("39.9", "40").replace("40.0", "40")
    assert "The bare atomics are no lower bound: plain update takes 0.94 times their time on base" in plot.answer


def test_limits_say_what_memory_moves_where_launches_were_counted(tmp_path: Path) -> None:
    metrics = {"dram__bytes.sum": 12e6, "gpu__time_duration.sum": 150e3, "lts__t_sectors.sum": 15.7e6}
    counted = [
        {"device_uuid": UUID, "cell": "base", "kernel": kernel, "metric": metric, "unit": "", "value": value / less}
        for kernel, less in (("cuda/update/plain", 1), ("cuda/update/packed-run", 4))
        for metric, value in metrics.items()
    ]
    write_archive(tmp_path / "run", samples=sample_rows(TIMES), flags=FLAGS, counters=counted)
    plot = drawn(attribution.limits(View(load(tmp_path / "run"))))
    assert "To and from DRAM a counted launch moves at most 80" in plot.answer
    row = next(row for row in plot.table.rows if row["kernel"] == "cuda/update/plain" and row["cell"] == "base")
    assert (row["dram"], row["sectors"]) == (pytest.approx(80), pytest.approx(15.7))
    assert row["roof"] is None and "roofline" not in plot.answer, "a card that data/cards.toml does not have"
    known = write_archive(
        tmp_path / "known", samples=sample_rows(TIMES), flags=FLAGS, counters=counted, device_name="NVIDIA H200"
    )
    plot = drawn(attribution.limits(View(load(known))))
    rows = {row["kernel"]: row for row in plot.table.rows if row["cell"] == "base"}
    plain = rows["cuda/update/plain"]
    assert plain["roof"] == pytest.approx(plain["us"] / (12e6 / 4814e3))
    assert "times its time, is cuda/update/p" in plot.answer and "of the card's 4,814" in plot.answer
    write_archive(tmp_path / "bare", samples=sample_rows(TIMES), flags=FLAGS)
    assert "DRAM" not in drawn(attribution.limits(View(load(tmp_path / "bare")))).answer


def test_the_cards_bandwidths_are_those_of_archives() -> None:
    """data/cards.toml says nothing that no archive of study fma holds."""
    found = {
        archive.device_names[0]: archive.value("device.bandwidth_gb_s")
        for archive in map(load, find(RESULTS))
        if archive.run.study == "fma" and archive.run.gpu
    }
    if not found:
        pytest.skip("no archived results here")
    cards = tomllib.loads(attribution.CARDS.read_text(encoding="utf-8"))
    assert cards and {name: round(found[name]) for name in cards} == {n: c["dram_gb_s"] for n, c in cards.items()}


def test_a_question_without_a_figure_of_its_own_stands_over_cuda(tmp_path: Path) -> None:
    question = Question(
        "Would it matter?", "matter", (), ("cuda/allocate/cas128", "cuda/allocate/walls-*"), ("base", "r-2.0"),
        (FRESH, FILLED),
    )  # fmt: skip
    write_archive(tmp_path / "run", samples=sample_rows(TIMES), flags=FLAGS)
    plot = drawn(attribution.of_question(question)[1](View(load(tmp_path / "run"))))
    assert [(row["regime"], row["kernel"]) for row in plot.table.rows] == [
        ("serial, fresh table", "cuda/allocate/cas128"), ("serial, fresh table", "cuda/allocate/walls-run"),
        ("serial, filled table", "cuda/allocate/cas128"),
    ]  # fmt: skip
    assert "serial, fresh table: cuda/allocate/cas128 1.40 (1 cell, all slower)" in plot.answer
    assert "cuda/allocate/cas128, drawn half filled, breaks something and no gate judged it." in plot.answer
    with pytest.raises(Missing, match="cuda/allocate/nothing"):
        absent = dataclasses.replace(question, kernels=("cuda/allocate/nothing",))
        attribution.of_question(absent)[1](View(load(tmp_path / "run")))


def test_tritons_floor_is_told_from_its_exchange_and_its_blocks(tmp_path: Path) -> None:
    times = {**TIMES, ("triton/allocate/static8-load", "base"): 64.0}
    times |= {("triton/allocate/static8", cell): 161.0 for cell in ("r-0.25", "r-2.0")}
    write_archive(tmp_path / "run", samples=sample_rows(times))
    plot = drawn(attribution.triton_floor(View(load(tmp_path / "run"))))
    assert (
        "takes 0.40 of the bounded probe's time; 65 times fewer blocks" in plot.answer and "1.00 of it" in plot.answer
    )


def test_an_archive_without_the_study_has_none_of_its_figures(tmp_path: Path) -> None:
    plain = {key: value for key, value in TIMES.items() if key[0] in (CA, CU)}
    write_archive(tmp_path / "run", samples=sample_rows(plain))
    bare = View(load(tmp_path / "run"))
    for make in (
        *(make for _, make in attribution.FIGURES.values()),
        *(attribution.of_question(question)[1] for question in STUDIES["attribution"].questions),
    ):
        with pytest.raises(Missing):
            make(bare)


def test_only_the_cells_with_one_pass_are_called_noise(tmp_path: Path) -> None:
    times = {(CA, "base"): 20.0, ("rust-oxide/allocate/plain", "base"): 21.0}
    once = {(CA, "r-2.0"): 20.0, ("rust-oxide/allocate/plain", "r-2.0"): 21.0}
    write_archive(tmp_path / "run", samples=[*sample_rows(times), *sample_rows(once, passes=1)])
    view = View(load(tmp_path / "run"))
    both = [c for cell in ("base", "r-2.0") if (c := view.compare("rust-oxide/allocate/plain", CA, cell)) is not None]
    assert len(both) == 2
    assert few_passes(both) == " On r-2.0 a kernel has one pass only, which is not told apart from noise."
    assert few_passes(both[:1]) == "" and "nothing here" in few_passes(both[1:])
