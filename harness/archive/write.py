"""Writing an archive: whole files under temporary names, a journal of whole passes while the run goes on, and
SHA256SUMS last, so that a folder with SHA256SUMS is a finished archive and one without is incomplete."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from harness.archive.schema import CSV_FILES, Run, csv_bytes, json_bytes
from harness.errors import IrrError
from harness.whole import PART, whole_file

JOURNAL = "journal.jsonl"
WORK = "work"
"""The manager's folder beside raw/ while a run goes on."""
SUMS = "SHA256SUMS"
BUILD_SUFFIXES = (".json", ".ptx", ".sass")


def write_whole(path: Path, data: bytes) -> None:
    """Write the file whole or not at all: temporary name, fsync, rename.

    Raises:
        IrrError: it cannot be written; names the path.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise IrrError(f"{path} cannot be written: {error.strerror}") from error
    with whole_file(path, sync=True) as stream:
        stream.write(data)


def refuse_occupied(root: Path) -> None:
    """Raises IrrError where something stands already: an archive begins in a folder that is empty or not there."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        what = "is not empty" if root.is_dir() else "is no folder"
        raise IrrError(f"{root} exists and {what}", "name another folder with --out; archives are never overwritten")


def check_writable(root: Path) -> None:
    """Refuse early, before any work, a place where no archive could be made at the end: make it, write into it, and
    remove what was made. Rights alone do not tell: root may write anywhere and not into /proc.

    Raises:
        IrrError: names the place and uid:gid, or what stands there.
    """
    made: list[Path] = []
    try:
        refuse_occupied(root)
        for folder in reversed([root, *root.parents]):
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
        trial = tempfile.mkdtemp(prefix="irr-trial-", dir=root)
        os.rmdir(trial)
    except OSError as error:
        raise IrrError(
            f"{root} cannot be written by uid:gid {os.getuid()}:{os.getgid()}: {error.strerror}",
            "name a folder of your own with --out, or mount one (mkdir -p it first, owned by that user)",
        ) from None
    finally:
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # somebody else has begun to use it
                folder.rmdir()


def sums_text(root: Path) -> str:
    """SHA256SUMS of everything under root/raw: `digest  path`, sorted by path, relative with /, LF."""
    lines = []
    for path in sorted((root / "raw").rglob("*"), key=lambda p: p.relative_to(root).as_posix()):
        if path.is_file():
            lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(root).as_posix()}\n")
    return "".join(lines)


class Journal:
    """Whole records, one JSON line each, while a run goes on. A line torn by a kill is dropped at the next reading and
    its pass done again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """Every whole record in order; a torn last line is cut off the file.

        Raises:
            IrrError: a line before the last one is broken, which no kill explains.
        """
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        records, kept = [], 0
        lines = data.split(b"\n")
        for index, line in enumerate(lines):
            if not line.strip():
                kept += len(line) + 1
                continue
            try:
                if index == len(lines) - 1:
                    raise ValueError("no newline at its end")
                record = json.loads(line)
            except ValueError as error:
                if index >= len(lines) - 2 and not b"".join(lines[index + 1 :]).strip():
                    os.truncate(self.path, min(kept, len(data)))
                    break
                raise IrrError(f"{self.path} line {index + 1} is broken: {error}", "start a new run") from None
            records.append(record)
            kept += len(line) + 1
        return records

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record; on the disk when this returns."""
        line = json.dumps(json.loads(json_bytes(record)), sort_keys=True, allow_nan=False) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as stream:
                stream.write(line.encode("ascii"))
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise IrrError(f"{self.path} cannot be written: {error.strerror}") from error


