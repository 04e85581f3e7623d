"""Files of an archive as untrusted input: plain files only, nothing outside the folder, sizes bounded, each under its
digest in SHA256SUMS."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from harness.archive.write import JOURNAL, SUMS, WORK
from harness.errors import IrrError

MIB = 1 << 20
MAX_JSON = 64 * MIB
MAX_CSV = 512 * MIB
MAX_TOTAL = 2048 * MIB
MAX_FILES = 20_000
MAX_SUMS = 4 * MIB
ROOT_ENTRIES = (SUMS, "raw", "derived", "README.md")
"""What may stand at an archive's root; anything else was added by someone."""

_LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<path>raw/[^\n\\]+)")

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._+@=,() -]{1,200}")


def plain_files(root: Path) -> list[str]:
    """Every file below root as a relative path with /, sorted.

    Raises:
        IrrError: a link, a device, a name with odd characters, or more files or bytes than an archive has.
    """
    found: list[str] = []
    total = 0
    folders = [root]
    while folders:
        folder = folders.pop()
        for entry in os.scandir(folder):
            relative = Path(entry.path).relative_to(root).as_posix()
            if not _PLAIN_NAME.fullmatch(entry.name) or entry.name.startswith("-"):
                raise IrrError(f"{root}: {ascii(relative)[:220]} has a name no archive has")
            mode = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(mode.st_mode):
                folders.append(Path(entry.path))
                continue
            if not stat.S_ISREG(mode.st_mode):
                raise IrrError(f"{root}: {relative} is a link or a special file; an archive has plain files only")
            total += mode.st_size
            found.append(relative)
            if total > MAX_TOTAL or len(found) > MAX_FILES:
                raise IrrError(f"{root} is larger than any archive ({MAX_FILES} files, {MAX_TOTAL // MIB} MiB)")
    return sorted(found)


def read_bytes(root: Path, name: str, limit: int) -> bytes:
    """One file of an archive, its folders and itself checked not to be links.

    Raises:
        IrrError: missing, not a plain file, or larger than limit bytes.
    """
    path = root
    for part in name.split("/"):
        path = path / part
        if path.is_symlink() or part in ("", ".", ".."):
            raise IrrError(f"{root}: {name} is not a plain file inside the archive")
    try:
        if path.stat().st_size > limit:
            raise IrrError(f"{root}: {name} is larger than {limit // MIB} MiB")
        return path.read_bytes()
    except OSError as error:
        raise IrrError(f"{root}: {name} cannot be read: {error.strerror}") from None


def read_sums(root: Path) -> dict[str, str]:
    """Digests by path from SHA256SUMS.

    Raises:
        IrrError: missing, or not in its one form (LF, two spaces, relative paths under raw/, sorted).
    """
    if not (root / SUMS).is_file():
        raise IrrError(f"the run is incomplete: it has no {SUMS} yet, `irr resume` goes on with it")
    text = read_bytes(root, SUMS, MAX_SUMS).decode("utf-8", "replace")
    if not text.endswith("\n") or "\r" in text:
        raise IrrError(f"{root}: {SUMS} has lines that do not end with LF", "take the archive again, byte for byte")
    sums: dict[str, str] = {}
    paths: list[str] = []
    for number, line in enumerate(text[:-1].split("\n"), 1):
        match = _LINE.fullmatch(line)
        if match is None or ".." in match["path"].split("/") or match["path"] in sums:
            raise IrrError(f"{root}: {SUMS} line {number} is not `digest  raw/path`")
        sums[match["path"]] = match["digest"]
        paths.append(match["path"])
    if paths != sorted(paths):
        raise IrrError(f"{root}: {SUMS} is not sorted")
    return sums


def altered(root: Path) -> list[str]:
    """What below raw/ differs from SHA256SUMS, each file named: changed, missing, or added."""
    sums = read_sums(root)
    present = {name for name in plain_files(root) if name.startswith("raw/")}
    problems = []
    for name, digest in sums.items():
        if name not in present:
            problems.append(f"{name} is missing")
        elif hashlib.sha256(read_bytes(root, name, MAX_CSV)).hexdigest() != digest:
            problems.append(f"{name} was changed")
    return problems + [f"{name} was added" for name in sorted(present - set(sums))]


def check_sums(root: Path) -> list[str]:
    """What differs from SHA256SUMS, and what stands beside raw/ and no archive has."""
    problems = altered(root)
    strangers = {name.split("/")[0] for name in plain_files(root)} - set(ROOT_ENTRIES)
    left = "was left by a run that was killed at its very end; `irr resume` removes it"
    return problems + [f"{n} {left if n in (JOURNAL, WORK) else 'was added'}" for n in sorted(strangers)]
