"""Figures: the numbers beside them are the archive's, the same bytes again, and none without data."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from harness.archive.read import load
from harness.archive.schema import TELEMETRY, Note, Pass, csv_bytes
from harness.claims.registry import View
from harness.measure.fma import packed_difference
from harness.measure.studies import STUDIES
from harness.report import figures, frames
from harness.report.answer import sentences, tally
from harness.report.contraction import MAX_PIXELS, difference_map
from harness.report.drawing import (
    DEVICE_COLOURS,
    DEVICE_SHAPES,
    FALLBACK,
    INK,
    REGIME,
    SOFT,
    STYLES,
    VARIABLES,
    render,
    themed,
)
from harness.report.figures import Absent, Figure, Missing, draw_figures, files_of, unbroken
from harness.report.tables import Column, Table, as_csv, as_latex, as_markdown, by_cell, by_device, cells_of, starred
from tests.synthetic import DEVICE, UUID, cell_facts, sample_rows, write_archive
from tests.test_claims import CA, CU, LOST, TA, TABLE1, TU, cuda

SECOND = "GPU-00000000-0000-0000-0000-000000000002"
HOSTILE = '<script>alert("1")</script> $x^2$ & \u202e'
FLOORS = {("cuda/floor/null", "base"): 1.5, ("cuda/floor/geometry", "base"): 8.0, ("cuda/floor/atomics", "base"): 100.0}


def telemetry() -> bytes:
    return csv_bytes(
        TELEMETRY,
        [
            {
                "pass": 0, "device_uuid": UUID, "t_s": i, "sm_clock_mhz": 1500 + i, "mem_clock_mhz": 2000,
                "temperature_c": 40, "power_w": 300, "throttle": int(i == 3), "utilisation": 90, "memory_used_mib": 1,
            }
            for i in range(8)
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    """Two devices, a lossy bounded probe, floors, telemetry, and a difference map of three pixels."""
    times = {**TABLE1, **cuda(concurrent=0.5), **FLOORS, (CA, "lf-hi"): 40.0, (TA, "lf-hi"): 500.0}
    rows = sample_rows(times, loss={(TA, "lf-hi"): LOST}, passes=2, rounds=4)
    rows += [
        row | {"pass": row["pass"] + 2}
        for row in sample_rows(times, loss={(TA, "lf-hi"): LOST}, passes=2, rounds=4, seed=3, uuid=SECOND)
    ]
    passes = [
        Pass(
            number=n, device_uuid=UUID if n < 2 else SECOND, device_name=HOSTILE, arch=90,
            started_utc="2026-01-02T03:04:05Z", complete=True,
        )
        for n in range(4)
    ]  # fmt: skip
    a, b = (np.zeros((128, 128), np.int32) for _ in range(2))
    b[3, 5], b[3, 6], b[100, 90] = 7, -2, 300
    root = write_archive(
        tmp_path_factory.mktemp("figures") / "run", samples=rows, passes=passes,
        evidence={"fma.difference": packed_difference("nvcc", "oxide", {"nvcc": a, "oxide": b})},
        files={"telemetry.csv": telemetry()},
    )  # fmt: skip
    return View(load(root))


@pytest.fixture(scope="module")
def drawn(view: View) -> dict[str, Figure | Absent]:
    return {item.name: item for item in draw_figures(view)}


def figure(drawn: dict[str, Figure | Absent], name: str) -> Figure:
    found = drawn[name]
    assert isinstance(found, Figure), found
    return found


def test_every_figure_is_there_or_says_why_not(drawn: dict[str, Figure | Absent]) -> None:
    absent = {name: item.why for name, item in drawn.items() if isinstance(item, Absent)}
    study = {question.figure for study in STUDIES.values() for question in study.questions} - {"reference"}
    assert set(absent) == {"counters", "fma-pairs", "fma-time", "real", "warm"} | study
    assert all(len(why) > 20 for why in absent.values())
    assert len(drawn) >= 12


def test_a_question_of_a_study_heads_its_figure(drawn: dict[str, Figure | Absent]) -> None:
    """One row in the table of studies is a section of the page."""
    for study in STUDIES.values():
        for question in study.questions:
            assert drawn[question.figure].question == question.asks
    names = [question.figure for study in STUDIES.values() for question in study.questions]
    assert len(set(names)) == len(names)


def test_nothing_is_drawn_without_data_and_each_reason_is_said(tmp_path: Path) -> None:
    empty = draw_figures(View(load(write_archive(tmp_path / "a", cells=["base"]))))
    assert all(isinstance(item, Absent) and item.why for item in empty)
    assert files_of(empty) == {}


def test_the_rows_beside_a_figure_are_the_archives(view: View, drawn: dict[str, Figure | Absent]) -> None:
    rows = figure(drawn, "ratio-allocate").table.rows
    row = next(r for r in rows if (r["cell"], r["kernel"], r["regime"]) == ("base", TA, "serial, fresh table"))
    compared = view.compare(TA, CA, "base")
    assert compared is not None
    assert (row["ratio"], row["low"], row["high"]) == (compared.us.median, compared.us.low, compared.us.high)
    assert row["paper"] == 17.9 and row["different"] == "slower"
    assert not any(r["cell"] == "lf-hi" and r["kernel"] == TA for r in rows), "a lossy sample is in no ratio"
    floor = next(r for r in figure(drawn, "floor").table.rows if r["stage"] == "update" and r["kernel"] == CU)
    assert floor["ratio"] == pytest.approx(view.median_us(CU, "base") / 100, rel=0.01)  # type: ignore[operator]


def test_an_answer_is_computed_from_the_rows(drawn: dict[str, Figure | Absent]) -> None:
    loss = figure(drawn, "loss")
    assert f"at most {LOST['lost_blocks']} of 1,160 blocks" in loss.answer and "from load 0.283 on" in loss.answer
    reference = figure(drawn, "reference")
    serial = [float(r["serial"]) for r in reference.table.rows]  # type: ignore[arg-type]
    derived = [float(r["reference"]) for r in reference.table.rows]  # type: ignore[arg-type]
    assert derived == pytest.approx([2 * value for value in serial], rel=0.02)
    for value in (min(serial), max(derived)):
        assert figures.n(value) in reference.answer
    assert "not the paper's host loop" in reference.answer


def test_devices_stand_side_by_side(drawn: dict[str, Figure | Absent]) -> None:
    row = figure(drawn, "devices").table.rows[0]
    assert isinstance(row["device0"], float) and isinstance(row["device1"], float)
    assert row["apart"] == pytest.approx(max(row["device0"], row["device1"]) / min(row["device0"], row["device1"]) - 1)
    for index in range(2):
        assert row[f"low{index}"] <= row[f"device{index}"] <= row[f"high{index}"]  # type: ignore[operator]


def two_devices(root: Path, second: float) -> View:
    """Rust 1.2 times CUDA C++ on the first device, `second` times on the other; two passes each."""
    rust = "rust-oxide/allocate/plain"
    rows = sample_rows({(CA, "base"): 20.0, (rust, "base"): 24.0, (CA, "base", "concurrent"): 10.0}, passes=2)
    times = {(CA, "base"): 20.0, (rust, "base"): 20.0 * second, (CA, "base", "concurrent"): 8.0}
    rows += [row | {"pass": row["pass"] + 2} for row in sample_rows(times, passes=2, uuid=SECOND, seed=5)]
    passes = [
        Pass(
            number=n, device_uuid=UUID if n < 2 else SECOND, device_name="one", arch=90,
            started_utc="2026-01-02T03:04:05Z", complete=True,
        )
        for n in range(4)
    ]  # fmt: skip
    return View(load(write_archive(root, samples=rows, passes=passes)))


@pytest.mark.parametrize(
    ("second", "different", "said"), [(1.2, "no", "In 0 ratios no pass"), (1.5, "yes", "In 1 ratio no pass")]
)
def test_devices_differ_where_no_pass_bridges_them(tmp_path: Path, second: float, different: str, said: str) -> None:
    plot = figures.devices(two_devices(tmp_path / "a", second))
    assert [row["different"] for row in plot.table.rows] == [different]
    assert said in plot.answer and f"{100 * (second / 1.2 - 1):.1f} percent" in plot.answer


def test_each_devices_ratio_stands_beside_the_others_in_every_regime(tmp_path: Path) -> None:
    """Issue: floors by cell; serial, concurrent and the derived reference of both devices side by side."""
    table = by_device(two_devices(tmp_path / "a", 1.5))
    [row] = table.rows
    found = [row["serial0"], row["serial1"], row["reference0"], row["reference1"]]
    assert found == pytest.approx([1.2, 1.5, 2.4, 3.75], rel=0.01) and isinstance(row["floor"], float)
    assert row["concurrent0"] is None, "Rust was not timed on branches"
    assert [column.key for column in table.columns][3:] == [
        "floor", *(f"{regime}{i}" for regime in ("serial", "concurrent", "reference") for i in range(2)),
    ]  # fmt: skip
    alone = View(load(write_archive(tmp_path / "b", samples=sample_rows({(CA, "base"): 20.0, (TA, "base"): 40.0}))))
    assert by_device(alone).rows == ()


# ------------------------------------------------------------------------------------------------- depth frames

FRAMES = {"room-cold": 1.0, "room-warm": 0.5, "rgbd-cold": 1.0, "rgbd-warm": 0.75, "base": 2.0}
TW = "triton/allocate/while"


def frames_view(root: Path, **more: Any) -> View:
    """Allocate takes half on the room's warm table and three quarters on the real one; update takes the same."""
    times: dict[tuple[str, ...], float] = {}
    for cell, part in FRAMES.items():
        times |= {(CA, cell): 20 * part, (TA, cell): 200.0, (CU, cell): 80.0, (TU, cell): 88.0}
    names = list(FRAMES)
    facts = cell_facts(names)
    facts |= {n: structs.replace(facts[n], axis="real" if n[:4] == "rgbd" else "trajectory") for n in names[:4]}
    view = View(load(write_archive(root, samples=sample_rows(times, **more), cells=names, study="real")))
    view.archive.run.cells.update(facts)
    return view


