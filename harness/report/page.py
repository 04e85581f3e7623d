"""The page: one file that opens offline and answers one question after another.

Everything that comes from an archive passes the template's escaping or is drawn (figures hold text as outlines); the
page's own style and script are files beside the template, and the Content-Security-Policy allows that script alone, by
its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.archive.schema import Run
from harness.claims import statistics
from harness.claims.registry import View
from harness.errors import IrrError
from harness.measure.studies import STUDIES
from harness.report import frames
from harness.report.answer import sentences, tally
from harness.report.derive import LOCK, Derivation, prepare, write_derived
from harness.report.drawing import ends, themed
from harness.report.figures import Absent, Figure, draw_figures, files_of
from harness.report.surface import read_surface
from harness.report.tables import Column, Table, Value, as_csv, devices_of, footnoted, text

TEMPLATES = Path(__file__).parent / "templates"
PAGE = "report.html"
PACKAGES = ("jinja2", "matplotlib", "numpy", "pandas")
"""Packages whose version may change the page's or a figure's bytes."""


def locked_packages() -> bool:
    """Whether the packages that make pages and figures are the ones of the lock."""
    if not LOCK.is_file():
        return False
    pinned: dict[str, set[str]] = {}
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        match = re.match(r"([a-z0-9-]+)==([^ ;\\]+)", line)
        if match is not None:  # one package may have a version per Python
            pinned.setdefault(match[1], set()).add(match[2])
    try:
        return all(metadata.version(package) in pinned.get(package, ()) for package in PACKAGES)
    except metadata.PackageNotFoundError:
        return False


# verdict -> (chip, sign, what it means)
CHIPS: dict[str, tuple[str, str, str]] = {
    "reproduced": ("holds here", "✓", "The claim, or its figure within the tolerance, was found again."),
    "differs": ("another figure here", "≠", "A figure that was measured on another card is another one here."),
    "refuted": ("does not hold", "✕", "A statement without a scope, with a counterexample in this archive."),
    "undecided": ("not decided", "?", "This archive does not hold what the claim is judged by."),
    "needs-gpu": ("needs a GPU", "○", "Needs what only a GPU's run can give; this archive does not hold it."),
    "needs-two-gpus": ("needs other GPUs", "○", "Needs two GPUs, or two kinds of them."),
    "needs-data": ("needs real frames", "○", "Needs recorded frames that were not there."),
    "needs-toolchain": ("needs a toolchain", "○", "Needs a compiler that was not there."),
}

SOURCES = (
    ("paper", "The paper", "What Irregularity Costs (arXiv 2608.08287v2)"),
    ("blog", "The blog", "CUDA in Rust vs CUDA C++"),
    ("ours", "Ours", "What we say beyond both"),
)


# ------------------------------------------------------------------------------------- how comparability was shown


def gates_table(view: View) -> Table:
    """Same work: who was judged by which tier, before and after timing."""
    rows: list[dict[str, Value]] = []
    ran = [gate for gate in view.archive.gates if gate.skipped is None]
    tiers = list(dict.fromkeys(gate.tier for gate in ran))
    for arm, place in dict.fromkeys((gate.arm or gate.subject, gate.place) for gate in ran):
        mine = [gate for gate in ran if (gate.arm or gate.subject, gate.place) == (arm, place)]
        row: dict[str, Value] = {"arm": arm, "place": place}
        for tier in tiers:
            here = [gate for gate in mine if gate.tier == tier]
            if here:
                row[tier] = f"{sum(gate.ok for gate in here)} of {len(here)}"
        times = {gate.when for gate in mine} - {""}
        row["when"] = " and ".join(word for word in ("before", "after") if word in times)
        row["compared"] = sum(gate.compared for gate in mine)
        rows.append(row)
    columns = (
        Column("arm", "arm", False), Column("place", "place", False),
        *(Column(tier, f"{tier}: passed") for tier in tiers),
        Column("when", "timing", False), Column("compared", "things compared"),
    )  # fmt: skip
    return Table("gates", "Same work: gates by arm", columns, tuple(rows), "An empty comparison counts as failed.")


def passes_table(view: View) -> Table:
    """Same machine: each pass with its device and how that held still."""
    rows: list[dict[str, Value]] = []
    samples = view.archive.samples
    for entry in view.archive.run.passes:
        here = samples[(samples["pass"] == entry.number) & (samples["device_uuid"] == entry.device_uuid)]
        row: dict[str, Value] = {
            "pass": entry.number, "device": entry.device_name, "uuid": entry.device_uuid,
            "when": f"{entry.started_utc} to {entry.ended_utc}", "whole": "yes" if entry.complete else "no",
            "samples": len(here), "throttled": int((here["throttle"].fillna(0) > 0).sum()),
        }  # fmt: skip
        for key in ("sm_clock_mhz", "temperature_c", "power_w"):
            values = here[key].dropna().tolist()
            row[key] = ends(values, ".4g") if values else None
        rows.append(row)
    columns = (
        Column("pass", "pass"), Column("device", "device", False), Column("uuid", "UUID", False),
        Column("when", "when, UTC", False), Column("whole", "whole", False), Column("samples", "samples"),
        Column("throttled", "throttled samples"), Column("sm_clock_mhz", "SM clock, MHz"),
        Column("temperature_c", "temperature, C"), Column("power_w", "board power, W"),
    )  # fmt: skip
    return Table("passes", "Same machine: passes", columns, tuple(rows), "Each pass is one process on one device.")


def _regime_words(regime: statistics.Regime) -> str:
    """`serial, fresh table`, with what else is not as usual."""
    more = ["L2 flushed"] * (regime.l2 == "flushed") + [f"{regime.load} loading"] * (regime.load != "aot")
    return ", ".join([regime.launch, f"{regime.table} table", *more])


def floors_table(view: View) -> Table:
    """Same statistic: the noise floor by stage and regime."""
    rows: list[dict[str, Value]] = []
    for regime in view.table.regimes():
        for stage in ("allocate", "update", "fma"):
            cells = sorted({str(c) for c in view.archive.samples["cell"]})
            floors = {cell: floor for cell in cells if (floor := view.table.floor(cell, stage, regime)) is not None}
            if floors:
                worst = max(floors, key=lambda cell: (floors[cell], cell))
                rows.append(
                    {
                        "stage": stage, "regime": _regime_words(regime), "cells": len(floors),
                        "floor_median": statistics.median(list(floors.values())), "floor_most": floors[worst],
                        "cell": worst,
                    }
                )  # fmt: skip
    columns = (
        Column("stage", "stage", False), Column("regime", "regime", False), Column("cells", "cells"),
        Column("floor_median", "median floor"), Column("floor_most", "largest floor"), Column("cell", "in cell", False),
    )  # fmt: skip
    note = "One cubin under two names: its largest |median ratio - 1| over passes. Nothing below it is a difference."
    return Table("floors", "Same statistic: the A/A floor", columns, tuple(rows), note)


HASH_SET = (
    "not measured",
    "a GPU hash-set library beside these tables, as context",
    "cuCollections is headers without a package that the lock could pin (none of the CUDA wheels looked into carries "
    "them), and the nearest that is one, Open3D's, is built for CUDA 12.6 and takes keys that are already made",
)
"""Said where allocate was timed: what a CUDA user might have picked instead."""


def left_out(view: View) -> list[tuple[str, str, str]]:
    """(what happened, to what, why) of everything refused, reduced, skipped, flagged or not available; things that
    share a reason stand together."""
    run = view.archive.run
    found: list[tuple[str, str, str]] = [("refused", note.what, note.why) for note in run.refusals]
    found += [("batch reduced", f"{item.cell}: {item.batch} volumes", item.why) for item in run.reductions]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for item in run.skipped:
        groups.setdefault((f"not timed: {item.status}", item.kernel, item.why), []).append(item.cell)
    for (what, kernel, why), cells in groups.items():
        where = "" if cells == ["*"] else f" on {', '.join(cells)}"
        found.append((what, kernel + where, why))
    found += [("flagged", note.what, note.why) for note in run.flags]
    nulls: dict[str, list[str]] = {}
    for item in run.nulls:
        nulls.setdefault(item.why, []).append(item.field)
    found += [("not available", ", ".join(fields), why) for why, fields in nulls.items()]
    found += [HASH_SET] if run.gpu and view.table.kernels("allocate") else []
    merged: dict[tuple[str, str], list[str]] = {}
    for what, thing, why in found:
        merged.setdefault((what, why), []).append(thing)
    return [(what, "; ".join(dict.fromkeys(things)), why) for (what, why), things in merged.items()]


# ------------------------------------------------------------------------------------------------------ the template


def _csv_link(table: Table) -> str:
    """The table as CSV inside the page, so that a page that was sent alone still has its data."""
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(as_csv(table)).decode()


DIGITS = 4
FEWER = {
    "floor": 2, "floor_median": 2, "floor_most": 2, "apart": 2, "load": 3, "share": 3, "allocate_share": 3,
}  # fmt: skip
"""Columns whose figures mean less than DIGITS digits."""


def _word(value: Value, digits: int = DIGITS) -> str:
    """A value as a reader takes it in: four digits; the CSV beside it has six."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
    return f"{value:,}" if isinstance(value, int) else text(value)


def _words(values: Sequence[Value], digits: int = DIGITS) -> list[str]:
    """A column's values with as many digits as the one with most, so that 1.02 and 1.012 are 1.020 and 1.012, and 1.1
    and 31.7 of a paper are 1.10 and 31.7: never a decimal more than another value has."""
    found = [_word(value, digits) for value in values]
    plain = [(place, word) for place, word in enumerate(found) if isinstance(values[place], float) and "e" not in word]
    plain = [(place, word) for place, word in plain if abs(float(values[place] or 0)) < 1000]
    decimals = max((len(word.partition(".")[2]) for _, word in plain), default=0)
    digits = max((len(word.replace(".", "").lstrip("-0")) for _, word in plain), default=0)
    for place, word in plain:
        whole, _, part = word.lstrip("-").partition(".")
        zeros = len(part) - len(part.lstrip("0")) if whole == "0" else -len(whole)
        wanted = min(decimals, digits + zeros)
        if len(part) < wanted and word != "0":
            found[place] = f"{values[place]:.{wanted}f}"
    return found


LONG, WIDE, TALL = 26, 14, 40
"""Characters from which a column of words may wrap; columns from which a table has a printed page of its own; rows
above which a table is closed at first, and scrolls on its own once open."""


def _shown(table: Table, path: str | None) -> dict[str, Any]:
    """A table as the page shows it: without the columns that are empty in every row, deviations as footnotes."""
    short = footnoted(table)
    columns = [c for c in short.columns if any(row.get(c.key) is not None for row in short.rows)]
    down = [_words([row.get(c.key) for row in short.rows], FEWER.get(c.key, DIGITS)) for c in columns]
    texts = [list(words) for words in zip(*down, strict=True)]
    kinds = [
        "n" if column.numeric else "long" if max((len(row[i]) for row in texts), default=0) > LONG else ""
        for i, column in enumerate(columns)
    ]
    file = Path(path or f"{table.name}.csv").name
    return {
        "title": short.title, "note": short.note, "columns": list(zip(columns, kinds, strict=True)), "texts": texts,
        "wide": len(columns) >= WIDE, "tall": len(texts) > TALL, "csv": _csv_link(table), "file": file, "path": path,
    }  # fmt: skip


