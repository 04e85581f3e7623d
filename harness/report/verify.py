"""`verify`: raw/ byte for byte, then everything in derived/ derived again."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from harness.archive.files import MAX_CSV, read_bytes
from harness.archive.read import load, opened
from harness.archive.verify import check_raw
from harness.errors import IrrError
from harness.report import derive as derivation
from harness.report.derive import DERIVE, PAGES, RECORD, THIS, Derivation, lock_hash, sha256

TOLERANCE = 1e-5
"""Relative difference of two numbers written with six digits by two versions of irr that compute the same thing."""

SHOWN = 12


def check_derived(root: Path) -> tuple[list[str], str]:
    """What is wrong with derived/, and in words what was compared."""
    archive = load(root, THIS)
    have = {name.removeprefix("derived/") for name in archive.files if name.startswith("derived/")}
    if not have:
        return [], "no derived files"
    if RECORD not in have:
        return [f"derived/{RECORD} is missing"], "nothing derived again"
    record = derivation.read_record(root)
    problems = []
    now = derivation.inputs(archive)
    problems += [f"derived/ was made from another {n}" for n in sorted(now) if record["inputs"].get(n) != now[n]]
    problems += [f"derived/ was made from {name}, which is gone" for name in sorted(set(record["inputs"]) - set(now))]
    listed = set(record["outputs"])
    problems += [f"derived/{name} was added" for name in sorted(have - listed - {RECORD})]
    problems += [f"derived/{name} is missing" for name in sorted(listed - have)]
    stored = {name: read_bytes(root, f"derived/{name}", MAX_CSV) for name in sorted(have & listed)}
    problems += [
        f"derived/{name} was changed" for name, data in stored.items() if sha256(data) != record["outputs"][name]
    ]
    if problems:
        return problems, "nothing derived again"
    done = derivation.prepare(root)
    again = derivation.derive(done)
    same_version = record.get("derive") == DERIVE
    plain = [name for name in stored if not name.startswith(PAGES)]
    for name in sorted(set(plain) | set(again)):
        if name not in again or name not in stored:
            problems.append(f"derived/{name} is {'no longer' if name not in again else 'not yet'} derived")
        elif same_version and stored[name] != again[name]:
            problems.append(f"derived/{name} differs from what is derived now")
        elif not same_version:
            problems += [f"derived/{name}: {what}" for what in numeric_differences(name, stored[name], again[name])[:3]]
    how = "byte for byte" if same_version else f"as numbers (derive version {record.get('derive')}, now {DERIVE})"
    words = f"{len(plain)} derived files {how}"
    pages = [name for name in stored if name.startswith(PAGES)]
    if pages:
        problems += _check_pages(done, {name: stored[name] for name in pages}, record)
        under_lock = same_version and record.get("lock") == lock_hash()
        words += (
            f", {len(pages)} pages and figures {'byte for byte' if under_lock else 'by their hashes (another lock)'}"
        )
    return problems, words


def _check_pages(done: Derivation, stored: dict[str, bytes], record: dict[str, Any]) -> list[str]:
    """Figures and the page again, where the packages are the ones of the archive's lock."""
    if record.get("derive") != DERIVE or record.get("lock") is None or record["lock"] != lock_hash():
        return []
    from harness.report.page import locked_packages, make_pages

    if not locked_packages():
        return []
    again = make_pages(done)
    return [
        f"derived/{name} differs from what is derived now" for name in sorted(stored) if again.get(name) != stored[name]
    ]


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in _flat(item, f"{path}.{key}").items()}
    if isinstance(value, list):
        return {k: v for i, item in enumerate(value) for k, v in _flat(item, f"{path}[{i}]").items()}
    return {path: value}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def numeric_differences(name: str, stored: bytes, again: bytes) -> list[str]:
    """Numbers of a CSV or JSON file that differ beyond TOLERANCE, by path; words may have changed between versions, and
    other renderings follow from the same rows."""
    if name.endswith(".json"):
        documents = [_flat(json.loads(data)) for data in (stored, again)]
        left, right = ({k: _number(v) for k, v in d.items() if not isinstance(v, str)} for d in documents)
    elif name.endswith(".csv"):
        tables = [list(csv.DictReader(io.StringIO(data.decode("utf-8")))) for data in (stored, again)]
        left, right = ({f"line {i + 2} {k}": _number(v) for i, r in enumerate(t) for k, v in r.items()} for t in tables)
    else:
        return []
    differing = []
    for key in sorted(left.keys() & right.keys()):
        a, b = left[key], right[key]
        if (a is None) != (b is None) or (
            a is not None and b is not None and not math.isclose(a, b, rel_tol=TOLERANCE)
        ):
            differing.append(f"{key} is {a}, derived now {b}")
    return differing


def verify_one(root: Path) -> str:
    """One archive folder; what was checked, in one line.

    Raises:
        IrrError: something does not match, each thing named.
    """
    archive, problems = check_raw(root)
    words = ""
    if archive is not None and not problems:
        derived, words = check_derived(root)
        problems += derived
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise IrrError(f"{root} does not verify: {'; '.join(problems[:SHOWN])}{more}")
    assert archive is not None
    raw = sum(name.startswith("raw/") for name in archive.files)
    return f"{root.name}: {raw} raw files match their checksums and the schema, {words}"


def verify(path: Path) -> str:
    """An archive, a folder of archives, or a packed .tar.zst; needs no network and no GPU."""
    with opened(path) as roots:
        return "\n".join(verify_one(root) for root in roots)
