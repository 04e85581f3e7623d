"""patches/series.toml: which upstream changes a toolchain must contain, and whether a checkout contains them."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.environment import ROOT
from harness.errors import IrrError

SERIES_FILE = ROOT / "patches" / "series.toml"


@dataclass(frozen=True)
class Evidence:
    """What one file of a checkout shows. present, absent: texts that must and must not stand in it."""

    file: str
    present: tuple[str, ...]
    absent: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """One upstream commit, named and not copied. Fields as in series.toml; contains: its evidence."""

    id: str
    repository: str
    pull_request: int
    commit: str
    parent: str
    subject: str
    why: str
    contains: tuple[Evidence, ...]

    def missing(self, checkout: Path) -> list[str]:
        """What the checkout lacks of this change, one line each; empty if it has all of it.

        The files decide, because they are what is compiled. Where the history is there, it must agree.
        """
        lines = []
        for evidence in self.contains:
            try:
                text = (checkout / evidence.file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                lines.append(f"{evidence.file} cannot be read")
                continue
            lines += [f"{evidence.file} has no {words!r}" for words in evidence.present if words not in text]
            lines += [f"{evidence.file} still has {words!r}" for words in evidence.absent if words in text]
        # 0 ancestor, 1 not; anything else: no such commit here (a shallow clone), which says nothing.
        if _git(checkout, "merge-base", "--is-ancestor", self.commit, "HEAD")[0] == 1:
            lines.append(f"HEAD does not descend from {self.commit[:12]}")
        return lines


def _git(checkout: Path, *words: str) -> tuple[int, str]:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return -1, ""
    return done.returncode, done.stdout.strip()


def revision(checkout: Path) -> str:
    """Commit of a checkout; `-dirty` behind it if tracked files differ from it.

    Raises:
        IrrError: not a git checkout.
    """
    # HEAD of the folder itself: inside another repository git would answer with that one's.
    status, top = _git(checkout, "rev-parse", "--show-toplevel")
    status, head = _git(checkout, "rev-parse", "HEAD") if status == 0 else (status, "")
    if status != 0 or Path(top).resolve() != checkout.resolve():
        raise IrrError(
            f"{checkout} is not a git checkout", "clone the repository there: its commit goes into every manifest"
        )
    status, changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    return head + ("-dirty" if status != 0 or changed else "")


@cache
def load_series(path: Path = SERIES_FILE) -> tuple[Change, ...]:
    """Every change, in the order of the file.

    Raises:
        IrrError: the file is missing, or an entry lacks a field or its evidence.
    """
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["change"]
        changes = []
        for entry in entries:
            contains = tuple(
                Evidence(e["file"], tuple(e.get("present", ())), tuple(e.get("absent", ()))) for e in entry["contains"]
            )
            if not contains or not all(e.present or e.absent for e in contains):
                raise ValueError(f"{entry['id']} has no evidence")
            changes.append(Change(**{**entry, "contains": contains}))
        return tuple(changes)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise IrrError(f"{path.name}: {error}", "take a whole checkout") from None


def missing_changes(checkout: Path, repository: str, series: Sequence[Change] | None = None) -> list[str]:
    """What a checkout of `repository` lacks of the series, one line each, with the change's name."""
    series = load_series() if series is None else series
    chosen = [change for change in series if change.repository == repository]
    return [f"{change.id}: {line}" for change in chosen for line in change.missing(checkout)]
