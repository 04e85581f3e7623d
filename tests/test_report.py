"""Tables, derived files, the page, verify, compare and pack: the same bytes everywhere, hostile text as text."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import pytest
import zstandard

from harness.archive.pack import run as pack
from harness.archive.pack import unpack
from harness.archive.read import load
from harness.archive.schema import Gate, Null, Skipped, gate_record
from harness.claims import compare as comparison
from harness.claims.registry import View
from harness.claims.statistics import Table
from harness.errors import IrrError, UsageError
from harness.report import derive as derivation
from harness.report import page
from harness.report.page import make_pages, report
from harness.report.tables import as_csv, as_latex, as_markdown, make_tables
from harness.report.verify import check_derived, numeric_differences, verify
from tests.synthetic import judged, sample_rows, write_archive
from tests.test_claims import CA, LOST, TA, TABLE1, TU, cuda

HOSTILE = '<script>alert("1")</script> & {{ 7*7 }} \\input{/etc/passwd} $x$ | [a](javascript:x) `\u202e`'
GATE = gate_record(
    {"gate": "exact-set", "tier": "exact", "subject": f"cuda on {HOSTILE}", "ok": True, "compared": 1},
    arm="cuda",
    place="gpu",
    cell="base",
    when="before",
)


def matrix(root: Path, first: Gate = GATE, **more: Any) -> Path:
    """A small matrix: allocate and update of three languages, the static probe lossy on lf-hi."""
    times = {**TABLE1, **cuda(concurrent=0.6), (CA, "lf-hi"): 40.0, (TA, "lf-hi"): 500.0}
    rows = sample_rows(times, loss={(TA, "lf-hi"): LOST})
    return write_archive(root, **{"samples": rows, "gates": [first, *judged(rows)], **more})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = matrix(tmp_path_factory.mktemp("report") / "synthetic-run", device_name=HOSTILE)
    report(root)
    return root


@pytest.fixture
def archive(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "copy")


def tables(root: Path) -> dict[str, Any]:
    return {table.name: table for table in make_tables(View(load(root)))}


# ------------------------------------------------------------------------------------------------------------ tables


def test_frames_have_allocates_share_of_every_arm(tmp_path: Path) -> None:
    stages = {
        (CA, "real-a"): 30.0,
        ("cuda/update/plain", "real-a"): 270.0,
        (TA, "real-a"): 600.0,
        (TU, "real-a"): 300.0,
    }
    table = tables(write_archive(tmp_path / "a", samples=sample_rows({**stages, (CA, "base"): 20.0})))["frames"]
    found = {row["kernels"]: (row["cell"], round(row["ratio"], 2), round(row["share"], 2)) for row in table.rows}
    assert found == {
        "cuda/allocate/plain + cuda/update/plain": ("real-a", 1.0, 0.1),
        "triton/allocate/static8 + triton/update/static8": ("real-a", 3.0, 0.67),
        "cuda/allocate/plain + triton/update/static8": ("real-a", 1.1, 0.09),
    }


def test_tables_stand_with_the_papers_value_beside_ours(made: Path) -> None:
    found = tables(made)
    assert set(found) == {"table1", "table2", "table3", "loss", "cells"}
    base = next(r for r in found["table3"].rows if r["cell"] == "base" and r["kernel"] == TA)
    assert base["paper"] == 17.9 and base["ratio"] == pytest.approx(17.9, rel=0.01)
    assert base["reference"] == pytest.approx(17.9 / 0.6, rel=0.02)
    triton = next(r for r in found["table1"].rows if r["kernel"] == TU)
    assert (triton["paper_low"], triton["paper_high"]) == (1.1, 2.5)
    lossy = next(r for r in found["loss"].rows if r["cell"] == "lf-hi")
    assert (lossy["lost_low"], lossy["lost_high"], lossy["paper_lost"]) == (13, 13, 13)


def test_lossy_samples_are_shown_and_in_no_ratio(made: Path) -> None:
    found = tables(made)
    assert "lf-hi" not in {row["cell"] for row in found["table3"].rows if row["kernel"] == TA}
    row = next(r for r in found["cells"].rows if r["cell"] == "lf-hi" and r["kernel"] == TA)
    assert row["status"] == "lossy 18" and row["us"] == pytest.approx(500, rel=0.01) and "ratio" not in row


def test_percentiles_are_absent_where_samples_are_few(made: Path) -> None:
    row = next(r for r in tables(made)["cells"].rows if r["cell"] == "base" and r["kernel"] == CA)
    assert row["samples"] == 18 and row["p50"] is not None and row["p95"] is None and row["p99"] is None


def test_an_unpinned_toolchain_is_named_in_every_table(tmp_path: Path) -> None:
    manifests = [
        {
            "kernel": f"rust-oxide/{s}/plain",
            "arch": 90,
            "status": "ok",
            "compiler": {"contains_fix": True},
            "deviations": ["unpinned toolchain: rustc 1.99"],
        }
        for s in ("allocate", "update")
    ]
    found = tables(matrix(tmp_path / "a", manifests=manifests))
    for name in ("table1", "table2", "table3", "cells"):
        text = as_csv(found[name]).decode()
        assert "rust-oxide" in text and not re.search(r"rust-oxide/\w+/plain(?! \(unpinned toolchain\))", text), name


def test_renderings_escape_their_own_markup() -> None:
    from harness.report.tables import Column
    from harness.report.tables import Table as Shown

    table = Shown("t", HOSTILE, (Column("a", "a|b", False),), ({"a": HOSTILE},))
    markdown, latex = as_markdown(table).decode(), as_latex(table).decode()
    assert "<script>" not in markdown and "](javascript" not in markdown.replace("\\]", "")
    assert all(line.count("|") - line.count("\\|") == 2 for line in markdown.splitlines() if line.startswith("|"))
    assert "\\input" not in latex and "$x$" not in latex and "\\$x\\$" in latex


def test_latex_has_booktabs_and_as_many_columns_as_it_says(made: Path) -> None:
    for table in tables(made).values():
        text = as_latex(table).decode()
        columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
        assert columns is not None and "\\toprule" in text and "\\bottomrule" in text
        rows = [line for line in text.splitlines() if line.endswith(" \\\\")]
        assert len(rows) == len(table.rows) + 1
        assert all(len(re.findall(r"(?<!\\)&", line)) == len(columns[1]) - 1 for line in rows)


# ------------------------------------------------------------------------------------------------- the same bytes


def test_derived_files_are_the_same_bytes_again(made: Path) -> None:
    again = derivation.derive(derivation.prepare(made))
    for name, data in again.items():
        assert (made / "derived" / name).read_bytes() == data, name


HASHES = """
import hashlib, json, locale, sys
from pathlib import Path
locale.setlocale(locale.LC_ALL, "")
from harness.report.derive import derive, prepare
from harness.report.page import make_pages
done = prepare(Path(sys.argv[1]))
files = {**derive(done), **make_pages(done)}
print(json.dumps({name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}))
print(locale.localeconv()["decimal_point"], file=sys.stderr)
"""


def comma_locale(folder: Path) -> dict[str, str]:
    """Environment of a locale with a decimal comma, compiled here where the system has none; {} where that fails."""
    if shutil.which("localedef") is None:
        return {}
    target = folder / "de_DE.UTF-8"
    subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(target)], capture_output=True)
    return {"LOCPATH": str(folder), "LC_ALL": "de_DE.UTF-8"} if target.exists() else {}


def test_no_locale_clock_or_hash_seed_enters(made: Path, tmp_path: Path) -> None:
    german = comma_locale(tmp_path)
    environments = [
        {"LC_ALL": "C", "TZ": "UTC", "PYTHONHASHSEED": "0"},
        {**(german or {"LC_ALL": "C.utf8"}), "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7", "PYTHONUTF8": "0"},
    ]
    found = []
    for environment in environments:
        done = subprocess.run(
            [sys.executable, "-c", HASHES, str(made)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(done.stdout)
        point = done.stderr.strip().splitlines()[-1]
        assert point == ("," if german and environment is environments[1] else ".")
    assert found[0] == found[1]


# ------------------------------------------------------------------------------------------------------------ verify


def test_verify_accepts_what_was_made(made: Path) -> None:
    words = verify(made)
    assert "match their checksums" in words and "byte for byte" in words


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda a: (a / "raw/samples.csv").write_bytes((a / "raw/samples.csv").read_bytes()[:-1] + b"x"),
            "raw/samples.csv was changed",
        ),
        (lambda a: (a / "raw/gates.json").unlink(), "raw/gates.json is missing"),
        (lambda a: (a / "raw/more.csv").write_text("x"), "raw/more.csv was added"),
        (lambda a: (a / "derived/claims.json").write_text("[]"), "derived/claims.json was changed"),
        (lambda a: (a / "derived/tables/table1.csv").unlink(), "derived/tables/table1.csv is missing"),
        (lambda a: (a / "derived/tables/table9.csv").write_text("x"), "derived/tables/table9.csv was added"),
        (lambda a: (a / "derived/DERIVED.json").unlink(), "derived/DERIVED.json is missing"),
    ],
)
def test_verify_names_what_was_done(archive: Path, change: Any, says: str) -> None:
    change(archive)
    with pytest.raises(IrrError, match=re.escape(says)) as error:
        verify(archive)
    assert "\n" not in error.value.what


def forge(archive: Path, name: str, data: bytes, **record: Any) -> None:
    """Change a derived file and its hash in DERIVED.json, as someone would who wants another result."""
    (archive / "derived" / name).write_bytes(data)
    path = archive / "derived" / "DERIVED.json"
    document = json.loads(path.read_text())
    document["outputs"][name] = hashlib.sha256(data).hexdigest()
    path.write_text(json.dumps({**document, **record}))


def test_a_forged_claim_is_found_by_deriving_it_again(archive: Path) -> None:
    data = (archive / "derived/claims.json").read_bytes()
    forge(archive, "claims.json", data.replace(b'"reproduced"', b'"refuted"', 1))
    with pytest.raises(IrrError, match=r"derived/claims\.json differs from what is derived now"):
        verify(archive)


@pytest.fixture
def packages_of_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages can be derived here: whatever plots them here made the archive of these tests too."""
    monkeypatch.setattr(page, "locked_packages", lambda: True)


