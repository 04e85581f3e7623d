"""Figures of the attribution study: what each change of one thing costs, and how far the best are from the floors.

Functions of the same kind as figures.py's, which registers them. Kernels that break something are timed and never
judged; the archive's flags name them, and so does every figure here that shows one.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.claims import statistics
from harness.claims.paper import CUDA_ALLOCATE, CUDA_UPDATE, HYPOTHESES, TRITON_ALLOCATE
from harness.claims.registry import Compared, View
from harness.claims.statistics import FILLED, SERIAL, Regime
from harness.measure.studies import Question
from harness.report.drawing import (
    BAND,
    INK,
    REGIME,
    SOFT,
    UNJUDGED,
    Missing,
    Plot,
    count,
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
    style,
    words,
)
from harness.report.tables import BASES, Column, Table, Value, label, rust_kernel, starred, told_apart

SIDES = {-1: "faster", 0: "no", 1: "slower"}
FLAG = " is timed and never judged"


def broken(view: View) -> dict[str, str]:
    """Kernel -> what it breaks, of those that are timed and never judged."""
    return {f.what.removesuffix(FLAG): f.why for f in view.archive.run.flags if f.what.endswith(FLAG)}


def _side(low: float, high: float, floor: float) -> int:
    """-1 or 1 where the range over passes is clear of the floor, 0 where it is not."""
    return -1 if high < 1 - floor else 1 if low > 1 + floor else 0


def _names(axes: Any, names: Sequence[str]) -> None:
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [words(name, 76) for name in starred(names)[0]])
    axes.tick_params(axis="y", length=0)


def cell_panels(
    canvas: Any, rows: Sequence[dict[str, Value]], cells: Sequence[str]
) -> Iterator[tuple[Any, list[dict[str, Value]]]]:
    """A panel a cell, titled, its ratio axis as wide as the ranges of the cell's rows; each with these rows."""
    for panel, cell in zip(panels(canvas, len(cells)), cells, strict=True):
        panel.set_title(words(cell, 24), loc="left")
        here = [row for row in rows if row["cell"] == cell]
        ratio_axis(panel, min(1.0, *(num(r["low"]) for r in here)), max(1.0, *(num(r["high"]) for r in here)))
        grid(panel)
        yield panel, here


def _noted(what: str, view: View, kernels: Sequence[str]) -> str:
    """An axis title, with what the stars of these kernels mean under it."""
    note = starred([label(view, kernel) for kernel in kernels])[1]
    return f"{what}\n{note}" if note else what


def _floor_band(axes: Any, floor: Value) -> None:
    if isinstance(floor, float):
        axes.axvspan(1 - floor, 1 + floor, color=BAND, zorder=0, linewidth=0, label="A/A floor")


# -------------------------------------------------------------------------------------------- any question of a study

TITLES = {
    "hash": "Allocate with another hash over allocate with the study's own",
    "layout": "Update by layout and by language over CUDA C++'s plain one",
    "blocks": "Other numbers of threads a block over CUDA C++'s 256",
}
"""Figures of `of_question` that have a title of their own."""


def of_question(question: Question) -> tuple[str, Callable[[View], Plot]]:
    """(title, figure) of a question without a function of its own: each of its kernels over CUDA C++'s plain one."""

    def make(view: View) -> Plot:
        timed = [k for k in view.table.kernels() if not k.endswith("@twin") and k not in BASES.values()]
        missing = [glob for glob in question.kernels if not fnmatch.filter(timed, glob)]
        if missing:
            raise Missing(f"no kernel {missing[0]} was timed")
        kernels = [k for k in timed if any(fnmatch.fnmatchcase(k, glob) for glob in question.kernels)]
        kernels = sorted((k for k in kernels if k.split("/")[1] in BASES), key=_by_size)
        return _over_cuda(view, question, kernels)

    return TITLES.get(question.figure, "Each kernel over CUDA C++'s plain one"), make


def _by_size(kernel: str) -> tuple[str, int]:
    """Kernels by name, sizes of one kernel by number."""
    name, _, size = kernel.rpartition("-b")
    return (name, int(size)) if size.isdigit() else (kernel, 0)