def test_a_warm_table_stands_over_its_cold_twin(tmp_path: Path) -> None:
    plot = frames.warm(frames_view(tmp_path / "a"))
    found = {(row["stage"], row["scene"], row["kernel"]): row["ratio"] for row in plot.table.rows}
    assert found[("allocate", "room", CA)] == pytest.approx(0.5, rel=0.01)
    assert found[("allocate", "rgbd", CA)] == pytest.approx(0.75, rel=0.01)
    assert found[("allocate", "rgbd", TA)] == pytest.approx(1.0, rel=0.01)
    assert found[("update", "room", CU)] == pytest.approx(1.0, rel=0.01)
    assert "in allocate 0.75 times (rgbd) and 0.50 times (room)" in plot.answer or (
        "in allocate 0.50 times (room) and 0.75 times (rgbd)" in plot.answer
    )
    render(plot)


def test_real_frames_stand_beside_ray_cast_ones_and_the_swept_shapes(tmp_path: Path) -> None:
    plot = frames.real(frames_view(tmp_path / "a"))
    rows = {(row["cell"], row["kernel"]): row for row in plot.table.rows}
    assert rows["rgbd-cold", TA]["frames"] == "real frames" and rows["base", TA]["frames"] == "spheres and plane"
    assert rows["rgbd-cold", TA]["ratio"] == pytest.approx(10, rel=0.01)
    assert rows["rgbd-cold", TA]["total"] == pytest.approx(2.88, rel=0.01)
    assert rows["rgbd-warm", CA]["share"] == pytest.approx(15 / 95, rel=0.01)
    assert "On real frames allocate takes, times CUDA C++'s time, Triton's bounded probe 10.0 to 13.3" in plot.answer
    assert "and is 16 to 20 percent of CUDA C++'s integration" in plot.answer
    render(plot)


