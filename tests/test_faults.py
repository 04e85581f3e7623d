"""Every planted fault is caught by the gate it names, and by nothing that must not see it."""

from __future__ import annotations

import difflib
import functools
import importlib.util
from pathlib import Path

import pytest

from harness.build.cargo import build_host as build_rust_host
from harness.build.host import find_compiler
from harness.build.manifest import ToolMissing
from harness.errors import IrrError
from harness.gates.faults import CATALOGUE, FAULTS, Fault, apply_diff, copy_sources, gates_in, load_catalogue, run_fault

FAULT_TABLE = load_catalogue()


@functools.cache
def missing(need: str) -> str | None:
    """Why this machine cannot serve a need, None if it can."""
    try:
        if need == "host":
            find_compiler()
        if need == "rust":
            build_rust_host()
    except ToolMissing as error:
        return error.what
    if need == "triton" and importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if need == "fma":
        flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
        return None if " fma " in flags else "this CPU has no fused multiply-add"
    if need == "gpu":
        return "no GPU fault runs from the suite"
    return None


def require(*needs: str) -> None:
    for need in needs:
        why = missing(need)
        if why:
            pytest.skip(why)


def test_the_catalogue_is_as_wide_as_promised() -> None:
    languages = [language for fault in FAULT_TABLE.values() for language in fault.languages]
    assert len(FAULT_TABLE) >= 14
    assert {"cuda", "rust", "triton", "harness"} <= set(languages)
    diffs = {path.stem for path in FAULTS.glob("*.diff")}
    assert diffs == set(FAULT_TABLE), "every diff has a row and every row a diff"


def test_without_a_fault_everything_is_green(tmp_path: Path) -> None:
    require("host", "rust", "triton")
    rows = [fault for fault in FAULT_TABLE.values() if not fault.test]
    arms = ",".join(dict.fromkeys(arm for fault in rows for arm in fault.arms.split(",")))
    cells = ",".join(dict.fromkeys(cell for fault in rows for cell in fault.cells.split(",")))
    copy_sources(tmp_path)
    results = gates_in(tmp_path, arms, cells)
    assert [f"{r['gate']}: {r['subject']}: {r['message']}" for r in results if not r["ok"] and not r["skipped"]] == []
    passed = {result["gate"] for result in results if result["ok"]}
    wanted = {fault.red for fault in rows if fault.red != "deadline"} | {g for fault in rows for g in fault.green}
    assert wanted <= passed


@pytest.mark.parametrize("fault", FAULT_TABLE.values(), ids=list(FAULT_TABLE))
def test_a_fault_is_caught_by_the_gate_it_names(fault: Fault, tmp_path: Path) -> None:
    require(*fault.needs)
    outcome = run_fault(fault, tmp_path)
    assert outcome.caught, f"{fault.red or fault.test} stayed green; red: {outcome.red}"
    assert not outcome.blind, f"red or not run: {outcome.blind}; red: {outcome.red}"


# --- the machinery ----------------------------------------------------------------------------------------------------


def _diff(old: str, new: str) -> str:
    return "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "a/f.txt", "b/f.txt", n=1))


def test_a_diff_is_applied_by_content_wherever_its_lines_have_moved(tmp_path: Path) -> None:
    old = "one\ntwo\nthree\nfour\nfive\n"
    (tmp_path / "f.txt").write_text("zero\nzero\n" + old)
    apply_diff(_diff(old, old.replace("two", "2").replace("five\n", "")), tmp_path)
    assert (tmp_path / "f.txt").read_text() == "zero\nzero\none\n2\nthree\nfour\n"


@pytest.mark.parametrize("text", ["one\nzwei\nthree\n", "one\ntwo\nthree\none\ntwo\nthree\n"])
def test_a_stale_or_ambiguous_diff_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.txt").write_text(text)
    with pytest.raises(IrrError, match="renew its diff"):
        apply_diff(_diff("one\ntwo\nthree\n", "one\n2\nthree\n"), tmp_path)
    assert (tmp_path / "f.txt").read_text() == text


@pytest.mark.parametrize(
    "row",
    [
        'name = "no-such-diff"\nlanguages = []\nneeds = []\nplants = ""\nred = "table"',
        'name = "missing-colour"\nlanguages = []\nneeds = []\nplants = ""',
        'name = "missing-colour"\nlanguages = []\nneeds = ["luck"]\nplants = ""\nred = "table"',
    ],
)
def test_a_row_that_proves_nothing_is_refused(tmp_path: Path, row: str) -> None:
    table = tmp_path / "catalogue.toml"
    table.write_text("[[fault]]\n" + row + "\n")
    with pytest.raises(IrrError):
        load_catalogue(table)
    assert CATALOGUE.is_file()
