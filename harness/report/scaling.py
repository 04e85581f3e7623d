"""Figures of the scaling study: time by the number of points, and by the number of multiprocessors.

Functions of the same kind as figures.py's, which registers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.claims import figures as seeds
from harness.claims import statistics
from harness.claims.paper import (
    CUDA_ALLOCATE,
    CUDA_UPDATE,
    GEOMETRY,
    HELD,
    TIGHT,
    TRITON_ALLOCATE,
    multiprocessor_cells,
)
from harness.claims.registry import View
from harness.report.drawing import (
    BAND,
    INK,
    Missing,
    Plot,
    legend,
    listed,
    n,
    num,
    rows_height,
    style,
    words,
)
from harness.report.tables import Column, Table, Value, label, starred

NULL = "cuda/floor/null"
STAGES = ("allocate", "update")
FLOORS = {NULL: "a kernel that does nothing", GEOMETRY: "the geometry alone"}
DASHES = {NULL: (0, (1, 2)), GEOMETRY: (0, (4, 2))}


def _plain_numbers(axis: Any, low: float, high: float) -> None:
    """A logarithmic axis with plain numbers: 0.5, 1, 2, 5, 10 over a short range, powers of ten over a long one."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    steps = (1, 2, 5) if high < 300 * low else (1,)
    ticks = [step * 10.0**power for power in range(-3, 10) for step in steps]
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low / 1.5 <= tick <= high * 1.5]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))


def _spread(view: View, kernel: str, cell: str) -> tuple[float, float, float] | None:
    """Median over passes of the passes' median times, lowest and highest."""
    medians = list(view.table.medians(kernel, cell).values())
    return (statistics.median(medians), min(medians), max(medians)) if medians else None


def _us(row: dict[str, Value]) -> str:
    """A time in a sentence: three digits, whole from a thousand on."""
    us = num(row["us"])
    return f"{us:,.0f}" if us >= 1000 else f"{us:.3g}"


# ------------------------------------------------------------------------------------------------------------- points


def points(view: View) -> Plot:
    """Time of a launch by the number of points, beside the floors."""
    facts = view.archive.run.cells
    cells = [cell for cell in view.cells(("scale", "points", "baseline")) if facts[cell].points > 0]
    cells.sort(key=lambda cell: facts[cell].points)
    if not any(view.axis(cell) == "scale" for cell in cells) or len(cells) < 3:
        raise Missing("fewer than three cells between 2 thousand and 20 million points were timed")
    rows: list[dict[str, Value]] = []
    for stage in STAGES:
        kernels = [k for k in view.table.kernels(stage) if not k.endswith("@twin")]
        base = CUDA_ALLOCATE if stage == "allocate" else CUDA_UPDATE
        kernels.sort(key=lambda name: (name != base, name))
        kernels += [kernel for kernel in FLOORS if stage == "allocate" or kernel == NULL]
        for kernel in kernels:
            found = [(cell, spread) for cell in cells if (spread := _spread(view, kernel, cell)) is not None]
            # What stands on base alone is of the other question.
            for cell, (us, low, high) in found if len(found) > 1 else []:
                number = facts[cell].points
                rows.append(
                    {
                        "stage": stage, "kernel": kernel if kernel in FLOORS else label(view, kernel), "cell": cell,
                        "points": number, "us": us, "low": low, "high": high, "ns": 1e3 * us / number,
                    }
                )  # fmt: skip
    stages = [stage for stage in STAGES if any(r["stage"] == stage and r["kernel"] not in FLOORS for r in rows)]
    if not stages:
        raise Missing("neither allocate nor update was timed on two numbers of points")

    def draw(canvas: Any) -> None:
        panels = canvas.subplots(1, len(stages), sharey=True, squeeze=False)[0]
        for panel, stage in zip(panels, stages, strict=True):
            here = [row for row in rows if row["stage"] == stage]
            for name in dict.fromkeys(str(row["kernel"]) for row in here):
                line = [row for row in here if row["kernel"] == name]
                colour, mark = style(name)
                text = FLOORS.get(name, name.replace(f"/{stage}/", " "))
                xs, ys = [num(row["points"]) for row in line], [num(row["us"]) for row in line]
                for row in line:
                    panel.plot([num(row["points"])] * 2, [num(row["low"]), num(row["high"])], color=colour, linewidth=2)
                panel.plot(
                    xs, ys, color=colour, marker="" if name in FLOORS else mark, markersize=4.5, linewidth=1.1,
                    linestyle=DASHES.get(name, "-"), label=text,
                )  # fmt: skip
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_title(stage, loc="left")
            panel.set_xlabel("points of the cell")
            panel.grid(color=BAND, linewidth=0.5)
            panel.set_axisbelow(True)
            _plain_numbers(panel.xaxis, min(num(r["points"]) for r in rows), max(num(r["points"]) for r in rows))
            _plain_numbers(panel.yaxis, min(num(r["low"]) for r in rows), max(num(r["high"]) for r in rows))
        panels[0].set_ylabel("time, us a launch")
        legend(canvas, panels, 4)

    parts = []
    for stage in stages:
        base = CUDA_ALLOCATE if stage == "allocate" else CUDA_UPDATE
        line = [row for row in rows if row["kernel"] == base]
        if len(line) < 2:
            continue
        first, last, before = line[0], line[-1], line[-2]
        text = (
            f"CUDA C++'s {stage} takes {_us(first)} us for {num(first['points']):,.0f} points and {_us(last)} us for "
        )
        text += f"{num(last['points']):,.0f}"
        least = min(line, key=lambda row: num(row["us"]))
        if least is not first:
            text += f" (least, {_us(least)} us, for {num(least['points']):,.0f})"
        more = num(last["points"]) / num(before["points"])
        cost = num(last["us"]) / num(before["us"])
        parts.append(f"{text}; the last {n(more)} times the points take {n(cost)} times as long")
    answer = f"{'. '.join(parts)}." if parts else "CUDA C++'s plain kernels were not timed on two numbers of points."
    empty = [row for row in rows if row["kernel"] == NULL and row["stage"] == stages[0]]
    if empty:
        answer += f" A kernel that does nothing takes {_us(empty[0])} to {_us(empty[-1])} us, one thread a point."
    columns = (
        Column("stage", "stage", False), Column("kernel", "kernel", False), Column("cell", "cell", False),
        Column("points", "points"), Column("us", "us"), Column("low", "lowest pass"), Column("high", "highest pass"),
        Column("ns", "ns a point"),
    )  # fmt: skip
    table = Table("points", "Time by the number of points", columns, tuple(rows), "Serial, fresh table.")
    samples = "launch = serial, table = fresh, cell = pts-* or base"
    return Plot(answer, table, draw, (4 + 3 * len(stages), 4.4), samples)


