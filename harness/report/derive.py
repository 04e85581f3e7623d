"""derived/ from raw/: claims, tables, and DERIVED.json with the hashes of what went in and what came out."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import __version__
from harness.archive.files import MAX_CSV, MIB, read_bytes
from harness.archive.read import Archive, load
from harness.archive.schema import decode, json_bytes
from harness.archive.write import write_whole
from harness.claims.evaluate import judged
from harness.claims.registry import View
from harness.errors import IrrError
from harness.report.tables import RENDERINGS, Table, claims_table, make_tables

DERIVE = 3
"""Version of the derivation: raised whenever the same raw/ gives other bytes. At the same version `verify` compares
bytes, at another one numbers."""

RECORD = "DERIVED.json"
LOCK = Path(__file__).parents[2] / "requirements.txt"
THIS = "this archive"
"""What an archive calls itself in its own derived files: folders may be renamed, bytes may not change."""

PAGES = ("report.html", "figures/")
"""Derived files that come from plotting packages: the same bytes only under the same lock."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def lock_hash() -> str | None:
    """SHA-256 of the lock file, None where there is none."""
    return sha256(LOCK.read_bytes()) if LOCK.is_file() else None


@dataclass(frozen=True)
class Derivation:
    """What is derived from an archive before it is written down: verdicts as `claims --json` has them, and tables."""

    view: View
    verdicts: list[dict[str, Any]]
    tables: list[Table]


def prepare(root: Path) -> Derivation:
    """Judge and tabulate one archive.

    Raises:
        IrrError: no archive there, or one that cannot be read.
    """
    return prepared(load(root, THIS))


def prepared(archive: Archive) -> Derivation:
    """Judge and tabulate an archive that is loaded, and calls itself THIS."""
    view = View(archive)
    return Derivation(view, judged([view]), make_tables(view))


def derive(done: Derivation) -> dict[str, bytes]:
    """Claims and tables of an archive: path below derived/ -> bytes; the same everywhere."""
    files = {"claims.json": json_bytes(done.verdicts)}
    for table in [*done.tables, claims_table(done.verdicts)]:
        for suffix, render in RENDERINGS.items():
            files[f"tables/{table.name}.{suffix}"] = render(table)
    return files


def inputs(archive: Archive) -> dict[str, str]:
    """Hashes of everything under raw/."""
    names = [name for name in archive.files if name.startswith("raw/")]
    return {name: sha256(read_bytes(archive.root, name, MAX_CSV)) for name in names}


def write_derived(root: Path, done: Derivation, pages: dict[str, bytes] | None = None) -> list[str]:
    """Make derived/ anew: all of it, or the old one stays.

    Args:
        done: of this archive. pages: figures and the page, path below derived/ -> bytes.

    Returns:
        The paths written, below derived/.
    """
    files = {**derive(done), **(pages or {})}
    record: dict[str, Any] = {
        "derive": DERIVE,
        "inputs": inputs(done.view.archive),
        "irr": __version__,
        "lock": lock_hash(),
        "outputs": {name: sha256(data) for name, data in files.items()},
    }
    fresh, old = root / "derived.part", root / "derived"
    if fresh.exists():
        shutil.rmtree(fresh)
    try:
        for name, data in sorted(files.items()):
            write_whole(fresh / name, data)
        write_whole(fresh / RECORD, json_bytes(record))
        if old.exists():
            shutil.rmtree(old)
        fresh.rename(old)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise IrrError(f"{old} cannot be written: {error.strerror}") from error
    return sorted(files)


def read_record(root: Path) -> dict[str, Any]:
    """DERIVED.json, checked for its form.

    Raises:
        IrrError: absent, or not of that form.
    """
    record = decode(dict[str, Any], read_bytes(root, f"derived/{RECORD}", 4 * MIB), f"{root.name}/derived/{RECORD}")
    if not isinstance(record.get("outputs"), dict) or not isinstance(record.get("inputs"), dict):
        raise IrrError(f"{root}: derived/{RECORD} does not list inputs and outputs", "make it again with `irr report`")
    return record
