"""pins.toml holds every version once; whatever repeats one is checked against it here, a row each."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.build.kernels import ARMS
from harness.environment import PINS_FILE, ROOT, pins, system_packages

LOCK = ROOT / "requirements.txt"
PYTHONS = ("3.11", "3.12", "3.13")


def pin(path: str) -> Any:
    value: Any = pins()
    for key in path.split("."):
        value = value[key]
    return value


WHEELS = ("requirements.in", "requirements.txt")
DOCUMENTS = ("README.md", "ARTEFACT.md", "harness/report/appendix.py")
REFUSALS = ("harness/doctor.py", "harness/device/driver.py")
CRATES = ("causes", "oxide", "probes")

# (file, pin, pattern): where the file names the pinned thing, group 1 must be the pin, each time and at least once.
# A file counts once it is in git, so a row may come before its file.
REPEATED: tuple[tuple[str, str, str], ...] = (
    *[(name, "python.minimum", r"Python\s+(3\.\d+)\s+to\s+3\.\d+") for name in (*DOCUMENTS, "requirements.in")],
    *[(name, "python.maximum", r"Python\s+3\.\d+\s+to\s+(3\.\d+)") for name in (*DOCUMENTS, "requirements.in")],
    *[(name, "cuda.minimum", r"CUDA\s+(\d+\.\d+)(?:\s+or\s+newer)?\s+\(\d+") for name in (*DOCUMENTS, *REFUSALS)],
    *[(name, "cuda.driver", r"\((\d+)\s+or\s+newer\)") for name in (*DOCUMENTS, *REFUSALS)],
    *[(name, "cuda.minimum_arch", r"capability\s+(\d+\.\d+)") for name in DOCUMENTS],
    ("harness/build/kernels.py", "cuda.minimum_arch", r"min_arch: int = (\d+)"),
    ("harness/device/occupy.py", "cuda.minimum_arch", r"\.target sm_(\d+)"),
    ("requirements.in", "python.minimum", r"--python-version (3\.\d+)"),
    ("irr", "python.minimum", r"Python (3\.\d+)(?:, 3\.\d+)+ or 3\.\d+"),
    ("irr", "python.maximum", r"Python 3\.\d+(?:, 3\.\d+)+ or (3\.\d+)"),
    ("irr", "python.minimum", r"(3\.\d+) or newer"),
    ("irr", "python.minimum", r"version_info < \((3, \d+)\)"),
    ("irr", "python.minimum", r"\((3, \d+)\) <= sys\.version_info"),
    ("irr", "python.maximum", r"version_info\[:2\] <= \((3, \d+)\)"),
    ("irr", "python.minimum", r"is not (3\.\d+) to 3\.\d+"),
    ("irr", "python.maximum", r"is not 3\.\d+ to (3\.\d+)"),
    ("pyproject.toml", "python.minimum", r'pythonVersion = "(.+)"'),
    ("pyproject.toml", "python.minimum", r'target-version = "py(3\d+)"'),
    ("flake.nix", "nix.nixpkgs.rev", r'"github:NixOS/nixpkgs/([^"]+)"'),
    ("flake.nix", "nix.rust-overlay.rev", r'"github:oxalica/rust-overlay/([^"]+)"'),
    ("flake.lock", "nix.nixpkgs.rev", r'"repo": "nixpkgs",\s+"rev": "([^"]+)"'),
    ("flake.lock", "nix.nixpkgs.narHash", r'"narHash": "([^"]+)",\s+"owner": "NixOS"'),
    ("flake.lock", "nix.rust-overlay.rev", r'"repo": "rust-overlay",\s+"rev": "([^"]+)"'),
    ("flake.lock", "nix.rust-overlay.narHash", r'"narHash": "([^"]+)",\s+"owner": "oxalica"'),
    ("Dockerfile", "image.base", r"(?m)^ARG BASE=(\S+)"),
    ("Dockerfile", "python.default", r"python(3\.\d+)"),
    ("Dockerfile", "rust.debian", r"(?m)^ARG RUST_DEBIAN=(\S+)"),
    ("Dockerfile", "oxide.rustup", r"(?m)^ARG RUSTUP=(\S+)"),
    ("Dockerfile", "oxide.rustup_sha256", r"(?m)^ARG RUSTUP_SHA256=(\S+)"),
    ("patches/series.toml", "oxide.revision", r'id = "cuda-oxide-\d+"[^\[]*\ncommit = "([^"]+)"'),
    ("patches/series.toml", "oxide.parent", r'id = "cuda-oxide-\d+"[^\[]*\nparent = "([^"]+)"'),
    ("patches/series.toml", "oxide.pull_request", r"(?m)^pull_request = (\d+)"),
    ("patches/series.toml", "oxide.pull_request", r'"cuda-oxide-(\d+)"'),
    ("patches/series.toml", "oxide.pull_request", r"\(#(\d+)\)"),
    ("rust/oxide/README.md", "oxide.pull_request", r"pull request (\d+)"),
    *[(f"rust/{name}/Cargo.toml", "oxide.revision", r'cuda-oxide[^\n]*rev = "([0-9a-f]+)"') for name in CRATES],
    *[(name, f"wheels.{wheel}", rf"(?m)^{wheel}==([^\s;]+)") for name in WHEELS for wheel in pins()["wheels"]],
)


def tracked(name: str) -> bool:
    """Whether the file is in git; without git (an unpacked tarball), whether it is there."""
    words = ["git", "ls-files", "--error-unmatch", name]
    try:
        return subprocess.run(words, cwd=ROOT, capture_output=True).returncode == 0
    except FileNotFoundError:
        return (ROOT / name).exists()


ROWS = pytest.mark.parametrize(
    ("name", "path", "pattern"), REPEATED, ids=[f"{row[0]}-{row[1]}-{number}" for number, row in enumerate(REPEATED)]
)


def spelled(version: str, dots: bool) -> str:
    """A version as pins.toml spells it: `3, 11` with a dot; 7.5 and py311 without, where the pin or file has none."""
    version = re.sub(r",\s*", ".", version)
    return version if dots else version.replace(".", "")


def disagreement(name: str, path: str, pattern: str, text: str, pinned: str) -> str | None:
    """What is wrong with a file that repeats a pin, naming both places; None if nothing is (13.5.37 is 13.5.*)."""
    written = re.findall(pattern, text)
    dots = "." in pinned and all(re.search(r"\D", version) for version in written)
    found, pinned = {spelled(version, dots) for version in written}, spelled(pinned, dots)
    release = pinned.removesuffix("*")
    right = {version for version in found if version == pinned or (release != pinned and version.startswith(release))}
    return (
        None if found and found == right else f"{name} says {sorted(found) or 'nothing'}, pins.toml {path} = {pinned}"
    )


def repeating(name: str) -> str:
    if not tracked(name):
        pytest.skip(f"{name} is not in git yet")
    return (ROOT / name).read_text(encoding="utf-8")


@ROWS
def test_a_version_that_is_repeated_is_the_pinned_one(name, path, pattern):
    wrong = disagreement(name, path, pattern, repeating(name), str(pin(path)))
    assert wrong is None, wrong


def altered(version: str) -> str:
    """Another version of the same shape: its last letter or digit changed."""
    at = max(position for position, sign in enumerate(version) if sign.isalnum())
    return version[:at] + ("1" if version[at] != "1" else "2") + version[at + 1 :]


@ROWS
def test_changing_a_version_anywhere_is_said_with_both_places(name, path, pattern):
    text, pinned = repeating(name), str(pin(path))
    places = [match.span(1) for match in re.finditer(pattern, text)]
    assert places
    copies = [text[:start] + altered(pinned) + text[end:] for start, end in places]
    told = [disagreement(name, path, pattern, copy, pinned) for copy in copies]
    told.append(disagreement(name, path, pattern, text, altered(pinned)))
    for words in told:
        assert words is not None and name in words and f"pins.toml {path}" in words


def test_irr_tries_the_pythons_of_the_lock_by_name():
    [names] = re.findall(r"for name in ((?:python3\.\d+ )+)python3 ", (ROOT / "irr").read_text(encoding="utf-8"))
    tried = sorted(name.removeprefix("python") for name in names.split())
    assert tried == list(PYTHONS), f"irr tries {tried}, pins.toml python.minimum to python.maximum are {PYTHONS}"


def test_every_whole_version_or_revision_that_is_repeated_has_a_row():
    """A copy that nobody checks: found by looking for each pin's value in every file that is no test and no result."""
    pinned = {str(value).removesuffix(".*"): path for path, value, _ in leaves(pins()) if not path.endswith("_reason")}
    whole = {value: path for value, path in pinned.items() if re.search(r"\d+\.\d+\.\d+|[0-9a-f]{40}|sha256-", value)}
    assert len(whole) > 8
    unchecked = []
    for file in git_files():
        name = file.relative_to(ROOT).as_posix()
        # In our own code such a version stands as an example, in words.
        if name.startswith(("results/", "tests/", "data/")) or name.endswith(".py") or name == PINS_FILE.name:
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        rows = [pattern for other, _, pattern in REPEATED if other == name]
        spans = [match.span(1) for pattern in rows for match in re.finditer(pattern, text)]
        for value, path in whole.items():
            for match in re.finditer(rf"(?<![\w.]){re.escape(value)}(?![\w.])", text):
                if not any(start <= match.start() and match.end() <= end for start, end in spans):
                    unchecked.append(f"{name}:{text[: match.start()].count(chr(10)) + 1} repeats pins.toml {path}")
    assert unchecked == []


