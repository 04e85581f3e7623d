"""Tasks of irr: parse, call the harness, print. `./irr TASK`, or `invoke TASK` where the environment is given.

Each task imports what it needs inside, after its options are checked: another task's slow or missing part must not
hurt it, and wrong use is said at once.
"""

from __future__ import annotations

import functools
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoke.exceptions import Exit
from invoke.tasks import task as invoke_task

from harness.environment import ROOT, ensure_system, prepare_environment
from harness.errors import IrrError, UsageError

POSITIONALS: dict[str, tuple[str, ...]] = {
    "resume": ("archive",),
    "fuse": ("points",),
    "mesh": ("volume",),
    "verify": ("archive",),
    "report": ("archive",),
    "pack": ("archive*",),
    "data": ("[folder]",),
    "compare": ("first", "second"),
}
"""Positional arguments of each task; in brackets: may be left out; *: one or more. Plain Invoke knows only the
required ones, so there the others are options of the same name."""


def task(**options: Any) -> Callable[[Callable[..., None]], Any]:
    """Invoke's task; a failure of ours becomes an exit code and a message under plain Invoke too."""

    def wrap(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def body(*args: Any, **kwargs: Any) -> None:
            prepare_environment()
            try:
                function(*args, **kwargs)
            except IrrError as error:
                raise Exit(str(error), error.exit_code) from error

        places = POSITIONALS.get(function.__name__, ())
        needed = [place for place in places if not place.startswith("[") and "*" not in place]
        # No automatic one-letter options: which letter they get depends on the order of the others.
        return invoke_task(positional=needed, auto_shortflags=False, **options)(body)

    return wrap


def _number(kind: type, value: str | None, option: str, least: float | None = None, above: float = 0) -> Any:
    """An option's number of this kind, or None where the option is not given.

    Args:
        least: the smallest number that is allowed; where it is left out, all `above` are.
    """
    if value is None:
        return None
    try:
        number = kind(value)
    except ValueError:
        number = None
    # Written so that NaN is refused too.
    fits = number is not None and (number > above if least is None else number >= least) and number != float("inf")
    if not fits:
        wanted = "a whole number" if kind is int else "a finite number"
        bound = f"above {above}" if least is None else f"of at least {least}"
        raise UsageError(f"{option} {value}: {wanted} {bound} is needed")
    return number


def _needed(value: str | None, option: str) -> str:
    if not value:
        raise UsageError(f"option {option} is needed")
    return value


def _architectures(values: list[str]) -> list[int] | None:
    """Compute capabilities such as 90 (also sm_90, and several in one option: 80,90); None for the default ones."""
    chosen = []
    for word in ",".join(values).split(","):
        digits = word.strip().removeprefix("sm_")
        if not digits:
            continue
        if not digits.isdigit() or not 50 <= int(digits) <= 999:
            raise UsageError(f"--arch {word}: a compute capability such as 90 is needed")
        chosen.append(int(digits))
    return list(dict.fromkeys(chosen)) or None


VALUES = {
    "arch": "SM",
    "arms": "LIST",
    "cells": "GLOBS",
    "cap": "WEIGHT",
    "depth-max": "METRES",
    "depth-scale": "UNITS",
    "devices": "LIST",
    "frames": "N",
    "iterations": "N",
    "out": "PATH",
    "passes": "N",
    "pool": "BLOCKS",
    "size": "PIXELS",
    "stride": "N",
    "table": "SLOTS",
    "voxel": "METRES",
    "m": "MARKER",
    "args": "WORDS",
}
"""What an option's value is called in the help; its own name in capitals where it is not here."""


def _fusing_arms() -> list[str]:
    from harness.build.kernels import ARMS

    return [arm.name for arm in ARMS.values() if arm.allocate is not None]


def _all_arms() -> list[str]:
    from harness.build.kernels import ARMS

    return list(ARMS)


def _cells() -> list[str]:
    from harness.workload.cells import load_cells

    return list(load_cells())


def _studies() -> list[str]:
    from harness.measure.studies import STUDIES

    return list(STUDIES)


def _architectures_built() -> list[str]:
    from harness.build.kernels import ARCHITECTURES

    return [str(arch) for arch in ARCHITECTURES]


CHOICES: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "arch": ("built where --arch is left out", _architectures_built),
    "arm": ("arms", _fusing_arms),
    "arms": ("arms", _all_arms),
    "cells": ("cells", _cells),
    "study": ("studies", _studies),
}
"""Option -> what it chooses from, from the tables that say so; listed in the help of every task that has the option."""

