"""The page: one file that opens offline. Everything from an archive goes through the template's escaping."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.claims.registry import View
from harness.report.derive import LOCK, Derivation, prepare, write_derived
from harness.report.figures import make_figures
from harness.report.tables import Table

TEMPLATES = Path(__file__).parent / "templates"
PAGE = "report.html"
PACKAGES = ("jinja2", "matplotlib", "numpy", "pandas", "plotly")
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


COUNTED = (
    "reproduced",
    "differs",
    "refuted",
    "undecided",
    "needs-gpu",
    "needs-two-gpus",
    "needs-data",
    "needs-toolchain",
)

WORDS = {
    "reproduced": "holds here",
    "differs": "another figure here",
    "refuted": "does not hold",
    "undecided": "not decided",
    "needs-gpu": "needs a GPU",
    "needs-two-gpus": "needs two kinds of GPU",
    "needs-data": "needs real frames",
    "needs-toolchain": "needs a toolchain",
}


def _context(view: View, tables: list[Table], document: list[dict[str, Any]]) -> dict[str, Any]:
    run = view.archive.run
    banner = []
    if not run.gpu:
        banner.append(
            "Made without a GPU: host gates, the contraction study and archived results only; no kernel was timed."
        )
    if run.quick:
        banner.append(
            "A quick run: few cells, one pass. It shows that everything works; it decides nothing about time."
        )
    if not view.archive.complete:
        banner.append("This run was stopped before its end; `irr resume` goes on with it.")
    rows = view.archive.samples
    return {
        "run": run,
        "devices": view.archive.device_names,
        "banner": banner,
        "verdicts": document,
        "words": WORDS,
        "counts": [(word, sum(v["verdict"] == word for v in document)) for word in COUNTED],
        "tables": [{"table": table, "texts": table.texts()} for table in tables],
        "fingerprint": {
            "built on": view.archive.fingerprint.built_on,
            "run on": {k: v for k, v in view.archive.fingerprint.run_on.items() if k != "devices"},
            **{f"device {i}": d for i, d in enumerate(view.archive.fingerprint.run_on.get("devices") or [])},
        },
        "gates": view.archive.gates,
        "statuses": [(str(s), int(n)) for s, n in sorted(rows["status"].value_counts().items())],
        "throttled": int((rows["throttle"].fillna(0) > 0).sum()),
    }


def make_pages(done: Derivation) -> dict[str, bytes]:
    """The page and its figures: path below derived/ -> bytes."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    files = make_figures(done.view, done.tables, done.verdicts)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("report.html").render(_context(done.view, done.tables, done.verdicts))
    files[PAGE] = (html.rstrip("\n") + "\n").encode("utf-8", "backslashreplace")
    return files


def report(root: Path) -> str:
    """Make derived/ with claims, tables, figures and the page; returns the page's path.

    Raises:
        IrrError: no archive there, or it cannot be written.
    """
    done = prepare(root)
    write_derived(root, done, make_pages(done))
    return str(root / "derived" / PAGE)
