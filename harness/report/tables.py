"""The paper's tables from an archive, the paper's value beside ours; CSV, Markdown and LaTeX (booktabs).

Each table is one function in `TABLES`; its renderings are made from one list of rows. Nothing here depends on a locale,
a clock, or the order of a dictionary: the same archive gives the same bytes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.archive.schema import STATUSES, number
from harness.claims import figures, statistics
from harness.claims.paper import (
    CUDA_ALLOCATE,
    CUDA_UPDATE,
    DURATION,
    GLOBAL_MEMORY,
    HIT,
    OXIDE,
    PAPER_AXES,
    SCOPED,
    SCOREBOARD,
    SECTORS,
    TABLE2,
    TRITON_ALLOCATE,
    TRITON_UPDATE,
    losses_of,
    total_ratio,
)
from harness.claims.registry import RUST, Compared, View, span

FRAME_AXES = ("real", "trajectory")

Value = str | float | int | None


@dataclass(frozen=True)
class Column:
    """One column: key in the rows, head, and whether it holds numbers (set to the right)."""

    key: str
    head: str
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """A table as data.

    Attributes:
        name: file stem. title, note: for Markdown and LaTeX. rows: values by column key; None is not available.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Value], ...]
    note: str = ""

    def texts(self) -> list[list[str]]:
        return [[text(row.get(column.key)) for column in self.columns] for row in self.rows]


def text(value: Value) -> str:
    """One value as tables spell it: six significant digits, whole numbers whole, nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, float):
        return number(value)
    return str(value)


_DEVIANT = re.compile(r"((?:cuda|rust-\w+|triton)[/ ][\w@./-]+) \(([a-z][a-z, -]*)\)")
"""A kernel's name and the deviations of its toolchain, as `label` writes them."""


def starred(texts: Sequence[str]) -> tuple[list[str], str]:
    """Texts with a star in place of a kernel's deviations, and the footnote that says them; blank where none has any.

    `rust-oxide/update/plain (unpinned toolchain)` is `rust-oxide/update/plain*`, with `* unpinned toolchain`.
    """
    marks: dict[str, str] = {}

    def mark(found: re.Match[str]) -> str:
        return found[1] + marks.setdefault(found[2], "*" * (len(marks) + 1))

    short = [_DEVIANT.sub(mark, word) for word in texts]
    return short, "; ".join(f"{star} {words}" for words, star in marks.items())


def noted(sentence: str) -> str:
    """A sentence with a star in place of each kernel's deviations, and what the stars mean behind it."""
    [short], note = starred([sentence])
    return f"{short} {note}." if note else short


def footnoted(table: Table) -> Table:
    """A table as people read it: the deviations of toolchains in its note, a star where they apply. Data (CSV) keeps
    the words in each row."""
    words = {value for row in table.rows for value in row.values() if isinstance(value, str)}
    every = list(dict.fromkeys([table.title, *(c.head for c in table.columns), *sorted(words)]))
    texts, note = starred(every)
    short = dict(zip(every, texts, strict=True))
    return Table(
        table.name, short[table.title],
        tuple(Column(c.key, short[c.head], c.numeric) for c in table.columns),
        tuple({k: short[v] if isinstance(v, str) else v for k, v in row.items()} for row in table.rows),
        " ".join(part for part in (table.note, f"{note}." if note else "") if part),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- renderings


def as_csv(table: Table) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    writer.writerows(table.texts())
    return stream.getvalue().encode("utf-8", "backslashreplace")


def markdown_text(word: str) -> str:
    """Text of an archive in a Markdown cell: markup shown, never obeyed."""
    for sign in "\\`*_[]<>|#~":
        word = word.replace(sign, f"&#{ord(sign)};" if sign in "<>|" else f"\\{sign}")
    return " ".join(word.split())


def as_markdown(table: Table) -> bytes:
    table = footnoted(table)
    lines = [f"### {markdown_text(table.title)}", ""]
    lines.append("| " + " | ".join(markdown_text(column.head) for column in table.columns) + " |")
    lines.append("|" + "|".join(" ---: " if column.numeric else " --- " for column in table.columns) + "|")
    lines += ["| " + " | ".join(markdown_text(word) for word in row) + " |" for row in table.texts()]
    if table.note:
        lines += ["", markdown_text(table.note)]
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def _latex(word: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(word.split()))


def as_latex(table: Table) -> bytes:
    """A booktabs table; needs \\usepackage{booktabs}."""
    table = footnoted(table)
    align = "".join("r" if column.numeric else "l" for column in table.columns)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(table.title)}}}", rf"\label{{tab:{table.name}}}"]
    lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines += [" & ".join(_latex(column.head) for column in table.columns) + r" \\", r"\midrule"]
    lines += [" & ".join(_latex(word) for word in row) + r" \\" for row in table.texts()]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.note:
        lines.append(rf"\par\smallskip\footnotesize {_latex(table.note)}")
    return ("\n".join([*lines, r"\end{table}"]) + "\n").encode("utf-8", "backslashreplace")


