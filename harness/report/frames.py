"""Figures of depth frames: a warm table against an empty one, real frames against ray-cast ones and the swept shapes.

Functions of the same kind as figures.py's, which registers them; the numbers by arm and cell stand in the table
`frames` of tables.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from harness.claims import figures as seeds
from harness.claims import statistics
from harness.claims.paper import PAPER_AXES, total_ratio
from harness.claims.registry import View
from harness.report.drawing import (
    BAND,
    INK,
    Missing,
    Plot,
    ends,
    grid,
    legend,
    listed,
    n,
    num,
    panels,
    point,
    ratio_axis,
    rows_height,
    span_words,
    words,
)
from harness.report.tables import (
    BASES,
    FRAME_AXES,
    STATIC,
    TRITON_WHILE,
    Column,
    Table,
    Value,
    cells_of,
    label,
    main_kernels,
    whole_ratio,
)

QUESTION = "What do real frames and a warm table change?"
WARM, COLD, NOISE = "-warm", "-cold", "-noise"
AXES = {"real": "real frames", "trajectory": "ray-cast frames"}
"""Axis of cells -> what its frames are."""
WITH_NOISE = " with a sensor's noise added"
KINDS = tuple(kind + noise for kind in AXES.values() for noise in ("", WITH_NOISE))
SWEPT = "spheres and plane"


def kind_of(view: View, cell: str) -> str:
    """What a cell's frames are: one of KINDS, or SWEPT."""
    axis = AXES.get(view.axis(cell))
    return SWEPT if axis is None else axis + (WITH_NOISE if cell.endswith(NOISE) else "")


def _name(kernel: str) -> str:
    """An arm in a sentence: its kernel without the stage."""
    return kernel.replace("/allocate/", " ").replace("/update/", " ")


def _rows_down(axes: Any, names: Sequence[str]) -> None:
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [words(name, 40) for name in names])
    axes.tick_params(axis="y", length=0)


def twins_of(view: View) -> dict[str, tuple[str, str]]:
    """Scenes of frames that have a warm cell and its cold twin -> the two; noise makes another scene. A project's
    trajectory may name its warm cell without the ending, as the paper does."""
    cells = cells_of(view, FRAME_AXES)
    found = {}
    for cell in cells:
        noise = NOISE if cell.endswith(NOISE) else ""
        bare = cell.removesuffix(noise)
        if bare.endswith(COLD):
            stem = bare.removesuffix(COLD)
            warm = next((name for name in (f"{stem}{WARM}{noise}", f"{stem}{noise}") if name in cells), None)
            if warm is not None:
                found[stem + noise] = warm, cell
    return found


def warm_ratio(view: View, kernel: str, twins: tuple[str, str]) -> tuple[float, float, float] | None:
    """A kernel's time on a warm cell over that on its cold twin: median over passes, lowest, highest."""
    warm, cold = (view.table.medians(kernel, cell) for cell in twins)
    ratios = [warm[key] / cold[key] for key in sorted(warm.keys() & cold.keys())]
    return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


