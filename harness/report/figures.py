"""Figures of an archive: one figure, one question, one plain sentence computed from the same rows that it draws.

Each figure is one function under `@figure(...)` that returns what to draw with the numbers behind it, or raises
`Missing` with the reason; a figure without data is listed with that reason and not drawn. How they look
stands in drawing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.claims import figures as seeds
from harness.claims import statistics
from harness.claims.paper import (
    CUDA_ALLOCATE,
    CUDA_UPDATE,
    OXIDE,
    SCOPED,
    TRITON_ALLOCATE,
    TRITON_UPDATE,
    losses_of,
)
from harness.claims.registry import Compared, View
from harness.claims.statistics import CONCURRENT, FILLED, MIN_PASSES, SERIAL, Regime
from harness.measure.studies import STUDIES
from harness.report import attribution, contracted, contraction, frames, scaling
from harness.report.drawing import (
    BAND,
    DEVICE_COLOURS,
    DEVICE_SHAPES,
    INK,
    PAPER,
    REGIME,
    SOFT,
    UNJUDGED,
    Missing,
    Plot,
    count,
    ends,
    four,
    grid,
    legend,
    listed,
    n,
    num,
    panels,
    point,
    ratio_axis,
    render,
    rows_height,
    span_words,
    style,
    words,
)
from harness.report.tables import (
    BASES,
    COUNTERS,
    DROPPED,
    INTERVAL,
    LOSS_COLUMNS,
    STATIC,
    TRITON_WHILE,
    Column,
    Table,
    Value,
    as_csv,
    cells_of,
    counted,
    devices_of,
    interval_of,
    label,
    main_kernels,
    noted,
    passes_on,
    rust_kernel,
    starred,
    whole_ratio,
)

FLUSHED = Regime(l2="flushed")
REGIMES: tuple[tuple[str, Regime], ...] = (
    ("serial, fresh table", SERIAL),
    ("serial, filled table", FILLED),
    ("concurrent, fresh table", CONCURRENT),
    ("serial, fresh, L2 flushed", FLUSHED),
)


@dataclass(frozen=True)
class Figure:
    """A drawn figure. tables: names of the tables that belong beside it."""

    name: str
    title: str
    question: str
    answer: str
    table: Table
    svg: bytes
    pdf: bytes
    samples: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class Absent:
    """A figure that this archive cannot have, and why."""

    name: str
    title: str
    question: str
    why: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class _Entry:
    name: str
    title: str
    question: str
    tables: tuple[str, ...]
    make: Callable[[View], Plot]


_FIGURES: list[_Entry] = []


def figure(name: str, title: str, question: str, tables: Sequence[str] = ()) -> Callable[[Any], Any]:
    """Register a figure. `question` heads its section of the page; figures of one question stand together."""

    def wrap(make: Callable[[View], Plot]) -> Callable[[View], Plot]:
        _FIGURES.append(_Entry(name, title, question, tuple(tables), make))
        return make

    return wrap


def draw_figures(view: View) -> list[Figure | Absent]:
    """Every figure of the archive, in the page's order, those without data with their reason."""
    found: list[Figure | Absent] = []
    for entry in _FIGURES:
        try:
            plot = entry.make(view)
        except Missing as missing:
            found.append(Absent(entry.name, entry.title, entry.question, str(missing), entry.tables))
            continue
        svg, pdf = render(plot)
        caption = noted(plot.answer)
        found.append(
            Figure(entry.name, entry.title, entry.question, caption, plot.table, svg, pdf, plot.samples, entry.tables)
        )
    return found


def files_of(found: Sequence[Figure | Absent]) -> dict[str, bytes]:
    """Path below derived/ -> bytes: each figure as SVG and PDF with its numbers as CSV."""
    files: dict[str, bytes] = {}
    for item in found:
        if isinstance(item, Figure):
            files[f"figures/{item.name}.svg"] = item.svg
            files[f"figures/{item.name}.pdf"] = item.pdf
            files[f"figures/{item.name}.csv"] = as_csv(item.table)
    return files


# --------------------------------------------------------------------------------------------------- shared pieces


def timed_or_missing(view: View, *kernels: str) -> None:
    """Raises Missing unless all were timed."""
    if not view.archive.run.gpu and not len(view.archive.samples):
        raise Missing("made without a GPU: no kernel was timed")
    timed = set(view.table.kernels())
    for kernel in kernels:
        if kernel not in timed:
            raise Missing(f"{kernel} was not timed")


def few_passes(found: Sequence[Compared]) -> str:
    """What a reader must know of a run that is too short, or of cells with too few passes that count."""
    cells = {c.cell for c in found}
    short = [cell for cell in sorted(cells) if min(len(c.us.passes) for c in found if c.cell == cell) < MIN_PASSES]
    if not short:
        return ""
    if len(short) == len(cells):
        return " One pass only: nothing here is told apart from noise."
    return f" On {', '.join(short)} a kernel has one pass only, which is not told apart from noise."


def lossy_words(view: View, kernels: Sequence[str], drawn: dict[str, list[tuple[str, str, Compared]]]) -> str:
    """Which kernels have cells without a ratio because they lost data there, which the empty place alone would hide."""
    samples = view.archive.samples
    lossy = samples[samples["status"] == "lossy"]
    parts = []
    for kernel in kernels:
        there = {cell for found in drawn.values() for cell, name, _ in found if name == kernel}
        lost = set(lossy.loc[lossy["kernel"] == kernel, "cell"].astype(str))
        cells = [cell for cell in cells_of(view) if cell in lost - there]
        if cells:
            parts.append(f"{label(view, kernel)} lost data on {listed(cells)} and has no ratio there")
    return f" {'; '.join(parts)}." if parts else ""


def cell_rows(axes: Any, view: View, cells: Sequence[str]) -> None:
    """Cells down the left, grouped by the question they answer."""
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.set_yticks(range(len(cells)), [words(cell, 24) for cell in cells])
    axes.tick_params(axis="y", length=0)
    before = None
    for index, cell in enumerate(cells):
        axis = view.axis(cell)
        if before is not None and axis != before:
            axes.axhline(index - 0.5, color=BAND, linewidth=0.8, zorder=0)
        before = axis