def test_noise_makes_another_scene_and_another_kind_of_frames(tmp_path: Path) -> None:
    """With and without noise are told apart in both figures; with it the warm table saves less here."""
    parts = {
        "room-cold": 1.0,
        "room-warm": 0.5,
        "room-cold-noise": 1.5,
        "room-warm-noise": 1.2,
        "tartan-p001-cold": 2.0,
    }
    parts |= {"tartan-p001": 0.5}
    times = {(CA, cell): 20 * part for cell, part in parts.items()} | {(TA, cell): 60.0 for cell in parts}
    times |= {(kernel, cell): 80.0 for cell in parts for kernel in (CU, TU)}
    view = View(load(write_archive(tmp_path / "a", samples=sample_rows(times), cells=list(parts), study="real")))
    facts = cell_facts(list(parts))
    axis = {name: "real" if name.startswith("tartan") else "trajectory" for name in parts}
    view.archive.run.cells.update({n: structs.replace(facts[n], axis=axis[n]) for n in parts})
    warm = {row["scene"]: row["ratio"] for row in frames.warm(view).table.rows if row["kernel"] == CA}
    expected = {"room": 0.5, "room-noise": 0.8, "tartan-p001": 0.25}
    assert warm == {name: pytest.approx(ratio, rel=0.01) for name, ratio in expected.items()}
    plot = frames.real(view)
    kinds = {row["cell"]: row["frames"] for row in plot.table.rows}
    assert kinds["room-warm"] == "ray-cast frames" and kinds["room-warm-noise"] == "ray-cast frames" + frames.WITH_NOISE
    assert (
        "On ray-cast frames allocate takes, times CUDA C++'s time, Triton's bounded probe 3.00 to 6.00" in plot.answer
    )
    assert (
        f"On ray-cast frames{frames.WITH_NOISE} allocate takes" in plot.answer and "probe 2.00 to 2.50" in plot.answer
    )
    render(plot)
    render(frames.warm(view))