ARMS = "arms or globs of kernel names, separated by commas; all where it is left out"
CELLS = "globs of cell names, separated by commas"
JSON = "one JSON document on stdout, progress on stderr"


@task()
def setup(c: Any) -> None:
    """Make the environment: the venv (the bootstrap has made it when this runs) and missing system packages."""
    ensure_system(("setup",))


@task(help={"strict": "exit 1 if anything is missing", "json": JSON})
def doctor(c: Any, strict: bool = False, json: bool = False) -> None:
    """Every tool, driver, device and limit, found or not, with the cure."""
    from harness import doctor as doctor_module
    from harness.output import print_json

    findings = doctor_module.examine()
    if json:
        print_json(findings)
    else:
        print(doctor_module.as_text(findings))
    if strict and findings["problems"]:
        raise IrrError(f"{len(findings['problems'])} problems, listed above")


@task(iterable=["arch"], help={"arch": "compute capability, as 90; repeatable, or several as 80,90", "arms": ARMS})
def build(c: Any, arch: list[str], arms: str | None = None) -> None:
    """Build kernels to build/sm_XX/ as cubin and manifest, without a GPU."""
    architectures = _architectures(arch)
    from harness.build.build import build_all, check_architectures

    check_architectures(architectures or ())

    build_all(architectures, arms)


@task(help={"arms": ARMS, "json": JSON})
def gate(c: Any, arms: str | None = None, json: bool = False) -> None:
    """Correctness tiers on this machine: host build, interpreter, and the GPU where there is one."""
    from harness.gates.run import gate_task, summary
    from harness.output import print_json

    results, fine = gate_task(arms)
    print_json([result.to_json() for result in results]) if json else print(summary(results))
    if not fine:
        failed = ", ".join(dict.fromkeys(result.gate for result in results if result.failed))
        raise IrrError(f"gates failed: {failed}" if failed else "an arm that was asked for could not be judged")


@task(
    help={
        "quick": "base, pts-20k, plane-320k, serial, 5 rounds, one pass, under 60 s; marked quick",
        "require-gpu": "fail where there is no GPU",
        "passes": "passes a device; 3 where it is left out, 1 in a quick run",
        "devices": "all, or UUIDs separated by commas; the first device where it is left out",
        "cells": CELLS,
        "arms": ARMS,
        "allow-missing": "go on without arms that cannot be built here",
        "allow-shared": "use a device that others use; recorded in the archive",
        "one-after-another": "several devices one after another instead of at once; recorded in the archive",
        "lock-clocks": "lock the clocks while timing; never on a machine that others share",
        "study": "one study instead of the matrix",
        "out": "folder of the archive; results/ where it is left out",
    }
)
def reproduce(
    c: Any,
    quick: bool = False,
    require_gpu: bool = False,
    passes: str | None = None,
    devices: str | None = None,
    cells: str | None = None,
    arms: str | None = None,
    allow_missing: bool = False,
    allow_shared: bool = False,
    one_after_another: bool = False,
    lock_clocks: bool = False,
    study: str | None = None,
    out: str | None = None,
) -> None:
    """The whole job: build, gates, timing, archive, claims, page; last line `archive: PATH`."""
    count = _number(int, passes, "--passes", 1)
    from harness.measure.reproduce import reproduce as run

    archive = run(
        quick=quick,
        require_gpu=require_gpu,
        passes=count,
        devices=devices,
        cells=cells,
        arms=arms,
        allow_missing=allow_missing,
        allow_shared=allow_shared,
        one_after_another=one_after_another,
        lock_clocks=lock_clocks,
        study=study,
        out=Path(out) if out else None,
    )
    _finish(archive)


def _finish(archive: Path) -> None:
    """Claims, tables and the page of a new archive; then its path, last. Neither what cannot be drawn nor a check that
    failed undoes the run; after a failed check the exit code is 1."""
    from harness.archive.verify import check_new
    from harness.output import say
    from harness.report.page import report as derive

    try:
        say(f"the page to open in a browser: {derive(archive)}")
    except (IrrError, ImportError) as error:
        say(f"irr: the archive is whole, its page could not be made: {error}; ./irr report {archive} tries again")
    failed = check_new(archive)
    print(f"archive: {archive}", flush=True)
    if failed:
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise IrrError(f"the run is archived and a check failed: {failed[0]}{more}", "its page lists them")