def _over_cuda(view: View, question: Question, kernels: Sequence[str]) -> Plot:
    breaks = broken(view)
    found: dict[str, list[tuple[str, str, Compared]]] = {}
    for regime in question.regimes:
        title = f"{regime.launch}, {regime.table} table"
        for cell in dict.fromkeys(cell for cell in question.cells if cell in view.archive.run.cells):
            for kernel in kernels:
                with_regime = Regime(regime.launch, regime.table, regime.l2, regime.load)
                compared = view.compare(kernel, BASES[kernel.split("/")[1]], cell, with_regime)
                if compared is not None:
                    found.setdefault(title, []).append((cell, kernel, compared))
    if not found:
        raise Missing("its kernels share no round with CUDA C++'s plain ones")
    rows: list[dict[str, Value]] = [
        {
            "regime": title, "cell": cell, "kernel": label(view, kernel), "us": view.median_us(kernel, cell)
            if title == "serial, fresh table" else None,
            "ratio": c.us.median, "low": c.us.low, "high": c.us.high, "floor": c.floor,
            "different": SIDES[c.difference.side], "breaks": breaks.get(kernel),
        }
        for title, there in found.items()
        for cell, kernel, c in there
    ]  # fmt: skip
    lines = list(dict.fromkeys((cell, kernel) for there in found.values() for cell, kernel, _ in there))

    def draw(canvas: Any) -> None:
        axes = panels(canvas, len(found))
        seen = [1.0, *(num(row[end]) for row in rows for end in ("low", "high"))]
        for panel, (title, there) in zip(axes, found.items(), strict=True):
            panel.set_title(title, loc="left")
            ratio_axis(panel, min(seen), max(seen))
            grid(panel)
            for cell, kernel, c in there:
                index = lines.index((cell, kernel))
                if c.floor is not None:
                    panel.barh(
                        index, 2 * c.floor, left=1 - c.floor, height=0.8, color=BAND, zorder=0, label="A/A floor"
                    )
                values = (c.us.median, c.us.low, c.us.high)
                if kernel in breaks:
                    point(panel, kernel, values, index, "breaks something, not judged", UNJUDGED)
                else:
                    point(panel, kernel, values, index, "")
            _names(panel, [f"{words(cell, 24)}: {label(view, kernel)}" for cell, kernel in lines])
            for index, (cell, _) in enumerate(lines):
                if index and cell != lines[index - 1][0] and len(kernels) > 1:
                    panel.axhline(index - 0.5, color=BAND, linewidth=0.8)
        noted = _noted("ratio of times to CUDA C++'s plain kernel of the same stage", view, kernels)
        canvas.supxlabel(noted, fontsize=9)
        legend(canvas, axes)

    answer = ""
    for title, there in found.items():
        parts = []
        for kernel in kernels:
            here = [c for _, name, c in there if name == kernel]
            if here:
                ratios = span_words([c.us.median for c in here])
                parts.append(f"{label(view, kernel)} {ratios} ({count(len(here), 'cell')}, {told_apart(here)})")
        answer += f"{' ' * bool(answer)}Times CUDA C++'s plain time, {title}: {'; '.join(parts)}."
    lame = [kernel for kernel in kernels if kernel in breaks]
    if lame:
        verb = "break" if len(lame) > 1 else "breaks"
        answer += f" {listed(lame)}, drawn half filled, {verb} something and no gate judged it."
    columns = (
        Column("regime", "regime", False), Column("cell", "cell", False), Column("kernel", "kernel", False),
        Column("us", "us"), Column("ratio", "over CUDA C++"), Column("low", "lowest pass"),
        Column("high", "highest pass"), Column("floor", "A/A floor"), Column("different", "different", False),
        Column("breaks", "what it breaks", False),
    )  # fmt: skip
    table = Table(
        question.figure, question.asks, columns, tuple(rows), "Over cuda/allocate/plain or cuda/update/plain."
    )
    size = (4.5 + 3 * len(found), rows_height(len(lines), 1.0))
    return Plot(answer, table, draw, size, "launch and table as the titles say, l2 = asreset")


# ------------------------------------------------------------------------------------------------------------- causes


def _cause_words(how: str) -> tuple[str, str]:
    """(`clamp / plain`, what differs) of a finding's `how`."""
    pair, _, rest = how.partition(" on ")
    return pair.removeprefix("rust-oxide/allocate/"), rest.partition(": ")[2].partition("; breaks:")[0]


