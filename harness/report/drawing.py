"""How figures are drawn: one look, the same bytes, and the small pieces that every figure shares.

Colours are those that colour-blind readers tell apart, and every series has a marker of its own, so that a grey print
reads the same. A colour and a marker are a kernel's, on every figure; a hollow marker is the paper's figure for that
kernel, a half-filled one is timed and not judged, grey shapes are launch regimes. SVG and PDF have no clock, no random
identifier, and the fonts that matplotlib brings. A file has a white ground; the page takes the same drawing with its
colours as variables (`themed`), so that it follows the page's theme.
"""

from __future__ import annotations

import io
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.report.tables import Table, Value, starred


class Missing(Exception):
    """A figure has nothing to show in this archive; the text says why."""


@dataclass(frozen=True)
class Plot:
    """What a figure function hands over.

    Attributes:
        answer: the caption, one plain sentence with the numbers.
        table: the numbers drawn. draw: gets a matplotlib Figure. size: inches.
        samples: which rows of raw/samples.csv stand behind it, in words; blank where none do.
        short: the answer as the head of the page says it; blank where that is the caption.
    """

    answer: str
    table: Table
    draw: Callable[[Any], None]
    size: tuple[float, float]
    samples: str = ""
    short: str = ""


GROUND, INK, SOFT, BAND = "#ffffff", "#1a1a1a", "#8a8a8a", "#d0d0d0"
ON_FILL = "#101010"
"""Text on a cell that is filled with a light colour, whatever the theme."""
# Okabe and Ito's colours, and two of the same kind; kernel prefix -> (colour, marker). The first that fits counts.
STYLES: tuple[tuple[str, str, str], ...] = (
    ("cuda/floor", SOFT, "|"),
    ("cuda/allocate/plain", INK, "o"),
    ("cuda/update/plain", INK, "o"),
    ("cuda", "#6b6b6b", "h"),
    ("rust-oxide/allocate/scoped", "#8C5A00", "d"),
    ("rust-oxide", "#E69F00", "D"),
    ("rust-nvptx", "#D55E00", "s"),
    ("triton/allocate/while", "#56B4E9", "v"),
    ("triton/update/while", "#56B4E9", "v"),
    ("triton", "#0072B2", "^"),
)
FALLBACK = ("#009E73", "P")
REGIME = {"serial": (">", "#767676"), "concurrent": ("<", "#767676"), "reference": ("*", INK)}
"""Launch regime -> (marker, grey), where one kernel stands in several."""
# Devices are told apart by shape on dots and by colour on lines; none of these is a kernel's.
DEVICE_SHAPES = ("p", "X", "*", "<", ">", "H", "1", "2")
DEVICE_COLOURS = ("#7A6FBF", "#8C7A2E", "#3B8A8A", "#B05A8A", "#5F7F3F", "#A0603F", "#5A7FA6", "#777777")
VARIABLES = {
    GROUND: "card", INK: "ink", SOFT: "fig-soft", BAND: "fig-band", "#0072B2": "fig-blue", "#8C5A00": "fig-brown",
    "#6b6b6b": "fig-grey", "#767676": "fig-grey",
}  # fmt: skip
"""Colour -> the variable of page.css that stands for it; colours that both themes carry are as they are."""
SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.unicode_minus": True,
    "axes.formatter.use_locale": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.markersize": 6,
    "text.color": INK,
    "text.parse_math": False,  # a device called $x$ is a name
    "svg.fonttype": "path",
    "svg.hashsalt": "irr",
    "pdf.fonttype": 3,
    "figure.facecolor": GROUND,
    "axes.facecolor": "none",
    "savefig.facecolor": GROUND,
}


def style(kernel: str) -> tuple[str, str]:
    """(colour, marker) of a kernel: one pair a language and form, on every figure."""
    return next(((colour, mark) for start, colour, mark in STYLES if kernel.startswith(start)), FALLBACK)