@task(help={"archive": "folder of the run that was stopped"})
def resume(c: Any, archive: str) -> None:
    """Go on with a run that was stopped; whole passes are kept."""
    from harness.measure.runs import resume as run

    _finish(run(Path(archive)))


@task(
    help={
        "points": ".npz with points, colours and camera, or a folder of depth frames (7-Scenes or TartanAir V2 layout)",
        "arm": "who fuses; needed",
        "voxel": "voxel edge, metres",
        "pool": "blocks in the pool; 1.25 x the exact count where it is left out",
        "table": "table slots, a power of two",
        "cap": "weight cap, 0 = off",
        "interpret": "run a Triton arm in its interpreter, without a GPU",
        "frames": "how many frames of a folder; all where it is left out",
        "depth-scale": "units a metre of 16-bit depth: 1000 in 7-Scenes, 5000 in TUM",
        "stride": "every how many-th pixel of a frame, both ways",
        "depth-max": "farthest depth that is fused, metres",
        "out": "the .npz to write; needed",
    }
)
def fuse(
    c: Any,
    points: str,
    arm: str | None = None,
    voxel: str = "0.01",
    pool: str | None = None,
    table: str | None = None,
    cap: str = "0",
    interpret: bool = False,
    frames: str | None = None,
    depth_scale: str = "1000",
    stride: str = "1",
    depth_max: str = "20",
    out: str | None = None,
) -> None:
    """Fuse points or depth frames of your own with any arm."""
    chosen, target = _needed(arm, "--arm"), Path(_needed(out, "--out"))
    slots = _number(int, table, "--table", 1)
    if slots is not None and slots & (slots - 1):
        raise UsageError(f"--table {table}: a power of two is needed")
    edge = _number(float, voxel, "--voxel")
    blocks, weight = _number(int, pool, "--pool", 1), _number(float, cap, "--cap", 0)
    scale, farthest = _number(float, depth_scale, "--depth-scale"), _number(float, depth_max, "--depth-max")
    count, step = _number(int, frames, "--frames", 1), _number(int, stride, "--stride", 1)
    from harness.fusing import fuse_file

    fuse_file(
        Path(points),
        arm=chosen,
        voxel=edge,
        pool=blocks,
        table=slots,
        cap=weight,
        interpret=interpret,
        frames=count,
        depth_scale=scale,
        stride=step,
        depth_max=farthest,
        out=target,
    )


@task(help={"volume": ".npz that fuse wrote", "out": "the .ply to write; needed"})
def mesh(c: Any, volume: str, out: str | None = None) -> None:
    """Extract the surface of a fused volume, as a PLY with colours."""
    target = Path(_needed(out, "--out"))
    from harness.fusing import mesh_file

    mesh_file(Path(volume), out=target)


@task(help={"size": "pixels an edge", "iterations": "limit of the iteration", "json": JSON})
def fma(c: Any, size: str = "4096", iterations: str = "500", json: bool = False) -> None:
    """The compiler-contraction study.

    At its full size (the defaults) where there is a GPU, the GPU's part runs too and is archived in
    results/; the last line is the archive's path.
    """
    edge, limit = _number(int, size, "--size", 1), _number(int, iterations, "--iterations", 1)
    from harness.measure import fma as study
    from harness.output import print_json

    findings, _ = study.study(edge, limit)
    outcome = findings[0]["value"]
    if json:
        print_json(outcome)
    else:
        from harness.build.contraction import loops_text
        from harness.claims.evaluate import judge_findings

        print(study.as_text(outcome))
        for arch in study.built_archs()[-1:]:
            for word in ("default", "off"):
                print(f"\nThe loops for sm_{arch}, contraction {word}:\n{loops_text(study.BUILD, arch, word)}")
        print("\nWhat that decides:")
        for row in judge_findings(findings, "B"):
            print(f"{row['id']:4} {row['verdict']:11} {row['reason']}")
    if (edge, limit) == (study.SIZE, study.LIMIT):
        from harness.measure.reproduce import contraction

        archive = contraction()
        if archive is not None:
            print(f"archive: {archive}", file=sys.stderr if json else sys.stdout)


@task(help={"cells": CELLS})
def counters(c: Any, cells: str | None = None) -> None:
    """Nsight Compute counters of the matrix kernels."""
    from harness.measure.counters import run

    print(f"archive: {run(cells)}")


