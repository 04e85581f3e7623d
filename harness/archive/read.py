"""Reading an archive as untrusted input: what is loaded is what SHA256SUMS says, sizes are bounded, no pickle."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from harness.archive.files import MAX_CSV, MAX_JSON, altered, plain_files, read_bytes
from harness.archive.schema import (
    CSV_FILES,
    SCHEMA,
    Column,
    Evidence,
    Fingerprint,
    Gate,
    Run,
    decode,
)
from harness.archive.write import SUMS
from harness.errors import IrrError

MAX_TEXT = 4_096
"""Characters in one CSV field; a device name has a few dozen."""

Frame: TypeAlias = Any
"""A pandas DataFrame or Series. pandas' own annotations give a union at every step, which says less than this."""


def parse_csv(data: bytes, columns: Sequence[Column], where: str) -> Frame:
    """Rows as a table typed by the column table; columns that are not in it are kept as text, empty numbers are NaN.

    Raises:
        IrrError: not UTF-8, a column missing, a value that does not fit; names the line.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise IrrError(f"{where} is not UTF-8") from None
    if "\r" in text or "\0" in text:
        raise IrrError(f"{where} has a carriage return or a zero byte; lines end with LF alone")
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise IrrError(f"{where} is not CSV: {error}") from None
    if not rows:
        raise IrrError(f"{where} is empty; it has a header at least")
    header, body = rows[0], rows[1:]
    missing = [column.name for column in columns if column.name not in header]
    if missing or len(set(header)) != len(header):
        raise IrrError(f"{where} has no column {missing[0]}" if missing else f"{where} names a column twice")
    for index, row in enumerate(body):
        if len(row) != len(header):
            raise IrrError(f"{where} line {index + 2} has {len(row)} fields, the header {len(header)}")
    by_name = dict(zip(header, zip(*body, strict=True), strict=True)) if body else dict.fromkeys(header, ())
    table = {column.name: _column(by_name[column.name], column, where) for column in columns}
    extra = {name: list(values) for name, values in by_name.items() if name not in table}
    return pd.DataFrame(table | extra)


def _column(values: Sequence[str], column: Column, where: str) -> Any:
    """A column's values, checked; each spelling once, for most stand in thousands of lines."""
    known: dict[str, Any] = {}
    for value in dict.fromkeys(values):
        try:
            known[value] = _value(value, column)
        except ValueError as error:
            raise IrrError(f"{where} line {values.index(value) + 2}: {column.name} {error}") from None
    if column.kind == "str":
        return np.array(values, dtype=object)
    numbers = np.fromiter(map(known.__getitem__, values), np.float64, len(values))
    return numbers.astype(np.int64) if column.kind == "int" and not column.nullable else numbers


def _value(value: str, column: Column) -> Any:
    """One field.

    Raises:
        ValueError: it does not fit; says what it is.
    """
    if column.kind == "str":
        if column.choices and value not in column.choices:
            raise ValueError(f"is {value[:40]!r}, not {'/'.join(column.choices)}")
        if len(value) > MAX_TEXT:
            raise ValueError(f"has more than {MAX_TEXT} characters")
        return value
    if value == "":
        if not column.nullable:
            raise ValueError("may not be empty")
        return math.nan
    try:
        number = int(value) if column.kind == "int" else float(value)
    except ValueError:
        raise ValueError(f"is {value[:40]!r}, not a number") from None
    if not -1e18 < number < 1e18:  # NaN and infinity fail too: they are not numbers in an archive
        raise ValueError(f"is {value[:40]!r}, not a usable number")
    return number