# --- the lock ---------------------------------------------------------------------------------------------------------


def direct() -> dict[str, Requirement]:
    lines = (ROOT / "requirements.in").read_text(encoding="utf-8").splitlines()
    rows = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    return {row.name: row for row in rows}


def locked() -> Iterator[Requirement]:
    for entry in LOCK.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        yield Requirement(entry.split(" --hash")[0].strip())


@pytest.mark.smoke
def test_requirements_and_pins_name_the_same_versions():
    named = {name: str(row.specifier).removeprefix("==") for name, row in direct().items() if row.specifier}
    assert named == pins()["wheels"]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_holds_each_direct_dependency_once_at_its_pinned_version(python):
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    versions: dict[str, str] = {}
    for row in locked():
        if row.marker is None or row.marker.evaluate({**environment, "os_name": "posix"}):
            assert row.name not in versions, f"{row.name} twice for Python {python}"
            [specifier] = row.specifier
            versions[row.name] = specifier.version
    for name, row in direct().items():
        assert row.specifier.contains(Version(versions[name])), f"{name} {versions[name]}"
    for name, wanted in pins()["wheels"].items():
        assert SpecifierSet(f"=={wanted}").contains(versions[name])


def test_the_lock_is_hashed_and_names_no_address():
    text = LOCK.read_text(encoding="utf-8")
    entries = text.replace("\\\n", " ").splitlines()
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert "://" not in text
    assert not re.search(r"(?m)^\s*--(?!hash)", text)


