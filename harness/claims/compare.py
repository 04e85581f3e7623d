"""Two archives: their fingerprints first, then the cells that differ beyond noise, then the verdicts that changed.

Times are compared only where every checked fingerprint field agrees; otherwise that part is refused and the keys are
named. Ratios to CUDA within each archive survive a change of machine, so they and the verdicts are shown either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness.archive import fingerprint
from harness.archive.pack import opened
from harness.archive.read import Archive, load
from harness.claims import statistics
from harness.claims.evaluate import judged, rounded
from harness.claims.paper import CUDA_ALLOCATE, CUDA_UPDATE
from harness.claims.registry import View
from harness.claims.statistics import Table
from harness.errors import IrrError, UsageError

BASES = {"allocate": CUDA_ALLOCATE, "update": CUDA_UPDATE}


def unlike(a: Archive, b: Archive) -> list[dict[str, Any]]:
    """Every checked key in which two archives differ: the fingerprint's, the batch, and the sources of the kernels both
    have."""
    found = [{"key": key, "a": x, "b": y} for key, x, y in fingerprint.differences(a.fingerprint, b.fingerprint)]
    if a.run.batch != b.run.batch:
        found.append({"key": "run.batch", "a": a.run.batch, "b": b.run.batch})
    for key in sorted(a.manifests.keys() & b.manifests.keys()):
        left, right = (str(archive.manifests[key].get("source_hash", "")) for archive in (a, b))
        if left != right:
            found.append({"key": f"source of {key[1]} for sm_{key[0]}", "a": left[:12], "b": right[:12]})
    return found


def pooled(archives: Sequence[Archive]) -> Table:
    """Samples of archives of one kind as one table; their passes are kept apart.

    Raises:
        IrrError: two of them differ in a checked key; names it.
    """
    first = archives[0]
    for other in archives[1:]:
        differing = unlike(first, other)
        if differing:
            row = differing[0]
            raise IrrError(
                f"{first.name} and {other.name} are not pooled: {row['key']} is {row['a']!r} and {row['b']!r}",
                "judge each archive alone; ratios may be compared with `irr compare`",
            )
    import pandas as pd

    parts, offset = [], 0
    for archive in archives:
        rows = archive.samples
        parts.append(rows.assign(**{"pass": rows["pass"] + offset}))
        offset += int(rows["pass"].max()) + 1 if len(rows) else 0
    return Table(pd.concat(parts, ignore_index=True))


def _cells(a: View, b: View, times: bool) -> list[dict[str, Any]]:
    """Every kernel, cell and regime both archives have: time a/b and ratio to CUDA in each, and whether they differ.

    Different means: the passes' ranges do not overlap and the medians are further apart than both A/A floors together.
    """
    rows = []
    for regime in [r for r in a.table.regimes() if r in b.table.regimes()]:
        for kernel in [k for k in a.table.kernels() if k in b.table.kernels() and "@twin" not in k]:
            stage = kernel.split("/")[1]
            for cell in [c for c in a.table.cells(kernel, regime) if c in b.table.cells(kernel, regime)]:
                floors = [view.table.floor(cell, stage, regime) for view in (a, b)]
                noise = None if None in floors else sum(f for f in floors if f is not None)
                row: dict[str, Any] = {"kernel": kernel, "cell": cell, "regime": str(regime), "noise": noise}
                if times:
                    left, right = (list(view.table.medians(kernel, cell, regime).values()) for view in (a, b))
                    row |= {"a_us": statistics.median(left), "b_us": statistics.median(right)}
                    row["us"] = _judged(left, right, noise)
                base = BASES.get(stage)
                if base is not None and kernel != base:
                    pair = [view.compare(kernel, base, cell, regime) for view in (a, b)]
                    if pair[0] is not None and pair[1] is not None:
                        row |= {"a_ratio": pair[0].us.median, "b_ratio": pair[1].us.median}
                        row["ratio"] = _judged(pair[0].us.passes, pair[1].us.passes, noise)
                rows.append(row)
    return rows


def _judged(left: Sequence[float], right: Sequence[float], noise: float | None) -> dict[str, Any]:
    change = statistics.median(right) / statistics.median(left)
    apart = max(left) < min(right) or max(right) < min(left)
    return {"change": change, "beyond": noise is not None and apart and abs(change - 1) > noise}


def compare_archives(a: Archive, b: Archive, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """The document of `compare --json`.

    Args:
        say: told one line of progress at a time.

    Raises:
        IrrError: the two have no kernel and no finding in common.
    """
    differing = unlike(a, b)
    left, right = View(a), View(b)
    say(f"comparing {a.name} and {b.name} cell by cell")
    rows = _cells(left, right, times=not differing)
    before, after = ({row["id"]: row for row in judged([view], say)} for view in (left, right))
    changed = [
        {"id": i, "a": before[i]["verdict"], "b": after[i]["verdict"], "a_reason": before[i]["reason"],
         "b_reason": after[i]["reason"]}
        for i in before
        if before[i]["verdict"] != after[i]["verdict"]
    ]  # fmt: skip
    if (
        not rows
        and not (a.evidence.keys() & b.evidence.keys())
        and a.name != b.name
        and (len(a.samples) or len(b.samples))
    ):
        raise IrrError(f"{a.name} and {b.name} have no kernel in common in any cell and regime")
    return rounded({"a": a.name, "b": b.name, "refused": differing, "cells": rows, "verdicts": changed})


def compare(first: Path, second: Path, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Two archives, folders or bundles of one archive each.

    Args:
        say: told one line of progress at a time.

    Raises:
        UsageError: a path that holds several archives.
        IrrError: no archive there, or nothing in common.
    """
    with ExitStack() as stack:
        archives = []
        for path in (first, second):
            roots = stack.enter_context(opened(path))
            if len(roots) != 1:
                raise UsageError(f"{path} holds {len(roots)} archives", "name one archive")
            archives.append(load(roots[0]))
        return compare_archives(archives[0], archives[1], say)