RENDERINGS: dict[str, Callable[[Table], bytes]] = {"csv": as_csv, "md": as_markdown, "tex": as_latex}


# ----------------------------------------------------------------------------------------------------------- tables


def deviations(view: View, kernel: str) -> list[str]:
    """In what a kernel's toolchain is not the pinned one, a word or two each: `unpinned toolchain`."""
    manifest = view.manifest(kernel.removesuffix("@twin"))
    return sorted({str(entry).split(":")[0].strip() for entry in (manifest or {}).get("deviations") or []})


def label(view: View, kernel: str) -> str:
    """A kernel's name, with the deviation of its toolchain where it has one: `rust-oxide/... (unpinned toolchain)`."""
    words = deviations(view, kernel)
    return f"{kernel} ({', '.join(words)})" if words else kernel


def cells_of(view: View, axes: Sequence[str] | None = None) -> list[str]:
    """Cells of these axes in the order in which they are shown: data/cells.toml's, those of the scaling study by their
    points, which their names do not sort by."""
    names = view.cells(axes)
    scaled = iter(sorted((n for n in names if view.axis(n) == "scale"), key=lambda n: view.archive.run.cells[n].points))
    return [next(scaled) if view.axis(name) == "scale" else name for name in names]


def rust_kernel(view: View, stage: str) -> str | None:
    """The Rust kernel that stands for the paper's: cuda-oxide's, else stock rustc's, None if neither was timed."""
    timed = set(view.table.kernels(stage))
    return next((f"{lang}/{stage}/plain" for lang in RUST if f"{lang}/{stage}/plain" in timed), None)


TRITON_WHILE = {"allocate": "triton/allocate/while", "update": "triton/update/while"}
STATIC = {"allocate": TRITON_ALLOCATE, "update": TRITON_UPDATE}
BASES = {"allocate": CUDA_ALLOCATE, "update": CUDA_UPDATE}


def main_kernels(view: View, stage: str) -> list[str]:
    """The kernels that stand for a language in a stage, those that were timed."""
    timed = set(view.table.kernels(stage))
    names = [f"rust-oxide/{stage}/plain", f"rust-nvptx/{stage}/plain", STATIC[stage], TRITON_WHILE[stage]]
    return [name for name in names if name in timed]


def devices_of(view: View) -> dict[str, str]:
    """UUID -> name of the devices that have a pass, in the order in which they are numbered everywhere."""
    return {entry.device_uuid: entry.device_name for entry in view.archive.run.passes}


def passes_on(ratio: statistics.Ratio, uuid: str) -> list[float]:
    """The passes of a ratio that one device ran."""
    return [value for value, device in zip(ratio.passes, ratio.devices, strict=True) if device == uuid]


