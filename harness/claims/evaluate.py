"""Every claim over the archives at hand: one verdict an id, and where it came from.

Archives are never pooled. A claim is judged on each archive alone, and of those that measured it the best answers: a
complete run before a quick or unfinished one, then the one with the most behind its verdict (cells, gates, samples),
then a decided verdict before an undecided one, then the newer. So an undecided verdict over more cells is not outvoted
by a decided one over fewer; it says who decides. What the others say is listed under `elsewhere`. Where no archive
measured it, one whose study is about the claim says what is missing. Claims about several archives (`spans`) get them
all. Devices of one kind that one archive has are judged together, each pass on its own device, and then each alone:
where they decide otherwise, or measure further apart than the A/A floor, the sentence says so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import harness.claims.blog
import harness.claims.ours
import harness.claims.paper  # noqa: F401  (the three files register their claims)
from harness import __version__
from harness.archive.pack import opened
from harness.archive.read import Archive, find, load
from harness.archive.schema import SCHEMA, Evidence, Fingerprint, Run
from harness.claims.registry import DECIDED, REGISTRY, Claim, Open, Verdict, View
from harness.errors import IrrError

RESULTS = Path(__file__).parents[2] / "results"

PAPER_IDS = tuple(f"P{n}" for n in range(1, 44))
BLOG_IDS = tuple(f"B{n}" for n in range(1, 20))
OUR_IDS = tuple(f"O{n}" for n in range(1, 9))
IDS = (*PAPER_IDS, *BLOG_IDS, *OUR_IDS)
"""Every id that the seeds' list fixes, ours first ones included; one missing is a failure, more may be added."""


def registered() -> list[Claim]:
    """All claims in the order of the list; further ones of ours after O8.

    Raises:
        IrrError: an id of the list has no claim.
    """
    missing = [identity for identity in IDS if identity not in REGISTRY.claims]
    if missing:
        raise IrrError(f"no claim is registered for {', '.join(missing)}", "add it in harness/claims/")
    return [REGISTRY.claims[i] for i in IDS] + [c for i, c in REGISTRY.claims.items() if i not in IDS]


UNFIT = "the archive's findings have an unexpected form"


def judge(claim: Claim, view: View | Sequence[View]) -> Verdict:
    """One claim on one archive, or on all for a claim that spans them."""
    try:
        found: Verdict = claim.decide(view)
        if found.verdict == "refuted" and claim.otherwise:
            found = dataclasses.replace(found, reason=f"{found.reason} {claim.otherwise}")
        return found
    except Open as open_:
        return open_.verdict
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # An archive is untrusted input: what its findings hold may be of any shape, and a claim's page must still come.
        # Nothing of ours may land here: a test lets these through over every archive that is not hostile.
        return Verdict("undecided", f"{UNFIT}: {type(error).__name__} {str(error)[:120]}")


def _rank(archive: Archive) -> tuple[bool, bool, str, str]:
    return (archive.complete, not archive.run.quick, archive.run.created_utc, archive.name)


NO_ARCHIVE = Verdict("undecided", "there is no archive")

# Which open verdict says most about what is missing, where no archive decides.
_OPEN_ORDER = ("undecided", "needs-two-gpus", "needs-data", "needs-toolchain", "needs-gpu")


def best(claim: Claim, views: Sequence[View]) -> tuple[Verdict, Archive | None, list[tuple[Verdict, Archive]]]:
    """The answering verdict with its archive, and the verdicts of the others that measured it (the rule: above)."""
    if not views:
        return NO_ARCHIVE, None, []
    if claim.spans:
        return judge(claim, views), None, []
    judged = [
        (judge(claim, view), view.archive) for view in sorted(views, key=lambda v: _rank(v.archive), reverse=True)
    ]
    measured = [pair for pair in judged if _measured(pair[0])]
    if not measured:
        order = lambda pair: (not pair[0].fits, not pair[1].run.gpu, _OPEN_ORDER.index(pair[0].verdict))  # noqa: E731
        return *min(judged, key=order), []
    # Stable: archives with as much behind their verdict stay in the order of _rank.
    measured.sort(
        key=lambda pair: (
            not pair[1].complete, pair[1].run.quick, -_weight(pair[0]), pair[0].verdict not in DECIDED
        )
    )  # fmt: skip
    (answer, archive), others = measured[0], measured[1:]
    deciding = [f"{v.verdict} in {a.name}" for v, a in others if v.verdict in DECIDED]
    if answer.verdict not in DECIDED and deciding:
        reason = f"{answer.reason} With less behind it: {', '.join(deciding)}."
        answer = dataclasses.replace(answer, reason=reason)
    return answer, archive, others


def _measured(verdict: Verdict) -> bool:
    """Whether a verdict rests on what the archive measured, rather than on what it lacks."""
    return verdict.verdict in DECIDED or (verdict.verdict == "undecided" and _weight(verdict) > 0)


def _weight(verdict: Verdict) -> float:
    return len(verdict.rows) if verdict.weight is None else verdict.weight


