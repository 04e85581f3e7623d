"""Building: manifests, sources, one assembler, the cache, missing tools. No GPU; compilers where they are installed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.build import abi, assemble, build, cubin, nvcc, provenance, sources
from harness.build.build import Job, build_all, check_ptx, flavours
from harness.build.kernels import KERNELS, PARAMETERS, Kernel
from harness.build.manifest import (
    Emitted,
    Manifest,
    Parameter,
    ToolMissing,
    ToolUnsupported,
    load_manifest,
    manifest_path,
    parse_manifest,
    sha256,
)
from harness.build.toolchain import Toolkit, find_toolkit
from harness.environment import ROOT
from harness.errors import IrrError, UsageError

try:
    TOOLKIT: Toolkit | None = find_toolkit()
except IrrError:
    TOOLKIT = None
needs_nvcc = pytest.mark.skipif(TOOLKIT is None or shutil.which("g++") is None, reason="no CUDA toolkit or g++ here")

ALLOCATE = KERNELS["cuda/allocate/plain"]
UPDATE = KERNELS["cuda/update/plain"]


def toolkit() -> Toolkit:
    assert TOOLKIT is not None
    return TOOLKIT


def make(kernel: Kernel, work: Path, *, arch: int = 90, contract: bool = False) -> tuple[Emitted, assemble.Assembled]:
    """PTX and cubin of a CUDA kernel."""
    emitted = nvcc.emit(kernel, arch, contract, work)
    assembler = assemble.Assembler(toolkit().ptxas)
    return emitted, assemble.assemble(emitted.ptx, emitted.entry, arch, contract, assembler, toolkit().nvdisasm)


@needs_nvcc
def test_the_limit_of_registers_is_the_one_given_and_not_the_number_used(tmp_path: Path) -> None:
    emitted, free = make(UPDATE, tmp_path)
    assert not [flag for flag in free.ptxas["flags"] if "maxrregcount" in flag]
    given = (90, False, assemble.Assembler(toolkit().ptxas), toolkit().nvdisasm)
    held = assemble.assemble(emitted.ptx, emitted.entry, *given, registers=64)
    assert "-maxrregcount=64" in held.ptxas["flags"] and held.registers == free.registers < 64


@needs_nvcc
def test_a_limit_named_by_mistake_is_told_apart_from_other_code(tmp_path: Path) -> None:
    emitted, made = make(UPDATE, tmp_path)
    (tmp_path / "sm_90").mkdir()
    path = tmp_path / "sm_90/cuda--update--plain.json"
    path.with_suffix(".ptx").write_text(emitted.ptx)
    path.with_suffix(".sass").write_text(made.sass)

    def outcome(limit: int, code: str = made.code_sha256) -> tuple[int, int, int]:
        ptxas = made.ptxas | {"flags": [*made.ptxas["flags"], f"-maxrregcount={limit}"]}
        a_manifest(
            kernel="cuda/update/plain", stage="update", entry=emitted.entry, registers=made.registers, ptxas=ptxas,
            ptx_sha256=sha256(emitted.ptx.encode()), sass_sha256=sha256(made.sass.encode()), code_sha256=code,
            sass=made.counts, disassembler=made.disassembler, spills=made.spills, static_shared=made.static_shared,
            parameters=[Parameter("", raw.offset, raw.size) for raw in made.parameters],
        ).save(path)  # fmt: skip
        found = provenance.check_builds(tmp_path)
        return found.same, found.misnamed, len(found.different)

    assert outcome(made.registers) == (1, 1, 0), "the count of the kernel itself, named as its limit"
    assert outcome(made.registers - 6) == (0, 0, 1), "a limit that the kernel was not given is other code"
    assert outcome(made.registers, "0" * 64) == (0, 0, 1)


def a_manifest(**changes: object) -> Manifest:
    fields = {
        "kernel": "cuda/allocate/plain", "arch": 90, "entry": "allocate", "stage": "allocate", "language": "cuda",
        "contract": False, "status": "ok", "parameters": [Parameter("volume", 0, 112), Parameter("points", 112, 8)],
        "sass": {"FFMA": 34, "instructions": 391}, "ptxas": {"name": "pinned", "version": "13.0.88", "target": "sm_90"},
    }  # fmt: skip
    return Manifest(**(fields | changes))  # type: ignore[arg-type]


# --- manifest ---------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    flavour=st.sampled_from(["", "fma", "bundled"]),
    parameters=st.lists(st.builds(Parameter, st.text(max_size=8), st.integers(0, 4000), st.integers(1, 200))),
    counts=st.dictionaries(st.text("ABCDEF", min_size=1, max_size=6), st.integers(0, 10**6)),
    reason=st.text(max_size=40),
)
def test_manifest_round_trip(flavour: str, parameters: list[Parameter], counts: dict[str, int], reason: str) -> None:
    manifest = a_manifest(flavour=flavour, parameters=parameters, sass=counts, reason=reason)
    text = manifest.to_json()
    assert parse_manifest(text, "here") == manifest
    assert text == parse_manifest(text, "here").to_json()
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_manifest_file_and_names(tmp_path: Path) -> None:
    manifest = a_manifest(flavour="fma", contract=True)
    path = manifest_path(tmp_path, 90, manifest.name)
    manifest.save(path)
    assert path.name == "cuda--allocate--plain--fma.json"
    assert load_manifest(path) == manifest
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # no temporary file is left
    assert a_manifest(flavour="bundled").name == "cuda/allocate/plain@bundled"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"schema": 99}',
        '{"schema": 1}',
        a_manifest().to_json().replace('"arch"', '"arhc"'),
        a_manifest(status="fine").to_json(),
        a_manifest().to_json().replace('"flavour": ""', '"flavour": "sour"'),
    ],
)
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(IrrError, match=r"here: "):
        parse_manifest(text, "here")


# --- sources ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [k for k in KERNELS.values() if not k.name.count("/fma/")], ids=lambda k: k.name)
def test_every_source_is_found_and_hashed(kernel: Kernel) -> None:
    files = sources.source_files(kernel)
    assert Path(kernel.source) in files or (ROOT / kernel.source).is_dir()
    assert len(set(files)) == len(files)
    assert all((ROOT / path).is_file() and not path.is_absolute() for path in files)
    assert sources.current_source_hash(kernel) == sources.current_source_hash(kernel)


def _copy(tmp_path: Path, *folders: str) -> Path:
    for folder in folders:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("target", "__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "changed", "other"),
    [
        ("cuda/allocate/plain", "cuda/insert.cuh", "cuda/update.cu"),
        ("cuda/allocate/plain", "cuda/device/target.cuh", "cuda/host/target.cuh"),
        ("rust-nvptx/update/plain", "rust/core/src/band.rs", "rust/host/src/lib.rs"),
        ("triton/allocate/while", "triton/table.py", "triton/update.py"),
    ],
)
def test_a_changed_include_makes_another_hash_and_a_stranger_does_not(
    tmp_path: Path, name: str, changed: str, other: str
) -> None:
    root = _copy(tmp_path, "cuda", "rust", "triton")
    kernel = KERNELS[name]
    before = sources.current_source_hash(kernel, root)
    assert before == sources.current_source_hash(kernel)  # the folder is not part of it
    (root / other).write_text((root / other).read_text() + "\n")
    assert sources.current_source_hash(kernel, root) == before
    (root / changed).write_text((root / changed).read_text() + "\n")
    assert sources.current_source_hash(kernel, root) != before


def test_the_row_is_part_of_the_hash() -> None:
    before = sources.current_source_hash(ALLOCATE)
    assert sources.current_source_hash(dataclasses.replace(ALLOCATE, threads=128)) != before
    assert sources.current_source_hash(dataclasses.replace(ALLOCATE, constants={"BOUND": 8})) != before
    assert sources.current_source_hash(dataclasses.replace(ALLOCATE, matrix=not ALLOCATE.matrix)) == before


def test_the_field_table_is_part_of_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sources.current_source_hash(ALLOCATE)
    monkeypatch.setattr(sources.volume, "FIELDS", sources.volume.FIELDS[::-1])
    assert sources.current_source_hash(ALLOCATE) != before


def test_a_missing_include_is_named(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda/a.cu").write_text('#include "b.cuh"\n')
    with pytest.raises(IrrError, match=r'cuda/a.cu includes "b.cuh"'):
        sources.cuda_sources("cuda/a.cu", tmp_path)


@needs_nvcc
@pytest.mark.parametrize("kernel", [ALLOCATE, UPDATE], ids=lambda k: k.name)
def test_nvcc_reads_the_files_that_are_hashed(kernel: Kernel, tmp_path: Path) -> None:
    emitted = nvcc.emit(kernel, 90, False, tmp_path)
    assert emitted.sources == sources.source_files(kernel)
    assert emitted.extra["toolkit"] == toolkit().place


# --- PTX --------------------------------------------------------------------------------------------------------------

PTX = """\
.version 9.0
.target sm_90a
.address_size 64
.visible .entry update(
	.param .u64 update_param_0
)
{
	// fma.rn.f32 in a comment is none
	atom.global.add.f32 	%f1, [%rd1], %f2;
	red.global.add.v4.f32 	[%rd1], {%f1, %f2, %f3, %f4};
	red.relaxed.gpu.global.add.f32 	[%rd1], %f2;
	atom.relaxed.gpu.global.cas.b64 	%rd2, [%rd1], %rd3, %rd4;
	mul.rn.f32 	%f3, %f1, %f2;
	cvt.rmi.ftz.f32.f32 	%f3, %f3;
	ret;
}
.visible .entry other(
	.param .u64 other_param_0
)
{
	fma.rn.f32 	%f3, %f1, %f2, %f3;
	div.full.f32 	%f3, %f1, %f2;
	ret;
}
"""


def test_ptx_counts_belong_to_one_kernel() -> None:
    update = assemble.count_ptx(PTX, "update")
    assert update == {
        "atom.add.f32": 1, "red.add.f32": 2, "atom.cas": 1, "fma.f32": 0, "approximate": 0, "floor.ftz": 1, "local": 0,
    }  # fmt: skip
    other = assemble.count_ptx(PTX, "other")
    assert (other["fma.f32"], other["approximate"], other["atom.cas"]) == (1, 1, 0)


def test_target_keeps_the_features_of_its_own_architecture_only() -> None:
    assert assemble.target(PTX, 90) == "sm_90a"
    assert assemble.target(PTX, 120) == "sm_120"
    with pytest.raises(IrrError, match=r"no \.target"):
        assemble.target("", 90)


GOOD = {"atom.add.f32": 5, "red.add.f32": 0, "atom.cas": 0, "fma.f32": 0, "approximate": 0}


@pytest.mark.parametrize(
    ("kernel", "flavour", "ptx", "counts", "message"),
    [
        (UPDATE, "", "", {"fma.f32": 2}, "2 fused multiply-adds"),
        (UPDATE, "", "", {"approximate": 1}, "1 approximate"),
        # the loop that a foreign llc made of fetch_add (needs N18)
        (UPDATE, "", "", {"atom.add.f32": 0, "atom.cas": 5}, "0 native float additions, 5 compare-exchanges"),
        (UPDATE, "", "", {"atom.cas": 1}, "5 native float additions, 1 compare-exchange"),
        (UPDATE, "", '.file 1 "/home/someone/update.cu"', {}, "path of this machine: /home/someone/update.cu"),
    ],
)
def test_planted_faults_in_ptx_are_caught(
    kernel: Kernel, flavour: str, ptx: str, counts: dict[str, int], message: str
) -> None:
    check_ptx(Job(kernel, 90, flavour), "", GOOD)
    with pytest.raises(IrrError, match=message):
        check_ptx(Job(kernel, 90, flavour), ptx, GOOD | counts)


def test_a_contracting_build_may_contract() -> None:
    check_ptx(Job(UPDATE, 90, "fma"), "", GOOD | {"fma.f32": 30})


# --- SASS -------------------------------------------------------------------------------------------------------------

SASS = """\
//--------------------- .text.other --------------------------
.text.other:
        /*0000*/                   FFMA R1, R2, R3, R4 ;