def _pairs(view: View) -> list[tuple[str, str, str, str]]:
    """(stage, language of the paper, kernel, base) of what was timed."""
    pairs = []
    for stage, base, triton in (("allocate", CUDA_ALLOCATE, TRITON_ALLOCATE), ("update", CUDA_UPDATE, TRITON_UPDATE)):
        rust = rust_kernel(view, stage)
        if rust is not None:
            pairs.append((stage, "rust", rust, base))
        if triton in view.table.kernels(stage):
            pairs.append((stage, "triton", triton, base))
    return pairs


def whole_ratio(
    view: View, kernel: str, base: str, cell: str, regime: statistics.Regime = statistics.SERIAL
) -> Compared | None:
    """A ratio in one cell and regime; None where a sample of either lost data, as verdicts leave such a cell out: the
    rounds that happened to lose nothing are not the kernel's."""
    if not (view.table.whole(kernel, cell, regime) and view.table.whole(base, cell, regime)):
        return None
    return view.compare(kernel, base, cell, regime)


def ratios_of(view: View, kernel: str, base: str, axes: Sequence[str] | None = PAPER_AXES) -> list[Compared]:
    """Ratios in every cell that has both, quick runs included: a table shows what there is, verdicts ask for more."""
    found = [whole_ratio(view, kernel, base, cell) for cell in cells_of(view, axes)]
    return [compared for compared in found if compared is not None]


def told_apart(found: Sequence[Compared]) -> str:
    """In how many cells the difference is more than noise: `2 faster, 9 not told apart`."""
    sides = [c.difference.side for c in found if len(c.us.passes) >= statistics.MIN_PASSES]
    if not sides:
        return "one pass: nothing is told apart from noise"
    faster, slower = sides.count(-1), sides.count(1)
    level, short = len(sides) - faster - slower, len(found) - len(sides)
    if level == len(found):
        return "none told apart"
    parts = [(faster, "faster"), (slower, "slower"), (level, "not told apart"), (short, "with one pass only")]
    there = [(number, word) for number, word in parts if number]
    return f"all {there[0][1]}" if len(there) == 1 else ", ".join(f"{number} {word}" for number, word in there)


REGIME_NOTE = (
    "Ratios to CUDA C++ on one stream (serial, fresh table), median over passes of the median over rounds. concurrent: "
    "both on one branch a volume. reference: the same kernel on one stream over CUDA on one branch a volume, a derived "
    "row that is not the paper's host loop."
)
INTERVAL = (Column("ci_low", "95 % from"), Column("ci_high", "95 % to"))
"""Columns of `interval_of`."""


def interval_of(ratio: statistics.Ratio) -> dict[str, Value]:
    """The 95 % interval of a ratio as values of a row; none below six passes, where it would repeat the range."""
    interval = ratio.interval
    return {} if interval is None else {"ci_low": interval[0], "ci_high": interval[1]}


def by_stage(view: View) -> Table:
    """Table 1."""
    rows: list[dict[str, Value]] = []
    for stage, language, kernel, base in _pairs(view):
        found = ratios_of(view, kernel, base)
        if not found:
            continue
        middle, low, high = span(found)
        references = [c.reference.median for c in found if c.reference is not None]
        figure = figures.stage_range(stage, language)
        rows.append(
            {
                "stage": stage, "kernel": label(view, kernel), "cells": len(found), "low": low, "median": middle,
                "high": high, "paper_low": figure[0], "paper_high": figure[1],
                "reference_low": min(references) if references else None,
                "reference_high": max(references) if references else None,
            }
        )  # fmt: skip
    columns = (
        Column("stage", "stage", False), Column("kernel", "kernel", False), Column("cells", "cells"),
        Column("low", "lowest"), Column("median", "median"), Column("high", "highest"),
        Column("paper_low", "paper lowest"), Column("paper_high", "paper highest"),
        Column("reference_low", "reference lowest"), Column("reference_high", "reference highest"),
    )  # fmt: skip
    return Table("table1", "Table 1: ratio to CUDA C++ by stage", columns, tuple(rows), REGIME_NOTE)