@task(help={"archive": "folder or .tar.zst"})
def verify(c: Any, archive: str) -> None:
    """Checksums, schema, derived files derived again, kernels assembled and disassembled again where ptxas is.

    Nothing is signed: what is altered together with its checksums and all that follows from it is not found.
    """
    from harness.archive.pack import opened
    from harness.build.provenance import check_builds
    from harness.output import say
    from harness.report.verify import verify as run

    path = Path(archive)
    print(run(path, say))
    with opened(path) as roots:
        for root in roots:
            say(f"{root.name}: kernels assembled and disassembled again")
            outcome = check_builds(root / "raw" / "builds", lambda line, name=root.name: say(f"{name}: {line}"))
            if outcome.different:
                raise IrrError(f"{root.name} does not verify: {outcome}")
            print(f"{root.name}: {outcome}")


@task(help={"archive": "one archive; all of results/ where it is left out", "json": JSON})
def claims(c: Any, archive: str | None = None, json: bool = False) -> None:
    """Every claim of the seeds with its verdict."""
    from harness.claims import evaluate
    from harness.output import print_json, say

    verdicts = evaluate.evaluate(Path(archive) if archive else None, say)
    print_json(verdicts) if json else print(evaluate.as_text(verdicts))


@task(help={"archive": "folder of a run"})
def report(c: Any, archive: str) -> None:
    """Tables, figures and report.html of an archive."""
    from harness.output import say
    from harness.report.page import report as run

    page = run(Path(archive))
    say("the page to open in a browser:")
    print(page)


@task(iterable=["archive"], help={"archive": "folders of runs", "out": "the .tar.zst to write; needed"})
def pack(c: Any, archive: list[str], out: str | None = None) -> None:
    """The publication bundle, reproducible byte for byte."""
    if not archive:
        raise UsageError("pack needs ARCHIVE", "usage: irr pack ARCHIVE .. --out BUNDLE.tar.zst")
    target = Path(_needed(out, "--out"))
    from harness.archive.pack import run

    print(run([Path(path) for path in archive], target))


@task(help={"folder": "folder with the frames"})
def data(c: Any, folder: str | None = None) -> None:
    """Where real frames come from, their checksums, and what is here."""
    from harness.workload.trajectories import describe

    print(describe(Path(folder) if folder else None))


@task(help={"first": "an archive", "second": "another", "json": JSON})
def compare(c: Any, first: str, second: str, json: bool = False) -> None:
    """Two archives, cell by cell, or a refusal that names what differs."""
    from harness.claims import compare as comparison
    from harness.output import print_json, say

    outcome = comparison.compare(Path(first), Path(second), say)
    print_json(outcome) if json else print(comparison.as_text(outcome))
    refusal = comparison.refusal(outcome)
    if refusal is not None:
        raise IrrError(refusal)


@task(help={"m": "only tests with this marker, as pytest's -m", "args": "more words for pytest"})
def test(c: Any, m: str | None = None, args: str | None = None) -> None:
    """The suite; every further word goes to pytest."""
    ensure_system(("setup", "test"))
    words = shlex.split(args or "")
    if m:
        words = ["-m", m, *words]
    _call([sys.executable, "-m", "pytest", *words])


@task()
def lint(c: Any) -> None:
    """Style, types and layers: ruff, pyright, import-linter, and hadolint where there is a Dockerfile."""
    python = sys.executable
    checks = [
        [python, "-m", "ruff", "check", "."],
        [python, "-m", "ruff", "format", "--check", "."],
        [python, "-m", "pyright"],
        [str(Path(python).with_name("lint-imports"))],
    ]
    if (ROOT / "Dockerfile").exists():
        checks.append([str(Path(python).with_name("hadolint")), "Dockerfile"])
    failed = [Path(words[2] if "-m" in words else words[0]).name for words in checks if _status(words)]
    if failed:
        raise IrrError(f"lint failed: {', '.join(dict.fromkeys(failed))} (said above)")


@task()
def image(c: Any) -> None:
    """Build and try the container here."""
    from harness.image import build_and_try

    print(build_and_try())


def _status(words: list[str]) -> int:
    try:
        return subprocess.run(words, cwd=ROOT).returncode
    except FileNotFoundError:
        raise IrrError(f"{Path(words[0]).name} is not installed", "remove .venv and run ./irr setup") from None


def _call(words: list[str]) -> None:
    """Run a program in the repository; its exit code 0 or 1 is ours, pytest's 'wrong use' (4) is ours too."""
    code = _status(words)
    if code:
        raise Exit("", UsageError.exit_code if code == 4 else 1)