class ArchiveWriter:
    """One archive while it is made.

        writer = ArchiveWriter.create(path, run)      # raw/run.json says incomplete
        writer.journal.append({"pass": 0, ...})       # after every pass: the record `resume` reads
        writer.rows("samples.csv", rows)              # at the end: whole tables, rows as dicts by column
        writer.json("fingerprint.json", document)
        writer.builds(Path("build/sm_90"))
        writer.finish(run)                            # run.json complete, journal gone, SHA256SUMS last

    An archive that is written at once (`ArchiveWriter.create(path, run)` and `finish` in one go) needs no journal.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.raw = root / "raw"
        self.journal = Journal(root / JOURNAL)

    @staticmethod
    def create(root: Path, run: Run) -> ArchiveWriter:
        """Begin an archive in a folder that does not exist or is empty.

        Raises:
            IrrError: something stands there already, or the folder cannot be made (path, uid and gid named).
        """
        refuse_occupied(root)
        writer = ArchiveWriter(root)
        try:
            writer.raw.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise IrrError(
                f"{root} cannot be made by uid:gid {os.getuid()}:{os.getgid()}: {error.strerror}",
                "make the folder first, owned by that user",
            ) from error
        writer.run(run)
        return writer

    @staticmethod
    def resume(root: Path) -> ArchiveWriter:
        """Go on with an archive that has no SHA256SUMS yet.

        Raises:
            IrrError: no archive there, or a finished one.
        """
        if not (root / "raw" / "run.json").is_file():
            raise IrrError(f"{root} is not an archive: raw/run.json is missing")
        if (root / SUMS).exists():
            # Of a run that was killed between its last file and its tidying up.
            (root / JOURNAL).unlink(missing_ok=True)
            shutil.rmtree(root / WORK, ignore_errors=True)
            raise IrrError(f"{root} is complete", "nothing to resume; `irr verify` checks it")
        return ArchiveWriter(root)

    def _path(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts:
            raise ValueError(f"{name!r} is not a path inside raw/")
        if (self.root / SUMS).exists():
            raise IrrError(f"{self.root} is complete: raw/ is never rewritten")
        return self.raw.joinpath(*parts)

    def run(self, run: Run) -> None:
        """Write raw/run.json."""
        self.json("run.json", run)

    def json(self, name: str, document: Any) -> None:
        """Write raw/NAME as strict JSON (a number that is none becomes null with its reason)."""
        write_whole(self._path(name), json_bytes(document))

    def rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write raw/samples.csv, telemetry.csv or counters.csv from rows keyed by column.

        Raises:
            ValueError: a row that does not fit the column table.
        """
        write_whole(self._path(name), csv_bytes(CSV_FILES[name], rows))

    def file(self, name: str, data: bytes) -> None:
        """Write raw/NAME as it is."""
        write_whole(self._path(name), data)

    def builds(self, folder: Path) -> None:
        """Copy manifests, PTX and SASS of a build folder (build/sm_90) to raw/builds/sm_90; cubins "
        "stay where they are."""
        for source in sorted(folder.iterdir()):
            if source.suffix in BUILD_SUFFIXES and source.is_file():
                self.file(f"builds/{folder.name}/{source.name}", source.read_bytes())

    def finish(self, run: Run) -> Path:
        """Close the archive: run.json as complete, the journal gone, SHA256SUMS last.

        Raises:
            IrrError: a file that every archive has is missing.
        """
        missing = [
            name for name in ("fingerprint.json", "gates.json", "samples.csv") if not (self.raw / name).is_file()
        ]
        if missing:
            raise IrrError(f"{self.root} cannot be finished: raw/{missing[0]} was not written")
        for part in self.raw.rglob(f"*{PART}"):
            part.unlink()  # of a writer that was killed
        self.run(msgspec.structs.replace(run, state="complete"))
        write_whole(self.root / SUMS, sums_text(self.root).encode())
        self.journal.path.unlink(missing_ok=True)
        return self.root

    def discard(self) -> None:
        """Remove an archive that holds nothing worth keeping (refused before anything ran)."""
        if not (self.root / SUMS).exists():
            shutil.rmtree(self.root, ignore_errors=True)