def warm(view: View) -> Plot:
    """The last frame into a table that those before it have filled, over the same frame into an empty one."""
    scenes = twins_of(view)
    if not scenes:
        raise Missing("no frame was fused both into an empty table and into one that frames before had filled")
    facts = view.archive.run.cells
    rows: list[dict[str, Value]] = []
    for stage, base in BASES.items():
        for scene, twins in scenes.items():
            for kernel in [base, *main_kernels(view, stage)]:
                ratio = warm_ratio(view, kernel, twins)
                if ratio is not None:
                    floors = [view.table.floor(cell, stage) for cell in twins]
                    rows.append(
                        {
                            "stage": stage, "scene": scene, "kernel": label(view, kernel),
                            "cold_us": view.median_us(kernel, twins[1]),
                            "warm_us": view.median_us(kernel, twins[0]),
                            "ratio": ratio[0], "low": ratio[1], "high": ratio[2],
                            "floor": max((floor for floor in floors if floor is not None), default=None),
                        }
                    )  # fmt: skip
    if not rows:
        raise Missing("no kernel has a pass on both a warm cell and its cold twin")
    lines = list(dict.fromkeys((str(row["stage"]), str(row["scene"])) for row in rows))

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        ratio_axis(axes, min(1.0, *(num(r["low"]) for r in rows)), max(1.0, *(num(r["high"]) for r in rows)))
        grid(axes)
        for index, line in enumerate(lines):
            here = [row for row in rows if (row["stage"], row["scene"]) == line]
            for place, row in enumerate(here):
                kernel = str(row["kernel"])
                values = [num(row[key]) for key in ("ratio", "low", "high")]
                point(axes, kernel, values, index + (place - (len(here) - 1) / 2) * 0.15, _name(kernel))
            if index and line[0] != lines[index - 1][0]:
                axes.axhline(index - 0.5, color=BAND, linewidth=0.8)
        _rows_down(axes, [f"{stage}, {scene} ({AXES[view.axis(scenes[scene][0])]})" for stage, scene in lines])
        axes.set_xlabel("ratio of times, warm table to empty one, same frame, same kernel (left of 1: warm is faster)")
        legend(canvas, [axes], 4)

    parts = []
    for stage, base in BASES.items():
        own = [row for row in rows if row["stage"] == stage and row["kernel"] == base]
        others = [num(row["ratio"]) for row in rows if row["stage"] == stage and row["kernel"] != base]
        if own:
            text = listed([f"{n(num(row['ratio']))} times ({row['scene']})" for row in own])
            parts.append(f"{stage} {text}" + (f", the other arms' {span_words(others)}" if others else ""))
    grown = [f"{facts[c].blocks:,} blocks grow to {facts[w].blocks:,} on {scene}" for scene, (w, c) in scenes.items()]
    answer = "On a table that the frames before have filled CUDA C++ takes, of its time on an empty one: in "
    answer += f"{'; in '.join(parts)}. With the frames before, {listed(grown)}."
    columns = (
        Column("stage", "stage", False), Column("scene", "scene", False), Column("kernel", "kernel", False),
        Column("cold_us", "empty table, us"), Column("warm_us", "warm table, us"), Column("ratio", "warm over empty"),
        Column("low", "lowest pass"), Column("high", "highest pass"), Column("floor", "A/A floor"),
    )  # fmt: skip
    note = "The same frame in both cells, serial; the table is that of the volume before each launch."
    table = Table("warm", "A warm table over an empty one", columns, tuple(rows), note)
    return Plot(
        answer, table, draw, (9.5, rows_height(2 * len(lines), 1.3)), "cell = *-warm*, *-cold*; launch = serial"
    )


ENDS = {"ratio": ("low", "high"), "total": ("total_low", "total_high")}
"""What is drawn with a range over passes -> the columns of its ends."""


def _update_of(allocate: str) -> str:
    return allocate.replace("/allocate/", "/update/")


def _frame_row(view: View, kernel: str, cell: str) -> dict[str, Value] | None:
    """An arm on a cell: allocate's and both stages' ratio to CUDA C++, allocate's share; None where it lost data."""
    base = BASES["allocate"]
    compared = None if kernel == base else whole_ratio(view, kernel, base, cell)
    total = total_ratio(view, kernel, _update_of(kernel), cell)
    part = view.median_us(kernel, cell)
    if compared is None and kernel != base:
        return None
    row: dict[str, Value] = {}
    if compared is not None:
        row |= {
            "ratio": compared.us.median, "low": compared.us.low, "high": compared.us.high, "floor": compared.floor
        }  # fmt: skip
    if total is not None and part is not None:
        row["share"] = part / total.us
        if kernel != base:
            row |= {"total": total.ratio, "total_low": total.low, "total_high": total.high}
    return row or None