@dataclass(frozen=True)
class Archive:
    """One loaded archive. Tables and builds are read at first use.

    Attributes:
        name: the folder's name, what claims and tables call it.
        complete: whether it stands under SHA256SUMS.
    """

    root: Path
    name: str
    run: Run
    fingerprint: Fingerprint
    gates: list[Gate]
    evidence: dict[str, Evidence]
    complete: bool
    files: tuple[str, ...] = field(repr=False, default=())

    def _csv(self, name: str) -> Frame:
        if f"raw/{name}" not in self.files:
            return parse_csv(",".join(c.name for c in CSV_FILES[name]).encode() + b"\n", CSV_FILES[name], name)
        return parse_csv(read_bytes(self.root, f"raw/{name}", MAX_CSV), CSV_FILES[name], f"{self.name}/raw/{name}")

    @cached_property
    def samples(self) -> Frame:
        """raw/samples.csv."""
        return self._csv("samples.csv")

    @cached_property
    def telemetry(self) -> Frame:
        """raw/telemetry.csv, empty where there is none."""
        return self._csv("telemetry.csv")

    @cached_property
    def counters(self) -> Frame:
        """raw/counters.csv, empty where there is none."""
        return self._csv("counters.csv")

    @cached_property
    def manifests(self) -> dict[tuple[int, str], dict[str, Any]]:
        """Manifests by (architecture, kernel name as samples carry it)."""
        found = {}
        for name in self.files:
            if name.startswith("raw/builds/") and name.endswith(".json"):
                document = self.json(name)
                # The file's name is the sample's, flavour included: cuda--allocate--plain--fma, ...@bundled.
                kernel = name.rsplit("/", 1)[1].removesuffix(".json").replace("--", "/")
                if isinstance(document, dict) and isinstance(document.get("arch"), int):
                    found[document["arch"], kernel] = document
        return found

    def json(self, name: str) -> Any:
        """Any JSON file of the archive by its path from the root, None where it does not exist."""
        if name not in self.files:
            return None
        return decode(Any, read_bytes(self.root, name, MAX_JSON), f"{self.name}/{name}")

    @property
    def device_names(self) -> list[str]:
        """Distinct device names in the order of the passes."""
        return list(dict.fromkeys(p.device_name for p in self.run.passes))

    def value(self, name: str) -> Any:
        """The value of one finding in evidence.json, None where it is not there."""
        found = self.evidence.get(name)
        return None if found is None else found.value


def load(root: Path, name: str | None = None, *, unchecked: bool = False) -> Archive:
    """Load one archive folder. Nothing is judged, drawn or packed from files that are not those of the run: an archive
    that has SHA256SUMS must match it; one that is still being made has none and is read as it is.

    Args:
        name: what to call it; the folder's name where it is left out.
        unchecked: without a look at SHA256SUMS, for who checks and names every difference (`verify`).

    Raises:
        IrrError: no archive, one that was altered, a newer schema, or a file that does not fit; one line.
    """
    if root.is_symlink() or not root.is_dir():
        raise IrrError(f"{root} is not a folder", "name an archive: a folder with raw/run.json")
    files = plain_files(root)
    if "raw/run.json" not in files:
        raise IrrError(f"{root} is not an archive: raw/run.json is missing")
    if SUMS in files and not unchecked:
        problems = altered(root)
        if problems:
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            raise IrrError(
                f"{root} is not what its {SUMS} says: {problems[0]}{more}",
                f"./irr verify {root} names everything; take the archive again",
            )
    name = name if name is not None else root.resolve().name
    raw_run = decode(dict[str, Any], read_bytes(root, "raw/run.json", MAX_JSON), f"{name}/raw/run.json")
    version = raw_run.get("schema")
    if not isinstance(version, int) or version > SCHEMA:
        raise IrrError(f"{root} has schema {version!r}, this irr reads up to {SCHEMA}", "use a newer irr")
    run = decode(Run, read_bytes(root, "raw/run.json", MAX_JSON), f"{name}/raw/run.json")

    def part(file: str, kind: Any, default: Any) -> Any:
        if f"raw/{file}" not in files:
            return default
        return decode(kind, read_bytes(root, f"raw/{file}", MAX_JSON), f"{name}/raw/{file}")

    evidence: list[Evidence] = part("evidence.json", list[Evidence], [])
    return Archive(
        root=root,
        name=name,
        run=run,
        fingerprint=part("fingerprint.json", Fingerprint, Fingerprint(built_on={}, run_on={})),
        gates=part("gates.json", list[Gate], []),
        evidence={item.name: item for item in evidence},
        complete=SUMS in files and run.state == "complete",
        files=tuple(files),
    )


def find(folder: Path) -> list[Path]:
    """Archive folders directly below a folder, by name."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if (path / "raw" / "run.json").is_file() and not path.is_symlink())