# ----------------------------------------------------------------------------------------------------- multiprocessors


def multiprocessors(view: View) -> Plot:
    """P23: time on a part of the multiprocessors and on all, and how much faster all are."""
    cells = multiprocessor_cells(view)
    if len(cells) < 2:
        raise Missing("base was not timed on two numbers of multiprocessors (cells base+smsN)")
    few, many = min(cells), max(cells)
    rows: list[dict[str, Value]] = []
    for kernel in [*view.table.kernels("allocate", cells[few]), *view.table.kernels("update", cells[few]), GEOMETRY]:
        slow, fast = (view.table.medians(kernel, cells[number]) for number in (few, many))
        both = sorted(slow.keys() & fast.keys())
        if kernel.endswith("@twin") or not both:
            continue
        ratios = [slow[key] / fast[key] for key in both]
        rows.append(
            {
                "kernel": kernel if kernel == GEOMETRY else label(view, kernel), "few": few, "many": many,
                "few_us": statistics.median(list(slow.values())), "many_us": statistics.median(list(fast.values())),
                "free_us": view.median_us(kernel, "base"), "scaling": statistics.median(ratios), "low": min(ratios),
                "high": max(ratios),
            }
        )  # fmt: skip
    if not rows:
        raise Missing(f"no kernel has a pass on both {few} and {many} multiprocessors")
    rows.sort(key=lambda row: (-num(row["scaling"]), str(row["kernel"])))
    available = many / few
    names = [str(row["kernel"]) for row in rows]
    paper, paper_tight, theirs = seeds.paper("scaling"), seeds.paper("scaling_256_slots"), seeds.paper("sm_ratio")

    def draw(canvas: Any) -> None:
        left, right = canvas.subplots(1, 2, width_ratios=(1, 1.5))
        left.plot([few, many], [1, few / many], color=INK, linestyle=DASHES[GEOMETRY], linewidth=0.9)
        for row in rows:
            colour, mark = style(str(row["kernel"]))
            left.plot(
                [few, many], [1, num(row["many_us"]) / num(row["few_us"])], color=colour, marker=mark, linewidth=1.1
            )
        left.set_xscale("log")
        left.set_yscale("log")
        left.set_xlim(few / 1.15, many * 1.15)
        _ticks(left.xaxis, [few, many], "d")
        lowest = min(few / many, *(num(row["many_us"]) / num(row["few_us"]) for row in rows))
        _ticks(left.yaxis, [t for t in (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.2) if lowest / 1.1 <= t], "g")
        left.set_xlabel("multiprocessors in use")
        left.set_ylabel(f"ratio of times to that on {few}")
        right.axvline(1, color=INK, linewidth=0.9, zorder=0)
        more = f"{n(available)} times: as many multiprocessors"
        right.axvline(available, color=INK, linestyle=DASHES[GEOMETRY], linewidth=0.9, label=more)
        for index, row in enumerate(rows):
            kernel = str(row["kernel"])
            colour, mark = style(kernel)
            band = paper_tight if kernel.startswith(TIGHT) else paper if _an_arm(kernel) else None
            if band is not None:
                right.barh(
                    index, band[1] - band[0], left=band[0], height=0.7, color=BAND, zorder=0,
                    label=f"the paper, {theirs}x as many",
                )  # fmt: skip
            right.plot([num(row["low"]), num(row["high"])], [index, index], color=colour, linewidth=1.6)
            right.plot([num(row["scaling"])], [index], color=colour, marker=mark, linestyle="none")
        ends = [1.0, available, *paper, *paper_tight, *(num(row[end]) for row in rows for end in ("low", "high"))]
        right.set_xlim(min(ends) - 0.08, max(ends) + 0.08)
        right.set_ylim(len(rows) - 0.5, -0.5)
        ticks, note = starred(names)
        right.set_yticks(range(len(rows)), [words(name, 40) for name in ticks])
        right.tick_params(axis="y", length=0)
        right.grid(axis="x", color=BAND, linewidth=0.5)
        right.set_axisbelow(True)
        what = f"times as fast on {many} as on {few}"
        right.set_xlabel(f"{what}\n{note}" if note else what)
        legend(canvas, [right], 2)

    held = next((num(row["scaling"]) for row in rows if row["kernel"] == GEOMETRY), None)
    tight = next((num(row["scaling"]) for row in rows if str(row["kernel"]).startswith(TIGHT)), None)
    arms = [f"{row['kernel']} {n(num(row['scaling']))}" for row in rows if _an_arm(str(row["kernel"]))]
    answer = (
        f"On {many} multiprocessors instead of {few}, {n(available)} times as many, allocate is so many times as fast: "
    )
    theirs_words = f"the paper: {n(paper[0])} to {n(paper[1])} where there are {theirs} times as many"
    answer += f"{listed(arms)} ({theirs_words})" if arms else "no arm was timed"
    if tight is not None:
        answer += f"; Triton with 256 shared slots {n(tight)} ({n(paper_tight[0])} to {n(paper_tight[1])})"
    answer += "."
    if held is not None:
        answer += f" The geometry alone, which is arithmetic: {n(held)}."
        if abs(held / available - 1) > HELD:
            answer += " That is not the multiprocessors alone: these times decide nothing."
    free = [abs(num(row["many_us"]) / float(row["free_us"]) - 1) for row in rows if isinstance(row["free_us"], float)]
    if free:
        answer += f" With none held, base itself takes the same to {100 * max(free):.1f} percent."
    columns = (
        Column("kernel", "kernel", False), Column("few", "multiprocessors left"), Column("few_us", "us"),
        Column("many", "all"), Column("many_us", "us"), Column("free_us", "us on base itself"),
        Column("scaling", "times as fast"), Column("low", "lowest pass"), Column("high", "highest pass"),
    )  # fmt: skip
    note = "The others are held by a resident kernel that sleeps. Serial, fresh table."
    table = Table("multiprocessors", "Time by the number of multiprocessors", columns, tuple(rows), note)
    return Plot(answer, table, draw, (10.5, rows_height(len(rows), 1.7)), f"cell = {cells[few]}, {cells[many]}, base")


def _an_arm(kernel: str) -> bool:
    """Whether the paper's range for arms is about this kernel."""
    return "/allocate/plain" in kernel or kernel.partition(" ")[0] == TRITON_ALLOCATE


def _ticks(axis: Any, ticks: Sequence[float], form: str) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: format(int(value) if form == "d" else value, form)))


FIGURES = {
    "points": ("Time by the number of points", points),
    "multiprocessors": ("Time by the number of multiprocessors", multiprocessors),
}
"""Name -> (title, function); the questions stand in harness/measure/studies.py."""