@pytest.mark.usefixtures("packages_of_the_lock")
@pytest.mark.parametrize("record", [{}, {"lock": "0" * 64}, {"lock": None}], ids=str)
def test_a_forged_page_is_found_whatever_lock_is_named(archive: Path, record: dict[str, Any]) -> None:
    names = ["figures/ratio-allocate.pdf", "report.html"]
    for name in names:
        data = (archive / "derived" / name).read_bytes()
        forge(archive, name, data[:-9] + b"x" + data[-8:], **record)
    problems, _ = check_derived(archive)
    assert [problem.split(" (")[0] for problem in problems] == [
        f"derived/{name} differs from what is derived now" for name in names
    ]
    assert all(("names another lock" in problem) == bool(record) for problem in problems)


@pytest.mark.usefixtures("packages_of_the_lock")
@pytest.mark.parametrize("record", [{}, {"lock": "0" * 64}], ids=str)
def test_another_lock_is_said_and_pages_are_derived_again_all_the_same(archive: Path, record: dict[str, Any]) -> None:
    data = (archive / "derived/claims.json").read_bytes()
    forge(archive, "claims.json", data, **record)
    problems, words = check_derived(archive)
    assert problems == [] and "NOT" not in words and words.count("byte for byte") == 2
    assert ("names another lock" in words) == bool(record)


