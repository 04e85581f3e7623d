"""The fault catalogue: planted errors that a named gate must catch, run on a copy of the sources, never in place.

The table is tests/faults/catalogue.toml; a fault is a small unified diff beside it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.environment import ROOT
from harness.errors import IrrError

FAULTS = ROOT / "tests" / "faults"
CATALOGUE = FAULTS / "catalogue.toml"

COPIED = ("cuda", "rust", "triton", "harness", "data", "tests", "pins.toml", "pyproject.toml")
"""What the gates need; the copy is a few MB."""

DEADLINE_S = 30.0
NEEDS = ("host", "rust", "triton", "fma", "gpu")


@dataclass(frozen=True)
class Fault:
    """One row of the catalogue; its fields are described there."""

    name: str
    languages: tuple[str, ...]
    needs: tuple[str, ...]
    plants: str
    why: str = ""
    arms: str = ""
    cells: str = ""
    red: str = ""
    green: tuple[str, ...] = ()
    deadline: float = DEADLINE_S
    test: str = ""

    @property
    def diff(self) -> Path:
        return FAULTS / f"{self.name}.diff"


def load_catalogue(path: Path = CATALOGUE) -> dict[str, Fault]:
    """Every fault by name, in the table's order.

    Raises:
        IrrError: a row without a diff, or that names nothing that must catch it.
    """
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    faults = {}
    for row in rows:
        values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        fault = Fault(**values)
        if not fault.diff.is_file() or fault.name in faults:
            raise IrrError(f"{path}: fault {fault.name} has no diff of its own")
        if bool(fault.red) == bool(fault.test) or not set(fault.needs) <= set(NEEDS):
            raise IrrError(f"{path}: fault {fault.name} must name one gate or one test, and needs among {NEEDS}")
        faults[fault.name] = fault
    return faults


def apply_diff(diff: str, root: Path) -> list[Path]:
    """Apply a unified diff below a folder, by content: each hunk's old lines must stand exactly once in the file.

    Line numbers are ignored, so a diff stays good until the lines it touches change.

    Returns:
        The files changed.

    Raises:
        IrrError: a file is missing, or a hunk is nowhere or in several places.
    """
    changed: list[Path] = []
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        header, *hunks = re.split(r"^@@.*\n", part, flags=re.MULTILINE)
        name = header.splitlines()[1].removeprefix("+++ ").split("\t")[0].removeprefix("b/")
        path = root / name
        if not path.is_file():
            raise IrrError(f"a fault changes {name}, which does not exist", "renew its diff")
        text = path.read_text(encoding="utf-8")
        for hunk in hunks:
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[:1] in (" ", "-"))
            new = "".join(line[1:] for line in lines if line[:1] in (" ", "+"))
            if text.count(old) != 1:
                raise IrrError(f"a fault's hunk stands {text.count(old)} times in {name}, not once", "renew its diff")
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
        changed.append(path)
    return changed


def copy_sources(folder: Path, root: Path = ROOT) -> None:
    """The sources into an empty folder, with the host libraries that are already built: only what a fault touches is
    built again, since builds are found by the hash of their sources."""
    skipped = shutil.ignore_patterns("__pycache__", "target", "*.pyc", ".hypothesis")
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=skipped)
        elif source.is_file():
            shutil.copy2(source, folder / name)
    built = root / "build" / "host"
    if built.is_dir():
        shutil.copytree(built, folder / "build" / "host", ignore=shutil.ignore_patterns(".*", "*.lock"))


def _run(folder: Path, words: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    environment["PYTHONPATH"] = str(folder)
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
    )


def gates_in(folder: Path, arms: str, cells: str, deadline_s: float = DEADLINE_S) -> list[dict[str, Any]]:
    """Run the gates of a copy, in a process of its own that is killed when it does not end.

    Returns:
        Results as GateResult.to_json() gives them.

    Raises:
        IrrError: the copy's gates did not run to their end.
    """
    words = ["-m", "harness.gates.run", "--arms", arms, "--cells", cells, "--deadline", str(deadline_s)]
    try:
        done = _run(folder, words, 600)
    except subprocess.TimeoutExpired:
        raise IrrError(f"the gates of {arms} on {cells} did not end, deadline or not") from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        words = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        raise IrrError(f"the gates of {arms} on {cells} did not run: {words[-1]}") from None


@dataclass(frozen=True)
class Outcome:
    """What a planted fault did.

    Attributes:
        caught: the named gate (or test) turned red.
        blind: gates listed as green that turned red, or were not run.
        red: every gate that turned red, with its first message.
        results: all that the gates said.
    """

    fault: Fault
    caught: bool
    blind: tuple[str, ...]
    red: dict[str, str]
    results: tuple[dict[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        return self.caught and not self.blind


def run_fault(fault: Fault, folder: Path, arms: str | None = None, cells: str | None = None) -> Outcome:
    """Plant a fault in a copy made in the empty `folder`, run what must catch it, and say what happened.

    Args:
        arms, cells: others than the catalogue's.
    """
    copy_sources(folder)
    apply_diff(fault.diff.read_text(encoding="utf-8"), folder)
    if fault.test:
        options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-q", fault.test]
        done = _run(folder, ["-m", "pytest", *options], 300)
        # 1: tests were collected, ran, and one failed. Anything else is no catch.
        return Outcome(fault, done.returncode == 1, (), {fault.test: done.stdout.strip().splitlines()[-1][:200]})
    results = gates_in(folder, arms or fault.arms, cells or fault.cells, fault.deadline)
    red: dict[str, str] = {}
    passed: set[str] = set()
    for result in results:
        if result["ok"]:
            passed.add(result["gate"])
        elif result["skipped"] is None:
            red.setdefault(result["gate"], f"{result['subject']}: {result['message']}")
    blind = tuple(gate for gate in fault.green if gate in red or gate not in passed)
    return Outcome(fault, fault.red in red, blind, red, tuple(results))


# --- what the paper says of two of them -------------------------------------------------------------------------------


def evidence() -> tuple[list[dict[str, Any]], str | None]:
    """Findings on the two faults that the paper tells of (P3, P8), planted here and now on base and the plane.

    Takes a C++ compiler, for P8 rustc as well, and about half a minute on two cores.

    Returns:
        rows of evidence.json, and why some are missing (None if none is).
    """
    try:
        with ThreadPoolExecutor(2) as pool:  # mostly compilers, in processes of one thread
            parts = [pool.submit(part) for part in (_occlusion_evidence, _half_voxel_evidence)]
            return [row for part in parts for row in part.result()], None
    except IrrError as error:
        return [], error.what


def _planted(name: str, arms: str, cells: str) -> tuple[dict[str, Any], ...]:
    with tempfile.TemporaryDirectory(prefix="irr-fault-") as folder:
        results = run_fault(load_catalogue()[name], Path(folder), arms, cells).results
    unable = [result["message"] for result in results if result["gate"] in ("arm", "runs")]
    if unable:
        raise IrrError(f"fault {name}: {unable[0]}")
    return results


def _detail(results: Iterable[dict[str, Any]], gate: str, cell: str) -> dict[str, Any]:
    return next(r["detail"] for r in results if r["gate"] == gate and r["subject"].endswith(f" on {cell}"))


def _occlusion_evidence() -> list[dict[str, Any]]:
    results = _planted("occlusion-in-update-only", "cpu", "base")
    found = _detail(results, "exact-set", "base")
    moved = _detail(results, "exact-surface", "base")["hausdorff_m"]
    how = "allocate without the occlusion test, update with it: the C++ sources on the host, base"
    name = "fault.occlusion_one_pass"
    return [
        {"name": f"{name}.blocks", "value": found["blocks"], "unit": "blocks", "how": how},
        {"name": f"{name}.blocks_true", "value": found["expected"], "unit": "blocks", "how": how},
        {"name": f"{name}.surface_m", "value": moved, "unit": "m", "how": f"{how}; Hausdorff distance"},
    ]


def _half_voxel_evidence() -> list[dict[str, Any]]:
    from harness.gates.run import run_gates

    results = _planted("half-voxel-bias", "cpu,rust-cpu", "base,plane-320k")
    right = [r.to_json() for r in run_gates("cpu", "base", places=("host",))]

    def green(gate: str) -> bool:
        given = [result for result in results if result["gate"] == gate and result["skipped"] is None]
        return bool(given) and all(result["ok"] for result in given)

    how = "the distance taken at the ray's sample in the C++ and Rust host arms and in the oracle at once"
    wrong, true = _detail(results, "sphere", "base"), _detail(right, "sphere", "base")
    name = "fault.half_voxel"
    return [
        {"name": f"{name}.plane_ok", "value": green("plane"), "unit": "", "how": f"{how}; plane-320k"},
        {"name": f"{name}.cross_arm_ok", "value": green("cross-arm"), "unit": "", "how": how},
        {"name": f"{name}.sphere_ok", "value": green("sphere"), "unit": "", "how": f"{how}; base"},
        {
            "name": f"{name}.quarter_voxel_ok",
            "value": wrong["mean_m"] < wrong["limit_m"],
            "unit": "",
            "how": f"{how}; whether the mean alone, held to a quarter voxel, would let it pass on base",
        },
        {"name": f"{name}.radius_error_m", "value": wrong["mean_m"], "unit": "m", "how": f"{how}; mean |r - R|"},
        {"name": f"{name}.radius_error_max_m", "value": wrong["max_m"], "unit": "m", "how": f"{how}; largest"},
        {"name": "sphere.radius_error_m", "value": true["mean_m"], "unit": "m", "how": "no fault, base; mean |r - R|"},
        {"name": "sphere.radius_error_max_m", "value": true["max_m"], "unit": "m", "how": "no fault, base; largest"},
    ]