//--------------------- .text.update --------------------------
	.section	.text.update,"ax",@progbits
update:
.text.update:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.64 R2, desc[UR4][R2.64] ;
        /*0020*/               @P0 BRA `(.L_x_3) ;
        /*0030*/                   REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5 ;
        /*0040*/                   RED.E.ADD.64 desc[UR4][R2.64], R5 ;
.L_x_3:
        /*0050*/                   EXIT ;
.L_x_0:
        /*0060*/                   BRA `(.L_x_0);
        /*0070*/                   NOP;
.L_x_4:
"""


def test_sass_counts_one_kernel_without_its_padding() -> None:
    assert assemble.count_sass(SASS, "update") == {
        "BRA": 1, "EXIT": 1, "LDC": 1, "LDG": 1, "RED": 2, "instructions": 6,
    }  # fmt: skip
    with pytest.raises(IrrError, match="no kernel named missing"):
        assemble.count_sass(SASS, "missing")


# --- nvcc and the assembler -------------------------------------------------------------------------------------------


@needs_nvcc
def test_cuda_kernel_from_source_to_cubin(tmp_path: Path) -> None:
    emitted, made = make(UPDATE, tmp_path)
    assert [(p.offset, p.size) for p in made.parameters] == [
        (0, 112), (112, 8), (120, 8), (128, 4), (132, 4), (136, 4), (140, 4),
    ]  # fmt: skip
    expected = abi.expected_parameters(UPDATE, "struct", 0)
    assert [p.name for p in expected] == ["volume", *(name for name, _ in PARAMETERS["update"])]
    assert abi.name_parameters(UPDATE, made.parameters, expected) == expected
    assert 0 < made.registers <= 255 and made.spills == 0
    assert made.counts["RED"] >= 5 and "ATOM" not in made.counts
    assert made.ptxas["version"] == toolkit().version and "-fmad=false" in made.ptxas["flags"]
    counts = assemble.count_ptx(emitted.ptx, emitted.entry)
    check_ptx(Job(UPDATE, 90), emitted.ptx, counts)


@needs_nvcc
def test_contraction_is_the_flag_and_nothing_else(tmp_path: Path) -> None:
    """needs N22: what is labelled separate has no fused operation, what is labelled fused has."""
    saxpy = KERNELS["cuda/fma/saxpy-off-b256"]
    fused = {}
    for contract in (False, True):
        emitted, made = make(saxpy, tmp_path, contract=contract)
        fused[contract] = (assemble.count_ptx(emitted.ptx, "saxpy")["fma.f32"], made.counts.get("FFMA", 0))
    assert fused == {False: (0, 0), True: (1, 1)}


@needs_nvcc
def test_ptxas_does_not_contract_what_the_compiler_left_apart(tmp_path: Path) -> None:
    """rustc and LLVM write mul.f32 and add.f32 without .rn, which ptxas contracts unless it is told not to."""
    ptx = nvcc.emit(KERNELS["cuda/fma/saxpy-off-b256"], 90, False, tmp_path).ptx
    loose = ptx.replace("mul.rn.f32", "mul.f32").replace("add.rn.f32", "add.f32")
    assert loose != ptx
    counts = [
        assemble.assemble(loose, "saxpy", 90, contract, assemble.Assembler(toolkit().ptxas), toolkit().nvdisasm).counts
        for contract in (False, True)
    ]
    assert ["FFMA" in count for count in counts] == [False, True]


@needs_nvcc
def test_two_folders_give_identical_bytes(tmp_path: Path) -> None:
    made = []
    for name in ("a", "somewhere/else"):
        root = _copy(tmp_path / name, "cuda")
        emitted = nvcc.emit(ALLOCATE, 90, False, tmp_path / name / "work", root=root)
        assembled = assemble.assemble(
            emitted.ptx, emitted.entry, 90, False, assemble.Assembler(toolkit().ptxas), toolkit().nvdisasm
        )
        made.append((emitted.ptx, assembled.cubin, assembled.sass))
        assert str(tmp_path) not in emitted.ptx and str(tmp_path).encode() not in assembled.cubin
    assert made[0] == made[1]


@needs_nvcc
def test_an_architecture_that_nvcc_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(ToolUnsupported, match="does not know sm_999"):
        nvcc.emit(ALLOCATE, 999, False, tmp_path)


@needs_nvcc
def test_a_source_that_does_not_compile_is_one_line(tmp_path: Path) -> None:
    root = _copy(tmp_path, "cuda")
    path = root / ALLOCATE.source
    path.write_text(path.read_text().replace("find_or_insert", "find_or_inert"))
    with pytest.raises(IrrError, match=r"cuda/allocate.cu: nvcc for sm_90: .*find_or_inert") as caught:
        nvcc.emit(ALLOCATE, 90, False, tmp_path / "work", root=root)
    assert "\n" not in caught.value.what


def _stub(path: Path, body: str) -> Path:
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


STUB = (
    'case "$1" in --version) echo "Cuda compilation tools, release 12.4, V12.4.131"; exit 0;; esac\n'
    "echo \"ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\" >&2\nexit 255\n"
)


def test_ptxas_that_does_not_know_the_card(tmp_path: Path) -> None:
    """needs N12: a status of its own, with the architecture and the ptxas that said so."""
    stub = _stub(tmp_path / "ptxas", STUB)
    with pytest.raises(ToolUnsupported) as caught:
        assemble.run_ptxas(".target sm_121a\n", "sm_121a", False, stub)
    assert all(word in caught.value.what for word in ("sm_121a", str(stub), "12.4.131"))
    assert caught.value.status == "toolchain-unsupported"


def test_ptxas_that_is_not_there_or_fails(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing):
        assemble.run_ptxas("", "sm_90", False, tmp_path / "none")
    with pytest.raises(IrrError, match="syntax error") as caught:
        assemble.run_ptxas("", "sm_90", False, _stub(tmp_path / "ptxas", "echo 'syntax error near x' >&2; exit 1\n"))
    assert not isinstance(caught.value, ToolUnsupported)


# --- provenance -------------------------------------------------------------------------------------------------------


@needs_nvcc
def test_archived_ptx_gives_the_same_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = build_all([90], "cuda/floor/atomics,cuda/floor/null", build=tmp_path, quiet=True)
    assert [m.status for m in report.manifests] == ["ok", "ok"]
    outcome = provenance.check_builds(tmp_path)
    assert (outcome.same, outcome.different, outcome.untried, outcome.unlisted) == (2, [], [], [])

    path = tmp_path / "sm_90/cuda--floor--atomics.json"
    manifest = load_manifest(path)
    listing = path.with_suffix(".sass").read_text()
    # A PTX that is not the manifest's.
    ptx = path.with_suffix(".ptx").read_text()
    path.with_suffix(".ptx").write_text(ptx + "\n")
    assert "not the one that the manifest names" in provenance.check_builds(tmp_path).different[0]
    # One that is, but gives other machine code.
    forged = ptx.replace("1065353216", "1073741824").replace("0f3F800000", "0f40000000")
    assert forged != ptx
    path.with_suffix(".ptx").write_text(forged)
    counts = assemble.count_ptx(forged, manifest.entry)
    dataclasses.replace(manifest, ptx_sha256=sha256(forged.encode()), ptx=counts).save(path)
    assert "other machine code" in provenance.check_builds(tmp_path).different[0]
    # One that is missing; and one whose ptxas is not here.
    path.with_suffix(".ptx").unlink()
    assert "not in the archive" in provenance.check_builds(tmp_path).different[0]
    path.with_suffix(".ptx").write_text(ptx)
    dataclasses.replace(manifest, ptxas=manifest.ptxas | {"version": "12.0.1"}).save(path)
    outcome = provenance.check_builds(tmp_path)
    assert (outcome.same, outcome.different) == (1, []) and "12.0.1" in outcome.untried[0]
    # A word of the archive's that has no business in a command.
    dataclasses.replace(manifest, ptxas=manifest.ptxas | {"target": "sm_90 -o /etc/passwd"}).save(path)
    assert "names no target" in provenance.check_builds(tmp_path).different[0]
    # Another nvdisasm than the manifest's: machine code and registers, but no listing.
    dataclasses.replace(manifest, disassembler={"name": "nvdisasm", "version": "12.0.1"}).save(path)
    outcome = provenance.check_builds(tmp_path)
    assert (outcome.same, outcome.different) == (2, []) and "nvdisasm 12.0.1" in outcome.unlisted[0]
    assert "listing again: 1 kernels" in str(outcome) and "12.0.1" in str(outcome)
    # Files that no manifest answers for.
    path.unlink()
    assert provenance.check_builds(tmp_path).different == [
        f"{path.stem}.{end} has no manifest" for end in ("ptx", "sass")
    ]
    dataclasses.replace(manifest, status="failed", reason="not so").save(path)
    assert "is failed, yet has cuda--floor--atomics.ptx" in provenance.check_builds(tmp_path).different[0]
    # No ptxas at all: the files against their manifests.
    manifest.save(path)
    monkeypatch.setattr(provenance, "find_toolkit", _no_toolkit)
    outcome = provenance.check_builds(tmp_path)
    assert (outcome.same, outcome.different, len(outcome.untried)) == (0, [], 2)
    assert "no CUDA toolkit here" in outcome.untried[0] and "2 NOT assembled again" in str(outcome)
    path.with_suffix(".sass").write_text(listing.replace("FADD", "FMUL", 1) + "\n")
    assert "the listing is not the one" in provenance.check_builds(tmp_path).different[0]


@needs_nvcc
@pytest.mark.parametrize(
    ("forge", "says"),
    [
        ({"sass": {"instructions": 7}}, "the listing does not have the counts of the manifest (instructions"),
        ({"sass": {}}, "the listing does not have the counts"),
        ({"sass": []}, "are not objects"),
        ({"ptx": {"fma.f32": 7}}, "the PTX does not have the counts of the manifest (fma.f32: 7 there, 0 here)"),
        ({"registers": 7}, "registers, spills and shared memory are (+7"),
        ({"spills": 7}, "registers, spills and shared memory are"),
        ({"static_shared": 7}, "registers, spills and shared memory are"),
        ({"parameters": []}, "the parameters are not those"),
        ({"entry": "another"}, "no kernel named another"),
        ({"listing": "sums"}, "the listing is not the one that the manifest names"),
        ({"listing": "consistent"}, "the listing is not that of the machine code"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_forged_manifest_or_listing_is_found(tmp_path: Path, forge: dict[str, Any], says: str) -> None:
    """Everything else fits: checksums in the manifest, counts. Numbers are 7 more than they were."""
    build_all([90], "cuda/floor/null", build=tmp_path, quiet=True)
    path = tmp_path / "sm_90/cuda--floor--null.json"
    manifest, listing = load_manifest(path), path.with_suffix(".sass")
    changes: dict[str, Any] = {}
    for key, value in forge.items():
        old = getattr(manifest, key, None)
        if key == "listing":
            altered = listing.read_text().replace("EXIT", "EXIT.KEEPREFCOUNT", 1)
            assert altered != listing.read_text()
            assert assemble.count_sass(altered, manifest.entry) == manifest.sass
            listing.write_text(altered)
            changes |= {"sass_sha256": sha256(altered.encode())} if value == "consistent" else {}
        elif isinstance(value, int):
            assert isinstance(old, int)
            changes[key], says = old + value, says.replace("+7", str(old + 7))
        elif isinstance(value, dict) and value and isinstance(old, dict):
            changes[key] = old | {k: old[k] + v for k, v in value.items()}
        else:
            changes[key] = value
    dataclasses.replace(manifest, **changes).save(path)
    [different] = provenance.check_builds(tmp_path).different
    assert says in different


@needs_nvcc
def test_progress_is_told_while_kernels_are_assembled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_all([90], "cuda/floor/null", build=tmp_path, quiet=True)
    monkeypatch.setattr(provenance, "SAY_S", 0.0)
    said: list[str] = []
    provenance.check_builds(tmp_path, said.append)
    assert said == ["kernels assembled again: 1 of 1"]


# --- build_all --------------------------------------------------------------------------------------------------------


def _no_toolkit(*_: object) -> Toolkit:
    raise IrrError("no CUDA toolkit here", "./irr setup")


@needs_nvcc
def test_build_is_cached_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = "cuda/floor/null"

    def outcome() -> tuple[int, int]:
        report = build_all([90, 120], arms, build=tmp_path, quiet=True)
        return len(report.built), report.current

    assert outcome() == (2, 0)
    files = {path: path.read_bytes() for path in tmp_path.glob("sm_*/*")}
    assert len(files) == 8
    assert outcome() == (0, 2)
    # A damaged or missing file is made again, and is what it was.
    (tmp_path / "sm_90/cuda--floor--null.cubin").write_bytes(b"damaged")
    (tmp_path / "sm_120/cuda--floor--null.sass").unlink()
    assert outcome() == (2, 0)
    assert {path: path.read_bytes() for path in tmp_path.glob("sm_*/*")} == files
    # Other sources, or another tool.
    with monkeypatch.context() as patch:
        patch.setattr(build, "current_source_hash", lambda kernel: "another")
        assert outcome() == (2, 0)
    with monkeypatch.context() as patch:
        patch.setattr(build, "find_toolkit", lambda: dataclasses.replace(toolkit(), version="13.0.99"))
        assert outcome() == (2, 0)
    manifest = load_manifest(tmp_path / "sm_90/cuda--floor--null.json")
    assert manifest.deviations and all("13.0.99" in words for words in manifest.deviations)
    assert outcome() == (2, 0) and outcome() == (0, 2)


@needs_nvcc
def test_kernels_built_elsewhere_are_kept_where_the_tool_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = "cuda/floor/null"
    build_all([90], arms, build=tmp_path, quiet=True)
    monkeypatch.setattr(build, "find_toolkit", _no_toolkit)
    report = build_all([90], arms, build=tmp_path, quiet=True)
    assert report.kept == ["sm_90/cuda/floor/null"] and report.manifests[0].status == "ok"
    # but not if the sources have changed since
    monkeypatch.setattr(build, "current_source_hash", lambda kernel: "another")
    with pytest.raises(IrrError, match="no CUDA toolkit here"):
        build_all([90], arms, build=tmp_path, quiet=True)
    assert load_manifest(tmp_path / "sm_90/cuda--floor--null.json").status == "needs-toolchain"
    assert not (tmp_path / "sm_90/cuda--floor--null.cubin").exists()


def test_without_any_toolkit_every_kernel_needs_it_and_it_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "find_toolkit", _no_toolkit)
    with pytest.raises(IrrError, match="need a tool: no CUDA toolkit here"):
        build_all([90, 120], None, build=tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert sum("no CUDA toolkit here" in line for line in lines) == 1
    assert not any("Traceback" in line for line in lines)
    manifests = [load_manifest(path) for path in tmp_path.glob("sm_*/*.json")]
    assert {m.status for m in manifests} == {"needs-toolchain"}


@needs_nvcc
def test_one_missing_tool_costs_its_own_kernels_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object, **__: object) -> Emitted:
        raise ToolMissing("rustc is missing", "apt-get install rustc-web")

    monkeypatch.setattr("harness.build.cargo.emit", missing)
    rows = [KERNELS["cuda/floor/null"], *(k for k in KERNELS.values() if k.language == "rust-nvptx" and k.takes_volume)]
    monkeypatch.setattr(build, "chosen_kernels", lambda arms: rows)
    report = build_all([90], None, build=tmp_path)
    assert {m.status for m in report.manifests if m.language == "rust-nvptx"} == {"needs-toolchain"}
    assert [m.status for m in report.manifests if m.language == "cuda"] == ["ok"]
    assert len(report.lines) == 1 and "rustc is missing" in report.lines[0]
    assert "1 kernels built" in capsys.readouterr().err
    # Named, it must be there.
    with pytest.raises(IrrError, match="rustc is missing"):
        build_all([90], "rust-nvptx", build=tmp_path, quiet=True)


@needs_nvcc
def test_a_triton_ptxas_that_does_not_know_the_card_costs_triton_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """needs N12, through the whole build: the variable of Triton's own is honoured and recorded."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(_stub(tmp_path / "ptxas", STUB)))
    rows = [KERNELS["cuda/floor/null"], dataclasses.replace(KERNELS["triton/update/while"], slow_build=True)]
    monkeypatch.setattr(build, "chosen_kernels", lambda arms: rows)
    report = build_all([90], None, build=tmp_path / "build", quiet=True)
    cuda, triton = report.manifests
    assert (cuda.status, triton.status) == ("ok", "toolchain-unsupported")
    assert cuda.ptxas["version"] == toolkit().version
    assert "sm_90a" in triton.reason and str(tmp_path / "ptxas") in triton.reason and "12.4.131" in triton.reason