def causes(view: View) -> Plot:
    """P29's causes: each variant's time over that of the kernel it differs from in one thing."""
    how = {name: item.how for name, item in view.archive.evidence.items()}
    breaks = broken(view)
    floor = view.table.floor("base", "allocate")
    rows: list[dict[str, Value]] = []
    for cause in HYPOTHESES:
        name = f"hypothesis.{cause}.ratio"
        ratio, span = view.value(name), view.value(f"hypothesis.{cause}.range", list) or []
        if ratio is None:
            continue
        pair, what = _cause_words(how[name])
        whole = len(span) == 2 and all(isinstance(end, (int, float)) for end in span)
        low, high = (float(span[0]), float(span[1])) if whole else (ratio, ratio)
        rows.append(
            {
                "cause": cause, "pair": pair, "what": what, "ratio": float(ratio), "low": low, "high": high,
                "floor": floor, "breaks": breaks.get(f"rust-oxide/allocate/{pair.split(' / ')[0]}"),
            }
        )  # fmt: skip
    rust = rust_kernel(view, "allocate")
    host = None if rust is None else view.compare(rust, CUDA_ALLOCATE, "base")
    if rows and host is not None and host.reference is not None:
        there = [ours / theirs for ours, theirs in zip(host.reference.passes, host.us.passes, strict=False)]
        rows.append(
            {
                "cause": "host-launch", "pair": "reference / serial",
                "what": "Rust over CUDA C++, CUDA alone on one branch a volume, against both on one stream",
                "floor": floor, "breaks": None,
                "ratio": host.reference.median / host.us.median, "low": min(there), "high": max(there),
            }
        )  # fmt: skip
    if not rows:
        raise Missing("no cause of Rust's gap was varied (findings hypothesis.*)")
    rows.sort(key=lambda row: num(row["ratio"]))

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        ratio_axis(axes, min(1.0, *(num(r["low"]) for r in rows)), max(1.0, *(num(r["high"]) for r in rows)))
        grid(axes)
        _floor_band(axes, floor)
        for index, row in enumerate(rows):
            values = [num(row[key]) for key in ("ratio", "low", "high")]
            if row["cause"] == "host-launch":
                mark, grey = REGIME["reference"]
                axes.plot(values[1:], [index, index], color=grey, linewidth=1.6)
                axes.plot(values[:1], [index], marker=mark, color=grey, linestyle="none", label="a regime, no kernel")
            elif row["breaks"] is not None:
                point(axes, "rust-oxide", values, index, "rust-oxide, breaks something, not judged", UNJUDGED)
            else:
                point(axes, "rust-oxide", values, index, "rust-oxide, passes the gates")
        _names(axes, [f"{row['cause']}: {row['pair']}" for row in rows])
        axes.set_xlabel("ratio of times to the kernel that it differs from, base, serial, fresh table")
        legend(canvas, [axes], 3)

    kernels = [row for row in rows if row["cause"] != "host-launch"]

    def of(side: int) -> str:
        here = [r for r in kernels if floor is not None and _side(num(r["low"]), num(r["high"]), floor) == side]
        return listed([f"{r['cause']} {n(num(r['ratio']))}" if side else str(r["cause"]) for r in here]) or "none"

    if floor is None:
        answer = f"{count(len(rows), 'cause')} varied; without an A/A floor none is told from noise."
    else:
        answer = (
            f"Times Rust's allocate's own time, one thing changed at a time, beyond the A/A floor of {100 * floor:.1f} "
            f"percent in every pass: faster {of(-1)}; slower {of(1)}; no difference {of(0)}."
        )
    if len(kernels) < len(rows):
        change = next(num(row["ratio"]) for row in rows if row["cause"] == "host-launch")
        answer += f" Putting CUDA alone on one branch a volume changes Rust's ratio to CUDA C++ {n(change)} times."
    lame = [str(row["cause"]) for row in rows if row["breaks"] is not None]
    if lame:
        answer += f" The variants of {listed(lame)} break something and were not judged by the gates."
    columns = (
        Column("cause", "cause", False), Column("pair", "kernel / compared with", False),
        Column("what", "what differs", False), Column("ratio", "ratio"), Column("low", "lowest pass"),
        Column("high", "highest pass"), Column("floor", "A/A floor"), Column("breaks", "what it breaks", False),
    )  # fmt: skip
    note = (
        "Ratio of the passes' medians; kernels of rust-oxide/allocate, but for host-launch, which is a regime. What no "
        "gate caught is not thereby right: without the fence nothing orders a block's publication."
    )
    table = Table("causes", "Causes of Rust's gap in allocate", columns, tuple(rows), note)
    return Plot(answer, table, draw, (9, rows_height(len(rows), 1.3)), "cell = base, kernel = rust-oxide/allocate/*")


