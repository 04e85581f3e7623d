"""What all tests share."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.environment import ROOT, prepare_environment

# As the program does at its start: no test may depend on a HOME that happens to be writable.
prepare_environment()


def _has_gpu() -> bool:
    # The driver's own count, asked without initialising CuPy in the process that collects the tests.
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return library.cuInit(0) == 0 and library.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked gpu are skipped, with the reason, where there is none."""
    wanted = [item for item in items if item.get_closest_marker("gpu")]
    if wanted and not _has_gpu():
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def irr() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `irr WORDS` in a process of its own, as a user would, in this test's environment."""

    def run(*words: str, timeout: float = 120, **options: object) -> subprocess.CompletedProcess[str]:
        options.setdefault("cwd", ROOT)
        command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import harness.cli"]
        command[-1] += "; sys.argv = ['irr', *sys.argv[1:]]; harness.cli.main()"
        return subprocess.run(
            [*command, *words], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, **options
        )

    return run