def totals(view: View) -> Table:
    """Table 2."""
    rows: list[dict[str, Value]] = []
    rust = (rust_kernel(view, "allocate"), rust_kernel(view, "update"))
    pairs = [("rust", rust), ("triton", (TRITON_ALLOCATE, TRITON_UPDATE))]
    for cell, workload in TABLE2.items():
        for language, (allocate, update) in pairs:
            if allocate is None or update is None:
                continue
            total = total_ratio(view, allocate, update, cell)
            if total is None or not (view.table.whole(allocate, cell) and view.table.whole(update, cell)):
                continue
            published = [row for row in figures.rows("totals_integrate_ms") if row["workload"] == workload]
            theirs = [float(row[f"{language}_ms"]) / float(row["cuda_ms"]) for row in published]
            rows.append(
                {
                    "cell": cell, "kernels": f"{label(view, allocate)} + {label(view, update)}",
                    "cuda_us": total.base_us, "us": total.us, "ratio": total.ratio,
                    "allocate_share": total.allocate_share,
                    "paper_low": min(theirs), "paper_high": max(theirs),
                }
            )  # fmt: skip
    columns = (
        Column("cell", "cell", False), Column("kernels", "allocate + update", False), Column("cuda_us", "CUDA, us"),
        Column("us", "us"), Column("ratio", "ratio"), Column("allocate_share", "allocate of CUDA's total"),
        Column("paper_low", "paper, lower card"), Column("paper_high", "paper, higher card"),
    )  # fmt: skip
    note = "Serial, fresh table; the sum of both stages' medians per pass."
    return Table("table2", "Table 2: integration in total", columns, tuple(rows), note)


def depth_frames(view: View) -> Table:
    """Cells of depth frames, warm and cold, real and ray cast: both stages of every arm, and allocate's share."""
    kernels = view.table.kernels()
    pairs = [
        (name, name.replace("/allocate/", "/update/")) for name in kernels if "/allocate/" in name and "@" not in name
    ]
    pairs.append((CUDA_ALLOCATE, TRITON_UPDATE))
    rows: list[dict[str, Value]] = []
    for cell in cells_of(view, FRAME_AXES):
        for allocate, update in pairs:
            if update not in kernels:
                continue
            total = total_ratio(view, allocate, update, cell)
            part = view.median_us(allocate, cell)
            lossless = view.table.whole(allocate, cell) and view.table.whole(update, cell)
            if total is None or part is None or not lossless:
                continue
            both = f"{label(view, allocate)} + {label(view, update)}"
            rows.append(
                {
                    "axis": view.axis(cell), "cell": cell, "kernels": both,
                    "allocate_us": part, "us": total.us, "ratio": total.ratio, "share": part / total.us,
                }
            )  # fmt: skip
    columns = (
        Column("axis", "axis", False), Column("cell", "cell", False), Column("kernels", "allocate + update", False),
        Column("allocate_us", "allocate, us"), Column("us", "both, us"), Column("ratio", "ratio of both to CUDA C++"),
        Column("share", "allocate's share"),
    )  # fmt: skip
    note = "Serial, fresh table (of a warm cell: as the frames before left it). An arm that lost data has no row."
    return Table("frames", "Depth frames: both stages", columns, tuple(rows), note)


