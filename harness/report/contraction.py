"""Figures of the contraction study: which images are equal, where two differ, and what contraction costs.

Functions of the same kind as figures.py's, which registers them.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import re
import string
import textwrap
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.claims import figures as seeds
from harness.claims.blog import images as fma_images
from harness.claims.registry import Open, View
from harness.claims.statistics import Regime
from harness.report.drawing import (
    BAND,
    INK,
    ON_FILL,
    Missing,
    Plot,
    count,
    ends,
    legend,
    num,
    point,
    rows_height,
    words,
)
from harness.report.tables import Column, Table, Value, label, starred

FMA = "Do two compilers compute the same image?"


@dataclass(frozen=True)
class DifferenceMap:
    """Pixels in which two iteration images differ: positions and b - a, edge in pixels."""

    a: str
    b: str
    size: int
    rows: np.ndarray
    columns: np.ndarray
    change: np.ndarray


MAX_PIXELS = 4_000_000


def difference_map(view: View) -> DifferenceMap:
    """The finding `fma.difference`: little-endian (row u2, column u2, change i2) of every pixel that differs, zlib and
    base64.

    Raises:
        Missing: not in the archive, or not of that form.
    """
    found = view.value("fma.difference", dict)
    if found is None:
        raise Missing("the archive does not carry which pixels differ (finding fma.difference)")
    try:
        size = int(found["size"])
        packed = base64.b64decode(str(found["pixels"]), validate=True)
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(packed, 6 * MAX_PIXELS)
        if unpacker.unconsumed_tail or len(data) % 6 or not 0 < size <= 16384:
            raise ValueError("too many pixels")
        table = np.frombuffer(data, "<u2").reshape(-1, 3)
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error):
        raise Missing("the finding fma.difference is not of the form that irr writes") from None
    rows, columns, change = table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2].astype(np.int16).astype(int)
    if len(table) and max(int(rows.max()), int(columns.max())) >= size:
        raise Missing("the finding fma.difference names pixels outside its image")
    return DifferenceMap(words(str(found.get("a"))), words(str(found.get("b"))), size, rows, columns, change)


def fma_map(view: View) -> Plot:
    found = difference_map(view)
    if not len(found.rows):
        raise Missing(f"the images {found.a} and {found.b} do not differ")
    bins = 256
    step = max(1, found.size // bins)
    edge = -(-found.size // step)
    density = np.zeros((edge, edge))
    np.add.at(density, (found.rows // step, found.columns // step), 1)
    # The zoom: the window of 64 by 64 pixels that holds the most.
    window = min(64, found.size)
    tiles = np.zeros((-(-found.size // window), -(-found.size // window)), int)
    np.add.at(tiles, (found.rows // window, found.columns // window), 1)
    top, left = (int(v) * window for v in np.unravel_index(int(tiles.argmax()), tiles.shape))
    inside = (
        (found.rows >= top) & (found.rows < top + window) & (found.columns >= left) & (found.columns < left + window)
    )
    zoom = np.full((window, window), np.nan)
    zoom[found.rows[inside] - top, found.columns[inside] - left] = found.change[inside]
    most = int(np.abs(found.change).max())

    def draw(canvas: Any) -> None:
        from matplotlib.patches import Rectangle
        from matplotlib.ticker import FuncFormatter

        left_axes, right_axes = canvas.subplots(1, 2)
        shown = np.ma.masked_equal(density, 0)
        image = left_axes.imshow(
            shown, cmap="viridis_r", norm="log", interpolation="nearest", extent=(0, found.size, found.size, 0)
        )
        left_axes.set_title(f"whole image, differing pixels per {step} x {step}", loc="left")
        left_axes.add_patch(Rectangle((left, top), window, window, fill=False, edgecolor="#D55E00", linewidth=1.5))
        plain = FuncFormatter(lambda value, _: f"{value:g}")
        canvas.colorbar(image, ax=left_axes, shrink=0.75, format=plain).ax.minorticks_off()
        limit = max(1, int(np.nanmax(np.abs(zoom))))
        near = right_axes.imshow(
            np.ma.masked_invalid(zoom), cmap="PuOr", vmin=-limit, vmax=limit, interpolation="nearest",
            extent=(left, left + window, top + window, top),
        )  # fmt: skip
        right_axes.set_facecolor("#f4f4f4")
        right_axes.set_title("zoom on the square, change in iterations", loc="left")
        canvas.colorbar(near, ax=right_axes, shrink=0.75)
        for axes in (left_axes, right_axes):
            axes.set_xlabel("column")
            axes.set_ylabel("row")
            for side in axes.spines.values():
                side.set_visible(True)

    pixels, total = len(found.rows), found.size**2
    tiles_hit = len({*zip((found.rows // 16).tolist(), (found.columns // 16).tolist(), strict=True)})
    share = 100 * tiles_hit / (found.size / 16) ** 2
    answer = (
        f"{pixels:,} of {total:,} pixels ({100 * pixels / total:.2f} percent) differ between {found.a} and {found.b}, "
        f"by at most {most} iterations; they lie in {share:.1f} percent of the tiles of 16 x 16."
    )
    blog = f"{seeds.blog('pixels'):,} pixels and {seeds.blog('largest')} iterations"
    answer += f" The blog has {blog}."
    rows: list[dict[str, Value]] = [
        {"tile_row": int(r) * step, "tile_column": int(c) * step, "pixels": int(density[r, c])}
        for r, c in np.argwhere(density > 0)
    ]
    columns = (
        Column("tile_row", "first row"),
        Column("tile_column", "first column"),
        Column("pixels", "pixels that differ"),
    )
    table = Table("fma-map", f"Differing pixels per tile of {step} x {step}", columns, tuple(rows))
    return Plot(answer, table, draw, (10, 4.4))


def fma_pairs(view: View) -> Plot:
    try:
        document = fma_images(view)
    except Open as open_:
        raise Missing(open_.verdict.reason) from None
    rows: list[dict[str, Value]] = [
        {key: pair.get(key) for key in ("a", "b", "pixels", "max", "class", "net")} for pair in document["pairs"]
    ]
    every = list(dict.fromkeys(str(pair[key]) for pair in document["pairs"] for key in ("a", "b")))
    # Images of one hash are one image: the first stands for all.
    alike: dict[str, list[str]] = {}
    for name in every:
        alike.setdefault(str((document["patterns"].get(name) or {}).get("hash", name)), []).append(name)
    groups = {f"{letter}: {group[0]}": group for letter, group in zip(_letters(), alike.values(), strict=False)}
    names = [group[0] for group in groups.values()]
    told = [f"{head.split(':')[0]} = {_members(group)}" for head, group in groups.items()]
    lines = [line for text in told for line in textwrap.wrap(text, 130)]

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        grid = np.full((len(names), len(names)), np.nan)
        for row in rows:
            if row["a"] not in names or row["b"] not in names:
                continue
            i, j = names.index(str(row["a"])), names.index(str(row["b"]))
            grid[i, j] = grid[j, i] = num(row["pixels"])
        axes.imshow(
            np.ma.masked_invalid(grid), cmap="Blues", vmin=0, vmax=max(1.0, float(np.nanmax(grid))) * 1.6,
            aspect="auto",
        )  # fmt: skip
        for i in range(len(names)):
            for j in range(len(names)):
                if i != j and grid[i, j] == grid[i, j]:
                    axes.text(j, i, f"{int(grid[i, j]):,}", ha="center", va="center", fontsize=8, color=ON_FILL)
        heads = [words(head, 40) for head in groups]
        axes.set_xticks(range(len(names)), heads, rotation=0 if len(names) < 6 else 20, ha="center")
        axes.set_yticks(range(len(names)), heads)
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.set_title("pixels that differ, of one image and another", loc="left")
        canvas.supxlabel("\n".join(lines), fontsize=7.5, x=0.01, ha="left")

    differ = next((row for row in rows if {row["a"], row["b"]} == {"nvcc", "oxide"}), None)
    alike_words = "; ".join(f"{head} ({count(len(group), 'image')})" for head, group in groups.items())
    answer = f"{len(every)} images are {count(len(names), 'distinct image')}: {alike_words}."
    if differ is not None:
        answer += f" The fusions of nvcc and of cuda-oxide differ in {num(differ['pixels']):,.0f} pixels."
    columns = (
        Column("a", "a", False), Column("b", "b", False), Column("pixels", "pixels"), Column("max", "largest"),
        Column("class", "change class"), Column("net", "net, b - a"),
    )  # fmt: skip
    note = f"The same image, pixel by pixel: {'; '.join(told)} (kernels without /fma/mandelbrot-)."
    table = Table("fma-pairs", "Pairs of images", columns, tuple(rows), note)
    height = 1.3 + 0.42 * len(names) + 0.14 * len(lines)
    return Plot(answer, table, draw, (max(9.0, 3 + 0.95 * len(names)), height))


def _letters() -> Iterator[str]:
    """A to Z, then A2 and so on: names of groups of images."""
    yield from string.ascii_uppercase
    for number in itertools.count(2):
        yield from (f"{letter}{number}" for letter in string.ascii_uppercase)


def _members(group: Sequence[str]) -> str:
    """The images of one group, short: kernels of the study without the words that all of them share."""
    return ", ".join(name.replace("/fma/mandelbrot-", " ") for name in group)


LOADED = {"aot": "compiled ahead of time", "jit": "compiled on loading"}
CONTRACTION = re.compile(r"/fma/mandelbrot-(\w+)-b(\d+)(\**)")


def _contraction(found: re.Match[str]) -> str:
    """`/fma/mandelbrot-off-b256` in words."""
    how = {"default": "its own contraction", "off": "contraction off"}.get(found[1], found[1])
    return f"{found[3]}: {how}, {found[2]} threads a block"


def fma_time(view: View) -> Plot:
    timed = [kernel for kernel in view.table.kernels("fma") if "/mandelbrot-" in kernel and "@" not in kernel]
    rows: list[dict[str, Value]] = []
    for kernel in timed:
        language, _, variant = kernel.split("/", 2)
        base = f"cuda/fma/{variant}"
        if language == "cuda" or base not in timed:
            continue
        for load in ("aot", "jit"):
            for cell in view.table.cells(kernel, Regime(load=load)):
                compared = view.compare(kernel, base, cell, Regime(load=load))
                if compared is not None:
                    rows.append(
                        {
                            "kernel": label(view, kernel), "load": load, "cell": cell, "ratio": compared.us.median,
                            "low": compared.us.low, "high": compared.us.high, "floor": compared.floor,
                            "ahead": compared.us.ahead, "rounds": compared.us.rounds,
                            "different": {-1: "faster", 0: "no", 1: "slower"}[compared.difference.side],
                        }
                    )  # fmt: skip
    if not rows:
        raise Missing("the contraction study's kernels were not timed on a GPU")
    rows.sort(key=lambda row: (str(row["load"]), str(row["kernel"])))

    shown = [row for row in rows if str(row["kernel"]).startswith("rust")] or rows

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        axes.axvline(0, color=INK, linewidth=0.9)
        for index, row in enumerate(shown):
            if row["floor"] is not None:
                half = 100 * num(row["floor"])
                axes.barh(index, 2 * half, left=-half, height=0.8, color=BAND, zorder=0, label="A/A floor")
            values = [100 * (num(row[key]) - 1) for key in ("ratio", "low", "high")]
            point(axes, str(row["kernel"]), values, index, "")
        names, note = starred([str(row["kernel"]) for row in shown])
        names = [CONTRACTION.sub(_contraction, name) for name in names]
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_yticks(
            range(len(shown)),
            [words(f"{a}, {LOADED[str(row['load'])]}", 80) for a, row in zip(names, shown, strict=True)],
        )
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=BAND, linewidth=0.5)
        axes.set_axisbelow(True)
        what = "percent more time than CUDA C++'s same program (left of 0: less)"
        axes.set_xlabel(f"{what}\n{note}" if note else what)
        legend(canvas, [axes], 3)

    def of(language: str, word: str) -> list[float]:
        here = [row for row in rows if str(row["kernel"]).startswith(language) and word in str(row["kernel"])]
        return [100 * (num(row["ratio"]) - 1) for row in here]

    parts = []
    for language in dict.fromkeys(str(row["kernel"]).split("/")[0] for row in rows):
        ways = [
            f"{ends(of(language, word), '+.1f')} percent {text}"
            for word, text in (("-default-", "with each compiler's own contraction"), ("-off-", "with contraction off"))
            if of(language, word)
        ]
        parts.append(f"{language} {', '.join(ways)}")
    answer = f"More (+) or less (-) time than CUDA C++'s Mandelbrot: {'; '.join(parts)}."
    if len(shown) < len(rows):
        answer += " Rust is drawn, the others are in the table."
    columns = (
        Column("kernel", "kernel", False), Column("load", "load", False), Column("cell", "cell", False),
        Column("ratio", "ratio"), Column("low", "lowest pass"), Column("high", "highest pass"),
        Column("floor", "A/A floor"), Column("ahead", "rounds ahead"), Column("rounds", "rounds"),
        Column("different", "different", False),
    )  # fmt: skip
    table = Table("fma-time", "Mandelbrot against CUDA C++", columns, tuple(rows))
    return Plot(answer, table, draw, (9, rows_height(len(shown), 1.2)), "stage = fma")


FIGURES: dict[str, tuple[str, str, Callable[[View], Plot]]] = {
    "fma-map": ("Pixels in which two contracted images differ", FMA, fma_map),
    "fma-pairs": ("Every pair of images", FMA, fma_pairs),
    "fma-time": (
        "Mandelbrot: Rust's time over CUDA C++'s",
        "Does contraction decide which language is faster?",
        fma_time,
    ),
}
"""Name -> (title, question, function)."""