def words(text: str, most: int = 60) -> str:
    """Text of an archive as a label: printable characters, bounded length."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    clean = " ".join(clean.split())
    return clean if len(clean) <= most else clean[: most - 1] + "…"


@contextmanager
def _settings() -> Iterator[None]:
    import matplotlib

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that the font lacks is drawn as a box
        matplotlib.rcdefaults()  # whatever a user's matplotlibrc says
        matplotlib.rcParams.update(tuple(SETTINGS.items()))  # type: ignore[arg-type]
        yield


def render(plot: Plot) -> tuple[bytes, bytes]:
    """(SVG, PDF) of a plot, deterministic."""
    from matplotlib.figure import Figure as Canvas

    with _settings():
        canvas = Canvas(figsize=plot.size, layout="constrained")
        plot.draw(canvas)
        svg, pdf = io.BytesIO(), io.BytesIO()
        canvas.savefig(svg, format="svg", metadata={"Date": None, "Creator": "irr"})
        canvas.savefig(pdf, format="pdf", metadata={"CreationDate": None, "Creator": "irr", "Producer": "irr"})
    return compact(svg.getvalue()), pdf.getvalue()


_PLACES = re.compile(rb'(?<= d=")[^"]*|(?<= [xy]=")[^"]*')


_LONG = re.compile(rb"(\d+\.\d\d)\d+")
_COLOUR = re.compile("|".join(VARIABLES), re.IGNORECASE)
_NAMES = re.compile(r'(?<= id=")(?=[^"])|(?<=href="#)|(?<=url\(#)')


def compact(svg: bytes) -> bytes:
    """An SVG with its coordinates to a hundredth of a point, which no screen shows; half the bytes."""
    return _PLACES.sub(lambda place: b" ".join(_LONG.sub(rb"\1", place[0]).split()), svg)


def themed(svg: bytes, name: str) -> str:
    """An SVG file as an element of the page: colours by the page's variables, identifiers under the figure's name.

    What a file alone needs goes: prologue, metadata, its own style sheet (page.css has that rule), comments, and the
    size in points (the page gives it one).
    """
    text = svg.decode()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style .*?</style>", "", text[text.index("<svg") :], flags=re.S)
    text = re.sub(r' (?:width|height)="[\d.]+pt"| xmlns(?::xlink)?="[^"]*"| version="1.1"', "", text)
    text = _NAMES.sub(f"{name}-", text)
    text = _COLOUR.sub(lambda found: f"var(--{_LOWER[found[0].lower()]})", text)
    return " ".join(text.split())


_LOWER = {colour.lower(): variable for colour, variable in VARIABLES.items()}


def n(value: float) -> str:
    """A ratio in a sentence: two decimals below ten, one above."""
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}"


def four(value: float) -> str:
    """A time in a column of a figure: four digits, zeros at the end among them, whole from a thousand on."""
    decimals = 3 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:,.{min(3, max(0, decimals))}f}"


def num(value: Value) -> float:
    """A number of a row; not a number where it is empty."""
    return float(value) if isinstance(value, (int, float)) else math.nan


def ends(values: Sequence[float], form: str) -> str:
    """`2.8 to 3.3`, or one number where both ends are spelt alike."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def span_words(values: Sequence[float]) -> str:
    """`0.82 to 0.88`, or one number where they agree."""
    low, high = n(min(values)), n(max(values))
    return low if low == high else f"{low} to {high}"


def count(number: int, thing: str, things: str = "") -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def listed(things: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(things[:-1]), things[-1]]) if len(things) > 1 else "".join(things)


def rows_height(count_: int, extra: float = 1.25) -> float:
    return extra + 0.27 * max(count_, 2)


def ratio_axis(axes: Any, low: float, high: float) -> None:
    """The horizontal axis of ratios: logarithmic with plain numbers (0.5, 1, 2, 5, 10), linear over a short range."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if high < 3 * low:
        edge = 0.05 * (high - low) or 0.01
        axes.set_xlim(low - edge, high + edge)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
        return
    axes.set_xscale("log")
    edge = (high / low) ** 0.05
    axes.set_xlim(low / edge, high * edge)
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 1.5, 2, 3, 5, 7) if high < 8 * low else (1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(LogLocator(base=10, subs=tuple(range(1, 10))))


def grid(axes: Any) -> None:
    """Thin vertical lines behind the points, and the line of 1."""
    axes.axvline(1, color=INK, linewidth=0.9, zorder=1)
    axes.grid(axis="x", color=BAND, linewidth=0.5)
    axes.set_axisbelow(True)


PAPER, UNJUDGED = "none", "left"
"""How a marker is filled that is the paper's, and one of a kernel that breaks something."""


def point(axes: Any, kernel: str, values: Sequence[float], row: float, legend: str, fill: str = "full") -> None:
    """A median with its range over passes: (median, lowest, highest), or a median alone.

    Args:
        fill: `full`, PAPER or UNJUDGED.
    """
    colour, mark = style(kernel)
    if len(values) == 3:
        axes.plot(values[1:], [row, row], color=colour, linewidth=1.6, solid_capstyle="butt", zorder=2)
    axes.plot(
        values[:1], [row], marker=mark, color=colour, linestyle="none", label=legend, zorder=3, fillstyle=fill,
        markerfacecoloralt=GROUND, markeredgecolor=colour, markeredgewidth=1.1,
    )  # fmt: skip


def legend(canvas: Any, axes: Any, columns: int = 4) -> None:
    """One legend for all panels, each name once, above them; what the names' stars mean comes last."""
    from matplotlib.lines import Line2D

    found: dict[str, Any] = {}
    for panel in axes:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    names, note = starred(list(found))
    handles = dict(zip(names, found.values(), strict=True))
    if note:
        handles[note] = Line2D([], [], linestyle="none")
    if handles:
        wide = 0.45 + 0.072 * max(map(len, handles))  # inches of the longest entry at this size
        fitting = max(1, int(canvas.get_size_inches()[0] / wide))
        canvas.legend(
            handles.values(), handles.keys(), loc="outside upper left", ncols=min(columns, fitting, len(handles)),
            handletextpad=0.3, columnspacing=1.4,
        )  # fmt: skip


def panels(canvas: Any, many: int, **more: Any) -> list[Any]:
    """`many` panels side by side with one vertical axis."""
    return list(np.atleast_1d(canvas.subplots(1, many, sharey=True, **more)))
