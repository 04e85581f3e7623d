"""Studies beside the standard matrix: what each asks, of which kernels, on which cells, in which regimes. Pure.

A study is a row here. `irr reproduce --study NAME` runs it through the same plan, worker, gates and archive as the
matrix; the archive's study is its name. What a study's samples say beyond ratios that the claims read themselves
becomes findings (P29: `hypothesis.<cause>.ratio`).
"""

from __future__ import annotations

import fnmatch
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.archive.schema import PlanEntry
from harness.build.build import flavours
from harness.build.kernels import KERNELS, Kernel
from harness.build.manifest import FLAVOURS
from harness.errors import UsageError
from harness.measure.plan import TWIN, TWINS, Regime, row_of

FRESH, FILLED, CONCURRENT = Regime(), Regime(table="filled"), Regime(launch="concurrent")
BASES = ("cuda/allocate/plain", "cuda/update/plain")


@dataclass(frozen=True)
class Question:
    """One question of a study.

    Attributes:
        asks: the question, which heads its section of the page.
        figure: name of the figure that answers it: a function of harness/report/attribution.py, scaling.py or
            contracted.py, else each of its kernels over CUDA C++'s.
        decides: ids of the claims it decides; none for a figure alone.
        kernels: globs of kernel names. cells: names, `+sms*` for the two numbers of multiprocessors.
        frames: globs of cells of trajectories, as far as their frames are here.
        regimes: all of them for allocate; other stages know a fresh table only.
    """

    asks: str
    figure: str
    decides: tuple[str, ...]
    kernels: tuple[str, ...]
    cells: tuple[str, ...]
    regimes: tuple[Regime, ...] = (FRESH,)
    frames: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """Its kernels are judged once a cell, in the first pass before timing.

    Attributes:
        questions: what it is made of. rounds: of each cell and pass.
        flavours: further builds of its kernels (harness/build/build.py: flavours), each timed where its kernel is.
        counted_cells: where Nsight Compute counts the study's kernels after the passes, each where it is timed, all but
            those of SWEPT.
        sanitized: globs of kernels that compute-sanitizer judges before the passes; those that break something too,
            since what they give up is never their memory. sanitizer_s: its limit, all sanitizers together.
    """

    questions: tuple[Question, ...]
    rounds: int = 15
    flavours: tuple[str, ...] = ()
    counted_cells: tuple[str, ...] = ()
    sanitized: tuple[str, ...] = ()
    sanitizer_s: float = 120.0

    def rows(self) -> list[Kernel]:
        """Kernels of the study, in the table's order, the two that everything is compared with among them."""
        patterns = [*BASES, *(pattern for question in self.questions for pattern in question.kernels)]
        return [k for k in KERNELS.values() if any(fnmatch.fnmatchcase(k.name, p) for p in patterns) and not k.contract]

    def controls(self) -> list[str]:
        """Names of its kernels' further builds."""
        return [row.name + FLAVOURS[f] for row in self.rows() for f in self.flavours if f in flavours(row)]

    def counted(self, plan: Sequence[PlanEntry]) -> list[str]:
        """Kernels of a plan that Nsight Compute counts."""
        names = {entry.kernel for entry in plan if TWIN not in entry.kernel} if self.counted_cells else set()
        return sorted(name for name in names if not any(fnmatch.fnmatchcase(name, p) for p in SWEPT))

    def judged(self, there: Collection[str]) -> list[str]:
        """Kernels, of those that are there, that compute-sanitizer judges."""
        return sorted(name for name in there if any(fnmatch.fnmatchcase(name, p) for p in self.sanitized))

    def cells(self) -> list[str]:
        return list(dict.fromkeys(cell for question in self.questions for cell in question.cells))

    def frames(self) -> list[str]:
        return list(dict.fromkeys(glob for question in self.questions for glob in question.frames))

    def plan(self, there: Collection[str], sms: int | None = None, frames: Collection[str] = ()) -> list[PlanEntry]:
        """Every entry of kernels that are there, once, by cell; the two bases and their twins in every cell.

        Args:
            there: names of kernels, those of their further builds among them.
            sms: multiprocessors of the device; cells `NAME+sms` are left out where they are not known.
            frames: cells of trajectories whose frames are here.
        """
        entries: dict[tuple[str, str, Regime], None] = {}
        for question in self.questions:
            names = [n for n in there if any(fnmatch.fnmatchcase(row_of(n).name, p) for p in question.kernels)]
            stages = {row_of(name).stage for name in names}
            names += [n for n in BASES if n in there and n not in names and _beside(KERNELS[n].stage, stages)]
            names += [n + TWIN for n in names if n in TWINS]
            seen = [cell for cell in frames if any(fnmatch.fnmatchcase(cell, p) for p in question.frames)]
            for cell in (*question.cells, *seen):
                for name in names:
                    stage = row_of(name).stage
                    for regime in question.regimes:
                        if stage != "allocate" and regime.table != "fresh":
                            continue
                        for label in _sized(cell, sms):
                            entries[label, name, regime] = None
        order = {cell: place for place, cell in enumerate(dict.fromkeys(cell for cell, _, _ in entries))}
        return [
            PlanEntry(
                cell=cell,
                kernel=name,
                stage=row_of(name).stage,
                launch=regime.launch,
                table=regime.table,
                l2=regime.l2,
                load=regime.load,
            )
            for cell, name, regime in sorted(entries, key=lambda entry: order[entry[0]])
        ]


