"""The README says what the archives say, and names only what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.archive.read import load
from harness.archive.schema import Gate
from harness.claims.evaluate import REGISTRY
from harness.environment import ROOT
from harness.errors import IrrError
from harness.report.appendix import APPENDIX, appendix
from harness.report.readme import BEGIN, END, NONE, README, answer_block, archived, with_block
from tests.synthetic import sample_rows, write_archive
from tests.test_claims import TABLE1


@pytest.fixture(scope="module")
def text() -> str:
    return README.read_text(encoding="utf-8")


def test_the_answer_is_what_the_archives_say(text: str) -> None:
    block = answer_block(archived())
    assert with_block(text, block) == text, "python -m harness.report.readme writes it again"


def test_the_appendix_is_what_claims_and_archives_say() -> None:
    written = APPENDIX.read_text(encoding="utf-8")
    assert appendix(archived()) == written, "python -m harness.report.appendix writes it again"
    assert all(f"| {claim} |" in written for claim in REGISTRY.claims)


def test_the_appendix_does_not_depend_on_the_order_of_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    before = appendix([])
    moved = REGISTRY.claims["P23"]
    monkeypatch.delitem(REGISTRY.claims, "P23")
    monkeypatch.setitem(REGISTRY.claims, "P23", moved)
    assert list(REGISTRY.claims)[-1] == "P23"
    assert appendix([]) == before


def test_no_figure_of_a_measurement_stands_outside_the_block(text: str) -> None:
    outside = with_block(text, "")
    assert not re.search(r"\d(\.\d+)? ?(x|times|us|percent|%)\b", outside)


def test_without_archives_it_says_so(tmp_path: Path) -> None:
    assert answer_block([]) == NONE
    host = load(write_archive(tmp_path / "a", cells=["base"], study="host"))
    assert answer_block([host]) == NONE


def test_the_block_turns_with_the_samples(tmp_path: Path) -> None:
    def block(factor: float) -> str:
        times = {key: us * (factor if key[0].startswith("triton") else 1) for key, us in TABLE1.items()}
        return answer_block([load(write_archive(tmp_path / str(factor) / "run", samples=sample_rows(times)))])

    said = "Allocate takes 11.3 to 24.6 times CUDA C++'s time"
    assert said in block(1.0) and said not in block(0.5)


def test_red_gates_are_told_with_their_first_message(tmp_path: Path) -> None:
    def gate(kernel: str, ok: bool) -> Gate:
        message = "" if ok else "memcheck found something"
        return Gate(gate="memcheck", tier="sanitizer", subject=f"{kernel} on base", ok=ok, compared=1, message=message)

    gates = [gate("cuda/allocate/plain", True), gate("cuda/update/plain", False)]
    root = write_archive(tmp_path / "a", samples=sample_rows(TABLE1), gates=gates)
    found = answer_block([load(root)])
    assert "1 of 2 checks of correctness are green" in found
    assert "memcheck is red 1 of 2 times, the first: cuda/update/plain on base: memcheck found something" in found


def test_figures_that_are_there_are_shown(tmp_path: Path) -> None:
    root = write_archive(tmp_path / "a", samples=sample_rows(TABLE1))
    assert "![" not in answer_block([load(root)])
    figure = root / "derived" / "figures" / "ratio-allocate.svg"
    figure.parent.mkdir(parents=True, exist_ok=True)
    figure.write_text("<svg/>", encoding="utf-8")
    assert f"](results/{root.name}/derived/figures/ratio-allocate.svg)" in answer_block([load(root)])


def test_hostile_names_are_text(tmp_path: Path) -> None:
    name = "<script>x</script> | [a](javascript:x)"
    found = answer_block([load(write_archive(tmp_path / "a", samples=sample_rows(TABLE1), device_name=name))])
    assert "<script>" not in found and "](javascript" not in found.replace("\\]", "")


@pytest.mark.parametrize("readme", ["", f"{BEGIN}", f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_markers_must_be_there_once(readme: str) -> None:
    with pytest.raises(IrrError, match="once each"):
        with_block(readme, "x")


def test_every_task_and_path_it_names_is_there(text: str) -> None:
    import tasks

    known = {name for name, value in vars(tasks).items() if type(value).__name__ == "Task"}
    named = set(re.findall(r"(?:\./irr|invoke) ([a-z]+)", text))
    assert named and named <= known
    outside = with_block(text, "")
    paths = re.findall(r"`([\w.]+(?:/[\w.]+)*/?)`", outside)
    made = {".venv/", "build/", "build/sm_90/", "raw/", "derived/", "report.html", "reproduce", "host", "verify"}
    wanted = [path for path in paths if ("/" in path or "." in path) and path not in made and path != "SHA256SUMS"]
    assert len(wanted) > 15
    assert [
        path for path in wanted if not any((base / path).exists() for base in (ROOT, ROOT / "harness/claims"))
    ] == []