# ------------------------------------------------------------------------------------------------- ratio by language


def _ratio_plot(view: View, stage: str) -> Plot:
    base = BASES[stage]
    timed_or_missing(view, base)
    kernels = main_kernels(view, stage)
    if not kernels:
        raise Missing(f"no {stage} kernel but CUDA C++'s was timed")
    rows: list[dict[str, Value]] = []
    drawn: dict[str, list[tuple[str, str, Compared]]] = {}
    papers: dict[tuple[str, str], float] = {}
    regime_of = dict(REGIMES)
    for title, regime in REGIMES:
        for cell in cells_of(view):
            for kernel in kernels:
                compared = whole_ratio(view, kernel, base, cell, regime)
                if compared is None:
                    continue
                drawn.setdefault(title, []).append((cell, kernel, compared))
                paper = None
                if stage == "allocate" and regime == SERIAL and kernel not in TRITON_WHILE.values():
                    paper = seeds.cell_ratio(cell, f"{kernel.split('/')[0].split('-')[0]}_over_cuda")
                if paper is not None:
                    papers[cell, kernel] = paper
                rows.append(
                    {
                        "axis": view.axis(cell), "cell": cell, "regime": title, "kernel": label(view, kernel),
                        "ratio": compared.us.median, "low": compared.us.low, "high": compared.us.high,
                        **interval_of(compared.us), "floor": compared.floor, "paper": paper,
                        "different": {-1: "faster", 0: "no", 1: "slower"}[compared.difference.side],
                    }
                )  # fmt: skip
    if not rows:
        raise Missing(f"no {stage} kernel shares a round with {base}")
    columns = (
        Column("axis", "axis", False), Column("cell", "cell", False), Column("regime", "regime", False),
        Column("kernel", "kernel", False), Column("ratio", "ratio"), Column("low", "lowest pass"),
        Column("high", "highest pass"), *INTERVAL, Column("floor", "A/A floor"),
        Column("different", "different", False), *((Column("paper", "paper"),) if stage == "allocate" else ()),
    )  # fmt: skip
    cells = [cell for cell in cells_of(view) if any(row["cell"] == cell for row in rows)]

    def draw(canvas: Any) -> None:
        axes = panels(canvas, len(drawn))
        for panel, (title, found) in zip(axes, drawn.items(), strict=True):
            panel.set_title(title, loc="left")
            seen = [
                1.0,
                *(papers.values() if regime_of[title] == SERIAL else ()),
                *(v for _, _, c in found for v in (c.us.low, c.us.high)),
            ]
            ratio_axis(panel, min(seen), max(seen))
            grid(panel)
            for index, cell in enumerate(cells):
                floors = [c.floor for where, _, c in found if where == cell and c.floor is not None]
                if floors:
                    panel.barh(
                        index, 2 * max(floors), left=1 - max(floors), height=0.8, color=BAND, zorder=0,
                        label="A/A floor",
                    )  # fmt: skip
            for cell, kernel, c in found:
                offset = (kernels.index(kernel) - (len(kernels) - 1) / 2) * 0.16
                row = cells.index(cell) + offset
                point(panel, kernel, (c.us.median, c.us.low, c.us.high), row, label(view, kernel))
                theirs = papers.get((cell, kernel)) if regime_of[title] == SERIAL else None
                if theirs is not None and not (kernel.startswith("rust-nvptx") and "rust-oxide" in kernels[0]):
                    point(
                        panel, kernel, [theirs], row,
                        f"the paper: {'Triton' if kernel.startswith('triton') else 'Rust'}", PAPER,
                    )  # fmt: skip
            cell_rows(panel, view, cells)
        canvas.supxlabel("ratio of times to CUDA C++, same cell and regime (1: level, right of it: slower)", fontsize=9)
        legend(canvas, axes)

    serial = drawn.get(REGIMES[0][0]) or next(iter(drawn.values()))
    parts = []
    for kernel in kernels:
        ratios = [c.us.median for _, name, c in serial if name == kernel]
        if ratios:
            parts.append(f"{label(view, kernel)} takes {span_words(ratios)} times CUDA C++'s time")
    first = next(iter(drawn)) if REGIMES[0][0] not in drawn else REGIMES[0][0]
    answer = f"In {stage} ({first}, {count(len({c for c, _, _ in serial}), 'cell')}) {'; '.join(parts)}."
    answer += few_passes([c for _, _, c in serial]) + lossy_words(view, kernels, drawn)
    note = "Median over passes of the median over rounds of the ratio within the round; range over passes."
    table = Table(f"ratio-{stage}", f"Ratio to CUDA C++ in {stage}", columns, tuple(rows), note)
    wide = max(7.5, 3.2 + 2.7 * len(drawn))
    return Plot(answer, table, draw, (min(wide, 12.5), rows_height(len(cells), 1.7)), f"stage = {stage}, status = ok")


LANGUAGES = "What does each language cost?"


@figure("ratio-allocate", "Allocate by cell and regime", LANGUAGES, ("table1", "table3"))
def ratio_allocate(view: View) -> Plot:
    return _ratio_plot(view, "allocate")


@figure("ratio-update", "Update by cell and regime", LANGUAGES)
def ratio_update(view: View) -> Plot:
    return _ratio_plot(view, "update")


# ------------------------------------------------------------------------------------------------- launch regime


