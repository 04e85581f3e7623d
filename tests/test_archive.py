"""Archives: strict JSON, journals torn by a kill, checksums that name what changed, hostile input refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.archive import fingerprint, pack
from harness.archive.files import check_sums
from harness.archive.read import load, parse_csv
from harness.archive.schema import EVERY_PASS, SAMPLES, Note, Pass, Skipped, csv_bytes, json_bytes
from harness.archive.verify import check_raw
from harness.archive.write import JOURNAL, SUMS, WORK, ArchiveWriter, Journal, sums_text
from harness.build.kernels import KERNELS
from harness.errors import IrrError, UsageError
from harness.measure.controls import FEWER
from harness.measure.plan import ALONE, CONTROLS
from harness.measure.studies import SMS
from tests.synthetic import gate, judged, planned, sample_rows, write_archive


def strict_loads(data: bytes) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(data, parse_constant=refuse)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    times = {("cuda/allocate/plain", "base"): 25.0, ("cuda/allocate/plain", "base", "filled"): 15.0}
    rows = sample_rows(times)
    return write_archive(tmp_path_factory.mktemp("archive") / "a", samples=rows, gates=judged(rows))


@pytest.fixture
def archive(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "copy")


# ------------------------------------------------------------------------------------------------------- N35 (a)


def test_what_is_no_number_becomes_null_with_its_reason() -> None:
    document = strict_loads(json_bytes({"a": float("nan"), "b": {"c": [1.0, float("-inf")]}, "d": np.float32("nan")}))
    assert document["a"] is None and document["b"]["c"] == [1.0, None] and document["d"] is None
    assert {n["field"]: n["why"] for n in document["nulls"]} == {
        "a": "not a number", "b.c[1]": "infinite", "d": "not a number",
    }  # fmt: skip


def test_each_object_of_a_list_tells_its_own_nulls() -> None:
    first, second = strict_loads(json_bytes([{"x": 1}, {"x": float("inf")}]))
    assert "nulls" not in first and second["nulls"] == [{"field": "x", "why": "infinite"}]


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers(-(2**60), 2**60) | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8))  # fmt: skip
def test_any_document_is_strict_json_with_sorted_keys(value: Any) -> None:
    data = json_bytes({"value": value})
    document = strict_loads(data)
    assert data.endswith(b"\n") and b"\r" not in data
    assert data == (json.dumps(document, sort_keys=True, indent=1) + "\n").encode()


def test_a_csv_field_that_is_no_number_is_empty_and_must_be_allowed_to_be() -> None:
    row = sample_rows({("cuda/allocate/plain", "base"): 25.0}, passes=1, rounds=1, twins=False)[0]
    assert b",nan," not in csv_bytes(SAMPLES, [{**row, "us": float("nan"), "power_w": float("inf")}])
    with pytest.raises(ValueError, match="round may not be empty"):
        csv_bytes(SAMPLES, [{**row, "round": float("nan")}])
    with pytest.raises(ValueError, match="status is one of"):
        csv_bytes(SAMPLES, [{**row, "status": "fine"}])
    with pytest.raises(ValueError, match="no such column: speed"):
        csv_bytes(SAMPLES, [{**row, "speed": 1}])


# ------------------------------------------------------------------------------------------------------- N35 (b)


def test_a_torn_last_line_is_dropped_and_its_pass_done_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append({"pass": 0, "us": float("nan")})
    journal.append({"pass": 1})
    with journal.path.open("ab") as stream:
        stream.write(b'{"pass":2,"dev')
    assert [record["pass"] for record in journal.read()] == [0, 1]
    journal.append({"pass": 2})
    assert [record["pass"] for record in journal.read()] == [0, 1, 2]


def test_a_whole_line_without_its_newline_is_torn_too(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"pass": 0}\n{"pass": 1}')
    assert [record["pass"] for record in Journal(path).read()] == [0]
    assert path.read_bytes() == b'{"pass": 0}\n'


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"pass": 0}\n{"pa\n{"pass": 2}\n')
    with pytest.raises(IrrError, match="line 2 is broken"):
        Journal(path).read()


def test_an_archive_is_incomplete_until_it_is_finished(tmp_path: Path) -> None:
    root = write_archive(tmp_path / "a", finish=False)
    assert load(root).run.state == "incomplete" and not load(root).complete
    assert "incomplete" in check_raw(root)[1][0]
    writer = ArchiveWriter.resume(root)
    writer.finish(load(root).run)
    assert load(root).complete and check_raw(root)[1] == []
    with pytest.raises(IrrError, match="is complete"):
        ArchiveWriter.resume(root)
    with pytest.raises(IrrError, match="never rewritten"):
        writer.json("run.json", {})


def test_an_archive_is_never_overwritten(archive: Path) -> None:
    with pytest.raises(IrrError, match="not empty"):
        ArchiveWriter.create(archive, load(archive).run)


# ------------------------------------------------------------------------------------------------------- N35 (c)


@pytest.mark.smoke
def test_sums_are_lf_relative_sorted_and_sha256sum_accepts_them(archive: Path) -> None:
    text = (archive / SUMS).read_bytes()
    paths = [line.split("  ")[1] for line in text.decode().splitlines()]
    assert b"\r" not in text and text.endswith(b"\n") and paths == sorted(paths)
    assert all(path.startswith("raw/") and "\\" not in path for path in paths)
    done = subprocess.run(["sha256sum", "-c", SUMS], cwd=archive, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert check_raw(archive)[1] == []


def test_gitattributes_pin_line_ends() -> None:
    text = (Path(__file__).parents[1] / ".gitattributes").read_text()
    assert "eol=lf" in text and "results/** -text" in text


@pytest.mark.parametrize("offset", [0, 100, -1])
def test_one_flipped_byte_is_named(archive: Path, offset: int) -> None:
    path = archive / "raw" / "samples.csv"
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    assert check_sums(archive) == ["raw/samples.csv was changed"]


def test_a_deleted_and_an_added_file_are_named(archive: Path) -> None:
    (archive / "raw" / "gates.json").unlink()
    (archive / "raw" / "extra.txt").write_text("x")
    (archive / "notes.txt").write_text("x")
    assert check_sums(archive) == ["raw/gates.json is missing", "raw/extra.txt was added", "notes.txt was added"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda raw: (raw / "samples.csv").write_text((raw / "samples.csv").read_text() + " "),
            "samples.csv was changed",
        ),
        (lambda raw: (raw / "samples.csv").unlink(), "samples.csv is missing"),
        (lambda raw: (raw / "evidence.json").write_text("[]"), "evidence.json was added"),
    ],
)
def test_what_was_altered_is_not_read_anywhere(archive: Path, change: Any, says: str, irr: Any, tmp_path: Path) -> None:
    change(archive / "raw")
    with pytest.raises(IrrError, match=says):
        load(archive)
    bundle, other = str(tmp_path / "b.tar.zst"), str(archive)
    for words in (
        ("report", other),
        ("claims", "--archive", other),
        ("claims", "--archive", other, "--json"),
        ("compare", other, other),
        ("pack", other, "--out", bundle),
    ):
        done = irr(*words)
        assert done.returncode == 1 and done.stdout == "", words
        assert f"raw/{says}" in done.stderr and "irr verify" in done.stderr and len(done.stderr.splitlines()) == 2
    assert not (archive / "derived").exists() and not Path(bundle).exists()
    assert load(archive, unchecked=True).name == "copy"


def test_what_is_no_archive_is_said_in_a_line(tmp_path: Path, irr: Any) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("absent", "empty"):
        where, bundle = str(tmp_path / place), str(tmp_path / "b.tar.zst")
        for words in (("report", where), ("verify", where), ("resume", where), ("pack", where, "--out", bundle)):
            done = irr(*words)
            assert (done.returncode, done.stdout) == (1, ""), words
            assert where in done.stderr and "Error" not in done.stderr and len(done.stderr.splitlines()) <= 2, words


def test_what_stands_beside_raw_hinders_verify_alone(archive: Path) -> None:
    (archive / "notes.txt").write_text("x")
    assert load(archive).complete and check_sums(archive) == ["notes.txt was added"]


def test_a_run_that_was_killed_at_its_very_end_is_tidied(archive: Path) -> None:
    (archive / JOURNAL).write_text("{}\n")
    (archive / WORK / "references").mkdir(parents=True)
    assert all("irr resume" in problem for problem in check_sums(archive))
    with pytest.raises(IrrError, match="is complete"):
        ArchiveWriter.resume(archive)
    assert check_raw(archive)[1] == []


def test_carriage_returns_in_the_sums_are_told(archive: Path) -> None:
    path = archive / SUMS
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert "do not end with LF" in check_raw(archive)[1][0]


@pytest.mark.parametrize("path", ["raw/../../secret", "/etc/passwd", "raw/a\\b", "derived/x"])
def test_sums_name_only_files_under_raw(archive: Path, path: str) -> None:
    with (archive / SUMS).open("a") as stream:
        stream.write(f"{'0' * 64}  {path}\n")
    assert "is not `digest  raw/path`" in check_raw(archive)[1][0]


# --------------------------------------------------------------------------------------------- untrusted input


def rewrite(archive: Path, name: str, change: Any) -> None:
    path = archive / "raw" / name
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def signed(archive: Path) -> Path:
    """The archive with SHA256SUMS of what it holds now: who alters files can do that too."""
    (archive / SUMS).write_text(sums_text(archive))
    return archive


def test_links_are_refused(archive: Path) -> None:
    (archive / "raw" / "link.json").symlink_to("/etc/passwd")
    with pytest.raises(IrrError, match=r"raw/link\.json is a link"):
        load(archive)
    [once] = check_raw(archive)[1]
    assert "raw/link.json is a link" in once


def test_a_linked_folder_is_refused(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (archive / "raw" / "builds").symlink_to(tmp_path / "other")
    with pytest.raises(IrrError, match="is a link"):
        load(archive)


def test_special_files_are_refused(archive: Path) -> None:
    os.mkfifo(archive / "raw" / "pipe")
    with pytest.raises(IrrError, match="special file"):
        load(archive)


def test_a_newer_schema_is_refused(archive: Path) -> None:
    rewrite(archive, "run.json", lambda d: d.update(schema=99))
    with pytest.raises(IrrError, match="has schema 99"):
        load(signed(archive))


def test_nan_in_a_json_file_is_refused(archive: Path) -> None:
    path = archive / "raw" / "run.json"
    path.write_text(path.read_text().replace('"seed": 1', '"seed": NaN'))
    with pytest.raises(IrrError, match="not strict JSON"):
        load(signed(archive))


def test_deep_nesting_is_one_line(archive: Path) -> None:
    (archive / "raw" / "evidence.json").write_text("[" * 100_000)
    with pytest.raises(IrrError) as error:
        load(signed(archive))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (",ok\n", ",fine\n", "status is 'fine'"),
        (",serial,", ",parallel,", "launch is 'parallel'"),
        ("pass,", "passing,", "no column pass"),
        (",8,", ",nan,", "launches is 'nan'"),
        (",8,", ",inf,", "launches is 'inf'"),
        (",ok\n", ",ok,1\n", "fields, the header"),
        (",ok\n", ",ok\r\n", "carriage return"),
    ],
)
def test_a_bad_sample_is_told_with_its_line(archive: Path, old: str, new: str, says: str) -> None:
    path = archive / "raw" / "samples.csv"
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode(), 1))
    with pytest.raises(IrrError, match=says):
        _ = load(signed(archive)).samples


def test_further_columns_are_kept() -> None:
    row = sample_rows({("cuda/allocate/plain", "base"): 25.0}, passes=1, rounds=1, twins=False)
    lines = csv_bytes(SAMPLES, row).decode().splitlines()
    table = parse_csv(f"{lines[0]},mood\n{lines[1]},good\n".encode(), SAMPLES, "samples.csv")
    assert table["mood"].tolist() == ["good"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (",ok", ",fine", "line 3: status is 'fine', not ok/"),
        (",0,0,", ",zero,0,", "line 3: lost_blocks is 'zero', not a number"),
        (",25,", ",1e19,", "line 3: us is '1e19', not a usable number"),
    ],
)
def test_a_wrong_value_is_named_by_its_first_line(old: str, new: str, says: str) -> None:
    """Each spelling is looked at once, also where it stands in several lines; the first one is told."""
    rows = sample_rows({("cuda/allocate/plain", "base"): 25.0}, passes=1, rounds=5, twins=False, noise=0.0)
    for place, row in enumerate(rows):
        row["us"], row["position"] = 25.0, place
    head, first, *rest = csv_bytes(SAMPLES, rows).decode().splitlines()
    changed = [line.replace(old, new, 1) for line in rest]
    assert changed != rest
    with pytest.raises(IrrError, match=f"samples.csv {says}"):
        parse_csv("\n".join([head, first, *changed, ""]).encode(), SAMPLES, "samples.csv")


def test_an_empty_value_needs_a_reason(archive: Path) -> None:
    path = archive / "raw" / "samples.csv"
    path.write_bytes(path.read_bytes().replace(b",300,0,ok\n", b",,0,ok\n", 1))
    assert any("power_w is empty" in problem for problem in check_raw(archive)[1])
    rewrite(archive, "run.json", lambda d: d["nulls"].append({"field": "power_w", "why": "Not Supported"}))
    assert not any("power_w" in problem for problem in check_raw(archive)[1])


def test_samples_of_an_unknown_pass_or_cell_are_told(archive: Path) -> None:
    rewrite(archive, "run.json", lambda d: (d["passes"].pop(), d["cells"].clear()))
    problems = " ".join(check_raw(archive)[1])
    assert "pass 2 on GPU-" in problems and "cell base is not in run.json" in problems


def test_a_kernel_twice_in_one_round_is_told(archive: Path) -> None:
    path = archive / "raw" / "samples.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[1]]))
    assert any("stands twice in one round" in problem for problem in check_raw(archive)[1])


# ------------------------------------------------------------------------------------------- nothing was taken out

UUIDS = ("GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002")
PASSES = [
    Pass(number=n, device_uuid=uuid, device_name="d", arch=90, started_utc="2026-01-02T03:04:05Z", complete=True)
    for n in (0, 1)
    for uuid in UUIDS
]
CA, CU = "cuda/allocate/plain", "cuda/update/plain"


def two_devices(
    root: Path, leave: Any = lambda row: False, unjudged: Any = lambda gate: False, **more: Any
) -> list[str]:
    """What verify says of two passes on two devices with a cell of fewer multiprocessors and a control after the last
    pass of the first device, of which these batches and gates were taken out before SHA256SUMS was written."""
    times = {(CA, "base"): 24.0, (CU, "base"): 200.0, (CA, "pts-20k"): 6.0, (CA, "base+sms56"): 30.0}
    rows = [row for uuid in UUIDS for row in sample_rows(times, passes=2, uuid=uuid)]
    control = sample_rows({(CU, "base+cap32"): 190.0}, passes=2, uuid=UUIDS[0], twins=False)
    rows += [row for row in control if row["pass"] == 1]
    kept = [row for row in rows if not leave(row)]
    gates = [gate for gate in judged(rows) if not unjudged(gate)]
    fields: dict[str, Any] = {"plan": planned(rows), "passes": PASSES, "at_once": True, **more}
    return check_raw(write_archive(root, samples=kept, gates=gates, **fields))[1]


def test_a_whole_run_on_two_devices_with_controls_is_whole(tmp_path: Path) -> None:
    assert two_devices(tmp_path / "a") == []


def in_pass(number: int, place: int, cell: str, kernel: str) -> Any:
    return lambda row: (
        (row["pass"], row["device_uuid"], row["cell"], row["kernel"]) == (number, UUIDS[place], cell, kernel)
    )


@pytest.mark.parametrize(
    ("leave", "says"),
    [
        (lambda r: in_pass(1, 1, "base", CU)(r) and r["round"] in (2, 5), ["has 4 of 6 rounds of", CU, UUIDS[1]]),
        (in_pass(0, 1, "pts-20k", CA), ["pass 0 on", "has 0 of 6 rounds of", "pts-20k", UUIDS[1]]),
        (in_pass(0, 0, "base+sms56", f"{CA}@twin"), ["has 0 of 6 rounds of", "@twin on base+sms56"]),
        (lambda r: r["cell"] == "base+cap32", ["base+cap32", "was planned and has no batch"]),
        (lambda r: r["cell"] == "base+cap32" and r["round"] == 0, ["has 5 of 6 rounds of", "base+cap32"]),
    ],
)
def test_batches_that_were_taken_out_are_missed(tmp_path: Path, leave: Any, says: list[str]) -> None:
    [problem] = two_devices(tmp_path / "a", leave)
    assert all(word in problem for word in says), problem


def test_what_run_json_says_is_left_out_is_not_missed(tmp_path: Path) -> None:
    """A kernel that hung in the last pass of one device and was not tried again, and a control that did not run."""
    hung = in_pass(1, 1, "pts-20k", CA)

    def left(row: Any) -> bool:
        return hung(row) or row["cell"] == "base+cap32"

    flags = [
        Note(what=f"{CA} hung on pts-20k", why="pass 1"),
        Note(what="base+cap32 did not run", why="exclusive-process mode"),
    ]
    assert two_devices(tmp_path / "a", left, flags=flags) == []
    assert len(two_devices(tmp_path / "b", left, flags=flags[:1])) == 1
    assert len(two_devices(tmp_path / "c", left, flags=flags[1:])) == 1
    # A kernel that hung has all of a pass's rounds or none: a part of them was taken out.
    [problem] = two_devices(tmp_path / "d", lambda row: hung(row) and row["round"] != 3, flags=flags)
    assert "has 1 of 6 rounds" in problem
    skipped = [Skipped(kernel=CA, cell="pts-20k", status="unavailable", why="w")]
    assert two_devices(tmp_path / "e", hung, skipped=skipped) == []


def test_a_pass_that_was_taken_out_is_missed(tmp_path: Path) -> None:
    def second(row: Any) -> bool:
        return (row["pass"], row["device_uuid"]) == (1, UUIDS[1])

    [problem] = two_devices(tmp_path / "a", second, passes=PASSES[:-1])
    assert problem == f"raw/run.json: pass 1 on {UUIDS[1]} is missing"


def test_batches_that_nobody_planned_are_told(tmp_path: Path) -> None:
    rows = sample_rows({(CA, "base"): 24.0, (CU, "base"): 200.0}, twins=False)
    plan = planned(row for row in rows if row["kernel"] == CA)
    [problem] = check_raw(write_archive(tmp_path / "a", samples=rows, gates=judged(rows), plan=plan))[1]
    assert problem == f"raw/samples.csv: {CU} on base was not planned"


@pytest.mark.parametrize(
    ("unjudged", "says"),
    [
        (lambda g: g.cell == "pts-20k", [f"{CA} on pts-20k was not judged before timing in pass 0 on {UUIDS[0]}"] * 8),
        (
            lambda g: (g.cell, g.when, g.pass_number, g.device_uuid) == ("base", "after", 1, UUIDS[1]),
            [f"{CA} and 1 more on base was not judged after timing in pass 1 on {UUIDS[1]}"],
        ),
        (
            lambda g: (g.arm, g.when, g.pass_number, g.device_uuid) == (CU, "before", 0, UUIDS[0]),
            [f"{CU} on base was not judged before timing in pass 0 on {UUIDS[0]}"],
        ),
    ],
)
def test_gates_that_were_taken_out_are_missed(tmp_path: Path, unjudged: Any, says: list[str]) -> None:
    """Of a cell, of a moment, of a kernel."""
    problems = two_devices(tmp_path / "a", unjudged=unjudged)
    assert len(problems) == len(says) and problems[0] == f"raw/gates.json: {says[0]}"


def test_a_study_that_is_judged_once_is_judged_once_a_device(tmp_path: Path) -> None:
    def once(gate: Any) -> bool:
        return gate.when == "after" or gate.pass_number == 1

    assert two_devices(tmp_path / "a", unjudged=once, study="attribution") == []
    problems = two_devices(
        tmp_path / "b", unjudged=lambda g: once(g) or (g.cell, g.device_uuid) == ("base", UUIDS[1]), study="attribution"
    )
    assert problems == [f"raw/gates.json: {CA} and 1 more on base was not judged in {UUIDS[1]}"]


def test_an_arm_judges_both_its_kernels_and_what_breaks_has_no_gate(tmp_path: Path) -> None:
    broken = next(row.name for row in KERNELS.values() if row.breaks and row.stage == "allocate")
    times = {(CA, "base"): 24.0, (CU, "base"): 200.0, (broken, "base"): 20.0, ("cuda/floor/null", "base"): 1.0}
    rows = sample_rows(times, passes=1)
    arm = [gate("cuda", "gpu", "base", when=when, pass_number=0) for when in ("before", "after")]
    assert check_raw(write_archive(tmp_path / "a", samples=rows, gates=arm))[1] == []


def test_variants_of_every_pass_are_called_alike() -> None:
    assert FEWER == EVERY_PASS and f"+{EVERY_PASS}" == SMS
    assert not any(variant.startswith(EVERY_PASS) for variant, _ in [*CONTROLS, (ALONE, ())])


def test_cuda_oxide_without_the_fix_is_refused(tmp_path: Path) -> None:
    manifest = {"kernel": "rust-oxide/allocate/plain", "arch": 90, "status": "ok", "compiler": {"contains_fix": False}}
    root = write_archive(tmp_path / "a", manifests=[manifest])
    assert any("without the atomic lowering" in problem for problem in check_raw(root)[1])


# ---------------------------------------------------------------------------------------------------- fingerprint


def test_driver_and_toolkit_are_two_fields() -> None:
    found = fingerprint.make({"toolkit": "13.2"}, {"driver": "580.1", "driver_cuda": "13.0", "toolkit": "13.2"})
    assert (found.built_on["toolkit"], found.run_on["toolkit"], found.run_on["driver"]) == ("13.2", "13.2", "580.1")
    other = fingerprint.make({"toolkit": "13.2"}, {"driver": "570.1", "driver_cuda": "13.0", "toolkit": "13.2"})
    assert [key for key, _, _ in fingerprint.differences(found, other)] == ["run_on.driver"]


def test_a_tool_that_made_no_kernel_of_an_archive_is_no_difference() -> None:
    """The matrix has kernels of stock rustc, real frames have none; a machine's null is not known, so it differs."""
    matrix = fingerprint.make({"rustc": "rustc 1.96.0", "toolkit": "13.0"}, {"driver": "580"})
    real = fingerprint.make({"toolkit": "13.0"}, {"driver": "580"})
    assert fingerprint.differences(matrix, real) == fingerprint.differences(real, matrix) == []
    other = fingerprint.make({"rustc": "rustc 1.97.0", "toolkit": "13.0"}, {"driver": "580"})
    assert fingerprint.differences(matrix, other) == [("built_on.rustc", "rustc 1.96.0", "rustc 1.97.0")]
    unknown = fingerprint.make({"toolkit": "13.0"}, {})
    assert [key for key, _, _ in fingerprint.differences(real, unknown)] == ["run_on.driver"]


