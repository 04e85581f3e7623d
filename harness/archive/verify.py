"""The raw part of `verify`: every byte under raw/ is what SHA256SUMS says, and every file fits the schema."""

from __future__ import annotations

from pathlib import Path

from harness.archive.complete import missing, unjudged
from harness.archive.files import check_sums
from harness.archive.read import Archive, load
from harness.archive.schema import CSV_FILES, KERNEL_STATUSES
from harness.errors import IrrError


def check_schema(archive: Archive) -> list[str]:
    """What does not fit: files, references between them, values without a reason."""
    problems: list[str] = []
    run, samples = archive.run, archive.samples
    for needed in ("fingerprint.json", "gates.json", "samples.csv"):
        if f"raw/{needed}" not in archive.files:
            problems.append(f"raw/{needed} is missing")
    known = {(p.number, p.device_uuid) for p in run.passes}
    if len(known) != len(run.passes):
        problems.append("raw/run.json: a pass stands twice")
    for (number, uuid), _ in samples.groupby(["pass", "device_uuid"]):
        if (number, uuid) not in known:
            problems.append(f"raw/samples.csv: pass {number} on {str(uuid)[:60]} is not in run.json")
    problems += [
        f"raw/samples.csv: cell {cell[:60]} is not in run.json"
        for cell in sorted(set(samples["cell"]))
        if cell.split("+")[0] not in run.cells and cell not in run.cells
    ]
    twice = samples.duplicated(["pass", "device_uuid", "cell", "kernel", "launch", "table", "l2", "load", "round"])
    if twice.any():
        problems.append(
            f"raw/samples.csv line {int(twice.to_numpy().argmax()) + 2}: this kernel stands twice in one round"
        )
    explained = {null.field.split(".")[-1] for null in run.nulls} | {null.field for null in run.nulls}
    timed = samples[samples["status"].isin(("ok", "lossy"))]
    for column in CSV_FILES["samples.csv"]:
        if column.nullable and timed[column.name].isna().any() and column.name not in explained:
            problems.append(f"raw/samples.csv: {column.name} is empty and run.json's nulls do not say why")
    for status in {s.status for s in run.skipped} - set(KERNEL_STATUSES):
        problems.append(f"raw/run.json: {status[:40]!r} is no status of a kernel")
    # A program of the contraction study has no volume; what it computed stands in the comparison of its images.
    judged = bool(archive.gates) or (run.study == "fma" and "fma.images" in archive.evidence)
    if run.gpu and len(timed) and not judged:
        problems.append("raw/gates.json is empty although kernels were timed")
    else:
        problems += unjudged(archive)
    problems += missing(archive)
    for (arch, kernel), manifest in archive.manifests.items():
        # The atomics of cuda-oxide fail to lower before the fix of patches/: a manifest without it is another program.
        fixed = (manifest.get("compiler") or {}).get("contains_fix") is True
        if kernel.startswith("rust-oxide/") and manifest.get("status") == "ok" and not fixed:
            problems.append(f"raw/builds/sm_{arch}: {kernel} was built without the atomic lowering of patches/")
    _ = archive.telemetry, archive.counters
    return problems


def check_raw(root: Path) -> tuple[Archive | None, list[str]]:
    """The archive, where it can be loaded, and everything wrong with its raw part, one short sentence each."""
    try:
        problems = check_sums(root)
    except IrrError as error:
        problems = [error.what]
    try:
        archive = load(root, unchecked=True)
        return archive, [*dict.fromkeys([*problems, *check_schema(archive)])]  # a missing file is both's to say
    except IrrError as error:
        return None, [*dict.fromkeys([*problems, error.what])]  # a link hinders both


def check_new(root: Path) -> list[str]:
    """What is wrong with a run that has just been archived: its raw part, then its red gates, one sentence each."""
    archive, problems = check_raw(root)
    red = [gate for gate in archive.gates if gate.failed] if archive else []
    return [*problems, *(f"gate {gate.gate} of {gate.subject}: {gate.message}" for gate in red)]