def test_the_toolkits_of_one_version_are_locked_at_one_version():
    wheels = pins()["wheels"]
    # nvcc, its headers, and libNVVM take each other's intermediate forms: never of two releases.
    assert wheels["nvidia-cuda-nvcc"] == wheels["nvidia-cuda-crt"] == wheels["nvidia-nvvm"] == pin("cuda.toolkit")


def test_pythons_are_those_of_the_lock():
    assert (pin("python.minimum"), pin("python.maximum")) == (PYTHONS[0], PYTHONS[-1])
    assert pin("python.default") in PYTHONS


# --- pins.toml itself -------------------------------------------------------------------------------------------------


def leaves(table: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value, table


def test_what_nobody_could_check_says_so_with_its_reason(record_property):
    unverified = [path for path, value, _ in leaves(pins()) if value == "unverified"]
    for path in unverified:
        reason = pin(f"{path}_reason")
        assert len(reason) > 20, path
        record_property("unverified", f"{path}: {reason}")
    # Listed here, so that a new one, or one that has been checked since, is a change that somebody sees.
    assert unverified == ["oxide.llvm", "image.digest"]


def test_reasons_stand_beside_unverified_values_only():
    for path, _, table in leaves(pins()):
        if path.endswith("_reason"):
            assert table[path.rpartition(".")[2].removesuffix("_reason")] == "unverified", path


def test_revisions_and_hashes_are_whole():
    for name in pins()["nix"]:
        assert re.fullmatch(r"[0-9a-f]{40}", pin(f"nix.{name}.rev"))
        assert re.fullmatch(r"sha256-[A-Za-z0-9+/]{43}=", pin(f"nix.{name}.narHash"))
    assert re.fullmatch(r"[0-9a-f]{40}", pin("oxide.revision"))
    assert re.fullmatch(r"[0-9a-f]{40}", pin("oxide.parent"))
    assert re.fullmatch(r"nightly-\d{4}-\d\d-\d\d", pin("oxide.toolchain"))


def test_pins_is_toml_that_nix_can_read_too():
    # builtins.fromTOML knows no dates.
    assert all(isinstance(value, str | int | float | bool | list) for _, value, _ in leaves(pins()))
    assert tomllib.loads(PINS_FILE.read_text(encoding="utf-8")) == pins()


def test_system_packages_name_arms_that_exist_or_are_announced():
    announced = {"open3d", "rust-nvptx", "rust-cpu", "rust-oxide", "triton-update", "triton", "cuda-packed"}
    for row in system_packages():
        assert row.when in ("setup", "test")
        assert set(row.arms) <= set(ARMS) | announced, row.package
        assert row.arms or row.when == "test"


def test_system_packages_of_the_debian_release_are_one_rust():
    source = next(row.probe for row in system_packages() if row.package == "rust-web-src")
    assert f"rustc-{pin('rust.version')}/" in source
    assert pin("rust.debian").startswith(pin("rust.version"))


# --- what must not be in git ------------------------------------------------------------------------------------------


def git_files() -> list[Path]:
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]


def test_text_files_have_unix_line_ends():
    for path in git_files():
        data = path.read_bytes() if path.is_file() else b""
        if b"\0" not in data[:8192] and "results" not in path.parts:
            assert b"\r\n" not in data, path


def test_lock_files_name_no_download_address():
    # A lock of one machine's mirror would fail everywhere else.
    for path in git_files():
        if path.name in ("Cargo.lock", "uv.lock", "poetry.lock") and path.is_file():
            addresses = set(re.findall(r"\w+\+?https?://[^\s\"#?]+", path.read_text(encoding="utf-8")))
            public = ("https://github.com/", "registry+https://github.com/rust-lang/crates.io-index")
            assert all(address.removeprefix("git+").startswith(public) for address in addresses), (path, addresses)
