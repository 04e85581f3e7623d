"""Tools that watch a process from outside: compute-sanitizer before the passes, Nsight Compute after them.

Both run in a process of their own on one device, never while anything is timed. A tool that is absent, or that may not
read the device, is a reason in the archive and no failure.
"""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from harness.archive.schema import Gate
from harness.build.toolchain import find_tool
from harness.device.identity import child_environment
from harness.environment import ROOT
from harness.measure.single import SMALL, Orders

SANITIZERS = ("memcheck", "initcheck", "synccheck")
ADVERSARIAL_S, SANITIZER_S, PROCESS_S, COUNTERS_S = 180.0, 300.0, 60.0, 400.0
"""Limits: the adversarial cases, all sanitizers together, one process under one, and one cell under Nsight Compute. On
an H200 a process of one kernel took about 1.5 s, and 57 kernels were counted in 8 s."""
FOUND = 86
"""Exit code that compute-sanitizer is told to use for findings."""

METRICS: tuple[str, ...] = (
    "gpu__time_duration.sum",
    "l1tex__t_sector_hit_rate.pct",
    "l1tex__t_sectors.sum",
    "lts__t_sectors.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sectors_op_atom.sum",
    "lts__t_sectors_op_red.sum",
    "dram__bytes.sum",
    "smsp__inst_executed.sum",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__registers_per_thread",
)
"""Read of every kernel; the claims ask for the first, second, fourth and the long scoreboard."""

COUNTED_CELLS = ("base", "lf-918")


@dataclass
class ToolRun:
    """What a tool left: gates, counters, and reasons where it could not work."""

    gates: list[dict[str, Any]] = field(default_factory=list)
    counters: list[dict[str, Any]] = field(default_factory=list)
    flags: list[dict[str, str]] = field(default_factory=list)


class ToolStopped(Exception):
    """The run is being stopped."""


def run_tool(
    command: Sequence[str], environment: dict[str, str], seconds: float, stop: threading.Event
) -> tuple[int, str]:
    """(exit code, output) of a tool; -9 where it did not end in time.

    Raises:
        ToolStopped: the run is stopping; the tool was killed.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        end = time.monotonic() + seconds
        try:
            while process.poll() is None:
                if stop.is_set():
                    raise ToolStopped
                if time.monotonic() > end:
                    break
                time.sleep(0.05)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        return process.returncode, output.read().decode("utf-8", "replace")


def _environment(uuid: str) -> dict[str, str]:
    environment = child_environment(os.environ, uuid)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
    return environment


def _orders(folder: Path, orders: Orders) -> str:
    path = folder / "orders.json"
    path.write_bytes(msgspec.json.encode(orders))
    return str(path)


def _inner(path: str) -> list[str]:
    return [sys.executable, "-m", "harness.measure.single", path]


def absent(tool: str) -> dict[str, str]:
    return {"what": tool, "why": f"{tool} is not on this machine"}


# ---------------------------------------------------------------------------------------------------- adversarial cases


def judge_adversarial(uuid: str, build: str, arms: Sequence[str], stop: threading.Event) -> ToolRun:
    """Every arm on the adversarial cases (harness/measure/adversarial.py)."""
    found = ToolRun()
    with tempfile.TemporaryDirectory(prefix="irr-adversarial-") as folder:
        gates = Path(folder) / "gates.json"
        words = [build, ",".join(arms), str(gates), uuid, str(os.getpid())]
        command = [sys.executable, "-m", "harness.measure.adversarial", *words]
        code, text = run_tool(command, _environment(uuid), ADVERSARIAL_S, stop)
        if gates.exists():
            found.gates = msgspec.json.decode(gates.read_bytes())
        else:
            found.flags.append({"what": "adversarial cases", "why": f"not judged: {last_words(text, code)}"})
    return found


# ---------------------------------------------------------------------------------------------------------- sanitizers


def sanitize(
    uuid: str,
    build: str,
    kernels: Sequence[str],
    stop: threading.Event,
    tools: Sequence[str] = SANITIZERS,
    seconds: float = SANITIZER_S,
) -> ToolRun:
    """Every kernel on a small cell under each sanitizer.

    All kernels share one process a tool; where it finds something, or does not come to its end, the kernels are halved
    until each finding has a name.

    Args:
        seconds: for all tools together; what is not judged by then is a reason in the archive.
    """
    found = ToolRun()
    program = find_tool("compute-sanitizer")
    if program is None:
        found.flags.append(absent("compute-sanitizer"))
        return found
    end = time.monotonic() + seconds

    def go(tool: str, names: Sequence[str]) -> tuple[int, str]:
        with tempfile.TemporaryDirectory(prefix="irr-sanitizer-") as folder:
            orders = Orders(uuid=uuid, build=build, cell=SMALL, kernels=list(names), parent=os.getpid())
            options = ["--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "3"]
            if tool == "memcheck":  # the end of a parameter list is told by an error of cuFuncGetParamInfo
                options += ["--report-api-errors", "no"]
            command = [str(program), *options, *_inner(_orders(Path(folder), orders))]
            return run_tool(command, _environment(uuid), min(PROCESS_S, end - time.monotonic()), stop)

    for tool in tools:
        what = f"compute-sanitizer {tool}"
        late: list[str] = []
        groups = [list(kernels)] if kernels else []
        while groups:
            names = groups.pop(0)
            if time.monotonic() > end:
                late += names
                continue
            code, text = go(tool, names)
            if len(names) == 1 and code not in (0, FOUND):
                found.flags.append(
                    {"what": f"{what} on {names[0]}", "why": f"could not work: {last_words(text, code)}"}
                )
            elif code == 0 or len(names) == 1:
                found.gates += [sanitizer_gate(tool, name, code, text, uuid) for name in names]
            elif code != FOUND and len(names) == len(kernels) and go(tool, names[:1])[0] not in (0, FOUND):
                found.flags.append({"what": what, "why": f"could not work: {last_words(text, code)}"})
            else:
                half = len(names) // 2
                groups[:0] = [names[:half], names[half:]]
        if late:
            why = f"the limit of {seconds:g} s for all sanitizers passed before: {', '.join(late)}"
            found.flags.append(
                {"what": f"{what} judged {len(kernels) - len(late)} of {len(kernels)} kernels", "why": why}
            )
    return found


def sanitizer_gate(tool: str, kernel: str, code: int, text: str, uuid: str) -> dict[str, Any]:
    """A row of gates.json; a kernel that was never launched has not passed."""
    launched = sum(line.strip() == kernel for line in text.splitlines())
    message = "" if code == 0 and launched else findings(text) or last_words(text, code)
    gate = Gate(
        gate=tool,
        tier="sanitizer",
        subject=f"{kernel} on {SMALL}",
        ok=code == 0 and launched > 0,
        compared=launched,
        message=message,
        arm=kernel,
        place="gpu",
        cell=SMALL,
        when="before",
        device_uuid=uuid,
    )
    return msgspec.to_builtins(gate)


def findings(text: str) -> str:
    """The first finding and the count, from compute-sanitizer's words."""
    lines = [line.removeprefix("=========").strip() for line in text.splitlines() if line.startswith("=========")]
    first = next((line for line in lines if line and not line.startswith("COMPUTE-SANITIZER")), "")
    count = next((line for line in lines if line.startswith("ERROR SUMMARY")), "")
    return "; ".join(part for part in (first, count) if part)