def designs(view: View) -> Plot:
    """P41: the paper's two failed designs, in both languages, each over its own plain kernel."""
    names = {"cas128": "key and index by one 128-bit exchange", "slotindex": "the slot's number as the index"}
    breaks = broken(view)
    rows: list[dict[str, Value]] = []
    for variant, what in names.items():
        for language in ("cuda", "rust-oxide"):
            for table, regime in (("fresh", SERIAL), ("filled", FILLED)):
                kernel = f"{language}/allocate/{variant}"
                compared = view.compare(kernel, f"{language}/allocate/plain", "base", regime)
                if compared is not None:
                    rows.append(
                        {
                            "what": what, "kernel": label(view, kernel), "table": table,
                            "ratio": compared.us.median, "low": compared.us.low, "high": compared.us.high,
                            "floor": compared.floor, "different": SIDES[compared.difference.side],
                            "breaks": breaks.get(kernel),
                        }
                    )  # fmt: skip
    if not rows:
        raise Missing("neither failed design was timed on base")

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        ratio_axis(axes, min(1.0, *(num(r["low"]) for r in rows)), max(1.0, *(num(r["high"]) for r in rows)))
        grid(axes)
        for index, row in enumerate(rows):
            if row["floor"] is not None:
                half = num(row["floor"])
                axes.barh(index, 2 * half, left=1 - half, height=0.8, color=BAND, zorder=0, label="A/A floor")
            kernel = str(row["kernel"])
            fill = UNJUDGED if row["breaks"] else "full"
            lame = ", breaks something, not judged" if row["breaks"] else ""
            language = "CUDA C++" if kernel.startswith("cuda") else "Rust"
            point(axes, kernel, [num(row[k]) for k in ("ratio", "low", "high")], index, f"{language}{lame}", fill)
        _names(axes, [f"{row['kernel']}, {row['table']} table" for row in rows])
        timed = [str(row["kernel"]).split(" ")[0] for row in rows]
        axes.set_xlabel(_noted("ratio of times to the same language's plain allocate, base, serial", view, timed))
        legend(canvas, [axes], 3)

    parts = []
    for what in names.values():
        here = [
            f"{n(num(row['ratio']))} ({'CUDA C++' if str(row['kernel']).startswith('cuda') else 'Rust'})"
            for row in rows
            if row["what"] == what and row["table"] == "fresh"
        ]
        if here:
            parts.append(f"{what} takes {listed(here)} times plain's time")
    answer = f"On a fresh table {'; '.join(parts)}." if parts else "Timed on a filled table only."
    if any(row["breaks"] for row in rows):
        answer += " Both designs break something that the pool needs, so they are timed and never judged."
    columns = (
        Column("what", "design", False), Column("kernel", "kernel", False), Column("table", "table", False),
        Column("ratio", "over plain"), Column("low", "lowest pass"), Column("high", "highest pass"),
        Column("floor", "A/A floor"), Column("different", "different", False),
        Column("breaks", "what it breaks", False),
    )  # fmt: skip
    table = Table("designs", "Two failed designs over plain", columns, tuple(rows), "Base, serial.")
    return Plot(answer, table, draw, (9, rows_height(len(rows), 1.3)), "cell = base, launch = serial")


# ------------------------------------------------------------------------------------------------------------- Triton

PRIVATE_SLOTS = 65_536
"""Scratch of static8 itself."""