def test_every_field_is_there_or_null_with_a_reason() -> None:
    found = fingerprint.make({}, {"driver": "580"}, [{"uuid": "u"}], {"run_on.devices[0].ecc": "[N/A]"})
    nulls = {null.field: null.why for null in found.nulls}
    assert nulls["run_on.devices[0].ecc"] == "[N/A]" and nulls["built_on.nvcc"] == fingerprint.NOT_PROBED
    assert "run_on.driver" not in nulls
    assert set(found.built_on) == set(fingerprint.keys("built_on"))


def test_an_unknown_fingerprint_key_is_an_error() -> None:
    with pytest.raises(ValueError, match="no field colour"):
        fingerprint.make({"colour": 1}, {})


def test_analysis_packages_are_no_pooling_keys() -> None:
    a, b = (fingerprint.make({}, {"pandas": version}) for version in ("2.0", "3.0"))
    assert fingerprint.differences(a, b) == []
    keys = [(field.side, field.key) for field in fingerprint.FIELDS]
    assert len(keys) == len(set(keys))


def test_a_bundle_takes_the_place_of_a_file_only(tmp_path: Path) -> None:
    """Said before anything is read: a pipe stands for a device."""
    pipe = tmp_path / "b.tar.zst"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="is not a file"):
        pack.run([tmp_path / "no archive"], pipe)
    assert pipe.is_fifo()