def test_pages_that_cannot_be_derived_here_are_said_to_be_hashed(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the rest, which is the same everywhere, is derived again under any lock."""
    monkeypatch.setattr(page, "locked_packages", lambda: False)
    data = (archive / "derived/claims.json").read_bytes()
    forge(archive, "claims.json", data.replace(b'"reproduced"', b'"refuted"', 1), lock="0" * 64)
    problems, words = check_derived(archive)
    assert problems == ["derived/claims.json differs from what is derived now"]
    assert "by their hashes alone, NOT derived again: the packages here are not those of requirements.txt" in words


def test_an_older_derive_version_is_compared_as_numbers(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.report.verify.DERIVE", derivation.DERIVE + 1)
    name = "tables/table3.csv"
    data = (archive / "derived" / name).read_bytes()
    problems, words = check_derived(archive)
    assert problems == [] and "as numbers" in words
    assert words.count("NOT") == 2, "md and tex are not compared, pages not made: both are said"
    forge(archive, name, re.sub(rb"17\.9\d*", b"12.5", data))
    assert any("is 12.5, derived now 17.9" in problem for problem in check_derived(archive)[0])


@pytest.mark.parametrize("version", [0, derivation.DERIVE + 1, -1, "1", 1.0, True, None])
def test_a_derive_version_that_is_none_is_no_way_round(archive: Path, version: Any) -> None:
    """Versions begin at 1, and this irr's own is the newest that it can judge."""
    data = (archive / "derived/tables/table3.md").read_bytes()
    forge(archive, "tables/table3.md", data.replace(b"17.9", b"12.5"), derive=version)
    [problem] = check_derived(archive)[0]
    assert "names derive version" in problem and f"1 to {derivation.DERIVE}" in problem


def test_verify_says_what_it_does(made: Path) -> None:
    said: list[str] = []
    verify(made, said.append)
    assert [line.split(": ")[1] for line in said[:2]] == ["checksums and schema", "claims and tables derived again"]
    assert all(line.startswith("synthetic-run: ") for line in said)


def test_numbers_are_compared_and_words_are_not() -> None:
    a, b = (json.dumps([{"x": x, "reason": w}]).encode() for x, w in ((1.0, "old words"), (1.000001, "new words")))
    assert numeric_differences("claims.json", a, b) == []
    assert numeric_differences("claims.json", a, json.dumps([{"x": 1.1, "reason": ""}]).encode())


def test_derived_files_of_another_raw_are_refused(archive: Path, tmp_path: Path) -> None:
    other = matrix(tmp_path / "other", seed=2)
    shutil.copytree(archive / "derived", other / "derived")
    with pytest.raises(IrrError, match=r"derived/ was made from another raw/"):
        verify(other)


# -------------------------------------------------------------------------------------------------------------- page


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page_of(root: Path) -> Elements:
    page = Elements()
    page.feed((root / "derived/report.html").read_text(encoding="utf-8"))
    return page


def test_hostile_text_is_shown_as_text(made: Path, tmp_path: Path) -> None:
    """The hostile page has the elements of a page whose texts are harmless, tag for tag, and shows the words."""
    plain = GATE.__class__(**{**{f: getattr(GATE, f) for f in GATE.__struct_fields__}, "subject": "cuda on base"})
    harmless = matrix(tmp_path / "plain", device_name="Synthetic Device", first=plain)
    report(harmless)
    page = page_of(made)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in page_of(harmless).tags]
    assert any('<script>alert("1")</script>' in words and "{{ 7*7 }}" in words for words in page.words)
    assert all(not (value or "").startswith("javascript") for _, attrs in page.tags for value in attrs.values())