def by_cell(view: View) -> Table:
    """Table 3."""
    rows: list[dict[str, Value]] = []
    passes: set[int] = set()
    for stage, language, kernel, base in _pairs(view):
        if stage != "allocate":
            continue
        for c in ratios_of(view, kernel, base, None):
            branches = whole_ratio(view, kernel, base, c.cell, statistics.CONCURRENT)
            passes.add(len(c.us.passes))
            rows.append(
                {
                    "cell": c.cell, "load": view.archive.run.cells[c.cell].load_factor,
                    "kernel": label(view, kernel), "ratio": c.us.median, "low": c.us.low, "high": c.us.high,
                    "floor": c.floor, **interval_of(c.us),
                    "concurrent": None if branches is None else branches.us.median,
                    "reference": None if c.reference is None else c.reference.median,
                    "paper": figures.cell_ratio(c.cell, f"{language}_over_cuda"),
                }
            )  # fmt: skip
    columns = (
        Column("cell", "cell", False), Column("load", "load"), Column("kernel", "kernel", False),
        Column("ratio", "serial"), Column("low", "lowest pass"), Column("high", "highest pass"), *INTERVAL,
        Column("floor", "A/A floor"), Column("concurrent", "concurrent"), Column("reference", "reference"),
        Column("paper", "paper"),
    )  # fmt: skip
    many = sorted(passes)
    note = f"{REGIME_NOTE} {' to '.join(map(str, dict.fromkeys((many[0], many[-1]))))} passes a row." if many else ""
    return Table("table3", "Table 3: allocate by cell", columns, tuple(rows), note)


def by_device(view: View) -> Table:
    """Every device's ratios side by side, in each cell: on one stream, on branches, and the derived reference."""
    uuids = list(devices_of(view))
    regimes = ("serial", "concurrent", "reference")
    rows: list[dict[str, Value]] = []
    for stage, base in BASES.items():
        for kernel in main_kernels(view, stage) if len(uuids) > 1 else ():
            for cell in cells_of(view):
                serial, branches = (
                    whole_ratio(view, kernel, base, cell, regime)
                    for regime in (statistics.SERIAL, statistics.CONCURRENT)
                )
                if serial is None:
                    continue
                row: dict[str, Value] = {
                    "stage": stage, "cell": cell, "kernel": label(view, kernel), "floor": serial.floor
                }  # fmt: skip
                ratios = (serial.us, None if branches is None else branches.us, serial.reference)
                for regime, ratio in zip(regimes, ratios, strict=True):
                    for number_, uuid in enumerate(uuids):
                        here = [] if ratio is None else passes_on(ratio, uuid)
                        row[f"{regime}{number_}"] = statistics.median(here) if here else None
                rows.append(row)
    columns = (
        Column("stage", "stage", False), Column("cell", "cell", False), Column("kernel", "kernel", False),
        Column("floor", "A/A floor"),
        *(Column(f"{r}{i}", f"{r}, device {i}") for r in regimes for i in range(len(uuids))),
    )  # fmt: skip
    note = f"{REGIME_NOTE} {'; '.join(f'device {i}: {uuid}' for i, uuid in enumerate(uuids))}."
    return Table("by_device", "Ratio to CUDA C++ on each device", columns, tuple(rows), note)


COUNTERS: tuple[tuple[str, str, str, float], ...] = (
    ("L1 sector hit rate", HIT, "percent", 1),
    ("L2 sectors", SECTORS, "", 1),
    ("long_scoreboard stall", SCOREBOARD, "warps an issue", 1),
    ("achieved occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active", "percent", 1),
    ("active threads per warp", "smsp__thread_inst_executed_per_inst_executed.ratio", "", 1),
    ("duration (ncu)", DURATION, "us", 1e-3),
)
"""(the paper's row, Nsight Compute's metric, unit of the paper and of our tables, that unit in the metric's)."""


def counted(view: View, kernel: str, metric: str, scale: float) -> float | None:
    """A hardware counter in the unit of our tables."""
    value = view.counter(kernel, metric)
    return None if value is None else value * scale


_TABLE4 = (("cuda", CUDA_ALLOCATE), ("rust_scoped_load", SCOPED), ("rust_plain_first_read", OXIDE))