def by_device(claim: Claim, view: View, verdict: Verdict) -> list[tuple[str, Verdict]]:
    """What each device's passes alone say of a claim that an archive of several devices decides, by UUID. A device that
    measured nothing of it is left out, as is one of a claim that needs both."""
    if claim.spans or len(view.devices) < 2 or not _measured(verdict):
        return []
    alone = [(uuid, judge(claim, view.of_devices(uuid))) for uuid in view.devices]
    return [(uuid, found) for uuid, found in alone if _measured(found)]


def disagreement(devices: Sequence[tuple[str, Verdict]], verdict: Verdict) -> str:
    """A sentence where devices decide otherwise, or measure further apart than the A/A floor; else blank. One that
    decides nothing alone, with fewer samples, contradicts nothing."""
    decided = [(uuid, found) for uuid, found in devices if found.verdict in DECIDED]
    if len({found.verdict for _, found in decided}) > 1:
        return f" The devices disagree: {', '.join(f'{uuid[:8]} alone {found.verdict}' for uuid, found in decided)}."
    numbers = [float(found.measured) for _, found in devices if isinstance(found.measured, (int, float))]
    if verdict.floor is None or len(numbers) < 2 or min(numbers) <= 0:
        return ""
    if max(numbers) / min(numbers) - 1 <= verdict.floor:
        return ""
    return f" By device: {' and '.join(f'{number:.4g}' for number in numbers)}."


def judge_findings(findings: Sequence[Mapping[str, Any]], ids: str) -> list[dict[str, Any]]:
    """Verdicts that findings decide by themselves, before anything is archived.

    Args:
        findings: rows as evidence.json holds them. ids: first letter of the claims' ids.
    """
    run = Run(
        schema=SCHEMA, irr=__version__, commit="", dirty=False, study="fma", quick=False, gpu=False, created_utc="",
        command=[], seed=0, rounds=0, batch=0,
    )  # fmt: skip
    evidence = {str(row["name"]): Evidence(**row) for row in findings}
    nothing = Fingerprint(built_on={}, run_on={})
    archive = Archive(Path(), "this run", run, nothing, [], evidence, complete=True)
    return [row for row in verdicts([archive]) if row["id"].startswith(ids) and row["verdict"] in DECIDED]


def rounded(value: Any) -> Any:
    """Floats to six significant digits, so that the last bits of a library's arithmetic reach no file; none for what is
    no number."""
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if math.isfinite(value) else None


def verdicts(archives: Sequence[Archive]) -> list[dict[str, Any]]:
    """Every claim with its verdict: the document of `claims --json`, with more keys than the contract's eight."""
    return judged([View(archive) for archive in archives])


def judged(views: Sequence[View], say: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """`verdicts`, for who has the archives' views already and asks them more.

    Args:
        say: told one line of progress at a time.
    """
    if views:
        say(f"judging every claim on {', '.join(view.archive.name for view in views)}")
    document = []
    by_name = {view.archive.name: view for view in views}
    for claim in registered():
        verdict, archive, elsewhere = best(claim, views)
        devices = [] if archive is None else by_device(claim, by_name[archive.name], verdict)
        document.append(
            rounded(
                {
                    "id": claim.id,
                    "source": claim.source,
                    "statement": claim.statement,
                    "scope": claim.scope,
                    "paper": claim.paper or None,
                    "tolerance": claim.tolerance,
                    "measured": verdict.measured,
                    "range": None if verdict.low is None else [verdict.low, verdict.high],
                    "floor": verdict.floor,
                    "verdict": verdict.verdict,
                    "reason": verdict.reason + disagreement(devices, verdict),
                    "archive": None if archive is None else archive.name,
                    "device": None if archive is None else (archive.device_names or [None])[0],
                    "devices": [
                        {"device": uuid, "verdict": v.verdict, "measured": v.measured,
                         "range": None if v.low is None else [v.low, v.high]}
                        for uuid, v in devices
                    ],
                    "rows": list(verdict.rows),
                    "elsewhere": [
                        {"archive": a.name, "device": (a.device_names or [None])[0], "verdict": v.verdict,
                         "measured": v.measured, "reason": v.reason}
                        for v, a in elsewhere
                    ],
                }
            )
        )  # fmt: skip
    return document


def evaluate(path: Path | None = None, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """Verdicts over one archive (folder, folder of archives, or .tar.zst), or over results/.

    Args:
        say: told one line of progress at a time.

    Raises:
        IrrError: no archive there, or one that cannot be read.
    """
    if path is None:
        return judged([View(load(root)) for root in find(RESULTS)], say)
    with ExitStack() as stack:
        return judged([View(load(root)) for root in stack.enter_context(opened(path))], say)


def as_text(document: Sequence[dict[str, Any]]) -> str:
    """One line a claim, the reason under it, then how many of each verdict."""
    lines = []
    for row in document:
        where = f"  [{row['archive']}]" if row["archive"] else ""
        lines += [f"{row['id']:<4} {row['verdict']:<16} {row['statement']}", f"     {row['reason']}{where}"]
        lines += [f"     elsewhere: {other['verdict']} [{other['archive']}]" for other in row["elsewhere"]]
    counts = {
        word: sum(row["verdict"] == word for row in document) for word in dict.fromkeys(r["verdict"] for r in document)
    }
    lines.append("")
    lines.append(", ".join(f"{count} {word}" for word, count in counts.items()))
    return "\n".join(lines)