def test_the_page_asks_no_network(made: Path) -> None:
    page = page_of(made)
    links = [value or "" for _, attrs in page.tags for key, value in attrs.items() if key in ("src", "href")]
    assert links and not any(re.match(r"[a-z]+:(?!$)|//", link) for link in links if not link.startswith("data:"))
    files = [link for link in links if link and not link.startswith(("#", "data:"))]
    assert all((made / "derived" / link).resolve().is_file() for link in files)
    anchors = {attrs.get("id") for _, attrs in page.tags}
    assert all(link[1:] in anchors for link in links if link.startswith("#"))


def test_every_claim_stands_on_the_page(made: Path) -> None:
    page = page_of(made)
    anchors = {attrs.get("id") for _, attrs in page.tags}
    ids = {row["id"] for row in json.loads((made / "derived/claims.json").read_text())}
    assert len(ids) >= 70 and not ids - anchors


def test_the_page_says_what_was_left_out(tmp_path: Path) -> None:
    skipped = [Skipped(kernel="rust-oxide/*", cell="*", status="needs-toolchain", why="no nightly here")]
    nulls = [Null(field="power_w", why="Not Supported")]
    root = write_archive(tmp_path / "a", cells=["base"], quick=True, skipped=skipped, nulls=nulls)
    text = make_pages(derivation.prepare(root))["report.html"].decode()
    assert "no nightly here" in text and "Not Supported" in text
    assert "Made without a GPU" in text and "A quick run" in text


def test_a_report_replaces_the_old_one_whole(archive: Path) -> None:
    (archive / "derived" / "old.txt").write_text("x")
    report(archive)
    assert not (archive / "derived" / "old.txt").exists() and not (archive / "derived.part").exists()
    assert verify(archive)


# ----------------------------------------------------------------------------------------------------------- compare