def counters(view: View) -> Table:
    """Table 4: counters and instruction counts of single launches on base."""
    rows: list[dict[str, Value]] = []
    manifests = {column: view.manifest(kernel) for column, kernel in _TABLE4}

    def add(what: str, ours: dict[str, Value], unit: str = "") -> None:
        if any(value is not None for column, value in ours.items() if column != "cuda"):  # else nothing to compare
            theirs = {f"paper_{c}": figures.counter(what, c) for c, _ in _TABLE4}
            rows.append({"metric": f"{what}, {unit}" if unit else what, **ours, **theirs})

    def of_manifest(count: Callable[[dict[str, Any]], int]) -> dict[str, Value]:
        return {c: None if m is None or m.get("status") != "ok" else count(m) for c, m in manifests.items()}

    def opcodes(*names: str) -> Callable[[dict[str, Any]], int]:
        return lambda m: sum(int(n) for op, n in (m.get("sass") or {}).items() if op.split(".")[0] in names)

    add("static SASS instructions", of_manifest(lambda m: int((m.get("sass") or {}).get("instructions", 0))))
    add("branches (BRA/BSSY/BSYNC/BRX)", of_manifest(opcodes("BRA", "BSSY", "BSYNC", "BRX")))
    add("global memory ops (LDG/STG)", of_manifest(opcodes(*GLOBAL_MEMORY)))
    add("registers per thread", of_manifest(lambda m: int(m.get("registers", 0))))
    add("register spills", of_manifest(lambda m: int(m.get("spills", 0))))
    for what, metric, unit, scale in COUNTERS:
        add(what, {column: counted(view, kernel, metric, scale) for column, kernel in _TABLE4}, unit)
    heads = {"cuda": "CUDA", "rust_scoped_load": "Rust, scoped load", "rust_plain_first_read": "Rust, plain first read"}
    columns = (
        Column("metric", "metric", False),
        *(Column(c, label(view, k) if k.startswith("rust") else heads[c]) for c, k in _TABLE4),
        *(Column(f"paper_{c}", f"paper: {heads[c]}") for c, _ in _TABLE4),
    )
    note = (
        "Ours and the paper's in one unit a row, a count where none is named. Ours counts generic LD and ST among the "
        "memory operations."
    )
    return Table("table4", "Table 4: allocate on base, counters", columns, tuple(rows), note)


DROPPED = (
    "Ours counts samples of update, several along the ray of each point, that found no block; the paper counts points: "
    "these two are of different units and are not compared."
)
LOSS_COLUMNS = (
    Column("lost_low", "blocks lost, least"), Column("lost_high", "blocks lost, most"),
    Column("dropped_low", "update samples dropped, least"), Column("dropped_high", "update samples dropped, most"),
)  # fmt: skip
"""Of the loss by load factor, here and in the figure's rows."""


def loss(view: View) -> Table:
    """What the bounded probe loses, by load factor."""
    paper_rows = {row["cell"]: row for row in figures.rows("loss_triton_static8")}
    rows: list[dict[str, Value]] = []
    for cell, ((least, most), (few, many)) in losses_of(view).items():
        facts = view.archive.run.cells[cell]
        theirs = paper_rows.get(cell)
        rows.append(
            {
                "cell": cell, "load": facts.load_factor, "blocks": facts.blocks, "lost_low": int(least),
                "lost_high": int(most), "dropped_low": None if few != few else int(few),
                "dropped_high": None if many != many else int(many),
                "paper_lost": None if theirs is None else int(theirs["blocks_lost"]),
                "paper_dropped": None if theirs is None else int(theirs["points_dropped"]),
            }
        )  # fmt: skip
    rows.sort(key=lambda row: (row["load"], row["cell"]))
    columns = (
        Column("cell", "cell", False), Column("load", "load"), Column("blocks", "blocks"),
        *LOSS_COLUMNS, Column("paper_lost", "paper: blocks lost"), Column("paper_dropped", "paper: points dropped"),
    )  # fmt: skip
    note = f"triton/allocate/static8 with triton/update/static8, least and most over all launches. {DROPPED}"
    return Table("loss", "Loss of the bounded probe by load factor", columns, tuple(rows), note)