@needs_nvcc
def test_too_old_an_architecture_is_unsupported_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """needs N11: numbers, not strings: 100 is above 90."""
    row = dataclasses.replace(KERNELS["cuda/floor/null"], min_arch=90)
    monkeypatch.setattr(build, "chosen_kernels", lambda arms: [row])
    report = build_all([86, 100], None, build=tmp_path, quiet=True)
    assert [m.status for m in report.manifests] == ["unsupported", "ok"]


@needs_nvcc
def test_a_kernel_that_fails_is_named_and_the_rest_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [dataclasses.replace(KERNELS["cuda/floor/null"], entry="nothing"), KERNELS["cuda/floor/atomics"]]
    monkeypatch.setattr(build, "chosen_kernels", lambda arms: rows)
    with pytest.raises(IrrError, match="has no kernel named nothing"):
        build_all([90], None, build=tmp_path, quiet=True)
    assert load_manifest(tmp_path / "sm_90/cuda--floor--atomics.json").status == "ok"
    assert load_manifest(tmp_path / "sm_90/cuda--floor--null.json").status == "failed"


@needs_nvcc
def test_a_file_that_is_compiled_but_not_hashed_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "source_files", lambda kernel: (Path("cuda/probes/null.cu"),))
    with pytest.raises(IrrError, match="compiled in and is not hashed"):
        build_all([90], "cuda/floor/null", build=tmp_path, quiet=True)