def real(view: View) -> Plot:
    """Allocate's and both stages' ratio to CUDA C++ and allocate's share on frames, beside those of swept shapes."""
    frames = cells_of(view, FRAME_AXES)
    if not any(view.axis(cell) == "real" for cell in frames):
        raise Missing("no cell of real frames was timed")
    kernels = [BASES["allocate"], *main_kernels(view, "allocate")]
    rows: list[dict[str, Value]] = [
        {"frames": kind_of(view, cell), "cell": cell, "kernel": label(view, kernel), **row}
        for cell in [*frames, *cells_of(view, PAPER_AXES)]
        for kernel in kernels
        if (row := _frame_row(view, kernel, cell)) is not None
    ]
    names = [label(view, kernel) for kernel in kernels]
    kinds = [kind for kind in (*KINDS, SWEPT) if any(row["frames"] == kind for row in rows)]
    lines = [*frames, *([SWEPT] if SWEPT in kinds else [])]
    paper = 100 * float(seeds.paper("allocate_share"))
    quantities = (
        ("ratio", "allocate over CUDA C++'s", 1), ("total", "both stages over CUDA C++'s", 1),
        ("share", "allocate's share, percent", 100),
    )  # fmt: skip

    def draw(canvas: Any) -> None:
        axes = panels(canvas, len(quantities))
        for panel, (key, title, scale) in zip(axes, quantities, strict=True):
            panel.set_title(title, loc="left")
            for line in lines:
                for name in names:
                    here = [
                        row for row in rows
                        if row["kernel"] == name and line in (row["cell"], row["frames"]) and row.get(key) is not None
                    ]  # fmt: skip
                    values = [scale * num(row[key]) for row in here]
                    if not values:
                        continue
                    y = lines.index(line) + (names.index(name) - (len(names) - 1) / 2) * 0.15
                    low, high = min(values), max(values)
                    if key in ENDS and line != SWEPT:
                        low, high = (num(here[0][end]) for end in ENDS[key])
                    point(panel, name, [statistics.median(values), low, high], y, _name(name))
            if key == "share":
                panel.axvline(paper, color=INK, linestyle=(0, (4, 3)), linewidth=0.9, label="the paper: about a tenth")
                panel.set_xlim(0, 100)
                panel.grid(axis="x", color=BAND, linewidth=0.5)
                panel.set_axisbelow(True)
            else:
                seen = [num(row[end]) for row in rows for end in ENDS[key] if row.get(end)]
                ratio_axis(panel, min([1.0, *seen]), max([1.0, *seen]))
                grid(panel)
            _rows_down(panel, [f"{SWEPT}, median" if line == SWEPT else line for line in lines])
            for index, (one, other) in enumerate(pairwise(lines)):
                if view.axis(one) != view.axis(other):
                    panel.axhline(index + 0.5, color=BAND, linewidth=0.8)
        legend(canvas, axes[::-1], 5)

    columns = (
        Column("frames", "frames", False), Column("cell", "cell", False), Column("kernel", "allocate", False),
        Column("ratio", "allocate over CUDA C++"), Column("low", "lowest pass"), Column("high", "highest pass"),
        Column("floor", "A/A floor"), Column("total", "both stages over CUDA C++"),
        Column("total_low", "lowest pass"), Column("total_high", "highest pass"), Column("share", "allocate's share"),
    )  # fmt: skip
    note = "Serial. Both stages: with the update of the same language and form. An arm that lost data has no row."
    table = Table("real", "Real frames, ray-cast frames, swept shapes", columns, tuple(rows), note)
    samples = "cell = those of the rows, launch = serial, table = fresh"
    answer, short = (_real_words(view, rows, there) for there in (kinds, kinds[:1]))
    return Plot(answer, table, draw, (12.5, rows_height(2 * len(lines), 1.2)), samples, short)


ARMS = {
    "rust-oxide/allocate/plain": "cuda-oxide", "rust-nvptx/allocate/plain": "stock rustc",
    STATIC["allocate"]: "Triton's bounded probe", TRITON_WHILE["allocate"]: "Triton's unbounded probe",
}  # fmt: skip


def _real_words(view: View, rows: Sequence[dict[str, Value]], kinds: Sequence[str]) -> str:
    """A sentence a kind of frames: each arm's ratios, then what part allocate is of CUDA C++'s integration."""
    parts = []
    for kind in kinds:
        here = [row for row in rows if row["frames"] == kind]

        def of(kernel: str, key: str, there: Sequence[dict[str, Value]] = here) -> list[float]:
            return [num(row[key]) for row in there if row["kernel"] == label(view, kernel) and row.get(key) is not None]

        arms = []
        for kernel, name in ARMS.items():
            ratios, totals = of(kernel, "ratio"), of(kernel, "total")
            if ratios:
                both = f" (both stages {span_words(totals)})" if totals else ""
                arms.append(f"{name} {span_words(ratios)}{both}")
        shares = of(BASES["allocate"], "share")
        text = f"On {kind} allocate takes, times CUDA C++'s time, {listed(arms)}" if arms else f"On {kind}"
        if shares:
            percent = ends([100 * share for share in shares], ".0f")
            text += f"{', and' if arms else ' allocate'} is {percent} percent of CUDA C++'s integration"
        parts.append(text)
    rust, triton = (seeds.paper(f"total_{name}_real") for name in ("rust", "triton"))
    return (
        f"{'. '.join(parts)}. The paper, on its real frames: both stages {n(rust[0])} to {n(rust[1])} (Rust) and "
        f"{n(triton[0])} to {n(triton[1])} (Triton), allocate about a tenth."
    )


FIGURES: dict[str, tuple[str, Callable[[View], Plot]]] = {
    "real": ("Real frames, ray-cast frames and swept shapes", real),
    "warm": ("A warm table over an empty one", warm),
}
"""Name -> (title, function); both answer QUESTION."""