def cells(view: View) -> Table:
    """Every kernel in every cell and regime: time, percentiles, ratio, floor."""
    rows: list[dict[str, Value]] = []
    for regime in view.table.regimes():
        for cell in sorted({str(c) for c in view.table.rows["cell"]}, key=lambda name: (_order(view, name), name)):
            for kernel in view.table.kernels(cell=cell):
                rows += _cell_row(view, kernel, cell, regime)
    columns = (
        Column("axis", "axis", False), Column("cell", "cell", False), Column("launch", "launch", False),
        Column("table", "table", False), Column("l2", "L2", False), Column("load", "load", False),
        Column("kernel", "kernel", False), Column("status", "status", False), Column("samples", "samples"),
        Column("us", "us"), Column("us_low", "lowest pass"), Column("us_high", "highest pass"), Column("p50", "p50"),
        Column("p95", "p95"), Column("p99", "p99"), Column("ratio", "ratio"), Column("ratio_low", "lowest pass"),
        Column("ratio_high", "highest pass"), Column("floor", "A/A floor"), Column("different", "different", False),
        Column("drift", "second half over first"), Column("throttled", "throttled samples"),
    )  # fmt: skip
    note = "A kernel that lost data in a cell is timed and has no ratio there."
    return Table("cells", "Every kernel by cell and regime", columns, tuple(rows), note)


def _order(view: View, cell: str) -> int:
    plain = cells_of(view)
    base = cell.split("+")[0]
    return plain.index(base) if base in plain else len(plain)


def _cell_row(view: View, kernel: str, cell: str, regime: statistics.Regime) -> list[dict[str, Value]]:
    every = view.table.select(kernel, cell, regime, STATUSES)
    if not len(every):
        return []
    statuses = every["status"].tolist()
    row: dict[str, Value] = {
        "axis": view.axis(cell.split("+")[0]), "cell": cell, "launch": regime.launch, "table": regime.table,
        "l2": regime.l2, "load": regime.load, "kernel": label(view, kernel), "samples": len(statuses),
        "status": " ".join(f"{status} {statuses.count(status)}" for status in sorted(set(statuses))),
        "throttled": sum(mask > 0 for mask in every["throttle"].tolist()),
    }  # fmt: skip
    timed = view.table.series(kernel, cell, regime, "us", ("ok", "lossy"))
    if timed:
        medians = list(statistics.pass_medians(timed).values())
        row |= {"us": statistics.median(medians), "us_low": min(medians), "us_high": max(medians)}
        row |= {f"p{percent}": statistics.percentile(list(timed.values()), percent) for percent in (50, 95, 99)}
        row["drift"] = statistics.drift(timed)
    stage = kernel.split("/")[1]
    row["floor"] = view.table.floor(cell, stage, regime)
    base = BASES.get(stage)
    compared = whole_ratio(view, kernel, base, cell, regime) if base is not None and kernel != base else None
    if compared is not None:
        row |= {"ratio": compared.us.median, "ratio_low": compared.us.low, "ratio_high": compared.us.high}
        row["different"] = {-1: "faster", 0: "no", 1: "slower"}[compared.difference.side]
    return [row]


TABLES: tuple[Callable[[View], Table], ...] = (
    by_stage, totals, by_cell, by_device, depth_frames, counters, loss, cells,
)  # fmt: skip


def make_tables(view: View) -> list[Table]:
    """Every table that has a row in this archive."""
    return [table for table in (make(view) for make in TABLES) if table.rows]


def claims_table(document: Sequence[dict[str, Any]]) -> Table:
    """Verdicts as a table."""
    rows = tuple({key: row[key] for key in ("id", "verdict", "statement", "paper", "reason")} for row in document)
    columns = tuple(Column(key, key, False) for key in ("id", "verdict", "statement", "paper", "reason"))
    return Table("claims", "Claims and verdicts", columns, rows)
