"""ARTEFACT.md: the appendix a reviewer of an artefact asks for, made from the claims and the archives in git.

python -m harness.report.appendix     writes it (tests/test_readme.py fails where it is not what they say)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.archive.read import Archive
from harness.claims.evaluate import registered
from harness.report.readme import archived, mebibytes, minutes
from harness.report.tables import markdown_text

APPENDIX = Path(__file__).parents[2] / "ARTEFACT.md"

SOURCES = (("paper", "The paper"), ("blog", "The second study"), ("ours", "Ours"))

HEAD = """\
# Artefact appendix

Made by `python -m harness.report.appendix` from the claims (`harness/claims/`) and the archives (`results/`); a test
holds it. How to run everything: `README.md`.

## What is needed

- **Hardware.** One NVIDIA GPU of compute capability 7.5 or newer; two of one host for the claims about two devices, two
  kinds for P24. Without a GPU the host part runs and the archived results are judged again.
- **Software.** Linux on x86_64, Python 3.11 to 3.13, a driver for CUDA 13.0 (580 or newer). Everything else is locked
  in `requirements.txt`, pinned in `pins.toml`, or a Debian package that the first call names. cuda-oxide is optional.
- **Determinism.** Block sets, weights and colours are exact on any hardware; tsdf sums lie within a derived bound;
  images of the contraction study are equal bit by bit for one toolchain. Times are of the card they were taken on: a
  ratio is judged against the noise of an identical kernel beside it.

## What the archived runs took

| archive | study | devices | passes | minutes | raw, MiB |
| --- | --- | --- | --- | --- | --- |
"""

CLAIMS = """\

## Claims and tolerances

`./irr claims` gives each a verdict with its numbers. A difference counts when every pass lies on the same side of 1 and
the range is clear of the A/A floor, in time and in cycles.
"""


def appendix(archives: Sequence[Archive]) -> str:
    """The whole document, Markdown."""
    lines = [HEAD.rstrip("\n")]
    for archive in sorted(archives, key=lambda a: a.name):
        names = ", ".join(sorted(set(archive.device_names))) or "no GPU"
        devices = len({entry.device_uuid for entry in archive.run.passes})
        took = minutes(archive)
        cells = (
            f"`results/{archive.name}`",
            archive.run.study,
            markdown_text(f"{devices} x {names}"),
            f"{len(archive.run.passes)} x {archive.run.rounds} rounds",
            "" if took is None else f"{took:.1f}",
            f"{mebibytes(archive):.1f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    lines.append(CLAIMS.rstrip("\n"))
    for source, title in SOURCES:
        lines += [
            "",
            f"### {title}",
            "",
            "| id | statement | judged on | counts as reproduced |",
            "| --- | --- | --- | --- |",
        ]
        for c in registered():
            if c.source == source:
                words = (c.id, *map(markdown_text, (c.statement, c.scope, c.tolerance or "as stated")))
                lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write ARTEFACT.md."""
    APPENDIX.write_text(appendix(archived()), encoding="utf-8")


if __name__ == "__main__":
    main()