def test_an_arm_that_lost_data_on_frames_has_no_row_there(tmp_path: Path) -> None:
    plot = frames.real(frames_view(tmp_path / "a", loss={(TA, "rgbd-cold"): LOST}))
    assert ("rgbd-cold", TA) not in {(row["cell"], row["kernel"]) for row in plot.table.rows}


def test_a_study_answers_its_own_question_first(tmp_path: Path) -> None:
    heads = [head for head, _ in sentences(frames_view(tmp_path / "a"))]
    assert heads[:2] == ["Real frames", "Warm table"] and "Triton, bounded probe" in heads


# ------------------------------------------------------------------------------------------------- small things


def test_a_probe_that_lost_nothing_has_no_figure_of_its_loss(tmp_path: Path) -> None:
    """One point at nothing is no figure; the sentence says it."""
    view = View(load(write_archive(tmp_path / "a", samples=sample_rows({(CA, "base"): 20.0, (TA, "base"): 200.0}))))
    with pytest.raises(Missing, match=r"lost nothing up to load 0\.035"):
        figures.loss(view)
    assert "lost nothing up to load 0.035" in dict(sentences(view))["Loss"]


def test_an_empty_place_of_an_arm_that_lost_data_is_explained(drawn: dict[str, Figure | Absent]) -> None:
    assert f"{TA} lost data on lf-hi and has no ratio there" in figure(drawn, "ratio-allocate").answer


def test_an_interval_stands_where_there_are_six_passes(tmp_path: Path) -> None:
    for passes, there in ((3, False), (6, True)):
        rows = sample_rows({(CA, "base"): 20.0, ("rust-oxide/allocate/plain", "base"): 24.0}, passes=passes)
        view = View(load(write_archive(tmp_path / str(passes), samples=rows)))
        [row] = by_cell(view).rows
        assert ("ci_low" in row) is there
        if there:
            assert row["low"] <= row["ci_low"] <= row["ratio"] <= row["ci_high"] <= row["high"]  # type: ignore[operator]
        assert f"{passes} passes a row" in by_cell(view).note


def test_cells_of_the_scaling_study_go_by_their_points(tmp_path: Path) -> None:
    times = {(CA, cell): 20.0 for cell in ("base", "pts-20m", "pts-2k", "pts-5120k")}
    points = {"pts-2k": 2048, "pts-5120k": 5_120_000, "pts-20m": 20_480_000}
    view = View(load(write_archive(tmp_path / "a", samples=sample_rows(times))))
    facts = view.archive.run.cells
    facts.update({name: structs.replace(facts[name], points=many, axis="scale") for name, many in points.items()})
    assert cells_of(view) == ["base", *points]


