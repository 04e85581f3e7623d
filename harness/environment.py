"""Where things are, what every version is, and what the system must bring: paths, pins, caches, system packages.

Imports nothing heavy: every command passes through here.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import IrrError

ROOT = Path(__file__).resolve().parents[1]
PINS_FILE = ROOT / "pins.toml"
RESULTS = ROOT / "results"


@cache
def pins() -> dict[str, Any]:
    """pins.toml: every version once."""
    return tomllib.loads(PINS_FILE.read_text(encoding="utf-8"))


# --- caches ---------------------------------------------------------------------------------------------------------

CACHE_FOLDERS = {
    "TRITON_CACHE_DIR": "triton",
    "CUPY_CACHE_DIR": "cupy",
    "CUDA_CACHE_PATH": "cuda",
    "MPLCONFIGDIR": "matplotlib",
}
"""Variable -> folder below the user's cache. The tools' own defaults are below HOME, which a container's uid may not
have or may not write; a place shared between users in /tmp lets one user's lock stop another."""

BUILD_HOMES = {"CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup"}
"""Homes of the Rust tools. A toolchain that is already installed there is kept: only a home that can be neither used
nor made is moved."""


def _usable_folder(path: Path) -> bool:
    """Whether files can be made in the folder, which is made if need be."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def _private_temporary(uid: int) -> Path:
    """A folder below the temporary directory that belongs to this uid alone."""
    path = Path(tempfile.gettempdir()) / f"irr-{uid}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        found = None
    # Someone else's folder, or a link laid by someone else, under the name that we would have taken.
    if found is None or not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o022:
        return Path(tempfile.mkdtemp(prefix=f"irr-{uid}-"))
    return path


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """A writable cache folder of this uid: $XDG_CACHE_HOME/irr, ~/.cache/irr, else below the temporary directory.

    Raises:
        IrrError: no writable place at all.
    """
    environ = os.environ if environ is None else environ
    uid = os.getuid()
    home = environ.get("HOME")
    candidates = [environ.get("XDG_CACHE_HOME"), f"{home}/.cache" if home and home != "/" else None]
    for candidate in candidates:
        if candidate:
            path = Path(candidate) / "irr"
            # A HOME carried over from another user (sudo, --user): not ours, so not private either.
            if _usable_folder(path) and path.stat().st_uid == uid:
                return path
    try:
        return _private_temporary(uid)
    except OSError as error:
        raise IrrError(
            f"no writable place for caches: neither HOME nor {tempfile.gettempdir()} ({error.strerror})",
            "set XDG_CACHE_HOME or TMPDIR to a writable folder, or mount one there",
        ) from error


def scratch(folder: Path) -> Path:
    """The folder if files can be made in it, else one of its name in this uid's cache: an image is read-only."""
    return folder if _usable_folder(folder) else cache_root() / folder.name


def prepare_environment(environ: MutableMapping[str, str] | None = None) -> None:
    """Point every tool's cache to a writable place of this uid. What the user has set is kept; "" counts as not set."""
    environ = os.environ if environ is None else environ
    wanting = [name for name in (*CACHE_FOLDERS, *BUILD_HOMES) if not environ.get(name)]
    if not wanting:
        return
    root = cache_root(environ)
    home = environ.get("HOME") or "/"
    for name in wanting:
        if name in CACHE_FOLDERS:
            environ[name] = str(root / CACHE_FOLDERS[name])
            continue
        usual = Path(home) / BUILD_HOMES[name]
        if os.access(usual, os.W_OK) or (not usual.exists() and os.access(home, os.W_OK)):
            continue
        if name == "RUSTUP_HOME" and os.access(usual / "toolchains", os.R_OK):
            continue
        environ[name] = str(root / BUILD_HOMES[name].removeprefix("."))
    if not any(environ.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME")):
        # getpass.getuser(), which libraries call for a folder's name, fails for a uid without a passwd entry.
        try:
            pwd.getpwuid(os.getuid())
        except KeyError:
            environ["USER"] = f"uid{os.getuid()}"


# --- system packages ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SystemPackage:
    """A row of pins.toml's system table."""

    package: str
    probe: str
    when: str
    arms: tuple[str, ...]
    folder: str | None = None

    def present(self) -> bool:
        """Whether the thing itself is there, whoever installed it."""
        if "/" in self.probe:
            return Path(self.probe).exists()
        if ".so" in self.probe:
            try:
                ctypes.CDLL(self.probe)
            except OSError:
                return False
            return True
        return shutil.which(self.probe) is not None

    def wanted(self, root: Path = ROOT) -> bool:
        """Whether the checkout has the sources that need it."""
        return self.folder is None or any((root / self.folder).rglob("*.rs"))


def system_packages() -> list[SystemPackage]:
    """pins.toml's table of system packages."""
    return [SystemPackage(**{**row, "arms": tuple(row["arms"])}) for row in pins()["system"]]


def missing_packages(when: Iterable[str] = ("setup",)) -> list[SystemPackage]:
    """Packages that are wanted at these times and not there."""
    times = set(when)
    return [row for row in system_packages() if row.when in times and row.wanted() and not row.present()]


def affected_arms(missing: Iterable[SystemPackage]) -> list[str]:
    return sorted({arm for row in missing for arm in row.arms})


def apt_allowed(environ: Mapping[str, str] | None = None) -> str | None:
    """None if packages may be installed here, else why not."""
    environ = os.environ if environ is None else environ
    if environ.get("IRR_NO_SYSTEM") == "1":
        return "IRR_NO_SYSTEM=1 forbids it"
    if os.geteuid() != 0:
        return "not root"
    if shutil.which("apt-get") is None:
        return "no apt-get here"
    return None


def _apt(*words: str) -> bool:
    """Run apt-get; its hundreds of lines are shown only where it fails, and never on stdout."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-q", "-y", *words],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if line.startswith(("E:", "W:", "Err:"))]
        print("\n".join(errors[-5:]), file=sys.stderr, flush=True)
    return done.returncode == 0


def _apt_install(packages: list[str]) -> bool:
    return _apt("install", "--no-install-recommends", *packages)


def ensure_system(when: Iterable[str] = ("setup",)) -> list[SystemPackage]:
    """Install what is missing where that is allowed; otherwise say in one line what to install.

    Never fails: an arm without its package is `unavailable`, the others run.

    Returns:
        What is still missing.
    """
    when = tuple(when)
    missing = missing_packages(when)
    if not missing:
        return []
    names = [row.package for row in missing]
    why_not = apt_allowed()
    if why_not is None:
        print(f"irr: installing by apt: {' '.join(names)}", file=sys.stderr, flush=True)
        # A list that cannot be renewed (one mirror of several) need not mean that nothing can be installed.
        _apt("update")
        if not _apt_install(names):
            # One package that this system does not offer must not take the others with it.
            for name in names:
                _apt_install([name])
        missing = missing_packages(when)
        why_not = "apt could not install them (its words are above)"
    if missing:
        names = [row.package for row in missing]
        arms = affected_arms(missing)
        lost = f"unavailable without them: arms {', '.join(arms)}" if arms else "the tests that need them are skipped"
        print(
            f"irr: missing: {' '.join(names)} ({why_not}); {lost}; cure: apt-get install {' '.join(names)}",
            file=sys.stderr,
            flush=True,
        )
    return missing