def _picture(item: Figure) -> dict[str, Any]:
    drawing = themed(item.svg, item.name)
    head, _, body = drawing.partition(">")
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
    width, height = (round(float(side) * 4 / 3) for side in box.groups()) if box is not None else (None, None)
    return {
        "figure": item,
        "box": "" if box is None else box[0],
        "drawing": body.removesuffix("</svg>"),
        "width": width,
        "height": height,
        "data": _shown(item.table, f"figures/{item.name}.csv"),
    }


EVERYTHING = "What was measured, row by row?"

CELLS = {
    "pts-": "the number of points", "r-": "the radius, in metres", "lf-": "the load factor of the table",
    "plane-": "the shape", "room": "the scene, a room",
}  # fmt: skip
"""How a cell's name begins -> what differs from base in it."""


def _cells_words(view: View) -> str:
    """What the names of the archive's cells mean; blank where there is base alone."""
    names = view.cells()
    there = [f"{start} {what}" for start, what in CELLS.items() if any(name.startswith(start) for name in names)]
    if not there or "base" not in names:
        return ""
    points = view.archive.run.cells["base"].points
    return f"Cells are named by what differs from base, a sphere of {points:,} points: {', '.join(there)}."


def own_questions(study: str) -> set[str]:
    """What a study was made to answer; nothing for the matrix, which asks all the others."""
    if study == "real":
        return {frames.QUESTION}
    return {question.asks for question in STUDIES[study].questions} if study in STUDIES else set()


def _missing(run: Run, found: Sequence[Figure | Absent]) -> list[Absent]:
    """Figures that are not there, but for those that only another study can have."""
    others = {asks for study in (*STUDIES, "real") if study != run.study for asks in own_questions(study)}
    others -= own_questions(run.study)
    return [item for item in found if isinstance(item, Absent) and item.question not in others]


def _questions(found: Sequence[Figure | Absent], tables: Sequence[Table], own: set[str]) -> list[dict[str, Any]]:
    """Sections: the figures of one question with the tables beside them, the study's own questions first; tables that
    no figure names come last."""
    by_name = {table.name: table for table in tables}
    sections: dict[str, dict[str, Any]] = {}
    placed: set[str] = set()
    for item in found:
        section = sections.setdefault(item.question, {"question": item.question, "figures": [], "tables": []})
        if isinstance(item, Figure):
            section["figures"].append(_picture(item))
        for name in item.tables:
            if name in by_name and name not in placed:
                placed.add(name)
                section["tables"].append(_shown(by_name[name], f"tables/{name}.csv"))
    rest = [_shown(table, f"tables/{table.name}.csv") for table in tables if table.name not in placed]
    if rest:
        sections[EVERYTHING] = {"question": EVERYTHING, "figures": [], "tables": rest}
    kept = [section for section in sections.values() if section["figures"] or section["tables"]]
    kept.sort(key=lambda section: section["question"] not in own)  # stable: the rest keep their order
    return [{**section, "id": f"q{number}"} for number, section in enumerate(kept, 1)]


def _measured(row: dict[str, Any]) -> str:
    """What was found here, where that says it by itself: a bare number stands with its unit in the reason."""
    value = row["measured"]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else ""


def _failed(view: View) -> list[tuple[str, str, list[str]]]:
    """Gates that failed: (gate, message, of what), those with one message together."""
    found: dict[tuple[str, str], list[str]] = {}
    for gate in view.archive.gates:
        if gate.failed:
            subject = f"{gate.subject}, {gate.when}" if gate.when else gate.subject
            found.setdefault((gate.gate, gate.message), []).append(subject)
    return [(gate, message, list(dict.fromkeys(subjects))) for (gate, message), subjects in found.items()]


def _rows_table(row: dict[str, Any]) -> dict[str, Any] | None:
    """The numbers behind a verdict."""
    rows = [item for item in row["rows"] if isinstance(item, dict)]
    if not rows:
        return None
    keys = list(dict.fromkeys(key for item in rows for key in item))
    numeric = [all(isinstance(item.get(key), (int, float, type(None))) for item in rows) for key in keys]
    heads = [(key.replace("_", " "), number) for key, number in zip(keys, numeric, strict=True)]
    down = [
        _words([item.get(key) for item in rows], FEWER.get(key, DIGITS))
        if number
        else [_plain(item.get(key)) for item in rows]
        for key, number in zip(keys, numeric, strict=True)
    ]
    return {"heads": heads, "rows": [list(words) for words in zip(*down, strict=True)]}


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and value and all(isinstance(item, (int, float, str)) for item in value):
        between = " to " if len(value) == 2 and not any(isinstance(item, (bool, str)) for item in value) else ", "
        return between.join(_plain(item) for item in value)
    return _word(value) if isinstance(value, (int, float, str)) else json.dumps(value, sort_keys=True)


def _alone(row: dict[str, Any]) -> str:
    """What each device's passes alone say, of an archive of several: `GPU-cb5bfd7c holds here, 1.012 (1.001 to 1.02)`.
    A bare number is one of the claim's own measure, whose unit the reason has."""
    parts = []
    for item in row["devices"]:
        measured, ends_ = item["measured"], item["range"]
        text = f"{item['device'][:12]} {CHIPS[item['verdict']][0]}"
        if isinstance(measured, (int, float)) and not isinstance(measured, bool):
            text += f", {_plain(measured)}" + (f" ({_plain(ends_[0])} to {_plain(ends_[1])})" if ends_ else "")
        parts.append(text)
    return "; ".join(parts)