def scratch(view: View) -> Plot:
    """P26: the bounded probe's time by the number of addresses that idle lanes share."""
    sizes = {PRIVATE_SLOTS: TRITON_ALLOCATE}
    for kernel in view.table.kernels("allocate", "base"):
        size = kernel.removeprefix(f"{TRITON_ALLOCATE}-s")
        if size != kernel and size.isdigit():
            sizes[int(size)] = kernel
    rows: list[dict[str, Value]] = []
    for size, kernel in sorted(sizes.items()):
        medians = list(view.table.medians(kernel, "base", SERIAL).values())
        if medians:
            compared = view.compare(kernel, CUDA_ALLOCATE, "base")
            rows.append(
                {
                    "slots": size, "kernel": label(view, kernel), "us": statistics.median(medians),
                    "low": min(medians), "high": max(medians),
                    "ratio": None if compared is None else compared.us.median,
                }
            )  # fmt: skip
    if len(rows) < 3:
        raise Missing("fewer than three sizes of Triton's scratch were timed on base")
    points = view.archive.run.cells["base"].points

    def draw(canvas: Any) -> None:
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

        axes = canvas.subplots()
        colour, mark = style(TRITON_ALLOCATE)
        slots, times = [num(row["slots"]) for row in rows], [num(row["us"]) for row in rows]
        axes.axvline(points, color=INK, linestyle=(0, (4, 3)), linewidth=0.9, label="a slot a point of the cell")
        for row in rows:
            axes.plot([num(row["slots"])] * 2, [num(row["low"]), num(row["high"])], color=colour, linewidth=2)
        axes.plot(slots, times, marker=mark, color=colour, linewidth=0.9, label="triton/allocate/static8")
        for slot, time in zip(slots, times, strict=True):
            axes.annotate(f"{time:.4g}", (slot, time), xytext=(4, 5), textcoords="offset points", fontsize=8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(min(slots) / 1.4, max(slots) * 2)
        axes.set_ylim(min(times) / 1.4, max(times) * 1.5)
        plain = FuncFormatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_major_locator(FixedLocator(slots))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(plain)
        axes.yaxis.set_major_locator(FixedLocator([t for p in range(7) for t in (10**p, 2 * 10**p, 5 * 10**p)]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(plain)
        axes.tick_params(axis="x", rotation=20)
        axes.set_xlabel("slots of scratch that the lanes without work share")
        axes.set_ylabel("time, us a launch")
        axes.grid(color=BAND, linewidth=0.5)
        axes.set_axisbelow(True)
        legend(canvas, [axes], 2)

    first, best = rows[0], min(rows, key=lambda row: num(row["us"]))
    answer = f"With {first['slots']} shared slots the bounded probe takes {num(first['us']):.4g} us on base"
    answer += f" ({n(num(first['ratio']))} times CUDA C++'s)" if first["ratio"] is not None else ""
    answer += f", with {num(best['slots']):,.0f} it takes {num(best['us']):.4g}"
    answer += f" ({n(num(best['ratio']))} times)." if best["ratio"] is not None else "."
    below = [row for row in rows if num(row["slots"]) < points]
    if below:
        share = num(below[-1]["us"]) / num(best["us"])
        answer += f" {num(below[-1]['slots']):,.0f} slots, fewer than the cell's {points:,} points, are at {share:.3f} "
        answer += "of the fastest size's time."
    columns = (
        Column("slots", "slots"), Column("kernel", "kernel", False), Column("us", "us"), Column("low", "lowest pass"),
        Column("high", "highest pass"), Column("ratio", "over CUDA C++"),
    )  # fmt: skip
    table = Table("scratch", "Triton's scratch", columns, tuple(rows), "Base, serial, fresh table.")
    return Plot(answer, table, draw, (7.5, 3.8), "cell = base, kernel = triton/allocate/static8*")


def triton_floor(view: View) -> Plot:
    """P40: the bounded probe with a load for its exchange, and where there are few blocks and many."""
    load = f"{TRITON_ALLOCATE}-load"
    kernels = {CUDA_ALLOCATE: "CUDA C++'s allocate", TRITON_ALLOCATE: "bounded probe", load: "a load for the exchange"}
    facts = view.archive.run.cells
    rows: list[dict[str, Value]] = []
    for cell in ("r-0.25", "base", "r-2.0"):
        for kernel, what in kernels.items():
            medians = list(view.table.medians(kernel, cell).values())
            if medians and cell in facts:
                rows.append(
                    {
                        "cell": cell, "blocks": facts[cell].blocks, "kernel": label(view, kernel), "what": what,
                        "us": statistics.median(medians), "low": min(medians), "high": max(medians),
                    }
                )  # fmt: skip

    def of(kernel: str, cell: str) -> float | None:
        found = [num(row["us"]) for row in rows if row["kernel"] == label(view, kernel) and row["cell"] == cell]
        return found[0] if found else None

    plain, changed = of(TRITON_ALLOCATE, "base"), of(load, "base")
    if plain is None or changed is None:
        raise Missing(f"{load} was not timed on base beside {TRITON_ALLOCATE}")
    lines = list(dict.fromkeys((str(row["cell"]), str(row["what"])) for row in rows))

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        for row in rows:
            kernel = str(row["kernel"])
            index = lines.index((str(row["cell"]), str(row["what"])))
            point(axes, kernel, [num(row[k]) for k in ("us", "low", "high")], index, kernel)
            axes.annotate(
                f"{num(row['us']):.4g}", (num(row["us"]), index), xytext=(8, 0), textcoords="offset points", fontsize=8,
                va="center",
            )  # fmt: skip
        _names(axes, [f"{cell}, {facts[cell].blocks:,} blocks: {what}" for cell, what in lines])
        for index, (cell, _) in enumerate(lines):
            if index and cell != lines[index - 1][0]:
                axes.axhline(index - 0.5, color=BAND, linewidth=0.8)
        axes.set_xlim(0, 1.15 * max(num(row["high"]) for row in rows))
        axes.grid(axis="x", color=BAND, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_xlabel("time, us a launch, serial, fresh table")

    answer = f"On base a load in place of the exchange takes {n(changed / plain)} of the bounded probe's time"
    few, many = of(TRITON_ALLOCATE, "r-0.25"), of(TRITON_ALLOCATE, "r-2.0")
    if few is not None and many is not None:
        times = facts["r-2.0"].blocks / facts["r-0.25"].blocks
        answer += f"; {times:.0f} times fewer blocks (r-0.25 against r-2.0) take {n(few / many)} of it"
    answer += "."
    columns = (
        Column("cell", "cell", False), Column("blocks", "blocks"), Column("kernel", "kernel", False),
        Column("what", "what it is", False), Column("us", "us"), Column("low", "lowest pass"),
        Column("high", "highest pass"),
    )  # fmt: skip
    table = Table("triton-floor", "What lifts Triton's floor", columns, tuple(rows), "Serial, fresh table.")
    return Plot(answer, table, draw, (9, rows_height(len(lines), 0.9)), "cell = base, r-0.25, r-2.0")


TILE = re.compile(r"triton/(allocate|update)/while(?:-w(\d+)x(\d+))?")
OWN_TILE = (32, 1)
"""Lanes and warps of triton/*/while."""


def tiles(view: View) -> Plot:
    """Triton's unbounded probe by the size of its tile, over the arm's own tile."""
    rows: list[dict[str, Value]] = []
    for cell in view.cells():
        for kernel in view.table.kernels(cell=cell):
            match = TILE.fullmatch(kernel)
            if match is None:
                continue
            compared = view.compare(kernel, f"triton/{match[1]}/while", cell)
            lanes, warps = (int(match[2]), int(match[3])) if match[2] else OWN_TILE
            if compared is not None and match[2]:
                rows.append(
                    {
                        "cell": cell, "stage": match[1], "lanes": lanes, "warps": warps,
                        "us": view.median_us(kernel, cell), "ratio": compared.us.median, "low": compared.us.low,
                        "high": compared.us.high, "floor": compared.floor,
                        "different": SIDES[compared.difference.side],
                    }
                )  # fmt: skip
    if not rows:
        raise Missing("no other tile of Triton's unbounded probe was timed")
    cells = list(dict.fromkeys(str(row["cell"]) for row in rows))
    lines = sorted({(str(row["stage"]), (int(num(row["lanes"])), int(num(row["warps"])))) for row in rows})

    def draw(canvas: Any) -> None:
        for panel, here in cell_panels(canvas, rows, cells):
            for row in here:
                stage, shape = str(row["stage"]), (int(num(row["lanes"])), int(num(row["warps"])))
                values = [num(row[k]) for k in ("ratio", "low", "high")]
                point(panel, f"triton/{stage}/while", values, lines.index((stage, shape)), "")
            _names(panel, [f"{stage}: {lanes} lanes, {count(warps, 'warp')}" for stage, (lanes, warps) in lines])
            for index, (stage, _) in enumerate(lines):
                if index and stage != lines[index - 1][0]:
                    panel.axhline(index - 0.5, color=SOFT, linewidth=0.8)
        what = "ratio of times to the arm's own tile of 32 lanes and 1 warp (left of 1: faster)"
        canvas.supxlabel(what, fontsize=9)

    parts = []
    for stage in ("allocate", "update"):
        faster = []
        for cell in cells:
            here = [r for r in rows if r["stage"] == stage and r["cell"] == cell and r["different"] == "faster"]
            if here:
                best = min(here, key=lambda row: num(row["ratio"]))
                faster.append(f"{best['lanes']} x {best['warps']} on {words(cell, 24)} ({n(num(best['ratio']))})")
        worst = max((num(r["ratio"]) for r in rows if r["stage"] == stage), default=None)
        if worst is not None:
            text = f"in {stage} " + (f"the fastest is {listed(faster)}" if faster else "no other tile is faster")
            parts.append(f"{text}, the slowest takes {n(worst)} times")
    answer = f"Against 32 lanes and 1 warp, {'; '.join(parts)}."
    columns = (
        Column("cell", "cell", False), Column("stage", "stage", False), Column("lanes", "lanes"),
        Column("warps", "warps"), Column("us", "us"), Column("ratio", "over 32 x 1"), Column("low", "lowest pass"),
        Column("high", "highest pass"), Column("floor", "A/A floor"), Column("different", "different", False),
    )  # fmt: skip
    table = Table("tiles", "Triton's tile", columns, tuple(rows), "Serial, fresh table; lanes x warps of a program.")
    return Plot(answer, table, draw, (3 + 2.6 * len(cells), rows_height(len(lines), 1.0)), "kernel = triton/*/while*")


# ------------------------------------------------------------------------------------------------------------- limits

GEOMETRY, ATOMICS = "cuda/floor/geometry", "cuda/floor/atomics"
BOTTOM = {"allocate": GEOMETRY, "update": ATOMICS, "integrate": ATOMICS}
CHANGES = {
    "nowait": "no wait for an unused index",
    "ray": "no block twice along a ray",
    "warp": "one lane a warp for a block",
    "ray-warp": "no block twice, one lane a warp for a block",
    "ray-run": "no block twice, one lane a run",
    "walls": "blocks by the walls between them",
    "walls-run": "blocks by their walls, one lane a run",
    "run": "one lane a run of neighbours",
    "packed": "packed voxels",
    "packed-ray": "packed voxels, no block twice",
    "packed-run": "packed voxels, one lane a run",
    "global": "global-address atomics",
    "while": "unbounded probe",
    "while-nowait": "unbounded probe, no wait",
    "static8": "probe bound of 8",
}
"""Variant -> what it changes."""
PANELS = ("base", "lf-918", "pts-1280k")
CAUSE_STUDY = re.compile(r"-b\d+$|-r\d+$|-w\d+x\d+$|-s\d+$")


def _arms(view: View, cells: Sequence[str]) -> list[str]:
    """Kernels that stand for a way to do the whole of a stage: sizes of one kernel and causes apart, nothing broken."""
    breaks = broken(view)
    timed = {kernel for cell in cells for kernel in view.table.kernels(cell=cell)}
    found = []
    for kernel in timed:
        _, stage, variant = kernel.split("/", 2)
        known = variant in CHANGES or variant == "plain"
        if stage in BOTTOM and known and kernel not in breaks and not CAUSE_STUDY.search(kernel):
            found.append(kernel)
    return found


SECTORS = "lts__t_sectors.sum"


def _millions(value: float | None) -> float | None:
    return None if value is None else value / 1e6


def _rate(view: View, kernel: str, cell: str) -> float | None:
    """What a counted launch moved to and from DRAM, GB/s."""
    moved, ns = (view.counter(kernel, metric, cell) for metric in ("dram__bytes.sum", "gpu__time_duration.sum"))
    return None if moved is None or not ns else moved / ns


CARDS = Path(__file__).parents[2] / "data" / "cards.toml"


def _bandwidth(view: View) -> float | None:
    """DRAM's bandwidth of the card by data/cards.toml, GB/s; None for a card that it lacks, or cards of two kinds."""
    known = tomllib.loads(CARDS.read_text(encoding="utf-8"))
    found = {known.get(name, {}).get("dram_gb_s") for name in view.archive.device_names}
    return float(found.pop()) if len(found) == 1 and None not in found else None


def _over_roofline(view: View, kernel: str, cell: str, us: float, bandwidth: float | None) -> float | None:
    """Time over what DRAM's bytes of a counted launch take at the card's bandwidth."""
    moved = view.counter(kernel, "dram__bytes.sum", cell)
    return None if not moved or bandwidth is None else us / (moved / bandwidth / 1e3)


def _memory(rows: Sequence[Mapping[str, Value]], bandwidth: float | None) -> str:
    """How far memory's roofline is, and what the fastest update saves at L2, where launches were counted."""
    counted = [row for row in rows if row["dram"] is not None and row["sectors"] is not None]
    if not counted:
        return ""
    most = max(num(row["dram"]) for row in counted)
    words = f" To and from DRAM a counted launch moves at most {n(most)} GB/s"
    roofs = [row for row in counted if row["roof"] is not None]
    if bandwidth is not None and roofs:
        nearest = min(roofs, key=lambda row: num(row["roof"]))
        words += (
            f" of the card's {bandwidth:,.0f}; nearest to memory's roofline, with {n(num(nearest['roof']))} times its "
        )
        words += f"time, is {nearest['kernel']} on {nearest['cell']}"
    words += "."
    for cell in dict.fromkeys(str(row["cell"]) for row in counted):
        here = [row for row in counted if row["cell"] == cell and row["stage"] == "update"]
        plain = next((row for row in here if row["kernel"] == CUDA_UPDATE), None)
        best = min(here, key=lambda row: num(row["us"]), default=None)
        if plain is not None and best is not None and best is not plain:
            words += (
                f" On {cell} plain update sends {n(num(plain['sectors']))} million sectors to L2, the fastest one "
                f"{n(num(best['sectors']))} million."
            )
    return words


def limits(view: View) -> Plot:
    """Every arm of each stage over the floor of that stage."""
    cells = [cell for cell in PANELS if view.median_us(GEOMETRY, cell) is not None]
    arms = _arms(view, cells)
    if not cells or not any("/integrate/" in k or k.endswith(("-run", "/walls")) for k in arms):
        raise Missing("no arm beyond the plain ones was timed beside a floor")
    rows: list[dict[str, Value]] = []
    bandwidth = _bandwidth(view)
    for cell in cells:
        both = [view.median_us(kernel, cell) for kernel in (CUDA_ALLOCATE, CUDA_UPDATE)]
        for kernel in arms:
            stage = kernel.split("/")[1]
            ratio = statistics.ratio(view.table, kernel, BOTTOM[stage], cell, Regime())
            us = view.median_us(kernel, cell)
            if ratio is None or us is None:
                continue
            whole = both[0] + both[1] if both[0] is not None and both[1] is not None else None
            plain = {"allocate": both[0], "update": both[1], "integrate": whole}[stage]
            variant = kernel.split("/")[2]
            rows.append(
                {
                    "cell": cell, "stage": stage, "kernel": label(view, kernel),
                    "changes": "one pass, " * (stage == "integrate") + CHANGES.get(variant, "as it is written"),
                    "us": us, "ratio": ratio.median, "low": ratio.low, "high": ratio.high,
                    "plain": None if plain is None else us / plain,
                    "dram": _rate(view, kernel, cell), "roof": _over_roofline(view, kernel, cell, us, bandwidth),
                    "sectors": _millions(view.counter(kernel, SECTORS, cell)),
                }
            )  # fmt: skip
    order = {stage: place for place, stage in enumerate(BOTTOM)}
    ahead = {str(row["kernel"]): num(row["ratio"]) for row in reversed(rows)}
    names = sorted(ahead, key=lambda name: (order[name.split("/")[1]], ahead[name], name))
    rows.sort(key=lambda row: (cells.index(str(row["cell"])), names.index(str(row["kernel"]))))
    changes = {str(row["kernel"]): str(row["changes"]) for row in rows}

    def draw(canvas: Any) -> None:
        for panel, here in cell_panels(canvas, rows, cells):
            for row in here:
                kernel = str(row["kernel"])
                point(panel, kernel, [num(row[k]) for k in ("ratio", "low", "high")], names.index(kernel), "")
            _names(panel, [f"{name}: {changes[name]}" for name in names])
            for index, name in enumerate(names):
                if index and name.split("/")[1] != names[index - 1].split("/")[1]:
                    panel.axhline(index - 0.5, color=SOFT, linewidth=0.8)
        what = "ratio of times: allocate to the geometry alone; update and integrate to update's atomics, bare"
        canvas.supxlabel(_noted(what, view, arms), fontsize=9)

    def best(stage: str, cell: str) -> dict[str, Value] | None:
        here = [row for row in rows if row["stage"] == stage and row["cell"] == cell]
        return min(here, key=lambda row: num(row["us"]), default=None)

    parts, shorter = [], []
    for stage in BOTTOM:
        there = [(cell, row) for cell in cells if (row := best(stage, cell)) is not None and row["plain"] is not None]
        if there:
            one_by_one = [
                f"{n(num(row['plain']))} on {cell} ({str(row['kernel']).split(' ')[0]}, {n(num(row['ratio']))} times "
                "the floor's)"
                for cell, row in there
            ]
            plain = "the two plain stages' time together" if stage == "integrate" else "plain's time"
            parts.append(f"Fastest {stage}, of {plain}: {listed(one_by_one)}.")
            least = [f"{n(num(row['plain']))} on {cell}" for cell, row in there]
            shorter.append(f"{'one pass for both stages' if stage == 'integrate' else stage} {listed(least)}")
    answer = " ".join(parts)
    fused, first, second = (best(stage, cells[0]) for stage in ("integrate", "allocate", "update"))
    if fused is not None and first is not None and second is not None:
        answer += (
            f" On {cells[0]} the fastest allocate and update one after the other take "
            f"{num(first['us']) + num(second['us']):.4g} us, the fastest single pass {num(fused['us']):.4g} us."
        )
    under = [row for row in rows if row["kernel"] == CUDA_UPDATE and num(row["ratio"]) < 1]
    if under:
        answer += (
            f" The bare atomics are no lower bound: plain update takes {span_words([num(r['ratio']) for r in under])} "
            f"times their time on {listed([str(r['cell']) for r in under])}, and arms with fewer or wider atomics less."
        )
    answer += _memory(rows, bandwidth)
    columns = (
        Column("cell", "cell", False), Column("stage", "stage", False), Column("kernel", "kernel", False),
        Column("changes", "what it changes", False), Column("us", "us"), Column("ratio", "over the floor"),
        Column("low", "lowest pass"), Column("high", "highest pass"), Column("plain", "over plain CUDA C++"),
        Column("dram", "DRAM, GB/s"), Column("roof", "over memory's roofline"),
        Column("sectors", "L2 sectors, millions"),
    )  # fmt: skip
    note = (
        "Serial, fresh table. Floors: allocate's is cuda/floor/geometry, update's and integrate's cuda/floor/atomics. "
        "Integrate's `over plain` is over the sum of both plain stages. DRAM and L2: single launches under Nsight "
        "Compute, where they were counted; DRAM's bytes over that launch's own time. Memory's roofline: those bytes at "
        "the card's bandwidth (data/cards.toml)."
    )
    table = Table("limits", "Arms over the floors", columns, tuple(rows), note)
    size = (5.2 + 2.4 * len(cells), rows_height(len(names), 1.1))
    short = f"The fastest of our own kernels take, of plain CUDA C++'s time: {'; '.join(shorter)}."
    return Plot(answer, table, draw, size, "launch = serial, table = fresh, l2 = asreset", short)


FIGURES: dict[str, tuple[str, Callable[[View], Plot]]] = {
    "causes": ("Causes of Rust's gap in allocate, one at a time", causes),
    "designs": ("Two designs that the paper gave up", designs),
    "scratch": ("The bounded probe by the size of its scratch", scratch),
    "triton-floor": ("What lifts the bounded probe's floor", triton_floor),
    "tiles": ("Triton's unbounded probe by its tile", tiles),
    "limits": ("Best arms, named for what they change, over the floors", limits),
}
"""Name -> (title, function); the questions stand in harness/measure/studies.py, and one without a function here is
answered by `of_question`."""