def test_what_breaks_something_is_drawn_half_filled_among_the_variants(tmp_path: Path) -> None:
    times = {(CA, "base"): 20.0, ("cuda/allocate/nowait", "base"): 15.0, ("cuda/allocate/cas128", "base"): 28.0}
    flags = [Note(what="cuda/allocate/cas128 is timed and never judged", why="the pool")]
    plots = [figures.variants(View(load(write_archive(tmp_path / n, samples=sample_rows(times), flags=f)))) for n, f in
             (("a", flags), ("b", []))]  # fmt: skip
    # A half-filled marker is two shapes where a full one is one.
    pieces = [render(plot)[0].count(b"<use ") for plot in plots]
    assert pieces[0] > pieces[1]


def test_throttled_readings_are_counted(drawn: dict[str, Figure | Absent]) -> None:
    [row] = figure(drawn, "machine").table.rows
    assert (row["sm_clock_mhz_low"], row["sm_clock_mhz_high"], row["throttled"]) == (1500, 1507, 1)


def test_svg_is_xml_without_script_and_pdf_is_pdf(drawn: dict[str, Figure | Absent]) -> None:
    for item in drawn.values():
        if isinstance(item, Figure):
            tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(item.svg).iter()}
            assert "script" not in tags and "path" in tags, item.name
            assert item.pdf.startswith(b"%PDF-") and b"/CreationDate" not in item.pdf
            assert len(item.svg) < 500_000, item.name


def test_a_file_has_a_white_ground_and_the_page_a_themed_one(drawn: dict[str, Figure | Absent]) -> None:
    for item in drawn.values():
        if isinstance(item, Figure):
            assert b"fill: #ffffff" in item.svg, f"{item.name}: black text on whatever a site's ground is"
            inline = themed(item.svg, item.name)
            assert inline.startswith("<svg ") and inline.endswith("</svg>") and "<!--" not in inline
            ElementTree.fromstring(inline.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1))
            assert not any(colour.lower() in inline.lower() for colour in VARIABLES), item.name
            names = re.findall(r'id="([^"]+)"', inline)
            assert all(name.startswith(f"{item.name}-") for name in names), "or two figures of a page share a name"
            assert {
                name for pair in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', inline) for name in pair if name
            } <= {*names}


AGAIN = """
import hashlib, json, locale, sys
from pathlib import Path
locale.setlocale(locale.LC_ALL, "")
from harness.archive.read import load
from harness.claims.registry import View
from harness.report.figures import draw_figures, files_of
files = files_of(draw_figures(View(load(Path(sys.argv[1])))))
print(json.dumps({name: hashlib.sha256(data).hexdigest() for name, data in files.items()}))
"""


