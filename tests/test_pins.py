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

# (file, pin, pattern): where the file names the pinned thing, group 1 must be the pin, each time and at least once.
# A file counts once it is in git, so a row may come before its file.
REPEATED: tuple[tuple[str, str, str], ...] = (
    ("README.md", "python.minimum", r"Python (3\.\d+) to 3\.\d+"),
    ("README.md", "python.maximum", r"Python 3\.\d+ to (3\.\d+)"),
    ("requirements.in", "python.minimum", r"Python (3\.\d+) to 3\.\d+"),
    ("requirements.in", "python.maximum", r"Python 3\.\d+ to (3\.\d+)"),
    ("irr", "python.minimum", r"Python (3\.\d+)(?:, 3\.\d+)+ or 3\.\d+"),
    ("irr", "python.maximum", r"Python 3\.\d+(?:, 3\.\d+)+ or (3\.\d+)"),
    ("pyproject.toml", "python.minimum", r'pythonVersion = "(.+)"'),
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
    ("patches/series.toml", "oxide.revision", r'id = "cuda-oxide-695"[^\[]*\ncommit = "([^"]+)"'),
    ("patches/series.toml", "oxide.parent", r'id = "cuda-oxide-695"[^\[]*\nparent = "([^"]+)"'),
    ("rust/oxide/Cargo.toml", "oxide.revision", r'cuda-oxide[^\n]*rev = "([0-9a-f]+)"'),
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


def disagreement(name: str, path: str, pattern: str, text: str, pinned: str) -> str | None:
    """What is wrong with a file that repeats a pin, naming both places; None if nothing is (13.5.37 is 13.5.*)."""
    found = set(re.findall(pattern, text))
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
    wrong = disagreement(name, path, pattern, repeating(name), pin(path))
    assert wrong is None, wrong


def altered(version: str) -> str:
    """Another version of the same shape: its last letter or digit changed."""
    at = max(position for position, sign in enumerate(version) if sign.isalnum())
    return version[:at] + ("1" if version[at] != "1" else "2") + version[at + 1 :]


@ROWS
def test_changing_a_version_anywhere_is_said_with_both_places(name, path, pattern):
    text, pinned = repeating(name), pin(path)
    places = [match.span(1) for match in re.finditer(pattern, text)]
    assert places
    copies = [text[:start] + altered(pinned) + text[end:] for start, end in places]
    told = [disagreement(name, path, pattern, copy, pinned) for copy in copies]
    told.append(disagreement(name, path, pattern, text, altered(pinned)))
    for words in told:
        assert words is not None and name in words and f"pins.toml {path}" in words


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