def _fingerprint(view: View) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """(side, [(field, value, why there is none)])."""
    document = view.archive.fingerprint
    why = {null.field: null.why for null in document.nulls}
    devices = document.run_on.get("devices") or []
    sides: list[tuple[str, str, dict[str, Any]]] = [
        ("Built on", "built_on", document.built_on),
        ("Run on", "run_on", {k: v for k, v in document.run_on.items() if k != "devices"}),
        *((f"Device {i}", f"run_on.devices[{i}]", device) for i, device in enumerate(devices)),
    ]
    return [
        (title, [(key, _plain(value), why.get(f"{prefix}.{key}", "")) for key, value in sorted(values.items())])
        for title, prefix, values in sides
    ]


def _banners(view: View) -> list[str]:
    run = view.archive.run
    found = []
    if not run.gpu:
        found.append(
            "Made without a GPU: host gates, the contraction study and archived results only; no GPU kernel was timed."
        )
    if run.quick:
        found.append("A quick run: few cells, one pass. It shows that everything works; it decides nothing about time.")
    if not view.archive.complete:
        found.append("This run was stopped before its end; `irr resume` goes on with it.")
    return found


def passes_words(run: Run) -> str:
    """How many passes there are; of several devices also on how many, and whether they ran at the same time."""
    words = f"{len(run.passes)} pass{'' if len(run.passes) == 1 else 'es'}"
    devices = len({entry.device_uuid for entry in run.passes})
    if devices < 2:
        return words
    return f"{words} on {devices} devices" + {None: "", True: " at once", False: " one after another"}[run.at_once]


def _device_words(view: View) -> str:
    """`2 x NVIDIA H200`; blank without a device."""
    names = list(devices_of(view).values())
    counted = [(names.count(name), name) for name in dict.fromkeys(names)]
    return ", ".join(f"{number} x {name}" if number > 1 else name for number, name in counted)


def _source_hash(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _file(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _context(
    view: View, tables: Sequence[Table], document: Sequence[dict[str, Any]], found: Sequence[Figure | Absent]
) -> dict[str, Any]:
    claims = [
        {
            **row, "chip": CHIPS[row["verdict"]], "here": _measured(row), "numbers": _rows_table(row),
            "alone": _alone(row),
        }
        for row in document
    ]  # fmt: skip
    problem = None
    try:
        surface = read_surface(view)
    except IrrError as error:
        surface, problem = None, error.what
    script = _file("page.js")
    rows = view.archive.samples
    return {
        "run": view.archive.run,
        "passes": passes_words(view.archive.run),
        "devices": _device_words(view),
        "banners": _banners(view),
        "sentences": sentences(view),
        "tally": tally([row["verdict"] for row in document]),
        "chips": CHIPS,
        "counts": [(word, n) for word in CHIPS if (n := sum(row["verdict"] == word for row in document))],
        "sources": [(key, title, words, [c for c in claims if c["source"] == key]) for key, title, words in SOURCES],
        "questions": _questions(found, tables, own_questions(view.archive.run.study)),
        "everything": EVERYTHING,
        "cells_words": _cells_words(view),
        "absent": _missing(view.archive.run, found),
        "comparable": [_shown(t, None) for t in (gates_table(view), passes_table(view), floors_table(view)) if t.rows],
        "failed": _failed(view),
        "gates_ran": sum(gate.skipped is None for gate in view.archive.gates),
        "gates_passed": sum(gate.ok for gate in view.archive.gates),
        "statuses": [(str(s), int(n)) for s, n in sorted(rows["status"].value_counts().items())],
        "throttled": int((rows["throttle"].fillna(0) > 0).sum()),
        "left_out": left_out(view),
        "fingerprint": _fingerprint(view),
        "surface": surface,
        "surface_problem": problem,
        "surface_json": None if surface is None else json.dumps(surface.mesh(), separators=(",", ":")),
        "style": _file("page.css"),
        "script": script,
        "script_hash": _source_hash(script),
    }


def make_pages(done: Derivation) -> dict[str, bytes]:
    """The page and its figures: path below derived/ -> bytes."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = draw_figures(done.view)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("report.html")
    html = template.render(_context(done.view, done.tables, done.verdicts, found))
    return {**files_of(found), PAGE: (html.rstrip("\n") + "\n").encode("utf-8", "backslashreplace")}


def report(root: Path) -> str:
    """Make derived/ with claims, tables, figures and the page; returns the page's path.

    Raises:
        IrrError: no archive there, or it cannot be written.
    """
    done = prepare(root)
    write_derived(root, done, make_pages(done))
    return str(root / "derived" / PAGE)
