"""cuda-oxide's arm: what its toolchain must contain, how it is found, and its PTX where there is one (IRR_OXIDE)."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from harness.build import cargo, lowering, oxide, series
from harness.build.assemble import count_ptx
from harness.build.kernels import KERNELS
from harness.build.manifest import ToolMissing
from harness.environment import ROOT, pins
from harness.errors import IrrError

ATOMIC = "crates/mir-lower/src/convert/intrinsics/atomic.rs"
FIXED = "\n".join(load for evidence in series.load_series()[0].contains for load in evidence.present)
UNFIXED = "let llvm_load = llvm::AtomicLoadOp::new(ctx);\nlet store = llvm::AtomicStoreOp::new(ctx);"


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def checkout(folder: Path, text: str) -> Path:
    path = folder / ATOMIC
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


# --- the series -------------------------------------------------------------------------------------------------------


def test_series_agrees_with_pins_and_crate() -> None:
    pinned = pins()["oxide"]
    changes = [change for change in series.load_series() if change.repository == pinned["repository"]]
    assert changes
    for change in changes:
        assert re.fullmatch(r"[0-9a-f]{40}", change.commit) and re.fullmatch(r"[0-9a-f]{40}", change.parent)
        assert str(change.pull_request) in change.subject and change.why.strip()
    # The pinned revision is the last change itself, so that it contains the series by definition.
    last = changes[-1]
    assert (last.commit, last.parent) == (pinned["revision"], pinned["parent"])
    assert last.pull_request == pinned["pull_request"]
    crate = tomllib.loads((ROOT / "rust/oxide/Cargo.toml").read_text(encoding="utf-8"))
    device = crate["dependencies"]["cuda-device"]
    assert device["rev"] == pinned["revision"] and device["git"].endswith(pinned["repository"])


def test_series_holds_no_diff() -> None:
    for path in sorted((ROOT / "patches").iterdir()):
        assert path.suffix not in (".patch", ".diff")
        assert not re.search(r"^(diff --git|@@ -|\+\+\+ )", path.read_text(encoding="utf-8"), re.MULTILINE), path


def test_a_checkout_with_the_change_lacks_nothing(tmp_path: Path) -> None:
    assert series.missing_changes(checkout(tmp_path, FIXED), "NVlabs/cuda-oxide") == []


def test_a_checkout_before_the_change_is_named(tmp_path: Path) -> None:
    lines = series.missing_changes(checkout(tmp_path, UNFIXED), "NVlabs/cuda-oxide")
    assert any("has no 'fn ptx_load_template('" in line for line in lines)
    assert any("still has 'llvm::AtomicLoadOp::new('" in line for line in lines)
    assert all(line.startswith("cuda-oxide-695: ") for line in lines)
    assert series.missing_changes(tmp_path, "someone/else") == []


def test_a_history_without_the_commit_is_named(tmp_path: Path) -> None:
    """Files that look right in a history that branched off before: the two disagree, so it is not contained."""
    folder = checkout(tmp_path, FIXED)
    first = git(folder, "rev-parse", "HEAD")
    git(folder, "checkout", "-q", "--orphan", "other")
    git(folder, "commit", "-qm", "elsewhere")
    change = series.load_series()[0]
    assert change.missing(folder) == []  # a shallow clone that has never heard of the commit: the files decide
    moved = series.Change(**{**vars(change), "commit": first})
    assert moved.missing(folder) == [f"HEAD does not descend from {first[:12]}"]


def test_revision_says_what_is_compiled(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "repository", FIXED)
    commit = series.revision(folder)
    assert commit == git(folder, "rev-parse", "HEAD")
    (folder / ATOMIC).write_text(FIXED + "\n// changed\n", encoding="utf-8")
    assert series.revision(folder) == f"{commit}-dirty"
    with pytest.raises(IrrError, match="not a git checkout"):
        series.revision(folder / "crates")


def test_an_entry_without_evidence_is_refused(tmp_path: Path) -> None:
    text = series.SERIES_FILE.read_text(encoding="utf-8")
    path = tmp_path / "series.toml"
    path.write_text(re.sub(r"(?ms)^\[\[change\.contains\]\].*", "", text), encoding="utf-8")
    with pytest.raises(IrrError, match=r"series.toml: 'contains'"):
        series.load_series(path)
    path.write_text(re.sub(r"(?m)^(present|absent) = .*", "", text), encoding="utf-8")
    with pytest.raises(IrrError, match="has no evidence"):
        series.load_series(path)


# --- finding it -------------------------------------------------------------------------------------------------------


def test_without_the_variable_the_kernels_need_a_toolchain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(oxide.VARIABLE, raising=False)
    with pytest.raises(ToolMissing, match="IRR_OXIDE is not set") as caught:
        cargo.emit(KERNELS["rust-oxide/allocate/plain"], 90, False, tmp_path)
    assert caught.value.status == "needs-toolchain"
    assert caught.value.cure is not None and "rust/oxide/README.md" in caught.value.cure
    assert oxide.identity() == "missing"


def test_an_incomplete_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("rustc", "librustc_codegen_cuda.so", "cuda-oxide"):
        folder = tmp_path / f"without-{name}"
        folder.mkdir()
        for other in {"rustc", "librustc_codegen_cuda.so", "cuda-oxide"} - {name}:
            (folder / other).touch()
        monkeypatch.setenv(oxide.VARIABLE, str(folder))
        with pytest.raises(ToolMissing, match=f"has no {name}\n"):
            oxide.find_oxide()


def test_a_nightly_is_made_of_the_day_before() -> None:
    assert oxide._day_before("nightly-2026-04-03", "2026-04-02")
    assert not oxide._day_before("nightly-2026-04-03", "2026-04-03")
    assert not oxide._day_before("stable", "2026-04-02")


# --- its PTX ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ptx() -> dict[str, str]:
    try:
        oxide.find_oxide()
    except ToolMissing as missing:
        pytest.skip(missing.what)
    rows = [kernel for kernel in KERNELS.values() if kernel.language == "rust-oxide" and kernel.takes_volume]
    return {kernel.name: cargo.emit(kernel, 90, False, ROOT / "build" / "work").ptx for kernel in rows}


def test_reads_are_what_the_variant_says(ptx: dict[str, str]) -> None:
    scoped, volatile = r"\bld\.relaxed\.gpu(?:\.global)?\.b32\b", r"\bld\.volatile(?:\.global)?\.\w?(?:32|64)\b"
    found = {name: (len(re.findall(scoped, text)), len(re.findall(volatile, text))) for name, text in ptx.items()}
    for stage in ("plain", "global"):
        assert found[f"rust-oxide/allocate/{stage}"][0] >= 1 and found[f"rust-oxide/allocate/{stage}"][1] == 0
    # The first read scoped as well: as many again.
    assert found["rust-oxide/allocate/scoped"][0] > found["rust-oxide/allocate/plain"][0]
    assert found["rust-oxide/allocate/volatile"][1] >= 2


def test_additions_are_global_only_where_said(ptx: dict[str, str]) -> None:
    assert count_ptx(ptx["rust-oxide/update/global"], "update_global")["red.add.f32"] % 5 == 0
    assert len(re.findall(r"red\.relaxed\.gpu\.global\.add\.f32", ptx["rust-oxide/update/global"])) >= 5
    plain = ptx["rust-oxide/update/plain"]
    assert not re.search(r"(?:red|atom)[\w.]*\.global[\w.]*\.add\.f32", plain)
    assert count_ptx(plain, "update_plain")["fma.f32"] == 0


# --- what the change changes (P39) ------------------------------------------------------------------------------------


def answers(fixed: bool) -> dict:
    """A document of harness.build.lowering as the two revisions gave it, cut to what is judged."""
    templates = {
        "load-relaxed": "ld.relaxed.gpu.b32 $0, [$1];",
        "load-acquire": "ld.acquire.gpu.b32 $0, [$1];",
        "load-seqcst": "fence.sc.gpu; ld.acquire.gpu.b32 $0, [$1];",
        "store-relaxed": "st.relaxed.gpu.b32 [$0], $1;",
        "store-release": "st.release.gpu.b32 [$0], $1;",
        "store-seqcst": "fence.sc.gpu; st.release.gpu.b32 [$0], $1;",
    }
    operations = {}
    for name in lowering.PROBES:
        ir = [f'asm sideeffect "{templates[name]}", "~{{memory}}"'] if fixed and name in templates else []
        refused = "" if fixed or name == "add-relaxed" else "Atomic loads/stores are not supported"
        operations[name] = {
            f"sm_{arch}": {"ptx": [], "ir": ir, "refused_by_oxide": "", "libnvvm": refused}
            for arch in lowering.ARCHITECTURES
        }
    return {"operations": operations}


def test_findings_of_the_two_revisions() -> None:
    pinned = pins()["oxide"]
    document = {pinned["parent"]: answers(False), pinned["revision"]: answers(True)}
    found = lowering.findings(document)
    assert {key: value for key, value in found.items() if not value} == {
        f"oxide.parent.{operation}.builds": False for operation in ("load", "store", "acqrel", "seqcst")
    }
    document[pinned["revision"]] = answers(False)
    assert not any(lowering.findings(document).values())


@pytest.mark.parametrize(
    ("name", "old", "new", "key"),
    [
        ("load-relaxed", ', "~{memory}"', "", "oxide.fix.clobber_unconditional"),
        ("load-seqcst", "fence.sc.gpu; ", "", "oxide.fix.seqcst_fused"),
    ],
)
def test_a_revision_that_departs_shows(name: str, old: str, new: str, key: str) -> None:
    pinned = pins()["oxide"]
    document = {pinned["parent"]: answers(False), pinned["revision"]: answers(True)}
    for answer in document[pinned["revision"]]["operations"][name].values():
        answer["ir"] = [line.replace(old, new) for line in answer["ir"]]
    assert [k for k, value in lowering.findings(document).items() if not value and ".fix." in k] == [key]


def test_the_kept_answers_bear_the_claim_out() -> None:
    rows = {row["name"]: row for row in lowering.evidence()}
    assert rows["oxide.parent.load.builds"]["value"] is False and rows["oxide.fix.load.builds"]["value"] is True
    assert "Atomic loads/stores are not supported" in rows["oxide.parent.load-relaxed.says"]["value"]
    assert "Illegal instruction: fence" in rows["oxide.parent.add-acqrel.says"]["value"]
    assert rows["oxide.fix.load-seqcst.says"]["value"] == "fence.sc.gpu; ld.acquire.gpu.b32"
    assert all("unpinned toolchain" in row["how"] for row in rows.values()), "how says which compilers answered"


def test_kept_answers_that_lack_a_revision_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "oxide-lowering.json"
    assert lowering.evidence(path) == []
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(IrrError, match=r"oxide-lowering\.json lacks"):
        lowering.evidence(path)
