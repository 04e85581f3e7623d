"""Figures of the study `contracted`: which samples of a fused volume differ once a compiler may contract, and its time.

Functions of the same kind as figures.py's, which registers them.
"""

from __future__ import annotations

from typing import Any

from harness.build.kernels import ARMS
from harness.claims.ours import Contraction, contractions
from harness.claims.registry import Compared, View
from harness.report.drawing import (
    BAND,
    INK,
    Missing,
    Plot,
    count,
    grid,
    legend,
    listed,
    num,
    point,
    ratio_axis,
    rows_height,
    span_words,
    style,
    words,
)
from harness.report.tables import BASES, Column, Table, Value, label, starred, told_apart

FMA = "/fma"
DIFFERENT = {-1: "faster", 0: "no", 1: "slower"}


def _what(found: Contraction) -> str:
    """`2 moved, 10 in one` of a cell of the grid."""
    if not found.differs:
        return "none"
    parts = [f"{found.moved:,} moved"] if found.moved else []
    parts += [f"{found.single:,} in one"] if found.single else []
    return ", ".join(parts) or f"{found.voxels:,} voxels"


def _kernel(arm: str) -> str:
    """The kernel whose colour and marker an arm has."""
    row = ARMS.get(arm)
    return (row.allocate if row is not None else None) or arm


def samples(view: View) -> Plot:
    """Which samples a contracted build puts into another voxel, or which only one of the two builds takes."""
    found = contractions(view)
    if not found:
        raise Missing("the archive compares no contracted volume (findings contraction.*)")
    arms, cells = (list(dict.fromkeys(getattr(f, key) for f in found)) for key in ("arm", "cell"))
    by_place = {(f.arm, f.cell): f for f in found}

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        for row, arm in enumerate(arms):
            colour, mark = style(_kernel(arm))
            axes.plot([-0.42], [row], marker=mark, color=colour, linestyle="none")
            for column, cell in enumerate(cells):
                here = by_place.get((arm, cell))
                if here is None:
                    continue
                if here.differs:
                    axes.barh(row, 0.96, left=column - 0.36, height=0.86, color=BAND, zorder=0, linewidth=0)
                text = "same code" if here.same_code and not here.differs else _what(here)
                axes.text(column + 0.12, row, text, ha="center", va="center", color=INK, fontsize=8)
        axes.set_xlim(-0.5, len(cells) - 0.36)
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.set_xticks([column + 0.12 for column in range(len(cells))], [words(cell, 24) for cell in cells])
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(arms)), [words(arm, 40) for arm in arms])
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.set_xlabel("samples that contraction moves to another voxel, and those that only one of the builds takes")

    rows: list[dict[str, Value]] = [
        {
            "arm": f.arm, "cell": f.cell, "same_code": "yes" if f.same_code else "no", "samples": f.samples,
            "moved": f.moved, "single": f.single, "voxels": f.voxels, "blocks": f.blocks, "dropped": f.dropped,
            "tsdf": f.tsdf, "noise": f.noise, "again": f.again,
        }
        for f in found
    ]  # fmt: skip
    columns = (
        Column("arm", "arm", False), Column("cell", "cell", False), Column("same_code", "same code", False),
        Column("samples", "samples"), Column("moved", "moved"), Column("single", "in one build only"),
        Column("voxels", "voxels that differ"), Column("blocks", "blocks in one only"),
        Column("dropped", "dropped by the contracted update"), Column("tsdf", "largest tsdf difference"),
        Column("noise", "voxels, two runs of one build"), Column("again", "tsdf, two runs of one build"),
    )  # fmt: skip
    note = (
        "Each arm's contracted volume against its own uncontracted one. Moved: in another voxel. tsdf: sums of equal "
        "weight, whose additions have another order in every run."
    )
    table = Table("contracted", "Samples that contraction moves", columns, tuple(rows), note)
    size = (2.2 + 1.7 * len(cells), rows_height(len(arms), 1.0))
    return Plot(_samples_answer(found), table, draw, size)