def test_what_is_chosen() -> None:
    default = {kernel.name for kernel in build.chosen_kernels(None)}
    slow = {kernel.name for kernel in KERNELS.values() if kernel.slow_build}
    studies = {kernel.name for kernel in KERNELS.values() if not kernel.matrix and kernel.stage not in ("floor", "fma")}
    assert studies and default == KERNELS.keys() - slow - studies
    assert {kernel.name for kernel in build.chosen_kernels("*")} == KERNELS.keys() - slow
    for name in slow:
        assert [kernel.name for kernel in build.chosen_kernels(name)] == [name]
    with pytest.raises(UsageError, match="nonsense"):
        build.chosen_kernels("nonsense")
    assert flavours(ALLOCATE) == ("", "fma")
    assert flavours(KERNELS["triton/update/while"]) == ("", "fma", "bundled")
    for name in ("cuda/floor/null", "cuda/allocate/nowait", "cuda/update/packed", "triton/allocate/static32"):
        assert flavours(KERNELS[name]) == ("",)
    assert flavours(KERNELS["cuda/fma/mandelbrot-default-b256"]) == ("", "nofmad")


def test_every_language_has_its_emitter() -> None:
    assert {kernel.language for kernel in KERNELS.values()} <= build.LANGUAGES.keys()


# --- cubin ------------------------------------------------------------------------------------------------------------


def test_what_is_no_cubin() -> None:
    for data in (b"", b"not an elf file", b"\x7fELF" + bytes(12)):
        with pytest.raises(IrrError):
            cubin.parameters(data, "update")