def test_compare_names_cells_beyond_noise_and_changed_verdicts(tmp_path: Path) -> None:
    fast = {**TABLE1, (TU, "base"): 250.0 * 3.5}
    a = matrix(tmp_path / "a", device_name="Synthetic")
    b = write_archive(tmp_path / "b", samples=sample_rows(fast, seed=5), device_name="Synthetic")
    document = comparison.compare(a, b)
    assert document["refused"] == []
    beyond = [(row["kernel"], row["cell"]) for row in document["cells"] if row["us"]["beyond"]]
    assert beyond == [(TU, "base")]
    assert {"P17", "P43"} <= {row["id"] for row in document["verdicts"]}
    assert "triton/update/static8 on base" in comparison.as_text(document)
    assert comparison.refusal(document) is None


def test_compare_reads_each_archive_once_and_tells_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One table an archive for cells and verdicts: two of them took as long again."""
    a, b = (matrix(tmp_path / name, device_name="Synthetic") for name in "ab")
    made: list[int] = []
    monkeypatch.setattr("harness.claims.registry.Table", lambda rows: made.append(len(rows)) or Table(rows))
    said: list[str] = []
    comparison.compare(a, b, said.append)
    assert len(made) == 2
    assert said == ["comparing a and b cell by cell", "judging every claim on a", "judging every claim on b"]
    assert capsys.readouterr() == ("", "")


def test_compare_an_archive_with_itself_finds_nothing(made: Path) -> None:
    document = comparison.compare(made, made)
    assert document["verdicts"] == [] and not any(row["us"]["beyond"] for row in document["cells"])


def test_times_of_unlike_devices_are_refused_and_ratios_are_not(tmp_path: Path) -> None:
    a, b = matrix(tmp_path / "a", device_name="Synthetic A"), matrix(tmp_path / "b", device_name="Synthetic B")
    document = comparison.compare(a, b)
    assert [row["key"] for row in document["refused"]] == ["device.name"]
    assert all("us" not in row for row in document["cells"]) and any("ratio" in row for row in document["cells"])
    words = comparison.refusal(document)
    assert words is not None and "device.name" in words and "\n" not in words


def test_pooling_unlike_archives_is_refused_with_the_key(tmp_path: Path) -> None:
    a, b = (load(matrix(tmp_path / name, device_name=f"Synthetic {name}")) for name in ("a", "b"))
    with pytest.raises(IrrError, match=r"not pooled: device\.name"):
        comparison.pooled([a, b])
    with pytest.raises(IrrError, match=r"not pooled: run\.batch"):
        comparison.pooled([a, load(matrix(tmp_path / "c", device_name="Synthetic a", batch=4))])
    kernel = {"kernel": CA, "arch": 90, "status": "ok"}
    c, d = (
        load(matrix(tmp_path / name, device_name="Synthetic", manifests=[{**kernel, "source_hash": name}]))
        for name in ("d", "e")
    )
    with pytest.raises(IrrError, match="not pooled: source of cuda/allocate/plain"):
        comparison.pooled([c, d])


def test_like_archives_pool_with_their_passes_apart(tmp_path: Path) -> None:
    a, b = (load(matrix(tmp_path / name, device_name="Synthetic")) for name in ("a", "b"))
    rows = comparison.pooled([a, b]).select(CA, "base")
    assert sorted(set(rows["pass"])) == [0, 1, 2, 3, 4, 5] and len(rows) == 36


# -------------------------------------------------------------------------------------------------------------- pack


def test_a_bundle_is_the_same_bytes_and_verifies(made: Path, tmp_path: Path) -> None:
    other = matrix(tmp_path / "second-run")
    first, second = tmp_path / "one.tar.zst", tmp_path / "two.tar.zst"
    pack([made, other], first)
    os.utime(made / "raw/run.json")
    pack([other, made], second)
    assert first.read_bytes() == second.read_bytes()
    words = verify(first)
    assert "synthetic-run" in words and "second-run" in words
    with tarfile.open(fileobj=io.BytesIO(zstandard.ZstdDecompressor().decompress(first.read_bytes(), 1 << 30))) as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert {(m.uid, m.gid, m.uname, m.mode) for m in members} == {(0, 0, "", 0o644)} and len(
        {m.mtime for m in members}
    ) == 1
    assert {"CITATION.cff", "LICENSE", "README.md", "ro-crate-metadata.json"} <= {m.name for m in members}


def test_a_flipped_byte_in_a_bundle_is_found(made: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "one.tar.zst"
    pack([made], bundle)
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    bundle.write_bytes(data)
    with pytest.raises(IrrError):
        verify(bundle)


def test_a_damaged_archive_is_not_packed(archive: Path, tmp_path: Path) -> None:
    (archive / "raw" / "gates.json").write_text("[]")
    with pytest.raises(IrrError, match=r"raw/gates\.json was changed"):
        pack([archive], tmp_path / "one.tar.zst")
    assert not (tmp_path / "one.tar.zst").exists()
    with pytest.raises(UsageError, match=r"ends in \.tar\.zst"):
        pack([archive], tmp_path / "one.zip")


def test_pack_and_verify_by_their_tasks(made: Path, tmp_path: Path, irr: Callable[..., Any]) -> None:
    bundle = tmp_path / "one.tar.zst"
    for words in (["pack", str(made), "--out", str(bundle)], ["verify", str(bundle)]):
        done = irr(*words)
        assert done.returncode == 0, done.stderr
        assert done.stdout
    assert irr("verify", str(made), str(bundle)).returncode == 2  # one archive a call


def bundle_of(path: Path, *members: tarfile.TarInfo) -> Path:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    path.write_bytes(zstandard.ZstdCompressor().compress(stream.getvalue()))
    return path


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/../../outside"])
def test_a_bundle_cannot_write_outside(tmp_path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = 1
    with pytest.raises(IrrError, match="not a plain file inside"):
        unpack(bundle_of(tmp_path / "b.tar.zst", member), tmp_path / "in")
    assert not (tmp_path / "outside").exists()


def test_a_bundle_has_no_links(tmp_path: Path) -> None:
    member = tarfile.TarInfo("raw/run.json")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(IrrError, match="not a plain file inside"):
        unpack(bundle_of(tmp_path / "b.tar.zst", member), tmp_path / "in")


def test_a_file_that_is_no_bundle_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "b.tar.zst").write_bytes(b"no bundle")
    with pytest.raises(IrrError, match=r"not a readable \.tar\.zst"):
        verify(tmp_path / "b.tar.zst")


def test_the_metadata_is_a_crate_of_what_is_there(made: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "one.tar.zst"
    pack([made], bundle)
    unpack(bundle, tmp_path / "in")
    graph = {e["@id"]: e for e in json.loads((tmp_path / "in/ro-crate-metadata.json").read_text())["@graph"]}
    root = graph["./"]
    assert root["license"] and root["name"] and root["description"] and root["datePublished"] == "2026-01-02"
    parts = [part["@id"] for part in graph["archives/synthetic-run/"]["hasPart"]]
    assert "archives/synthetic-run/raw/samples.csv" in parts
    assert all((tmp_path / "in" / part).is_file() for part in parts)


def test_ro_crates_own_validator_accepts_the_metadata(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline: the one document the validator would fetch, RO-Crate's context, comes from the rocrate package."""
    services = pytest.importorskip("rocrate_validator.services")
    http = pytest.importorskip("rocrate_validator.utils.http")
    severity = pytest.importorskip("rocrate_validator.models").Severity.REQUIRED
    import rocrate

    context = (Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld").read_text(encoding="utf-8")

    class Answer:
        status_code = 200
        text = context
        content = context.encode()
        headers: ClassVar[dict[str, str]] = {"Content-Type": "application/ld+json"}

        def json(self) -> Any:
            return json.loads(self.text)

    def get(_: Any, url: str, **__: Any) -> Answer:
        assert url == "https://w3id.org/ro/crate/1.3/context", f"the validator asks for {url}"
        return Answer()

    monkeypatch.setattr(http.HttpRequester, "get", get, raising=False)
    bundle = tmp_path / "one.tar.zst"
    pack([made], bundle)

    def issues(folder: Path) -> list[str]:
        settings = services.ValidationSettings(
            rocrate_uri=str(folder), profile_identifier="ro-crate-1.3", requirement_severity=severity
        )
        return [str(issue.message) for issue in services.validate(settings).get_issues()]

    unpack(bundle, tmp_path / "in")
    assert issues(tmp_path / "in") == []
    # The validator can say no: a crate without a licence is none.
    path = tmp_path / "in" / "ro-crate-metadata.json"
    document = json.loads(path.read_text())
    del next(entity for entity in document["@graph"] if entity["@id"] == "./")["license"]
    path.write_text(json.dumps(document))
    assert issues(tmp_path / "in")
