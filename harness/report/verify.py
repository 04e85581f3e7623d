"""`verify`: raw/ byte for byte, then everything in derived/ derived again.

SHA256SUMS is not signed: whoever alters what was measured (the `us` of a sample), rewrites the checksums and derives
again leaves an archive that verifies.

What is compared is this machine's matter, never the archive's word: derived/ names a lock and a version, and either may
be forged. So pages are made again wherever the packages here are those of the lock here, whatever lock is named.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.archive.files import MAX_CSV, read_bytes
from harness.archive.pack import opened
from harness.archive.read import load
from harness.archive.verify import check_raw
from harness.errors import IrrError
from harness.report import derive as derivation
from harness.report.derive import DERIVE, LOCK, PAGES, RECORD, THIS, Derivation, lock_hash, sha256

TOLERANCE = 1e-5
"""Relative difference of two numbers written with six digits by two versions of irr that compute the same thing."""

SHOWN = 12

Say = Callable[[str], None]


def _silent(line: str) -> None:
    pass


def check_derived(root: Path, say: Say = _silent) -> tuple[list[str], str]:
    """What is wrong with derived/, and in words what was compared, how, and what was not.

    Args:
        say: told what is done next, a line at a time.
    """
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
    version = record.get("derive")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= DERIVE:
        problems.append(
            f"derived/{RECORD} names derive version {ascii(version)[:20]}, and this irr has 1 to {DERIVE}: a newer irr "
            "verifies what a newer one derived"
        )
    if problems:
        return problems, "nothing derived again"
    say("claims and tables derived again")
    done = derivation.prepared(archive)
    again = derivation.derive(done)
    same_version = version == DERIVE
    plain = [name for name in stored if not name.startswith(PAGES)]
    for name in sorted(set(plain) | set(again)):
        if name not in again or name not in stored:
            problems.append(f"derived/{name} is {'no longer' if name not in again else 'not yet'} derived")
        elif same_version and stored[name] != again[name]:
            problems.append(f"derived/{name} differs from what is derived now")
        elif not same_version:
            problems += [f"derived/{name}: {what}" for what in numeric_differences(name, stored[name], again[name])[:3]]
    words = f"{len(plain)} derived files byte for byte"
    if not same_version:
        numbers = sum(name.endswith(NUMBERS) for name in plain)
        words = (
            f"{numbers} derived files as numbers, {len(plain) - numbers} by their hashes alone, NOT compared (derive "
            f"version {version} made them, here is {DERIVE})"
        )
    pages = {name: data for name, data in stored.items() if name.startswith(PAGES)}
    if pages:
        found, how = _check_pages(done, pages, record, say)
        problems += found
        words += f"; {len(pages)} pages and figures {how}"
    return problems, words


def _check_pages(done: Derivation, stored: dict[str, bytes], record: dict[str, Any], say: Say) -> tuple[list[str], str]:
    """Figures and the page again, where this irr makes them as the archive's did: differences, and how it was done."""
    from harness.report.page import locked_packages, make_pages

    by_hash = "by their hashes alone, NOT derived again: "
    if record["derive"] != DERIVE:
        return [], f"{by_hash}derive version {record['derive']} made them, here is {DERIVE}"
    if not locked_packages():
        return [], f"{by_hash}the packages here are not those of {LOCK.name}"
    say("page and figures derived again")
    again = make_pages(done)
    how, hint = "byte for byte", ""
    if record.get("lock") != lock_hash():
        how += f", though derived/{RECORD} names another lock than {LOCK.name} here"
        hint = f" (derived/{RECORD} names another lock; if that is so, `irr report` derives it anew under this one)"
    return [
        f"derived/{name} differs from what is derived now{hint}"
        for name in sorted(stored)
        if again.get(name) != stored[name]
    ], how


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


NUMBERS = (".json", ".csv")
"""Files that numeric_differences compares."""


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


def verify_one(root: Path, say: Say = _silent) -> str:
    """One archive folder; what was checked, in one line.

    Args:
        say: told what is done next, a line at a time.

    Raises:
        IrrError: something does not match, each thing named.
    """
    say(f"{root.name}: checksums and schema")
    archive, problems = check_raw(root)
    words = ""
    if archive is not None and not problems:
        derived, words = check_derived(root, lambda line: say(f"{root.name}: {line}"))
        problems += derived
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise IrrError(f"{root} does not verify: {'; '.join(problems[:SHOWN])}{more}")
    assert archive is not None
    raw = sum(name.startswith("raw/") for name in archive.files)
    return f"{root.name}: {raw} raw files match their checksums and the schema, {words}"


def verify(path: Path, say: Say = _silent) -> str:
    """An archive, a folder of archives, or a packed .tar.zst; needs no network and no GPU."""
    with opened(path) as roots:
        return "\n".join(verify_one(root, say) for root in roots)