def _beside(stage: str, stages: Collection[str]) -> bool:
    """Whether a base of this stage belongs beside kernels of these stages; an integrating one stands against both."""
    return stage in stages or "integrate" in stages


SWEPT = ("*-b[0-9]*", "triton/*-w[0-9]*", "triton/*-s[0-9]*[0-9][0-9][0-9][0-9]")
"""Sizes of one kernel, which time alone tells apart: not counted."""

SMS = "+sms"
SHARE = 3 / 7
"""The smaller of the paper's two cards has 1 / 2.33 of the other's multiprocessors."""


def _sized(cell: str, sms: int | None) -> list[str]:
    """`base+sms` as the two numbers of multiprocessors it is run on: base+sms56 and base+sms132 on a device of 132."""
    if not cell.endswith(SMS):
        return [cell]
    return [] if sms is None else [f"{cell}{int(sms * SHARE)}", f"{cell}{sms}"]


CAUSES: dict[str, tuple[str, str, str]] = {
    "registers": ("plain-r24", "plain", "at most 24 registers a thread (ptxas -maxrregcount) against its own choice"),
    "clamp": ("clamp", "plain", "float to integer by `as`, which saturates, against the hardware's conversion"),
    "volatile": ("volatile", "plain", "first reads of key and index volatile against plain"),
    "static-count": (
        "global",
        "plain",
        "the same source with .global atomics, fewer instructions, against generic ones",
    ),
    "dynamic-cas": ("reread", "plain", "the key read again past L1 before a compare-exchange"),
    "scope": ("cta", "plain", "compare-exchange of block scope against device scope"),
    "counter": ("nocounter", "plain", "index from the thread's number against the shared counter"),
    "fence": ("nofence", "plain", "no fence before the publication"),
    "store": ("nostore", "nowait", "no publication against one, neither of them waiting"),
    "wait": ("nowait", "plain", "no wait for the index"),
}
"""Cause of P29 -> (variant, what it is compared with, what differs), kernels of rust-oxide/allocate. The eleventh, the
launch on the host, is a regime: the claim reads serial against concurrent."""

SPHERES = ("base", "pts-20k", "pts-1280k", "lf-918")

CONTRACTION = "What changes when the compiler may contract?"
FUSING = (
    "cuda/allocate/plain", "cuda/update/plain", "rust-nvptx/*/plain", "rust-oxide/*/plain", "rust-oxide/*/global",
    "triton/*/static8", "triton/*/while",
)  # fmt: skip
"""Every language's kernels of the volume; each has a contracted build."""
FUSED_ON, FUSED_FRAMES = ("base", "plane-320k", "r-2.0"), ("*-cold", "*-cold-noise")