@figure(
    "reference",
    "Rust's allocate by how both sides are launched",
    "Is Rust's gap in allocate the language, or how the two sides are launched?",
)
def reference(view: View) -> Plot:
    timed_or_missing(view, CUDA_ALLOCATE)
    rust = rust_kernel(view, "allocate")
    if rust is None:
        raise Missing("no Rust allocate kernel was timed")
    kinds = {
        "serial": "both on one stream",
        "concurrent": "both on one branch a volume",
        "reference": "reference (derived): Rust on one stream, CUDA on one branch a volume",
        "paper": "the paper: Rust",
    }
    rows: list[dict[str, Value]] = []
    for cell in cells_of(view):
        serial, branch = (view.compare(rust, CUDA_ALLOCATE, cell, regime) for regime in (SERIAL, CONCURRENT))
        if serial is None or serial.reference is None:
            continue
        row: dict[str, Value] = {"cell": cell, "paper": seeds.cell_ratio(cell, "rust_over_cuda")}
        for key, ratio in (
            ("serial", serial.us), ("concurrent", None if branch is None else branch.us),
            ("reference", serial.reference),
        ):  # fmt: skip
            if ratio is not None:
                row |= {key: ratio.median, f"{key}_low": ratio.low, f"{key}_high": ratio.high}
        rows.append(row)
    if not rows:
        raise Missing("CUDA's allocate was not timed in the concurrent regime, from which `reference` is derived")
    cells = [str(row["cell"]) for row in rows]

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        seen = [1.0, *(v for key in kinds for v in of(key))]
        ratio_axis(axes, min(seen), max(seen))
        grid(axes)
        for index, row in enumerate(rows):
            for place, (key, legend_) in enumerate(kinds.items()):
                value = row.get(key)
                if not isinstance(value, (int, float)):
                    continue
                y = index + (place - 1.5) * 0.17
                if key == "paper":
                    point(axes, rust, [value], y, legend_, PAPER)
                    continue
                mark, grey = REGIME[key]
                axes.plot([row[f"{key}_low"], row[f"{key}_high"]], [y, y], color=grey, linewidth=1.5)
                axes.plot([value], [y], marker=mark, color=grey, linestyle="none", label=legend_)
        cell_rows(axes, view, cells)
        [name], note = starred([f"ratio of times, {label(view, rust)} to {CUDA_ALLOCATE}"])
        axes.set_xlabel(f"{name}   ({note})" if note else name)
        legend(canvas, [axes], 2)

    def of(key: str) -> list[float]:
        return [float(value) for row in rows if isinstance(value := row.get(key), (int, float))]

    answer = (
        f"With both on one stream {label(view, rust)} takes {span_words(of('serial'))} times CUDA C++'s time; put CUDA "
        f"alone on one branch a volume, and the same two kernels read {span_words(of('reference'))}"
    )
    if of("paper"):
        answer += f", where the paper has {span_words(of('paper'))} on its cards"
    answer += ". The reference row is derived from two regimes and is not the paper's host loop."
    ends = (("", ""), ("_low", ", lowest pass"), ("_high", ", highest pass"))
    regimes = [Column(f"{k}{end}", f"{k}{text}") for k in REGIME for end, text in ends]
    columns = (Column("cell", "cell", False), *regimes, Column("paper", "paper"))
    note = "reference: the kernel's serial time over CUDA's concurrent time, same pass and round."
    table = Table("reference", f"{label(view, rust)} by launch regime", columns, tuple(rows), note)
    return Plot(answer, table, draw, (9, rows_height(len(rows), 1.6)), "stage = allocate, table = fresh, l2 = asreset")


# ------------------------------------------------------------------------------------------------------ total, share