def _samples_answer(found: list[Contraction]) -> str:
    same = list(dict.fromkeys(f.arm for f in found if f.same_code))
    fused = [f for f in found if not f.same_code]
    parts = []
    moving = list(dict.fromkeys(f.cell for f in fused if f.differs))
    calm = [words(cell, 24) for cell in dict.fromkeys(f.cell for f in fused) if cell not in moving]
    if calm:
        parts.append(f"no sample differs on {listed(calm)}")
    for cell in moving:
        here = [f for f in fused if f.cell == cell]
        moved, single = ([getattr(f, key) for f in here] for key in ("moved", "single"))
        parts.append(
            f"on {words(cell, 24)} {_range(moved)} of {max(f.samples for f in here):,} samples move to another voxel "
            f"and {_range(single)} are taken by one build only"
        )
    answer = f"With contraction {'; '.join(parts)}." if parts else ""
    if same:
        verb = "has" if len(same) == 1 else "have"
        answer += f" {listed(same)} {verb} the same code in both builds: that compiler contracts nothing."
    if fused:
        answer += (
            f" The largest tsdf difference is {max(f.tsdf for f in fused):.2g}; two runs of one build differ by up to "
            f"{max(f.again for f in fused):.2g}."
        )
    return answer.strip()


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def times(view: View) -> Plot:
    """Time of every contracted kernel over its own uncontracted build."""
    timed = view.table.kernels()
    pairs = [(kernel, kernel + FMA) for kernel in timed if kernel + FMA in timed and kernel.split("/")[1] in BASES]
    found: list[tuple[str, str, Compared]] = []
    for cell in view.cells():
        for kernel, fused in pairs:
            compared = view.compare(fused, kernel, cell)
            if compared is not None:
                found.append((cell, kernel, compared))
    if not found:
        raise Missing("no kernel was timed beside its contracted build")
    stages = [stage for stage in BASES if any(kernel.split("/")[1] == stage for _, kernel, _ in found)]
    rows: list[dict[str, Value]] = [
        {
            "stage": kernel.split("/")[1], "kernel": label(view, kernel), "cell": cell,
            "us": view.median_us(kernel, cell), "fused_us": view.median_us(kernel + FMA, cell), "ratio": c.us.median,
            "low": c.us.low, "high": c.us.high, "floor": c.floor, "different": DIFFERENT[c.difference.side],
        }
        for cell, kernel, c in found
    ]  # fmt: skip
    names = list(dict.fromkeys(kernel for kernel, _ in pairs))
    lines = {stage: [kernel for kernel in names if kernel.split("/")[1] == stage] for stage in stages}
    ends = [1.0, *(num(row[end]) for row in rows for end in ("low", "high"))]
    cells = list(dict.fromkeys(cell for cell, _, _ in found))

    def draw(canvas: Any) -> None:
        axes = [canvas.add_subplot(1, len(stages), place + 1) for place in range(len(stages))]
        for panel, stage in zip(axes, stages, strict=True):
            panel.set_title(stage, loc="left")
            ratio_axis(panel, min(ends), max(ends))
            grid(panel)
            places = [(kernel, cell) for kernel in lines[stage] for cell in cells]
            for cell, kernel, c in found:
                if kernel not in lines[stage]:
                    continue
                row = places.index((kernel, cell))
                if c.floor is not None:
                    panel.barh(row, 2 * c.floor, left=1 - c.floor, height=0.8, color=BAND, zorder=0, label="A/A floor")
                point(panel, kernel, (c.us.median, c.us.low, c.us.high), row, "")
            texts = [f"{label(view, kernel).replace(f'/{stage}/', ' ')}, {words(cell, 24)}" for kernel, cell in places]
            panel.set_ylim(len(places) - 0.5, -0.5)
            panel.set_yticks(range(len(places)), [words(text, 60) for text in starred(texts)[0]])
            panel.tick_params(axis="y", length=0)
        canvas.supxlabel("contracted over uncontracted: ratio of times of the same kernel", fontsize=9)
        legend(canvas, axes)

    parts = []
    for stage in stages:
        words_of = []
        for kernel in lines[stage]:
            here = [c for _, name, c in found if name == kernel]
            if here:
                ratios = span_words([c.us.median for c in here])
                words_of.append(f"{label(view, kernel)} {ratios} ({count(len(here), 'cell')}, {told_apart(here)})")
        parts.append(f"{stage}: {'; '.join(words_of)}")
    answer = f"Times its own uncontracted time, {'. In '.join(parts)}."
    answer = answer[0].upper() + answer[1:]
    columns = (
        Column("stage", "stage", False), Column("kernel", "kernel", False), Column("cell", "cell", False),
        Column("us", "us"), Column("fused_us", "us contracted"), Column("ratio", "contracted over not"),
        Column("low", "lowest pass"), Column("high", "highest pass"), Column("floor", "A/A floor"),
        Column("different", "different", False),
    )  # fmt: skip
    table = Table("contracted-time", "Time with contraction over time without", columns, tuple(rows), "Serial, fresh.")
    most = max(len(lines[stage]) for stage in stages) * len(cells)
    size = (3 + 4.2 * len(stages), rows_height(most, 1.2))
    return Plot(answer, table, draw, size, "kernel = NAME and NAME/fma, launch = serial, table = fresh")


FIGURES = {
    "contracted": ("Samples that contraction moves", samples),
    "contracted-time": ("Time with contraction over time without", times),
}
"""Name -> (title, function); the questions stand in harness/measure/studies.py."""
