"""The README's answer, made from results/: what stands between its markers, and nothing there is written by hand.

python -m harness.report.readme     rewrites the block (tests/test_readme.py fails where it is not what results/ say)
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from harness.archive.files import MIB
from harness.archive.read import Archive, find, load
from harness.claims.evaluate import RESULTS, verdicts
from harness.claims.registry import View
from harness.errors import IrrError
from harness.report.answer import sentences, tally
from harness.report.figures import count
from harness.report.tables import markdown_text
from harness.workload.cells import load_cells

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- answer:begin -->", "<!-- answer:end -->"
NONE = (
    "No run on a GPU is archived in `results/` yet, so there is no answer to give here. This block is made from the "
    "archives and will hold it."
)
WORDS = {
    "reproduced": "holds", "differs": "another figure", "refuted": "does not hold", "undecided": "not decided",
    "needs-gpu": "needs a GPU", "needs-two-gpus": "needs more or other GPUs", "needs-data": "needs real frames",
    "needs-toolchain": "needs a toolchain",
}  # fmt: skip


def minutes(archive: Archive) -> float | None:
    """How long the passes took, from the first one's start to the last one's end; None where one did not end."""
    begun = [entry.started_utc for entry in archive.run.passes]
    ended = [entry.ended_utc for entry in archive.run.passes if entry.ended_utc]
    if not begun or len(ended) < len(begun):
        return None
    try:
        first, last = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (min(begun), max(ended)))
    except ValueError:
        return None
    return (last - first).total_seconds() / 60


def mebibytes(archive: Archive) -> float:
    return sum((archive.root / name).stat().st_size for name in archive.files if name.startswith("raw/")) / MIB


def told(archive: Archive) -> str:
    """One archive in a line."""
    devices = len({entry.device_uuid for entry in archive.run.passes})
    name = ", ".join(archive.device_names) or "no GPU"
    facts = [
        f"{devices} x {name}" if devices > 1 else name,
        f"study {archive.run.study}{', quick' if archive.run.quick else ''}",
        f"{count(len(archive.run.passes), 'pass', 'passes')} of {archive.run.rounds} rounds",
    ]
    took = minutes(archive)
    if took is not None:
        facts.append(f"{took:.0f} minutes" if took >= 1 else "under a minute")
    facts.append(f"{mebibytes(archive):.0f} MiB")
    page = f"results/{archive.name}/derived/report.html"
    link = f", [page]({page})" if "derived/report.html" in archive.files else ""
    return f"- `results/{archive.name}`: {markdown_text(', '.join(facts))}{link}"


PICTURES = {
    "ratio-allocate": "allocate: each kernel's time over CUDA C++'s, by cell and regime",
    "ratio-update": "update: each kernel's time over CUDA C++'s, by cell and regime",
}
"""Figures of a matrix that the README shows, with what a reader who does not see them is told."""


def pictures(archive: Archive) -> list[str]:
    """The archive's own figures, where it has them."""
    names = {name: f"derived/figures/{name}.svg" for name in PICTURES} if archive.run.study == "matrix" else {}
    return [
        f"![{PICTURES[name]}](results/{archive.name}/{path})" for name, path in names.items() if path in archive.files
    ]


BENCHMARKS = README.parent / "benchmarks" / "measured"
"""What benchmarks/against_open3d.py --out wrote, one file a machine."""


def beside_open3d(path: Path) -> str:
    """One benchmark in a sentence.

    Raises:
        KeyError, ValueError: the file is not what the benchmark writes.
    """
    found = json.loads(path.read_text(encoding="utf-8"))
    ratios, machine = found["ratios"], found["machine"]
    parts = [f"{arm} takes {_span(ratios[arm]['times_the_time'])} times its time" for arm in ("cpu", "rust-cpu")]
    parts.append(f"cuda on {found['arms']['cuda']['device']} is {_span(ratios['cuda']['times_as_fast'])} times as fast")
    what = f"{found['frames']} frames ({found['of']}, {found['points']:,} points)"
    return (
        f"Beside Open3D's CPU grid, integrating {what} on {machine['usable_cores']} cores, {found['rounds']} rounds in "
        f"one run: {', '.join(parts)}. It gathers where our arms scatter with atomics "
        f"([every round](benchmarks/measured/{path.name}))."
    )


def _span(row: Mapping[str, float]) -> str:
    return f"{row['median']:.3g} ({row['low']:.3g} to {row['high']:.3g})"


def _order(archive: Archive) -> tuple[bool, bool, int, str]:
    """The matrix on a GPU first, a quick run last."""
    return (archive.run.quick, not archive.run.gpu, len(load_cells()) - len(archive.run.cells), archive.name)


def answer_block(archives: Sequence[Archive]) -> str:
    """What stands between the markers, as Markdown."""
    ordered = sorted((archive for archive in archives if archive.complete), key=_order)
    if not any(archive.run.gpu for archive in ordered):
        return NONE
    lines: list[str] = []
    said: set[tuple[str, str]] = set()
    for archive in ordered:
        device = ", ".join(archive.device_names) or "no GPU"
        fresh = [(head, text) for head, text in sentences(View(archive)) if (device, head) not in said]
        if not fresh:
            continue
        said |= {(device, head) for head, _ in fresh}
        lines += [f"On {markdown_text(device)} (`results/{archive.name}`):", ""]
        lines += [f"- **{head}.** {markdown_text(text)}" for head, text in fresh]
        lines.append("")
        shown = pictures(archive)
        lines += [*shown, ""] if shown else []
    document = verdicts(ordered)
    lines += [tally([row["verdict"] for row in document]) + " Ours among them:", ""]
    lines += ["| | claim | verdict | here |", "| --- | --- | --- | --- |"]
    for row in document:
        if row["source"] == "ours":
            statement, reason = markdown_text(row["statement"]), markdown_text(row["reason"])
            lines.append(f"| {row['id']} | {statement} | {WORDS[row['verdict']]} | {reason} |")
    for path in sorted(BENCHMARKS.glob("*.json")):
        lines += ["", beside_open3d(path)]
    lines += ["", "Archived runs (`irr claims` judges all of them):", ""]
    lines += [told(archive) for archive in ordered]
    return "\n".join(lines)


def with_block(readme: str, block: str) -> str:
    """The README with this block between its markers.

    Raises:
        IrrError: the markers are not there once each, in order.
    """
    parts = re.split(f"({re.escape(BEGIN)}|{re.escape(END)})", readme)
    if parts[1::2] != [BEGIN, END]:
        raise IrrError(f"README.md does not have {BEGIN} and {END}, once each and in this order")
    return f"{parts[0]}{BEGIN}\n{block}\n{END}{parts[4]}"


def archived() -> list[Archive]:
    """The archives of results/ that are in git: a run of one's own beside them is no part of the README. Without git
    (an unpacked tarball), all of them."""
    words = ["git", "ls-files", "-z", "--", f"{RESULTS.name}/*/raw/run.json"]
    roots = find(RESULTS)
    try:
        listed = subprocess.run(words, cwd=README.parent, capture_output=True, check=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        return [load(root) for root in roots]
    return [load(root) for root in roots if f"{RESULTS.name}/{root.name}/raw/run.json" in listed]


def main() -> None:
    """Rewrite README.md from results/."""
    block = answer_block(archived())
    README.write_text(with_block(README.read_text(encoding="utf-8"), block), encoding="utf-8")


if __name__ == "__main__":
    main()