@figure("allocate-share", "Allocate's share of integration", "What does it come to in total?", ("table2",))
def allocate_share(view: View) -> Plot:
    timed_or_missing(view, CUDA_ALLOCATE, CUDA_UPDATE)
    arms: list[tuple[str, str, str]] = [("CUDA C++", CUDA_ALLOCATE, CUDA_UPDATE)]
    for name, pick in (("Rust", rust_kernel), ("bounded Triton", None), ("unbounded Triton", None)):
        if pick is not None:
            allocate, update = pick(view, "allocate"), pick(view, "update")
        else:
            kernels = STATIC if name.startswith("bounded") else TRITON_WHILE
            allocate, update = kernels["allocate"], kernels["update"]
        timed = set(view.table.kernels())
        if allocate in timed and update in timed:
            arms.append((name, str(allocate), str(update)))
    rows: list[dict[str, Value]] = []
    for cell in cells_of(view):
        for name, allocate, update in arms:
            first, second = view.median_us(allocate, cell), view.median_us(update, cell)
            lossless = view.table.whole(allocate, cell) and view.table.whole(update, cell)
            if first is not None and second is not None and lossless:
                rows.append(
                    {
                        "cell": cell, "arm": name, "allocate_us": first, "update_us": second,
                        "total_us": first + second, "share": first / (first + second),
                    }
                )  # fmt: skip
    if not rows:
        raise Missing("no cell has both stages of one arm")
    cells = list(dict.fromkeys(str(row["cell"]) for row in rows))
    paper = float(seeds.paper("allocate_share"))

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        axes.axvline(100 * paper, color=INK, linestyle=(0, (4, 3)), linewidth=0.9, label="paper: about a tenth")
        for row in rows:
            place = next(i for i, arm in enumerate(arms) if arm[0] == row["arm"])
            y = cells.index(str(row["cell"])) + (place - (len(arms) - 1) / 2) * 0.16
            share = 100 * num(row["share"])
            point(axes, arms[place][1], [share], y, arms[place][0])
        cell_rows(axes, view, cells)
        axes.set_xlim(0, 100)
        axes.grid(axis="x", color=BAND, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_xlabel("allocate's time, percent of allocate's and update's")
        legend(canvas, [axes], 5)

    parts = []
    for name, *_ in arms:
        shares = [100 * num(row["share"]) for row in rows if row["arm"] == name]
        if not shares:
            continue
        low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
        parts.append(f"{low} to {high} percent of {name}'s" if low != high else f"{low} percent of {name}'s")
    answer = f"Allocate is {', '.join(parts)} integration time; the paper says about a tenth."
    columns = (
        Column("cell", "cell", False), Column("arm", "arm", False), Column("allocate_us", "allocate, us"),
        Column("update_us", "update, us"), Column("total_us", "total, us"), Column("share", "allocate's share"),
    )  # fmt: skip
    table = Table(
        "allocate-share", "Allocate's share", columns, tuple(rows), "Medians over passes, serial, fresh table."
    )
    return Plot(answer, table, draw, (9, rows_height(len(cells), 1.4)), "launch = serial, table = fresh, l2 = asreset")


# ------------------------------------------------------------------------------------------------------ frames

for _name, (_title, _make) in frames.FIGURES.items():
    figure(_name, _title, frames.QUESTION, ("frames",))(_make)


# ------------------------------------------------------------------------------------------------------ floors

FLOORS = {"allocate": "cuda/floor/geometry", "update": "cuda/floor/atomics"}
NULL = "cuda/floor/null"
FLOOR_WORDS = {"allocate": "the geometry alone", "update": "the same atomics, bare"}


@figure("floor", "Distance to the floor", "How far is each kernel from what the work itself costs?")
def floor(view: View) -> Plot:
    timed_or_missing(view)
    rows: list[dict[str, Value]] = []
    for stage, bottom in FLOORS.items():
        for cell in cells_of(view):
            for kernel in [BASES[stage], *main_kernels(view, stage)]:
                ratio = statistics.ratio(view.table, kernel, bottom, cell)
                if ratio is not None and view.table.whole(kernel, cell):
                    rows.append(
                        {
                            "stage": stage, "cell": cell, "kernel": label(view, kernel),
                            "us": view.median_us(kernel, cell), "floor_us": view.median_us(bottom, cell),
                            "null_us": view.median_us(NULL, cell), "ratio": ratio.median, "low": ratio.low,
                            "high": ratio.high,
                        }
                    )  # fmt: skip
    if not rows:
        raise Missing("no floor kernel was timed")
    stages = [stage for stage in FLOORS if any(row["stage"] == stage for row in rows)]
    cells = [cell for cell in cells_of(view) if any(row["cell"] == cell for row in rows)]
    names = list(dict.fromkeys(str(row["kernel"]) for row in rows))

    def draw(canvas: Any) -> None:
        axes = panels(canvas, len(stages))
        for panel, stage in zip(axes, stages, strict=True):
            panel.set_title(f"{stage} over {FLOOR_WORDS[stage]}", loc="left")
            seen = [1.0, *(num(r[k]) for r in rows if r["stage"] == stage for k in ("low", "high"))]
            ratio_axis(panel, min(seen), max(seen))
            grid(panel)
            for row in rows:
                if row["stage"] == stage:
                    here = [name for name in names if f"/{stage}/" in name]
                    y = cells.index(str(row["cell"])) + (here.index(str(row["kernel"])) - (len(here) - 1) / 2) * 0.15
                    values = [num(row[key]) for key in ("ratio", "low", "high")]
                    shown = str(row["kernel"]).replace(f"/{stage}/", " ")
                    point(panel, str(row["kernel"]), values, y, shown)
            cell_rows(panel, view, cells)
        canvas.supxlabel("ratio of times to the floor (1: the floor)", fontsize=9)
        legend(canvas, axes, 5)

    parts = []
    for stage in stages:
        ratios = [num(r["ratio"]) for r in rows if r["stage"] == stage and r["kernel"] == BASES[stage]]
        if ratios:
            parts.append(f"CUDA C++'s {stage} takes {span_words(ratios)} times the time of {FLOOR_WORDS[stage]}")
    empty = [float(r["null_us"]) for r in rows if r["null_us"] is not None]
    answer = "; ".join(parts) + "."
    if empty:
        answer += f" A kernel that does nothing takes {span_words(empty)} us."
    if any(r["stage"] == "update" and num(r["ratio"]) < 1 for r in rows):
        answer += " Left of 1 the bare atomics are slower than the update that they are taken from: no bound there."
    columns = (
        Column("stage", "stage", False), Column("cell", "cell", False), Column("kernel", "kernel", False),
        Column("us", "us"), Column("floor_us", "floor, us"), Column("null_us", "empty kernel, us"),
        Column("ratio", "over the floor"), Column("low", "lowest pass"), Column("high", "highest pass"),
    )  # fmt: skip
    note = "allocate against cuda/floor/geometry (the walk without the table), update against cuda/floor/atomics."
    table = Table("floor", "Distance to the floor", columns, tuple(rows), note)
    size = (4 + 3.6 * len(stages), rows_height(len(cells), 1.7))
    return Plot(answer, table, draw, size, "stage = floor, allocate, update; launch = serial, table = fresh")


# ------------------------------------------------------------------------------------------------------ variants


MANY = 30
"""Rows of a figure from which its axis stands above them too."""


@figure("variants", "Every kernel at one cell", "What does each variant of a kernel cost?")
def variants(view: View) -> Plot:
    timed_or_missing(view)
    cells = [cell for cell in cells_of(view) if len(view.table.kernels("allocate", cell)) > 1]
    cell = "base" if "base" in cells else cells[0] if cells else None
    if cell is None:
        raise Missing("no cell has more than one kernel")
    rows: list[dict[str, Value]] = []
    for stage, base in BASES.items():
        for kernel in view.table.kernels(stage, cell):
            compared = view.compare(kernel, base, cell)
            if compared is not None and kernel != base and not kernel.endswith("@twin"):
                rows.append(
                    {
                        "stage": stage, "kernel": label(view, kernel), "us": view.median_us(kernel, cell),
                        "ratio": compared.us.median, "low": compared.us.low, "high": compared.us.high,
                        "floor": compared.floor,
                        "different": {-1: "faster", 0: "no", 1: "slower"}[compared.difference.side],
                    }
                )  # fmt: skip
    if not rows:
        raise Missing(f"no variant shares a round with plain CUDA C++ on {cell}")
    rows.sort(key=lambda row: (str(row["stage"]), num(row["ratio"]), str(row["kernel"])))
    breaks = attribution.broken(view)

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        axes.tick_params(axis="x", top=len(rows) > MANY, labeltop=len(rows) > MANY)
        seen = [1.0, *(num(row[key]) for row in rows for key in ("low", "high"))]
        ratio_axis(axes, min(seen), max(seen))
        grid(axes)
        for index, row in enumerate(rows):
            if row["floor"] is not None:
                half = float(row["floor"])
                axes.barh(index, 2 * half, left=1 - half, height=0.8, color=BAND, zorder=0, label="A/A floor")
            values = [num(row[key]) for key in ("ratio", "low", "high")]
            if str(row["kernel"]).split(" ")[0] in breaks:
                point(axes, str(row["kernel"]), values, index, "breaks something, not judged", UNJUDGED)
            else:
                point(axes, str(row["kernel"]), values, index, "")
            axes.annotate(
                f"{n(values[0])}x", (1.0, index), xycoords=("axes fraction", "data"), xytext=(44, 0),
                textcoords="offset points", va="center", ha="right", fontsize=8,
            )  # fmt: skip
            axes.annotate(
                f"{four(num(row['us']))} us", (1.0, index), xycoords=("axes fraction", "data"), xytext=(100, 0),
                textcoords="offset points", va="center", ha="right", fontsize=8,
            )  # fmt: skip
            if index and row["stage"] != rows[index - 1]["stage"]:
                axes.axhline(index - 0.5, color=SOFT, linewidth=0.8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        names, note = starred([str(row["kernel"]) for row in rows])
        axes.set_yticks(range(len(rows)), [words(name, 48) for name in names])
        axes.tick_params(axis="y", length=0)
        what = f"ratio of times to plain CUDA C++ of the same stage, {words(cell, 24)}, serial, fresh table"
        axes.set_xlabel(f"{what}\n{note}" if note else what)
        legend(canvas, [axes])

    parts = []
    for stage in BASES:
        here = [row for row in rows if row["stage"] == stage]
        if here:
            first, last = here[0], here[-1]
            parts.append(
                f"in {stage} from {n(num(first['ratio']))} times plain CUDA C++'s time "
                f"({first['kernel']}) to {n(num(last['ratio']))} times ({last['kernel']})"
            )
    answer = f"On {words(cell, 24)} the kernels go {'; '.join(parts)}."
    columns = (
        Column("stage", "stage", False), Column("kernel", "kernel", False), Column("us", "us"),
        Column("ratio", "ratio to CUDA C++"), Column("low", "lowest pass"), Column("high", "highest pass"),
        Column("floor", "A/A floor"), Column("different", "different", False),
    )  # fmt: skip
    table = Table("variants", f"Every kernel on {words(cell, 24)}", columns, tuple(rows), "Serial, fresh table.")
    return Plot(answer, table, draw, (9.5, rows_height(len(rows), 1.1)), f"cell = {words(cell, 24)}, launch = serial")


# ------------------------------------------------------------------------------------------------------ studies


def _study_figures() -> None:
    """One figure a question of a study: what harness/measure/studies.py asks heads its section."""
    made = {**attribution.FIGURES, **scaling.FIGURES, **contracted.FIGURES}
    known = {entry.name for entry in _FIGURES}
    for question in (question for study in STUDIES.values() for question in study.questions):
        if question.figure not in known:
            title, make = made.get(question.figure) or attribution.of_question(question)
            figure(question.figure, title, question.asks)(make)


_study_figures()


# ------------------------------------------------------------------------------------------------------ loss


def since(load: float, all_above: bool) -> str:
    """`from load 0.283 on`, where every higher load loses too."""
    return f"from load {load:.3f} on" if all_above else f"first at load {load:.3f}, not at every higher one"


@figure("loss", "Loss by load factor", "What does the bounded probe lose?", ("loss",))
def loss(view: View) -> Plot:
    timed_or_missing(view)
    paper = {row["cell"]: row for row in seeds.rows("loss_triton_static8")}
    rows: list[dict[str, Value]] = []
    found = losses_of(view)
    every = view.archive.samples
    unbounded = every[every["kernel"].isin(tuple(TRITON_WHILE.values())) & every["status"].isin(("ok", "lossy"))]
    for cell, ((least, most), (few, many)) in found.items():
        facts = view.archive.run.cells[cell]
        here = unbounded[unbounded["cell"] == cell]
        lost = here["lost_blocks"].dropna()
        theirs = paper.get(cell)
        rows.append(
            {
                "cell": cell, "load": facts.load_factor, "blocks": facts.blocks, "lost_low": int(least),
                "lost_high": int(most), "dropped_low": None if few != few else int(few),
                "dropped_high": None if many != many else int(many),
                "unbounded_lost": int(lost.max()) if len(lost) else None,
                "paper_lost": None if theirs is None else int(theirs["blocks_lost"]),
                "paper_dropped": None if theirs is None else int(theirs["points_dropped"]),
            }
        )  # fmt: skip
    if not rows:
        raise Missing(f"{TRITON_ALLOCATE} was not timed, or its loss not counted")
    top = max(num(row["load"]) for row in rows)
    if not any(num(row["lost_high"]) > 0 or num(row["dropped_high"]) > 0 for row in rows):
        raise Missing(f"the bounded probe lost nothing up to load {top:.3f}, the highest that it was timed at here")
    rows.sort(key=lambda row: (num(row["load"]), str(row["cell"])))
    panels_of = (("lost", "blocks lost"), ("dropped", "update samples dropped (the paper: points)"))

    def draw(canvas: Any) -> None:
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

        def top_of(key: str) -> float:
            counted = [num(v) for row in rows for k in (f"{key}_high", f"paper_{key}") if (v := row[k]) is not None]
            return 2 * max([5.0, *counted])

        axes = list(canvas.subplots(1, 2))
        colour, mark = style(TRITON_ALLOCATE)
        for panel, (key, title) in zip(axes, panels_of, strict=True):
            panel.set_title(f"{title}, a launch", loc="left")
            points = [row for row in rows if row[f"{key}_high"] is not None]
            loads = [num(row["load"]) for row in points]
            for load, row in zip(loads, points, strict=True):
                panel.plot([load, load], [row[f"{key}_low"], row[f"{key}_high"]], color=colour, linewidth=2)
            panel.plot(
                loads, [row[f"{key}_high"] for row in points], marker=mark, color=colour, linestyle="none",
                label="bounded probe (static8), most", clip_on=False,
            )  # fmt: skip
            theirs = [row for row in rows if row[f"paper_{key}"] is not None]
            if theirs:
                panel.plot(
                    [num(row["load"]) for row in theirs], [row[f"paper_{key}"] for row in theirs], marker=mark,
                    fillstyle=PAPER, color=colour, linestyle="none", markersize=10, label="the paper", clip_on=False,
                )  # fmt: skip
            if key == "lost":
                whole = [row for row in rows if row["unbounded_lost"] is not None]
                if whole:
                    other, shape = style(TRITON_WHILE["allocate"])
                    panel.plot(
                        [num(row["load"]) for row in whole], [row["unbounded_lost"] for row in whole],
                        marker=shape, color=other, linestyle="none", markersize=4, label="unbounded probe (while)",
                        clip_on=False,
                    )  # fmt: skip
            panel.set_yscale("symlog", linthresh=1)
            panel.set_ylim(0, top_of(key))
            panel.yaxis.set_major_locator(FixedLocator([0, *(10.0**power for power in range(10))]))
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            panel.yaxis.set_minor_locator(NullLocator())
            panel.set_xlim(0, max(1.0, max(loads, default=1.0)))
            panel.set_xlabel("load factor of the table (blocks a slot)")
            panel.grid(color=BAND, linewidth=0.5)
            panel.set_axisbelow(True)
        legend(canvas, axes, 4)

    losing = [row for row in rows if num(row["lost_high"]) > 0 or num(row["dropped_high"]) > 0]
    worst = max(losing, key=lambda row: num(row["lost_high"]))
    first = num(losing[0]["load"])
    start = since(first, all(row in losing for row in rows if num(row["load"]) >= first))
    answer = (
        f"The bounded probe loses {start}, "
        f"at most {worst['lost_high']:,} of {worst['blocks']:,} blocks (load {num(worst['load']):.3f})"
    )
    always = [num(row["load"]) for row in rows if num(row["lost_low"]) > 0 or num(row["dropped_low"]) > 0]
    if always and min(always) > first:
        answer += f", below load {min(always):.3f} in some launches only"
    whole = [int(row["unbounded_lost"]) for row in rows if row["unbounded_lost"] is not None]
    if whole:
        answer += (
            "; the unbounded one lost nothing anywhere."
            if not max(whole)
            else f"; the unbounded one lost {max(whole)}."
        )
    else:
        answer += "."
    if any(row["paper_dropped"] is not None for row in rows):
        answer += " Update drops samples here and points in the paper, so that the right panel's two are not compared."
    columns = (
        Column("cell", "cell", False), Column("load", "load"), Column("blocks", "blocks"), *LOSS_COLUMNS,
        Column("unbounded_lost", "unbounded probe: blocks lost"), Column("paper_lost", "paper: blocks lost"),
        Column("paper_dropped", "paper: points dropped"),
    )  # fmt: skip
    note = f"Least and most over all launches. {DROPPED}"
    table = Table("loss-by-load", "Loss by load factor", columns, tuple(rows), note)
    samples = f"kernel = {TRITON_ALLOCATE} or {TRITON_UPDATE}: lost_blocks, dropped_points"
    return Plot(answer, table, draw, (9.5, 3.8), samples)


# ------------------------------------------------------------------------------------------------------ counters


@figure("counters", "Counters of one allocate launch", "What do the counters and the machine code say?", ("table4",))
def counters(view: View) -> Plot:
    candidates = [OXIDE, SCOPED, "rust-nvptx/allocate/plain", TRITON_WHILE["allocate"], TRITON_ALLOCATE]

    def opcodes(manifest: dict[str, Any], key: str) -> float | None:
        value = (manifest.get("sass") or {}).get("instructions") if key == "instructions" else manifest.get(key)
        return float(value) if isinstance(value, (int, float)) else None

    def of(kernel: str) -> dict[str, float | None]:
        manifest = view.manifest(kernel) or {}
        static = {
            "static SASS instructions": opcodes(manifest, "instructions"),
            "registers per thread": opcodes(manifest, "registers"),
        }
        return static | {what: counted(view, kernel, metric, scale) for what, metric, _, scale in COUNTERS}

    units = {what: unit for what, _, unit, _ in COUNTERS}
    first_of = {metric: value for metric, value in of(CUDA_ALLOCATE).items() if value}
    paper_columns = {OXIDE: "rust_plain_first_read", SCOPED: "rust_scoped_load"}
    rows: list[dict[str, Value]] = []
    for kernel in candidates:
        for metric, value in of(kernel).items():
            if value is None or metric not in first_of:
                continue
            theirs = None
            if kernel in paper_columns:
                ours, first = seeds.counter(metric, paper_columns[kernel]), seeds.counter(metric, "cuda")
                theirs = ours / first if ours is not None and first else None
            rows.append(
                {
                    "metric": metric, "unit": units.get(metric, ""), "kernel": label(view, kernel), "value": value,
                    "cuda": first_of[metric], "ratio": value / first_of[metric], "paper": theirs,
                }
            )  # fmt: skip
    if not rows:
        raise Missing("neither counters nor machine code of a second allocate kernel are in this archive")
    metrics = [metric for metric in first_of if any(row["metric"] == metric for row in rows)]
    kernels = list(dict.fromkeys(str(row["kernel"]) for row in rows))

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        seen = [1.0, *(num(row[key]) for row in rows for key in ("ratio", "paper") if row[key] is not None)]
        ratio_axis(axes, min(seen), max(seen))
        grid(axes)
        for row in rows:
            kernel = str(row["kernel"])
            y = metrics.index(str(row["metric"])) + (kernels.index(kernel) - (len(kernels) - 1) / 2) * 0.15
            point(axes, kernel, [num(row["ratio"])], y, kernel)
            if row["paper"] is not None:
                variant = "scoped load" if kernel.startswith(SCOPED) else "plain first read"
                point(axes, kernel, [float(row["paper"])], y, f"the paper: Rust, {variant}", PAPER)
        axes.set_ylim(len(metrics) - 0.5, -0.5)
        axes.set_yticks(range(len(metrics)), metrics)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("ratio to CUDA C++'s value (1: the same)")
        legend(canvas, [axes], 3)

    measured = any(view.counter(CUDA_ALLOCATE, metric) is not None for _, metric, *_ in COUNTERS)
    first = str(rows[0]["kernel"])
    parts = [
        f"{row['metric']} {n(num(row['ratio']))} times" for row in rows if row["kernel"] == first
    ]  # fmt: skip
    answer = f"Against CUDA C++, {first} has {', '.join(parts)}."
    if not measured:
        answer += " No hardware counters are in this archive; what is shown is read from the machine code."
    columns = (
        Column("metric", "metric", False), Column("unit", "unit (else a count)", False),
        Column("kernel", "kernel", False), Column("value", "value"), Column("cuda", "CUDA"),
        Column("ratio", "over CUDA"), Column("paper", "paper, over CUDA"),
    )  # fmt: skip
    table = Table("counters", "Counters over CUDA C++'s, allocate on base", columns, tuple(rows))
    return Plot(answer, table, draw, (9, rows_height(len(metrics), 1.8) + 0.5))


# ------------------------------------------------------------------------------------------------------ devices


@figure("devices", "The same ratios on each device", "Do the devices agree?", ("by_device",))
def devices(view: View) -> Plot:
    timed_or_missing(view, CUDA_ALLOCATE)
    names = devices_of(view)
    uuids = list(names)
    if len(uuids) < 2:
        raise Missing("one device only")
    rows: list[dict[str, Value]] = []
    for stage, base in BASES.items():
        for kernel in main_kernels(view, stage):
            for cell in cells_of(view):
                compared = whole_ratio(view, kernel, base, cell)
                if compared is None or len(set(compared.us.devices)) < 2:
                    continue
                row: dict[str, Value] = {"stage": stage, "kernel": label(view, kernel), "cell": cell}
                there = {i: here for i, uuid in enumerate(uuids) if (here := passes_on(compared.us, uuid))}
                for index, here in there.items():
                    row |= {
                        f"device{index}": statistics.median(here), f"low{index}": min(here), f"high{index}": max(here)
                    }  # fmt: skip
                middles = [statistics.median(here) for here in there.values()]
                row |= {"apart": max(middles) / min(middles) - 1, "floor": compared.floor}
                # Apart is what no pass of either device bridges, and more than the same kernel is from itself.
                bridged = max(map(min, there.values())) <= min(map(max, there.values()))
                few = min(map(len, there.values())) < MIN_PASSES
                known = compared.floor is not None and not few
                level = bridged or num(row["apart"]) <= num(compared.floor)
                row["different"] = None if not known else "no" if level else "yes"
                rows.append(row)
    if not rows:
        raise Missing("no ratio was measured on two devices")
    rows.sort(key=lambda row: (str(row["stage"]), str(row["kernel"])))
    stages = [stage for stage in BASES if any(row["stage"] == stage for row in rows)]
    groups = {
        stage: list(dict.fromkeys(str(row["kernel"]) for row in rows if row["stage"] == stage)) for stage in stages
    }
    widest = max(map(len, groups.values()))
    cells = [cell for cell in cells_of(view) if any(row["cell"] == cell for row in rows)]
    apart = 0.5 / len(uuids)

    def draw(canvas: Any) -> None:
        grid_of = canvas.subplots(len(stages), widest, sharey=True, squeeze=False)
        for line, stage in zip(grid_of, stages, strict=True):
            for panel, group in zip(line, groups[stage], strict=False):
                [title], _ = starred([group])
                panel.set_title(words(title.replace("/plain", ""), 30), loc="left")
                here = [row for row in rows if row["kernel"] == group]
                for row in here:
                    place = cells.index(str(row["cell"]))
                    if row["floor"] is not None:
                        half = num(row["floor"])
                        panel.barh(place, 2 * half, left=1 - half, height=0.8, color=BAND, zorder=0, label="A/A floor")
                    for index, uuid in enumerate(uuids):
                        if row.get(f"device{index}") is None:
                            continue
                        y = place + (index - (len(uuids) - 1) / 2) * apart
                        colour = DEVICE_COLOURS[index % len(DEVICE_COLOURS)]
                        panel.plot([num(row[f"low{index}"]), num(row[f"high{index}"])], [y, y], color=colour)
                        panel.plot(
                            [num(row[f"device{index}"])], [y], color=colour, markersize=4.5, linestyle="none",
                            marker=DEVICE_SHAPES[index % len(DEVICE_SHAPES)],
                            label=words(f"device {index}: {names[uuid]}, {uuid[:12]}", 60),
                        )  # fmt: skip
                ends_ = [num(row[f"{end}{i}"]) for row in here for end in ("low", "high") for i in range(len(uuids))
                         if row.get(f"{end}{i}") is not None]  # fmt: skip
                ratio_axis(panel, min(1.0, *ends_), max(1.0, *ends_))
                grid(panel)
                cell_rows(panel, view, cells)
            for panel in line[len(groups[stage]) :]:
                panel.set_axis_off()
        canvas.supxlabel("ratio of times to CUDA C++ on the same device (1: level)", fontsize=9)
        legend(canvas, [panel for line in grid_of for panel in line], 3)

    worst = max(rows, key=lambda row: num(row["apart"]))
    told = [row for row in rows if row["different"] == "yes"]
    middle = statistics.median([num(row["apart"]) for row in rows])
    answer = (
        f"Of {count(len(rows), 'ratio')} the devices' are {100 * middle:.1f} percent apart in the median and at most "
        f"{100 * num(worst['apart']):.1f} percent ({worst['kernel']} on {worst['cell']}). "
    )
    if any(row["different"] is not None for row in rows):
        answer += (
            f"In {count(len(told), 'ratio')} no pass of one device reads as one of the other and the medians are "
            "further apart than the A/A floor."
        )
    else:
        answer += "Without two passes a device and an A/A floor none is told from noise."
    columns = (
        Column("stage", "stage", False), Column("kernel", "kernel", False), Column("cell", "cell", False),
        *(
            Column(f"{key}{i}", f"device {i}{text}")
            for i in range(len(uuids))
            for key, text in (("device", ""), ("low", ", lowest pass"), ("high", ", highest pass"))
        ),
        Column("apart", "apart"), Column("floor", "A/A floor"), Column("different", "different", False),
    )  # fmt: skip
    note = "; ".join(f"device {i}: {uuid}" for i, uuid in enumerate(uuids))
    table = Table("devices", "Ratios by device", columns, tuple(rows), f"Serial, fresh table. {note}.")
    size = (min(3.2 + 2.3 * widest, 12.5), 1.3 + len(stages) * (0.75 + 0.22 * max(len(cells), 4)))
    return Plot(answer, table, draw, size, "launch = serial, table = fresh, l2 = asreset")


# ------------------------------------------------------------------------------------------------------ contraction

for _name, (_title, _question, _make) in contraction.FIGURES.items():
    figure(_name, _title, _question)(_make)


# ------------------------------------------------------------------------------------------------------ the machine

MAX_POINTS = 400


@figure("machine", "The devices while they ran", "Did the machine hold still?")
def machine(view: View) -> Plot:
    log = view.archive.telemetry
    quantities = (("sm_clock_mhz", "SM clock, MHz"), ("temperature_c", "temperature, C"), ("power_w", "board power, W"))
    there = [(key, text) for key, text in quantities if len(log) and log[key].notna().any()]
    if not there:
        raise Missing("no telemetry: NVML gave none, or nothing ran on a GPU")
    groups = [
        (int(number), str(uuid), rows) for (number, uuid), rows in log.groupby(["pass", "device_uuid"], sort=True)
    ]
    uuids = list(dict.fromkeys(uuid for _, uuid, _ in groups))
    rows: list[dict[str, Value]] = []
    for number, uuid, group in groups:
        row: dict[str, Value] = {"pass": number, "device": uuids.index(uuid), "readings": len(group)}
        for key, _ in there:
            values = group[key].dropna().tolist()
            if values:
                row |= {f"{key}_low": float(min(values)), f"{key}_high": float(max(values))}
        row["throttled"] = int((group["throttle"].fillna(0) > 0).sum())
        rows.append(row)

    numbers = list(dict.fromkeys(number for number, _, _ in groups))

    def draw(canvas: Any) -> None:
        axes = canvas.subplots(len(there), len(numbers), sharex=True, sharey="row", squeeze=False)
        for number, uuid, group in groups:
            index = uuids.index(uuid)
            for worker, lines in enumerate(unbroken(group["t_s"].tolist())):
                for first, last in lines:
                    for row, (key, _) in enumerate(there):
                        part = group.iloc[first:last][["t_s", key]].dropna()
                        part = part.iloc[:: max(1, len(part) // MAX_POINTS)]
                        later = ", a later worker by its own clock" if worker else ""
                        axes[row][numbers.index(number)].plot(
                            part["t_s"].tolist(), part[key].tolist(), linewidth=1.1,
                            color=DEVICE_COLOURS[index % len(DEVICE_COLOURS)], linestyle=":" if worker else "-",
                            label=f"device {index}{later}",
                        )  # fmt: skip
        for row, (_, text) in enumerate(there):
            axes[row][0].set_ylabel(text, fontsize=8)
        for column, number in enumerate(numbers):
            axes[0][column].set_title(f"pass {number}", loc="left")
            for panel in axes[:, column]:
                panel.grid(color=BAND, linewidth=0.5)
                panel.set_axisbelow(True)
        canvas.supxlabel("seconds since the pass's worker began; no line where nothing was read", fontsize=9)
        legend(canvas, list(axes[0]), 4)

    parts = []
    for key, text in there:
        name, _, unit = text.partition(", ")
        low = min(num(row[f"{key}_low"]) for row in rows if f"{key}_low" in row)
        high = max(num(row[f"{key}_high"]) for row in rows if f"{key}_high" in row)
        parts.append(f"{name} {ends([low, high], '.0f')} {unit}")
    samples = view.archive.samples
    throttled = int((samples["throttle"].fillna(0) > 0).sum())
    answer = f"{'; '.join(parts)}; {throttled:,} of {len(samples):,} samples were throttled (kept, and flagged)."
    answer = answer[0].upper() + answer[1:]
    columns = (
        Column("pass", "pass"), Column("device", "device"), Column("readings", "readings"),
        *(Column(f"{k}_{end}", f"{t}, {end}est") for k, t in there for end in ("low", "high")),
        Column("throttled", "readings throttled"),
    )  # fmt: skip
    note = "; ".join(f"device {i}: {uuid}" for i, uuid in enumerate(uuids))
    table = Table("machine", "The devices while they ran", columns, tuple(rows), note)
    return Plot(answer, table, draw, (min(3 + 2.6 * len(numbers), 12.5), 1.0 + 1.4 * len(there)))


def unbroken(times: Sequence[float]) -> list[list[tuple[int, int]]]:
    """Where a line may be drawn through readings: for each worker, the (first, behind the last) of its parts.

    A clock that goes back is another worker's, whose pass has the same number (the controls run after the last pass); a
    pause of more than a second and of twenty readings is none that a line may bridge.
    """
    steps = np.diff(np.asarray(times, float))
    forward = steps[steps >= 0]
    pause = max(1.0, 20 * float(np.median(forward))) if len(forward) else np.inf
    workers: list[list[tuple[int, int]]] = [[]]
    first = 0
    for place, step in enumerate(steps.tolist(), 1):
        if step < 0 or step > pause:
            workers[-1].append((first, place))
            first = place
            if step < 0:
                workers.append([])
    workers[-1].append((first, len(times)))
    return workers