STUDIES: dict[str, Study] = {
    "attribution": Study(
        (
            Question(
                "What makes Rust's allocate slower?",
                "causes",
                ("P28", "P29", "P30", "P38", "O3", "O7"),
                ("rust-oxide/allocate/*", "rust-oxide/update/*", "rust-nvptx/*/plain"),
                ("base",),
                (FRESH, FILLED),
            ),
            Question(
                "Is Rust's gap in allocate the language, or how the two sides are launched?",
                "reference",
                ("P29", "P31", "O1"),
                ("cuda/allocate/plain", "rust-*/allocate/plain", "triton/allocate/while"),
                ("base", "pts-20k"),
                (FRESH, CONCURRENT),
            ),
            Question(
                "Do the paper's two failed designs fail alike?",
                "designs",
                ("P41",),
                ("*/allocate/slotindex", "*/allocate/cas128"),
                ("base",),
                (FRESH, FILLED),
            ),
            Question(
                "Would another hash look like a language?",
                "hash",
                ("P5",),
                ("cuda/allocate/otherhash",),
                (*SPHERES, "r-2.0"),
                (FRESH, FILLED),
            ),
            Question(
                "What did Triton's shared scratch cost?",
                "scratch",
                ("P25", "P26", "P27", "P32"),
                ("triton/allocate/static8*", "triton/allocate/static16"),
                ("base",),
            ),
            Question(
                "Does a load for the CAS, or 65 times fewer blocks, lift Triton's floor?",
                "triton-floor",
                ("P40",),
                ("triton/allocate/static8", "triton/update/static8"),
                ("base", "r-0.25", "r-2.0"),
            ),
            Question(
                "Which tile is best for Triton?",
                "tiles",
                ("O2",),
                ("triton/allocate/while*", "triton/update/while*"),
                ("base", "pts-1280k", "lf-918"),
            ),
            Question(
                "How fast can it be?",
                "limits",
                ("O6",),
                (
                    "cuda/allocate/*ray*", "cuda/allocate/walls*", "cuda/allocate/warp", "cuda/allocate/nowait",
                    "cuda/update/*ray*", "cuda/update/*run*", "cuda/update/packed",
                    "triton/update/packed",
                    "cuda/integrate/*", "cuda/floor/null", "cuda/floor/geometry", "cuda/floor/atomics",
                    "rust-nvptx/allocate/*", "rust-nvptx/update/plain", "triton/allocate/while-nowait",
                    "triton/update/while",
                ),
                (*SPHERES, "r-2.0"),
            ),
            Question(
                "Does the layout of the voxels cost more than the language?",
                "layout",
                ("O4",),
                ("*/update/packed", "rust-*/update/plain", "triton/update/while"),
                (*SPHERES, "r-2.0"),
            ),
            Question(
                "Which size of block is best for CUDA C++?",
                "blocks",
                (),
                ("cuda/allocate/plain-b*", "cuda/update/plain-b*"),
                (*SPHERES, "r-2.0"),
            ),
        ),
        counted_cells=("base", "lf-918"),
        sanitized=("*",),
    ),
    "scaling": Study(
        (
            Question(
                "Do the arms use more multiprocessors?",
                "multiprocessors",
                ("P23",),
                (
                    "cuda/allocate/plain", "cuda/update/plain", "rust-*/allocate/plain",
                    "triton/allocate/static8", "triton/allocate/static8-s256", "triton/allocate/while",
                    "cuda/floor/geometry",
                ),
                ("base", "base+sms"),
            ),
            Question(
                "How does time grow from 2 thousand to 20 million points?",
                "points",
                (),
                (
                    "cuda/allocate/plain", "cuda/allocate/walls-run", "cuda/update/plain", "cuda/update/packed-run",
                    "rust-*/*/plain", "triton/*/while", "cuda/floor/null", "cuda/floor/geometry",
                ),
                ("pts-2k", "pts-20k", "base", "pts-1280k", "pts-5120k", "pts-20m"),
            ),
        ),
        rounds=10,
    ),
    "contracted": Study(
        (
            Question(CONTRACTION, "contracted", ("O10",), FUSING, FUSED_ON, frames=FUSED_FRAMES),
            Question(CONTRACTION, "contracted-time", (), FUSING, FUSED_ON, frames=FUSED_FRAMES),
        ),
        rounds=10,
        flavours=("fma",),
        sanitized=("*/fma",),
    ),
}  # fmt: skip


def find_study(name: str) -> Study:
    """
    Raises:
        UsageError: no study has that name.
    """
    if name not in STUDIES:
        raise UsageError(f"no study is named {name!r}", f"studies: {', '.join(STUDIES)}")
    return STUDIES[name]


# ------------------------------------------------------------------------------------------------------------ findings


def _median(samples: Iterable[Mapping[str, Any]], kernel: str) -> dict[tuple[str, int], float]:
    """Median time by device and pass on base, serial, fresh. What a variant breaks makes its samples lossy, not its
    time wrong."""
    times: dict[tuple[str, int], list[float]] = {}
    for row in samples:
        regime = (row["launch"], row["table"], row["l2"], row["load"])
        wanted = row["cell"] == "base" and row["kernel"] == kernel and row["status"] in ("ok", "lossy") and row["us"]
        if wanted and regime == ("serial", "fresh", "asreset", "aot"):
            times.setdefault((row["device_uuid"], row["pass"]), []).append(float(row["us"]))
    return {key: statistics.median(values) for key, values in times.items()}


def findings(study: str, samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the study's samples say of each cause: the ratio of the passes' medians, and its range over the passes."""
    found: list[dict[str, Any]] = []
    if study != "attribution":
        return found
    for cause, (variant, against, what) in CAUSES.items():
        ours, theirs = (_median(samples, f"rust-oxide/allocate/{name}") for name in (variant, against))
        ratios = [ours[key] / theirs[key] for key in sorted(ours.keys() & theirs.keys())]
        if not ratios:
            continue
        breaks = KERNELS[f"rust-oxide/allocate/{variant}"].breaks
        how = f"rust-oxide/allocate/{variant} / {against} on base, serial, fresh table: {what}"
        how += f"; breaks: {breaks or 'nothing that a gate sees'}; median of {len(ratios)} passes"
        found += [
            {"name": f"hypothesis.{cause}.ratio", "value": statistics.median(ratios), "unit": "ratio", "how": how},
            {"name": f"hypothesis.{cause}.range", "value": [min(ratios), max(ratios)], "unit": "ratio", "how": how},
        ]
    return found