def last_words(text: str, code: int) -> str:
    lines = [line.removeprefix("=========").strip() for line in text.splitlines() if line.strip("= \t")]
    return f"{lines[-1] if lines else 'no output'} (exit {code})" if code != -9 else "it did not end in time"


# ------------------------------------------------------------------------------------------------------------ counters


def count(uuid: str, build: str, kernels: Mapping[str, Sequence[str]], stop: threading.Event) -> ToolRun:
    """Nsight Compute's metrics of single launches; clocks stay as they are.

    Args:
        kernels: by cell.
    """
    found = ToolRun()
    program = find_tool("ncu")
    if program is None:
        found.flags.append(absent("ncu"))
        return found
    for cell, names in kernels.items():
        with tempfile.TemporaryDirectory(prefix="irr-ncu-") as folder:
            orders = Orders(uuid=uuid, build=build, cell=cell, kernels=list(names), parent=os.getpid(), profile=True)
            log = Path(folder) / "ncu.csv"
            command = [
                str(program),
                *("--clock-control", "none", "--profile-from-start", "off", "--metrics", ",".join(METRICS)),
                *("--csv", "--print-units", "base", "--log-file", str(log)),
                *_inner(_orders(Path(folder), orders)),
            ]
            code, text = run_tool(command, _environment(uuid), COUNTERS_S, stop)
            words = log.read_text(errors="replace") if log.exists() else ""
        rows, why = parse_counters(words, names, cell, uuid)
        found.counters += rows
        if code != 0 or why:
            refused = next((line for line in (words + text).splitlines() if "ERR_NVGPUCTRPERM" in line), None)
            reason = refused or why or last_words(words + text, code)
            found.flags.append({"what": f"ncu on {cell}", "why": reason.removeprefix("==ERROR==").strip()})
    if found.counters:
        found.flags.append({"what": "ncu --clock-control none", "why": "clocks were left as they are"})
    return found


def parse_counters(text: str, kernels: Sequence[str], cell: str, uuid: str) -> tuple[list[dict[str, Any]], str | None]:
    """(rows of counters.csv, what is wrong) from Nsight Compute's CSV: the n-th launch is the n-th kernel.

    A metric without a number (`n/a`, an unknown name) is a row without a value.
    """
    start = text.find('"ID"')
    if start < 0:
        return [], "Nsight Compute printed no table"
    rows: list[dict[str, Any]] = []
    launches: dict[str, int] = {}
    for line in csv.DictReader(io.StringIO(text[start:])):
        number, metric = line.get("ID"), line.get("Metric Name")
        if not number or not number.isdigit() or not metric:
            continue
        place = launches.setdefault(number, len(launches))
        if place >= len(kernels):
            continue
        value = (line.get("Metric Value") or "").replace(",", "")
        rows.append(
            {
                "device_uuid": uuid,
                "cell": cell,
                "kernel": kernels[place],
                "metric": metric,
                "unit": line.get("Metric Unit") or "",
                "value": float(value) if re.fullmatch(r"-?\d+(\.\d+)?(e[-+]?\d+)?", value, re.I) else None,
            }
        )
    if len(launches) != len(kernels):
        return rows, f"{len(launches)} of {len(kernels)} launches were profiled"
    return rows, None