def test_the_same_bytes_in_another_process_whatever_the_user_has_set(
    view: View, drawn: dict[str, Figure | Absent], tmp_path: Path
) -> None:
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nlines.linewidth: 9\naxes.prop_cycle: cycler('color', 'r')\n")
    environment = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "MATPLOTLIBRC": str(tmp_path / "matplotlibrc"),
        "PYTHONHASHSEED": "5", "TZ": "Asia/Kathmandu", "LC_ALL": "C",
    }  # fmt: skip
    words = [sys.executable, "-c", AGAIN, str(view.archive.root)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    here = files_of(list(drawn.values()))
    assert json.loads(done.stdout) == {name: hashlib.sha256(data).hexdigest() for name, data in here.items()}


def test_each_series_of_a_language_has_a_marker_of_its_own() -> None:
    """A grey print tells series apart by shape."""
    kernels = [CA, "rust-oxide/allocate/plain", "rust-nvptx/allocate/plain", TA, "triton/allocate/while"]
    assert len({figures.style(kernel)[1] for kernel in kernels}) == len(kernels)
    assert len({figures.style(kernel)[0] for kernel in kernels}) == len(kernels)


def test_no_regime_and_no_device_looks_like_a_kernel() -> None:
    """A colour and a marker are a kernel's; grey is nobody's."""
    greys = {INK, SOFT, "#6b6b6b", "#767676", "#777777"}
    kernels = {(colour, mark) for _, colour, mark in STYLES} | {FALLBACK}
    assert not {mark for mark, _ in REGIME.values()} & {mark for _, mark in kernels}
    assert {grey for _, grey in REGIME.values()} <= greys
    assert not {*DEVICE_SHAPES} & {mark for _, mark in kernels}
    assert not ({*DEVICE_COLOURS} - greys) & {colour for colour, _ in kernels}
    assert len({*DEVICE_SHAPES}) == len({*DEVICE_COLOURS}) == 8


def test_a_line_of_the_telemetry_bridges_no_pause_and_never_runs_back() -> None:
    times = [0.0, 0.05, 0.1, 12.1, 12.15, 12.2, 0.0, 0.05]  # twelve seconds without a reading, then another worker
    assert unbroken(times) == [[(0, 3), (3, 6)], [(6, 8)]]
    assert unbroken([0.0, 1.0, 2.0]) == [[(0, 3)]], "slow readings are no pause"
    assert unbroken([5.0]) == [[(0, 1)]]


def test_the_loss_names_its_units_and_the_papers(drawn: dict[str, Figure | Absent]) -> None:
    table = figure(drawn, "loss").table
    heads = {column.key: column.head for column in table.columns}
    assert "update samples" in heads["dropped_high"] and "points" in heads["paper_dropped"]
    assert "different units" in table.note and "not compared" in figure(drawn, "loss").answer


DEVIANT = "rust-oxide/update/plain (backend, unpinned toolchain)"


def test_a_deviation_is_one_footnote_where_people_read_and_in_each_row_of_data() -> None:
    rows = ({"kernel": DEVIANT, "us": 1.0}, {"kernel": "cuda/update/plain", "us": 2.0}, {"kernel": DEVIANT, "us": 3.0})
    table = Table("t", "T", (Column("kernel", "kernel", False), Column("us", "us")), rows, "A note.")
    assert as_csv(table).decode().count("unpinned toolchain") == 2
    for text in (as_markdown(table).decode().replace("\\", ""), as_latex(table).decode()):
        assert text.count("rust-oxide/update/plain*") == 2 and text.count("unpinned toolchain") == 1, text
        assert "A note. * backend, unpinned toolchain." in text


def test_only_a_kernels_deviation_is_a_footnote() -> None:
    texts = [
        "cuda/allocate/plain (1.25 times the floor's)",
        "takes 1.40 (Rust)",
        "cuda/a/b (unpinned toolchain)",
        DEVIANT,
    ]
    assert starred(texts) == (
        [*texts[:2], "cuda/a/b*", "rust-oxide/update/plain**"], "* unpinned toolchain; ** backend, unpinned toolchain"
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- difference map


def test_the_difference_map_is_the_images(view: View, drawn: dict[str, Figure | Absent]) -> None:
    found = difference_map(view)
    assert (found.a, found.b, found.size) == ("nvcc", "oxide", 128)
    assert list(zip(found.rows, found.columns, found.change, strict=True)) == [(3, 5, 7), (3, 6, -2), (100, 90, 300)]
    assert "3 of 16,384 pixels" in figure(drawn, "fma-map").answer
    assert "at most 300 iterations" in figure(drawn, "fma-map").answer


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


@pytest.mark.parametrize(
    "value",
    [
        {"a": "a", "b": "b", "size": 64, "pixels": "no base64!"},
        {"a": "a", "b": "b", "size": 64, "pixels": base64.b64encode(b"no zlib").decode()},
        {"a": "a", "b": "b", "size": 64, "pixels": packed(b"12345")},
        {"a": "a", "b": "b", "size": 64, "pixels": packed(np.array([64, 0, 1], "<u2").tobytes())},
        {"a": "a", "b": "b", "size": 10**9, "pixels": packed(b"")},
        {"a": "a", "b": "b", "size": 64, "pixels": packed(bytes(6 * MAX_PIXELS + 6))},
        {"a": "a", "b": "b", "pixels": ""},
    ],
    ids=["base64", "zlib", "length", "outside", "size", "bomb", "missing"],
)
def test_a_difference_map_of_another_form_is_refused(tmp_path: Path, value: dict[str, object]) -> None:
    found = View(load(write_archive(tmp_path / "a", cells=["base"], evidence={"fma.difference": value})))
    with pytest.raises(Missing):
        difference_map(found)


# ------------------------------------------------------------------------------------------------- sentences


def test_sentences_have_the_archives_numbers_and_the_papers(view: View) -> None:
    found = dict(sentences(view))
    assert set(found) >= {"Rust, cuda-oxide", "Triton, bounded probe", "Launch", "Loss"}
    assert (
        "the paper: 11.2 to 31.7" in found["Triton, bounded probe"] and "all slower" in found["Triton, bounded probe"]
    )
    assert TU in found["Triton, bounded probe"]
    assert "from load 0.283 on" in found["Loss"]


def test_a_sentence_turns_with_its_samples(tmp_path: Path) -> None:
    fast = {**TABLE1, **{(TA, cell): 0.5 * us for (kernel, cell), us in TABLE1.items() if kernel == CA}}
    found = dict(sentences(View(load(write_archive(tmp_path / "a", samples=sample_rows(fast))))))
    assert "Allocate takes 0.50 times CUDA C++'s time" in found["Triton, bounded probe"]
    assert "all faster" in found["Triton, bounded probe"]


def test_stock_rustc_stands_for_the_papers_rust_only_where_cuda_oxide_is_absent(tmp_path: Path) -> None:
    both = {**TABLE1, ("rust-nvptx/allocate/plain", "base"): 20.0}
    found = dict(sentences(View(load(write_archive(tmp_path / "a", samples=sample_rows(both))))))
    assert "the paper: " in found["Rust, cuda-oxide"] and "the paper: " not in found["Rust, stock rustc"]
    alone = {(k.replace("rust-oxide", "rust-nvptx"), cell): us for (k, cell), us in TABLE1.items()}
    found = dict(sentences(View(load(write_archive(tmp_path / "b", samples=sample_rows(alone))))))
    assert "Rust, cuda-oxide" not in found and "the paper" in found["Rust, stock rustc"]


def test_one_pass_decides_nothing(tmp_path: Path) -> None:
    root = write_archive(tmp_path / "a", samples=sample_rows(TABLE1, passes=1))
    found = dict(sentences(View(load(root))))
    assert "nothing is told apart from noise" in found["Triton, bounded probe"]
    assert DEVICE in load(root).device_names


def test_the_tally_counts_every_claim() -> None:
    assert tally(["reproduced", "refuted", "refuted"]) == "Of 3 claims 1 holds here, 2 do not hold."


def test_times_in_a_column_have_four_digits() -> None:
    assert [figures.four(us) for us in (17.6, 166.0, 1743.2, 8.0, 0.805)] == [
        "17.60",
        "166.0",
        "1,743",
        "8.000",
        "0.805",
    ]


def test_a_cell_in_which_an_arm_lost_data_once_has_no_ratio_anywhere(tmp_path: Path) -> None:
    """The rounds that happened to lose nothing are not the kernel's: as verdicts leave the cell out, so do pictures."""
    rows = sample_rows({(CA, "lf-lo"): 20.0, (TA, "lf-lo"): 100.0, (CU, "lf-lo"): 80.0, (TU, "lf-lo"): 80.0})
    once = next(row for row in rows if row["kernel"] == TA)
    whole = View(load(write_archive(tmp_path / "a", samples=rows)))
    once |= LOST | {"status": "lossy"}
    lossy = View(load(write_archive(tmp_path / "b", samples=rows)))
    for view, there in ((whole, True), (lossy, False)):
        drawn = {item.name: item for item in draw_figures(view)}
        ratio = drawn["ratio-allocate"]
        shown = isinstance(ratio, Figure) and any(row["kernel"] == TA for row in ratio.table.rows)
        share = figure(drawn, "allocate-share").table.rows
        assert (shown, any(row["arm"] == "bounded Triton" for row in share)) == (there, there)
        assert any(row["kernel"] == TA for row in by_cell(view).rows) is there
        assert dict(sentences(view))["Triton, bounded probe"].startswith("Allocate takes") is there
