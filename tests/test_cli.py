"""The command line that scripts rely on: exit codes, one or two lines of error, strict JSON, signals."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from invoke.collection import Collection

import tasks
from harness import cli, output
from harness.build import build
from harness.build.kernels import ARCHITECTURES, ARMS, KERNELS
from harness.build.manifest import Manifest
from harness.build.toolchain import Toolkit, find_toolkit, known_architectures
from harness.environment import ROOT
from harness.errors import DataLost, IrrError, UsageError
from harness.measure.plan import PASSES
from harness.measure.studies import STUDIES
from harness.workload.cells import load_cells

TASKS = [
    *("setup", "doctor", "build", "gate", "reproduce", "resume", "fuse", "mesh", "fma", "counters", "verify", "claims"),
    *("report", "pack", "data", "compare", "test", "lint", "image"),
]
# Once: a task hands its help texts out only once.
PROGRAM = cli.make_program()
CONTEXTS = PROGRAM.contexts


@pytest.fixture
def contexts():
    return CONTEXTS


def words(line: str, contexts) -> list[str]:
    return cli.canonical(line.split(), contexts, tasks.POSITIONALS)


@pytest.mark.smoke
def test_every_task_of_the_contract_is_there(contexts):
    assert sorted(contexts) == sorted(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_and_option_says_what_it_is(name, contexts):
    task = Collection.from_module(tasks)[name]
    assert task.__doc__
    assert all(text for _, text in contexts[name].help_tuples())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fuse p.npz --arm cpu", "fuse --arm cpu --points p.npz"),
        ("fuse --arm=cpu p.npz --interpret", "fuse --arm cpu --interpret --points p.npz"),
        ("fuse --points p.npz --arm cpu", "fuse --points p.npz --arm cpu"),
        ("data", "data"),
        ("data frames", "data --folder frames"),
        ("pack a b --out c.tar.zst", "pack --out c.tar.zst --archive a --archive b"),
        ("compare a b", "compare --first a --second b"),
        ("build --arch 80 --arch 90", "build --arch 80 --arch 90"),
        ("verify -- -odd-name", "verify --archive -odd-name"),
        ("fuse --help", "--help fuse"),
        ("test --help", "--help test"),
        ("--version", "--version"),
        ("", ""),
    ],
)
def test_positional_arguments_become_options(line, expected, contexts):
    assert words(line, contexts) == expected.split()


def test_words_after_test_reach_pytest_as_they_are(contexts):
    given = ["test", "-m", "smoke", "-k", "a and b", "tests/test_cli.py"]
    task, option, value = cli.canonical(given, contexts, tasks.POSITIONALS)
    assert (task, option) == ("test", "--args")
    assert cli.shlex.split(value) == given[1:]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("reproduc", "did you mean reproduce?"),
        ("fuse", "fuse needs POINTS"),
        ("compare a", "compare needs SECOND"),
        ("pack --out b.tar.zst", "pack needs ARCHIVE"),
        ("mesh a b", "mesh takes no argument 'b'"),
        ("setup now", "setup takes no argument 'now'"),
        ("build gate", "build takes no argument 'gate'"),
        ("reproduce --quik", "did you mean --quick?"),
        ("fuse p --depth_scale 5", "did you mean --depth-scale?"),
        ("reproduce -q", "reproduce has no option -q"),
        ("reproduce --quick=yes", "takes no value"),
        ("fuse p --arm", "--arm needs a value"),
        ("fuse p --arm --out", "--arm needs a value"),
        ("fuse p --arm a --arm b", "--arm is given twice"),
    ],
)
def test_wrong_use_is_said_in_one_message(line, message, contexts):
    with pytest.raises(UsageError) as caught:
        words(line, contexts)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize("line", ["fuse --bogus", "reproduce --x", "bogus", "mesh --o"])
def test_nothing_is_suggested_that_is_not_close(line, contexts):
    """`--bogus` was answered with `--out`: two dashes are half of a short word."""
    with pytest.raises(UsageError) as caught:
        words(line, contexts)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--voxel nan", "--voxel nan: a finite number above 0 is needed"),
        ("--voxel -1", "--voxel -1: a finite number above 0 is needed"),
        ("--voxel 0", "--voxel 0: a finite number above 0 is needed"),
        ("--voxel inf", "--voxel inf: a finite number above 0 is needed"),
        ("--cap -1", "--cap -1: a finite number of at least 0 is needed"),
        ("--pool 0", "--pool 0: a whole number of at least 1 is needed"),
        ("--stride 1.5", "--stride 1.5: a whole number of at least 1 is needed"),
        ("--depth-scale 0", "--depth-scale 0: a finite number above 0 is needed"),
        ("--depth-max 0", "--depth-max 0: a finite number above 0 is needed"),
    ],
)
def test_a_number_that_is_refused_is_told_what_would_do(options, message, capsys):
    assert PROGRAM.main(f"irr fuse p.npz --arm cpu --out v.npz {options}".split()) == 2
    assert capsys.readouterr().err == f"irr: {message}\n"


def shown(task: str, capsys) -> str:
    assert PROGRAM.main(["irr", task, "--help"]) == 0
    return capsys.readouterr().out


def test_help_shows_defaults_and_names_values(capsys):
    text = shown("fuse", capsys)
    assert "--voxel METRES" in text and "(default: 0.01)" in text and "STRING" not in text
    assert "(default: 4096)" in shown("fma", capsys) and "archived in" in shown("fma", capsys)
    assert f"{PASSES} where it is left out" in shown("reproduce", capsys)
    assert shown("lint", capsys).startswith("Usage: irr lint\n")
    assert shown("data", capsys).startswith("Usage: irr data [FOLDER]\n")


@pytest.mark.parametrize("name", TASKS)
def test_help_fits_and_shows_no_placeholder(name, capsys):
    text = shown(name, capsys)
    assert "inspect" not in text and "None" not in text
    assert max(map(len, text.splitlines())) <= cli.HELP_WIDTH


def test_help_lists_what_there_is_to_choose_from(capsys):
    """From the tables themselves: an arm, a cell or a study that is added is in the help."""
    fuse, reproduce = (" ".join(shown(task, capsys).split()) for task in ("fuse", "reproduce"))
    fusing = [arm.name for arm in ARMS.values() if arm.allocate is not None]
    assert fuse.endswith(f"arms: {', '.join(fusing)}")
    assert f"arms: {', '.join(ARMS)} cells: {', '.join(load_cells())} studies: {', '.join(STUDIES)}" in reproduce
    assert set(tasks.CHOICES) <= {option for context in CONTEXTS.values() for option in context.args}
    assert set(tasks.VALUES) <= {option for context in CONTEXTS.values() for option in context.args}


@pytest.mark.parametrize(
    "line",
    [
        "nothing",
        "--nothing",
        "fuse",
        "fuse p.npz --out v.npz",
        "fuse p.npz --arm cpu",
        "fuse p.npz --arm cpu --out v.npz --table 1000",
        "fuse p.npz --arm cpu --out v.npz --table 0",
        "fuse p.npz --arm cpu --out v.npz --pool 0",
        "fuse p.npz --arm cpu --out v.npz --voxel 0",
        "fuse p.npz --arm cpu --out v.npz --voxel nan",
        "fuse p.npz --arm cpu --out v.npz --cap -1",
        "mesh v.npz",
        "build --arch ninety",
        "reproduce --passes 0",
        "reproduce --passes 1.5",
        "pack a",
        "test --no-such-option",
        "--help nothing",
    ],
)
def test_wrong_use_exits_2_with_one_or_two_lines(line, irr, monkeypatch):
    monkeypatch.setenv("IRR_NO_SYSTEM", "1")
    done = irr(*line.split())
    assert done.returncode == 2, done.stderr
    if not line.startswith("test"):  # pytest's own words there
        assert done.stdout == ""
        assert 1 <= len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", ["", "--help", "--version", "--help fuse", "fuse --help", "doctor"])
def test_help_and_doctor_exit_0(line, irr):
    done = irr(*line.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout


def run_body(body: str, irr=None, **options) -> subprocess.CompletedProcess[str]:
    """Run the program with `doctor` in place of its own body."""
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import harness.doctor
from harness import cli, output
from harness.errors import *
def examine():
{textwrap.indent(textwrap.dedent(body), "    ")}
harness.doctor.examine = examine
sys.argv = ["irr", "doctor", "--json"]
cli.main()
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize(
    ("body", "code", "lines"),
    [
        ("raise IrrError('what', 'cure')", 1, ["irr: what", "  cure"]),
        ("raise UsageError('what')", 2, ["irr: what"]),
        ("raise DataLost('blocks were lost')", 3, ["irr: blocks were lost"]),
        ("raise KeyboardInterrupt", 130, ["irr: stopped"]),
        (
            "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
            143,
            ["irr: stopped by SIGTERM"],
        ),
        ("import no_such_package", 1, None),
        ("return {'a': float('nan')}", 1, None),
        ("raise OSError(28, 'No space left on device')", 1, None),
    ],
)
def test_failures_become_exit_codes_without_traceback(body, code, lines):
    done = run_body(body)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 2
    if lines is not None:
        assert done.stderr.splitlines() == lines


def test_a_mistake_of_ours_names_the_place_and_keeps_the_traceback(tmp_path):
    done = run_body("raise RuntimeError('odd')", env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    first, second = done.stderr.splitlines()
    assert first.startswith("irr: RuntimeError: odd (at ")
    assert "Traceback" in Path(second.split()[-1]).read_text(encoding="utf-8")


def test_a_reader_that_leaves_is_no_error():
    read, write = os.pipe()
    os.close(read)
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import harness.cli; sys.argv = ['irr', '--help']"
    code += "; harness.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == ""


def test_json_is_strict(capsys):
    output.print_json({"a": [1, None, "ü"]})
    assert json.loads(capsys.readouterr().out) == {"a": [1, None, "ü"]}
    with pytest.raises(ValueError):
        output.print_json({"a": math.inf})


def test_doctor_json_is_one_document(irr):
    done = irr("doctor", "--json")
    assert done.returncode == 0, done.stderr

    def refuse(name: str) -> None:
        raise AssertionError(name)

    document = json.loads(done.stdout, parse_constant=refuse)
    assert {"tools", "devices", "problems"} <= document.keys()


def test_plain_invoke_runs_the_tasks_too(tmp_path):
    invoke = [sys.executable, "-m", "invoke", "--search-root", str(ROOT)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    listed = subprocess.run([*invoke, "--list"], capture_output=True, text=True, timeout=60, env=env, cwd=tmp_path)
    assert listed.returncode == 0
    assert all(name in listed.stdout for name in TASKS)
    words = ["fuse", "p.npz", "--arm", "cpu", "--out", "v.npz", "--table", "1000"]
    failed = subprocess.run([*invoke, *words], capture_output=True, text=True, timeout=60, env=env, cwd=tmp_path)
    assert failed.returncode == UsageError.exit_code
    assert failed.stderr.strip() == "--table 1000: a power of two is needed"


def test_exit_codes_of_the_contract():
    assert (IrrError.exit_code, UsageError.exit_code, DataLost.exit_code) == (1, 2, 3)
    assert (cli.STOPPED_BY_INTERRUPT, cli.STOPPED_BY_TERM) == (130, 143)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], None), (["90"], [90]), (["sm_90"], [90]), (["80,90", "80"], [80, 90])],
)
def test_architectures(values, expected):
    assert tasks._architectures(values) == expected


# --- what a build says ------------------------------------------------------------------------------------------------


@pytest.fixture
def toolkit() -> Toolkit:
    try:
        return find_toolkit()
    except IrrError as error:
        pytest.skip(error.what)


def test_an_architecture_that_nobody_knows_is_named_at_once(irr, toolkit):
    done = irr("build", "--arch", "999")
    assert done.returncode == UsageError.exit_code and done.stdout == ""
    known = known_architectures(toolkit.nvcc)
    assert done.stderr.splitlines() == [
        f"irr: --arch 999: nvcc {toolkit.version} does not know sm_999",
        f"  it knows {', '.join(map(str, known))}",
    ]
    assert set(ARCHITECTURES) <= set(known)
    build.check_architectures(ARCHITECTURES)


def test_a_reason_names_the_architectures_it_is_about():
    def manifest(arch: int) -> Manifest:
        job = build.Job(KERNELS["cuda/allocate/plain"], arch)
        return build._blank(job, "", "toolchain-unsupported", f"nvcc does not know sm_{arch}")

    assert build._reasons([manifest(150)])[0].endswith("(sm_150): nvcc does not know sm_150")
    (line,) = build._reasons([manifest(150), manifest(151)])
    assert line.endswith("(sm_150, sm_151): nvcc does not know sm_150/sm_151")


@pytest.mark.usefixtures("toolkit")
def test_a_build_tells_how_far_it_is(tmp_path, capsys, monkeypatch):
    """Lines as it goes, the first one at once and not a blank one; nothing on stdout; nothing to tell the second time
    but that nothing was to be done."""
    monkeypatch.setattr(build, "SAY_S", 0.0)
    arms = "cuda/floor/null,cuda/floor/geometry"
    build.build_all([90], arms, build=tmp_path, workers=1)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[:3] == [
        "irr: building 2 kernels",
        "irr: building: 0 of 2 done, now sm_90 cuda/floor/null",
        "irr: building: 1 of 2 done, now sm_90 cuda/floor/geometry",
    ]
    build.build_all([90], arms, build=tmp_path)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("irr: 0 kernels built, 2 up to date")


def test_the_time_left_of_a_build_is_that_of_its_kernels(monkeypatch):
    now = 100.0
    monkeypatch.setattr(build.time, "monotonic", lambda: now)
    told = build._Progress(12, quiet=True)
    now += 40
    for done, words in [(2, ""), (4, "about 80 s left, "), (12, "")]:
        told.done = done
        assert told.left() == words
    told.done, now = 3, 400.0
    assert told.left() == "about 15 min left, "