def refusal(document: dict[str, Any]) -> str | None:
    """Why times were not compared, in one line; None where they were."""
    if not document["refused"]:
        return None
    keys = "; ".join(f"{row['key']} is {row['a']!r} and {row['b']!r}" for row in document["refused"][:6])
    more = f"; and {len(document['refused']) - 6} more" if len(document["refused"]) > 6 else ""
    return f"the times of {document['a']} and {document['b']} are not compared: {keys}{more}"


def as_text(document: dict[str, Any]) -> str:
    """For people: fingerprints, cells beyond noise, changed verdicts."""
    lines = [f"{document['a']} and {document['b']}"]
    refused = document["refused"]
    lines.append(
        "fingerprints: " + ("every checked field agrees" if not refused else f"{len(refused)} checked fields differ")
    )
    lines += [f"  {row['key']}: {row['a']!r} and {row['b']!r}" for row in refused]
    for what, unit in (("us", " us"), ("ratio", "x")):
        judged = [row for row in document["cells"] if what in row]
        if not judged:
            continue
        beyond = [row for row in judged if row[what]["beyond"]]
        name = "times" if what == "us" else "ratios to CUDA"
        lines.append(f"{name}: {len(beyond)} of {len(judged)} differ beyond noise")
        for row in beyond:
            left, right = row[f"a_{what}"], row[f"b_{what}"]
            lines.append(
                f"  {row['kernel']} on {row['cell']} ({row['regime']}): {left:.4g}{unit} and {right:.4g}{unit}"
            )
    lines.append(f"verdicts: {len(document['verdicts'])} changed")
    for row in document["verdicts"]:
        lines += [f"  {row['id']}: {row['a']} and {row['b']}", f"    {row['a_reason']}", f"    {row['b_reason']}"]
    return "\n".join(lines)
