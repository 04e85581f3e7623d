"""Files that stand under their name whole or not at all, and never in the place of something that is no file."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.errors import IrrError, UsageError

PART = ".part"
"""Suffix of what is being written; a writer that is killed leaves it."""


def _part(path: Path) -> Path:
    # Of each writer its own, whatever else runs: two containers that share a folder have the same process ids.
    return path.with_name(f"{path.name[:40]}.{secrets.token_hex(8)}{PART}")


def _unwritable(path: Path, error: OSError) -> IrrError:
    who = f"uid {os.getuid()}, gid {os.getgid()}: choose a folder of your own"
    return IrrError(f"{path} cannot be written: {error.strerror or error}", who)


def refuse_others(path: Path) -> None:
    """
    Raises:
        UsageError: something else than a file has the name. A rename would put a file in the place of a device, a pipe
            or a link; as root, of /dev/null.
        OSError: nobody may look.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a folder, not a file to write")
    if stat.S_ISLNK(mode):
        raise UsageError(f"{path} is a link; it would be replaced", "name the file that it stands for")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is not a file; it would be replaced")


def check_target(path: Path) -> None:
    """Say before the work that a file cannot be written.

    Raises:
        UsageError: as `refuse_others`.
        IrrError: no file can be written there.
    """
    try:
        refuse_others(path)  # first: a folder such as . or / has no name to put a suffix to
        part = _part(path)
        part.open("xb").close()
        part.unlink()
    except OSError as error:
        raise _unwritable(path, error) from None


@contextlib.contextmanager
def whole_file(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """A stream whose bytes stand under the name when it is left, all of them, or none if it is left by an exception.

    Args:
        sync: on the disk before the name is theirs, for what must outlive a power cut.

    Raises:
        UsageError, IrrError: as `check_target`.
    """
    part: Path | None = None
    try:
        refuse_others(path)
        part = _part(path)
        with part.open("xb") as stream:
            yield stream
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        part.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first error says more
            if part is not None:
                part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise
