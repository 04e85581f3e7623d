"""The `irr` program: Invoke with the command line that contract.md promises.

Plain Invoke exits 1 on wrong use, has no optional positional arguments and prints tracebacks; scripts that call irr
rely on its exit codes and on one or two lines of error. Tasks stay ordinary Invoke tasks, so `invoke TASK` works too.
"""

from __future__ import annotations

import difflib
import inspect
import os
import shlex
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

try:
    from invoke.collection import Collection
    from invoke.exceptions import Exit, ParseError, UnexpectedExit
    from invoke.program import Program
except ModuleNotFoundError as error:
    if error.name != "invoke":
        raise
    # IRR_PYTHON's environment is used as it is, and may be without it.
    print(
        f"irr: {sys.executable} has no package 'invoke'\n"
        "  put it there, or its wheel on PYTHONPATH, or run ./irr without IRR_PYTHON",
        file=sys.stderr,
    )
    sys.exit(1)

from harness import __version__
from harness.environment import cache_root, prepare_environment
from harness.errors import IrrError, UsageError

STOPPED_BY_INTERRUPT = 130
STOPPED_BY_TERM = 143
BROKEN_PIPE = 141

CLOSE = 0.7
"""Likeness (difflib's) from which on a word passes for another one mistyped."""

HELP_WIDTH = 100

PASS_THROUGH = {"test": "args"}
"""Tasks whose words all go to another program, as one option."""


Choices: TypeAlias = tuple[str, Callable[[], Iterable[str]]]
"""What an option chooses from: what they are, and their names, asked only for the help."""


def _close(word: str, known: list[str]) -> str:
    """The known word that was meant, where one is close; dashes, which all options begin with, make none close."""
    bare = {name.lstrip("-"): name for name in known}
    match = difflib.get_close_matches(word.lstrip("-"), bare, n=1, cutoff=CLOSE)
    return f"did you mean {bare[match[0]]}? " if match else ""


def canonical(argv: list[str], contexts: dict[str, Any], positionals: dict[str, tuple[str, ...]]) -> list[str]:
    """The words after the program's name as Invoke can parse them.

    Positional arguments become the options of the same name (a name ending in * takes all that are left), so that
    they can be optional and repeated; what is wrong is said here, in one line.

    Args:
        argv: words after the program's name.
        contexts: Invoke's parser context of each task, by name.
        positionals: positional arguments of each task; in brackets: may be left out.

    Raises:
        UsageError: unknown task or option, an option without its value, too few or too many arguments.
    """
    if not argv or argv[0].startswith("-"):
        return argv
    task, words = argv[0], argv[1:]
    if task not in contexts:
        names = sorted(contexts)
        raise UsageError(f"no task is named {task!r}", f"{_close(task, names)}tasks: {', '.join(names)}")
    if task in PASS_THROUGH and not {"--help", "-h"} & set(words):
        # The space keeps Invoke from reading the first word as an option of its own.
        return [task, f"--{PASS_THROUGH[task]}", " " + shlex.join(words)] if words else [task]
    if {"--help", "-h"} & set(words):
        return ["--help", task]

    context = contexts[task]
    flags = sorted(context.flags)
    options: list[str] = []
    given: set[str] = set()
    loose: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            loose += words[at:]
            break
        if not word.startswith("-") or word == "-":
            loose.append(word)
            continue
        name, has_value, value = word.partition("=")
        if name not in context.flags:
            raise UsageError(
                f"{task} has no option {name}", f"{_close(name, flags)}options: {', '.join(flags) or 'none'}"
            )
        argument = context.flags[name]
        if argument.takes_value:
            if not has_value:
                if at == len(words) or words[at] in context.flags:
                    raise UsageError(f"{task}: option {name} needs a value")
                value = words[at]
                at += 1
            if name in given and argument.kind is not list:
                raise UsageError(f"{task}: option {name} is given twice")
            options += [name, value]
        elif has_value:
            raise UsageError(f"{task}: option {name} takes no value")
        else:
            options.append(name)
        given.add(name)

    wanted = positionals.get(task, ())
    for place in wanted:
        optional, name = place.startswith("["), place.strip("[]*")
        flag = f"--{name}"
        if flag in given:
            continue
        taken = loose[:] if "*" in place else loose[:1]
        loose = loose[len(taken) :]
        if not taken and not optional:
            raise UsageError(f"{task} needs {name.upper()}", f"usage: irr {task} {usage(wanted)}".rstrip())
        for value in taken:
            options += [flag, value]
    if loose:
        raise UsageError(f"{task} takes no argument {loose[0]!r}", f"usage: irr {task} {usage(wanted)}".rstrip())
    return [task, *options]


def usage(places: tuple[str, ...]) -> str:
    """Positional arguments as a usage line names them."""
    shown = []
    for place in places:
        name = place.strip("[]*").upper() + (" .." if "*" in place else "")
        shown.append(f"[{name}]" if place.startswith("[") else name)
    return " ".join([*shown, "[options]"])


def _stop(signum: int, frame: Any) -> NoReturn:
    # SystemExit unwinds like Ctrl-C does, so that a run closes its journal and stays resumable.
    raise SystemExit(STOPPED_BY_TERM)


class IrrProgram(Program):
    """Invoke's Program with our exit codes and messages."""

    def __init__(self, tasks_module: Any) -> None:
        self.all_tasks = Collection.from_module(tasks_module)
        self.positionals: dict[str, tuple[str, ...]] = tasks_module.POSITIONALS
        self.values: dict[str, str] = tasks_module.VALUES
        self.choices: dict[str, Choices] = tasks_module.CHOICES
        # Asked once, here: a task hands its help texts out only once.
        self.contexts = {str(context.name): context for context in self.all_tasks.to_contexts()}
        super().__init__(version=__version__, namespace=self.all_tasks, name="irr", binary="irr")

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:
        """Run one task; see contract for the exit codes."""
        code = self.main(sys.argv if argv is None else argv)
        if exit:
            sys.exit(code)

    def main(self, argv: list[str]) -> int:
        """Run one task and return its exit code; errors are printed."""
        try:
            try:
                return self._work(argv)
            finally:
                # Here, not at interpreter exit, where a closed pipe can no longer be handled.
                sys.stdout.flush()
        except IrrError as error:
            _complain(str(error))
            return error.exit_code
        except ParseError as error:
            _complain(str(error).splitlines()[0])
            return UsageError.exit_code
        except Exit as error:
            if error.message:
                _complain(error.message)
            return error.code
        except UnexpectedExit as error:
            _complain(f"{error.result.command.split()[0]} failed with exit code {error.result.exited}")
            return 1
        except KeyboardInterrupt:
            _complain("stopped")
            return STOPPED_BY_INTERRUPT
        except SystemExit as error:
            if error.code == STOPPED_BY_TERM:
                _complain("stopped by SIGTERM")
            return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        except BrokenPipeError:
            # The reader has gone (`irr claims | head`): nothing to report, and nobody to report it to.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except Exception as error:
            _complain(_unexpected(error))
            return 1

    def _work(self, argv: list[str]) -> int:
        self.create_config()
        self.parse_core([argv[0], *canonical(list(argv[1:]), self.contexts, self.positionals)])
        self.parse_collection()
        self.parse_tasks()
        self.parse_cleanup()
        self.update_config()
        self.execute()
        return 0

    def print_help(self) -> None:
        """What there is, without Invoke's own options, which nobody needs here."""
        print("Usage: irr TASK [options]        irr TASK --help        irr --version\n")
        for name in self.all_tasks.task_names:
            summary = (self.all_tasks[name].__doc__ or "").strip().splitlines()[0]
            print(f"  {name:<10} {summary}")
        print("\nExit codes: 0 done, 1 a check failed or something is missing, 2 wrong use, 3 done but data was lost.")

    def print_task_help(self, name: str) -> None:
        """A task's usage, its text and its options."""
        wanted = self.positionals.get(name, ())
        places = {place.strip("[]*") for place in wanted}
        arguments = self.contexts[name].args
        words = usage(wanted) if set(arguments) - places else usage(wanted).removesuffix("[options]")
        print(f"Usage: irr {name} {words}".rstrip())
        for paragraph in inspect.cleandoc(self.all_tasks[name].__doc__ or "").split("\n\n"):
            print()
            _print_wrapped("", paragraph)
        rows = []
        for option, argument in arguments.items():
            text = argument.help or ""
            if option in places:
                rows.append((option.upper(), text))
                continue
            value = self.values.get(option, option.upper())
            # Invoke has a placeholder of its own where a list has no default.
            given = (
                f" (default: {argument.default})" if argument.takes_value and isinstance(argument.default, str) else ""
            )
            rows.append((f"--{option} {value}" if argument.takes_value else f"--{option}", text + given))
        wide = max((len(shown) for shown, _ in rows), default=0)
        if rows:
            print()
        for shown, text in rows:
            _print_wrapped(f"  {shown:<{wide}}  ", text)
        for option, (what, names) in self.choices.items():
            if option in arguments:
                print()
                _print_wrapped(f"{what}: ", ", ".join(names()))


def _print_wrapped(start: str, text: str) -> None:
    """Text behind a start, further lines below where it began."""
    indent = " " * len(start)
    print(textwrap.fill(start + text, HELP_WIDTH, subsequent_indent=indent, break_on_hyphens=False) or start.rstrip())


def _complain(text: str) -> None:
    print(f"irr: {text}", file=sys.stderr, flush=True)


def _unexpected(error: Exception) -> str:
    """Two lines for a mistake of ours (or a full disk): what and where; the traceback goes to a file."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("harness."):
        return f"this checkout has no {error.name}: the task is not written yet, or a file is missing (git status)"
    if isinstance(error, ModuleNotFoundError):
        cure = "run ./irr without IRR_PYTHON, or install it there"
        return f"package {error.name!r} is missing in {sys.executable}\n  {cure}"
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    what = f"{what} (at {Path(where.filename).name}:{where.lineno})"
    try:
        path = cache_root() / f"error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except (OSError, IrrError):
        return what
    return f"{what}\n  the details are in {path}"


def make_program() -> IrrProgram:
    """The program with the tasks of tasks.py."""
    import tasks

    return IrrProgram(tasks)


def main() -> None:
    """Entry point of `irr`, and of `invoke` in the image."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        prepare_environment()
    except IrrError as error:
        _complain(str(error))
        sys.exit(error.exit_code)
    make_program().run()


if __name__ == "__main__":
    main()
