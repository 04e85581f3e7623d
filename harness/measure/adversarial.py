"""The adversarial cases on a GPU, once a run: an interpreter or a host library is no proof for what a GPU does.

    python -m harness.measure.adversarial BUILD ARMS GATES.json UUID PARENT

The first visible GPU runs every arm of the comma-separated ARMS on the cases of harness/workload/adversarial.py, each
under a deadline, through the gates that `irr gate` runs; rows of gates.json go to GATES.json.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from harness.archive.schema import gate_record
from harness.archive.write import write_whole
from harness.build.kernels import ARMS
from harness.gates.result import GateResult
from harness.gates.run import GpuPlace, run_gates
from harness.measure.heartbeat import die_with
from harness.workload.adversarial import adversarial_cases


def row(result: GateResult, uuid: str) -> dict[str, Any]:
    """A row of gates.json; what no arm made (the oracle's own counts) is the host's."""
    arm, _, cell = result.subject.partition(" on ")
    ran = arm.split(" against ")[0] in ARMS
    record = gate_record(
        result.to_json(),
        arm=arm,
        place="gpu" if ran else "host",
        cell=cell,
        when="before",
        pass_number=None,
        device_uuid=uuid if ran else None,
    )
    if record.ok:
        record.message = ""  # "n compared" stands in `compared` already
    return msgspec.to_builtins(record)


def judge(build: Path, arms: str, uuid: str) -> list[dict[str, Any]]:
    """Rows of gates.json of the arms on every case."""
    results = run_gates(arms, ",".join(adversarial_cases()), places=[GpuPlace(build)])
    return [row(result, uuid) for result in results]


def main(words: list[str]) -> None:
    build, arms, target, uuid, parent = words
    die_with(int(parent))
    write_whole(Path(target), msgspec.json.encode(judge(Path(build), arms, uuid)))
    # An arm that hung holds a thread in the driver, which an ordinary exit would wait for.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
