"""What a claim is, and what a claim may ask an archive.

A claim is one function over an archive (over all archives where its id says so) that returns a `Verdict`. Adding one
is writing that function under `@claim(...)` in paper.py, blog.py or ours.py; nothing else lists claims.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec import structs

from harness.archive.read import Archive
from harness.archive.schema import Gate
from harness.claims import statistics
from harness.claims.statistics import SERIAL, Difference, Ratio, Regime, Table
from harness.workload.cells import load_cells

DECIDED = ("reproduced", "differs", "refuted")
OPEN = ("undecided", "needs-gpu", "needs-two-gpus", "needs-data", "needs-toolchain")
VERDICTS = (*DECIDED, *OPEN)

FIGURE = 0.10
"""Tolerance of a figure of another card. The paper's own two cards differ by up to 9 % in the same ratio (its Table 2:
Triton in total on the 1.28 M sphere 3.06 and 3.33, on AmericanDiner 2.86 and 2.70); beyond, it is another figure."""


@dataclass(frozen=True)
class Verdict:
    """What an archive says about a claim.

    Attributes:
        verdict: one of VERDICTS.
        reason: one or two sentences with the numbers, for a reader who has not seen the archive.
        measured: the headline number or text, None where there is none.
        low, high: range over passes (or over what `reason` says).
        floor: the A/A floor the judgement had to clear, None where none applies.
        rows: the numbers behind it, plain values, for the page.
        weight: how much stands behind it (cells, gates, samples), where several archives decide; None: the rows.
        fits: False where the archive is of another study, so that it says nothing about what is missing.
    """

    verdict: str
    reason: str
    measured: float | str | None = None
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    rows: tuple[dict[str, Any], ...] = ()
    weight: float | None = None
    fits: bool = True

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"{self.verdict!r} is no verdict")


@dataclass(frozen=True)
class Claim:
    """One statement of a seed, in our own words.

    Attributes:
        scope: where the statement is meant to hold, and what we judge it on.
        paper: the figure(s) the seed gives, as text; blank where it gives none.
        tolerance: when a figure counts as reproduced, and why.
        decide: the predicate. Gets one archive's view, or all of them where `spans`.
        spans: whether the claim is about several archives at once.
        otherwise: what would still make it true elsewhere, and what was not tested; said where it is refuted.
    """

    id: str
    source: str
    statement: str
    scope: str
    paper: str
    tolerance: str
    decide: Callable[..., Verdict]
    spans: bool = False
    otherwise: str = ""


@dataclass
class Registry:
    """Claims by id, in the order they were written."""

    claims: dict[str, Claim] = field(default_factory=dict)

    def add(self, new: Claim) -> None:
        if new.id in self.claims:
            raise ValueError(f"claim {new.id} stands twice")
        self.claims[new.id] = new


REGISTRY = Registry()

SOURCES = {"P": "paper", "B": "blog", "O": "ours"}


UNTESTED = "Not tested: the paper's own kernels and cards."


def claim(
    identity: str,
    statement: str,
    *,
    scope: str,
    paper: str = "",
    tolerance: str = "",
    spans: bool = False,
    otherwise: str = "",
) -> Callable[[Callable[..., Verdict]], Callable[..., Verdict]]:
    """Register a predicate under its id."""

    def wrap(decide: Callable[..., Verdict]) -> Callable[..., Verdict]:
        source = SOURCES[identity[0]]
        words = otherwise or (UNTESTED if source == "paper" else "")
        REGISTRY.add(Claim(identity, source, statement, scope, paper, tolerance, decide, spans, words))
        return decide

    return wrap


# ------------------------------------------------------------------------------------------------ asking an archive


class Open(Exception):
    """The archive cannot decide; carries the verdict. Raised by the `need_*` methods so that predicates stay short."""

    def __init__(self, verdict: str, reason: str, fits: bool = True) -> None:
        super().__init__(reason)
        self.verdict = Verdict(verdict, reason, fits=fits)


@dataclass(frozen=True)
class Compared:
    """A ratio with its floor and whether it differs from 1."""

    cell: str
    us: Ratio
    cycles: Ratio | None
    floor: float | None
    difference: Difference
    reference: Ratio | None = None

    def row(self, **more: Any) -> dict[str, Any]:
        """As plain values."""
        return {
            "cell": self.cell,
            "ratio": self.us.median,
            "low": self.us.low,
            "high": self.us.high,
            "floor": self.floor,
            "side": self.difference.side,
            "reference": None if self.reference is None else self.reference.median,
            **more,
        }


NO_TOOLCHAIN = ("needs-toolchain", "toolchain-unsupported")
"""Statuses of a kernel or a manifest that say a compiler was missing or too old."""

# Which study makes a finding, by how its name begins.
STUDIES_OF = {
    **dict.fromkeys(("probes.", "fault.", "sphere.", "triton.", "compile.", "oxide.", "install.", "rustc."), ("host",)),
    **dict.fromkeys(("extract.", "single_launch.", "small_pool.", "cap32."), ("matrix",)),
    **dict.fromkeys(("clock.", "jit.", "saxpy.", "device."), ("fma",)),
    **dict.fromkeys(("fma.", "ptx.", "sass."), ("fma", "host")),
    "hypothesis.": ("attribution",),
    "contraction.": ("contracted",),
}

# Language stand-ins: the paper's Rust is cuda-oxide. An archive made without it has stock rustc's kernels, which then
# answer, named as such; only where the claim is about cuda-oxide itself is it needed.
RUST = ("rust-oxide", "rust-nvptx")


@dataclass(frozen=True)
class View:
    """One archive, asked in the words of the claims."""

    archive: Archive

    @cached_property
    def table(self) -> Table:
        return Table(self.archive.samples)

    @property
    def gpu(self) -> bool:
        return self.archive.run.gpu

    # ---- devices

    @property
    def devices(self) -> list[str]:
        """The devices that ran, by UUID, in the order of the passes."""
        return list(dict.fromkeys(p.device_uuid for p in self.archive.run.passes))

    def of_devices(self, *uuids: str) -> View:
        """What some of the devices say: their passes, samples, counters and gates. Findings and what is of no device
        stay, for they are the run's."""
        if uuids not in self._of_devices:
            whole = self.archive
            passes = [p for p in whole.run.passes if p.device_uuid in uuids]
            gates = [gate for gate in whole.gates if gate.device_uuid is None or gate.device_uuid in uuids]
            part = dataclasses.replace(whole, run=structs.replace(whole.run, passes=passes), gates=gates)
            for name in ("samples", "counters"):
                rows = getattr(whole, name)
                # The archive reads a table at its first use; this one's are there already.
                part.__dict__[name] = rows[rows["device_uuid"].isin(uuids)].reset_index(drop=True)
            part.__dict__["manifests"] = whole.manifests
            self._of_devices[uuids] = View(part)
        return self._of_devices[uuids]

    @cached_property
    def _of_devices(self) -> dict[tuple[str, ...], View]:
        return {}

    # ---- evidence

    def value(self, name: str, kind: type | tuple[type, ...] = (int, float)) -> Any:
        """A finding of evidence.json of this kind, None where it is absent or of another kind."""
        found = self.archive.value(name)
        if isinstance(found, bool) and kind is not bool:
            return None
        return found if isinstance(found, kind) else None

    def need(
        self,
        *names: str,
        kind: type | tuple[type, ...] = (int, float),
        verdict: str = "undecided",
        lacks: str = "",
    ) -> list[Any]:
        """Findings that must all be there.

        Args:
            verdict: what is missing, where this archive's study is the one that makes the finding.
            lacks: what to say then; the finding's name where blank.

        Raises:
            Open: one is not.
        """
        values = [self.value(name, kind) for name in names]
        missing = [name for name, value in zip(names, values, strict=True) if value is None]
        if missing:
            raise self.lacking(missing[0], verdict, lacks)
        return values

    def lacking(self, finding: str, verdict: str = "undecided", lacks: str = "") -> Open:
        """What to raise where a finding is absent. Of a study that does not make it nothing follows but that; a GPU is
        missing only where there was none."""
        studies = next((s for start, s in STUDIES_OF.items() if finding.startswith(start)), ())
        fits = self.archive.run.study in studies
        made = f", which study {' or '.join(studies)} makes" if studies and not fits else ""
        words = f"this archive, of study {self.archive.run.study}, has not the finding {finding}{made}"
        if verdict == "needs-gpu":
            return Open("undecided" if self.gpu else verdict, words, fits)
        return Open(verdict, lacks or words) if fits else Open("undecided", words, fits=False)

    # ---- samples

    def need_gpu(self) -> None:
        if not self.gpu:
            raise Open("needs-gpu", "measured on a GPU only; this archive has none", fits=False)

    def rust(self, stage: str) -> str:
        """The Rust kernel of a stage: cuda-oxide's, or stock rustc's where that is absent.

        Raises:
            Open: neither was timed.
        """
        self.need_gpu()
        timed = set(self.table.kernels(stage))
        names = [f"{language}/{stage}/plain" for language in RUST]
        for name in names:
            if name in timed:
                return name
        raise self.untimed(f"a Rust {stage} kernel", names)

    def need_kernels(self, *kernels: str) -> None:
        """Raises Open unless every kernel was timed."""
        self.need_gpu()
        timed = set(self.table.kernels())
        for kernel in kernels:
            if kernel not in timed:
                raise self.untimed(kernel, [kernel])

    def untimed(self, what: str, kernels: Sequence[str]) -> Open:
        """What to raise where none of these kernels was timed or built: a toolchain is missing only where the run says
        so."""
        for kernel in kernels:
            why = self._no_toolchain(kernel)
            if why is not None:
                return Open("needs-toolchain", f"{kernel} was not built: {why}")
        return Open("undecided", f"this archive, of study {self.archive.run.study}, did not time {what}", fits=False)

    def _no_toolchain(self, kernel: str) -> str | None:
        """Why a kernel was not built, where it is for want of a toolchain."""
        for entry in self.archive.run.skipped:
            if entry.status in NO_TOOLCHAIN and fnmatch.fnmatchcase(kernel, entry.kernel):
                return entry.why
        manifest = self.manifest(kernel)
        if manifest is not None and manifest.get("status") in NO_TOOLCHAIN:
            return str(manifest.get("reason") or manifest["status"])
        return None

    def need_manifest(self, kernel: str) -> dict[str, Any]:
        """The manifest of a kernel that was built.

        Raises:
            Open: it was not.
        """
        manifest = self.manifest(kernel)
        if manifest is not None and manifest.get("status") == "ok":
            return manifest
        if manifest is None or self._no_toolchain(kernel) is not None:
            raise self.untimed(f"or build {kernel}", [kernel])
        raise Open("undecided", f"{kernel} was not built: {manifest.get('reason', manifest.get('status'))}")

    @cached_property
    def _compared(self) -> dict[tuple[str, str, str, Regime], Compared | None]:
        return {}

    def compare(self, kernel: str, base: str, cell: str, regime: Regime = SERIAL) -> Compared | None:
        """kernel / base in one cell and regime with floor and difference; None where they share no round."""
        key = (kernel, base, cell, regime)
        if key not in self._compared:
            self._compared[key] = self._compare(*key)
        return self._compared[key]

    def _compare(self, kernel: str, base: str, cell: str, regime: Regime) -> Compared | None:
        us = statistics.ratio(self.table, kernel, base, cell, regime)
        if us is None:
            return None
        cycles = statistics.ratio(self.table, kernel, base, cell, regime, "cycles")
        aa_floor = self.table.floor(cell, kernel.split("/")[1], regime)
        reference = (
            statistics.reference(self.table, kernel, base, cell, regime.table) if regime.launch == "serial" else None
        )
        return Compared(cell, us, cycles, aa_floor, statistics.different(us, cycles, aa_floor), reference)

    def sweep(
        self, kernel: str, base: str, regime: Regime = SERIAL, axes: Sequence[str] | None = None
    ) -> list[Compared]:
        """compare() over every plain cell (no +variant) of these axes that has both, in the cells' order. A cell in
        which a sample of either was lossy or failed is left out, as the paper discards it: the rounds that happened to
        lose nothing are not the kernel's."""
        found = []
        for cell in self.cells(axes):
            if not (self.table.whole(kernel, cell, regime) and self.table.whole(base, cell, regime)):
                continue
            compared = self.compare(kernel, base, cell, regime)
            if compared is not None and len(compared.us.passes) >= statistics.MIN_PASSES:
                found.append(compared)
        return found

    def need_sweep(
        self, kernel: str, base: str, regime: Regime = SERIAL, axes: Sequence[str] | None = None, least: int = 1
    ) -> list[Compared]:
        """sweep() with at least `least` cells of at least two passes.

        Raises:
            Open: kernels not timed, a quick run, or too few cells.
        """
        self.need_kernels(kernel, base)
        found = self.sweep(kernel, base, regime, axes)
        if len(found) < least:
            where = f" of axis {', '.join(axes)}" if axes else ""
            passes = statistics.MIN_PASSES
            raise Open(
                "undecided",
                f"{counted(len(found), 'cell')}{where} with {passes} passes of both kernels, {least} needed",
            )
        return found

    def cells(self, axes: Sequence[str] | None = None) -> list[str]:
        """Plain cells of these axes: data/cells.toml's order first, then the archive's others by name."""
        known = load_cells()
        names = [name for name in known if name in self.archive.run.cells]
        names += sorted(name for name in self.archive.run.cells if name not in known and "+" not in name)
        return [name for name in names if axes is None or self.axis(name) in axes]

    def axis(self, cell: str) -> str:
        """The question a cell answers."""
        facts = self.archive.run.cells.get(cell)
        if facts is not None and facts.axis:
            return facts.axis
        known = load_cells().get(cell)
        return known.axis if known is not None else ""

    def need_passes(self, *keys: tuple[str, str]) -> None:
        """Raises Open unless each (kernel, cell) has MIN_PASSES passes, serial on a fresh table."""
        for kernel, cell in keys:
            count = len(self.table.medians(kernel, cell))
            if count < statistics.MIN_PASSES:
                passes = "1 pass" if count == 1 else f"{count} passes"
                raise Open("undecided", f"{passes} of {kernel} on {cell}, {statistics.MIN_PASSES} needed")

    def median_us(self, kernel: str, cell: str, regime: Regime = SERIAL) -> float | None:
        """Median over passes of the passes' median time, microseconds a launch."""
        medians = list(self.table.medians(kernel, cell, regime).values())
        return statistics.median(medians) if medians else None

    # ---- gates and counters

    def gates(self, tier: str | None = None, **match: Any) -> list[Gate]:
        """Gates that ran, of a tier, whose fields equal `match`."""
        wanted = match if tier is None else {**match, "tier": tier}
        # The rarest of the wanted values first: claims ask a few dozen times, and there are thousands of gates.
        fewest = min((self._ran_by(key).get(value, []) for key, value in wanted.items()), key=len, default=self._ran)
        return [gate for gate in fewest if all(getattr(gate, key) == value for key, value in wanted.items())]

    @cached_property
    def _ran(self) -> list[Gate]:
        return [gate for gate in self.archive.gates if gate.skipped is None]

    @cached_property
    def _by(self) -> dict[str, dict[Any, list[Gate]]]:
        return {}

    def _ran_by(self, key: str) -> dict[Any, list[Gate]]:
        """Gates that ran, by the value of a field."""
        if key not in self._by:
            found = self._by.setdefault(key, {})
            for gate in self._ran:
                found.setdefault(getattr(gate, key), []).append(gate)
        return self._by[key]

    def counter(self, kernel: str, metric: str, cell: str = "base") -> float | None:
        """A hardware counter: the median over its rows, None where there is none."""
        rows = self.archive.counters
        rows = rows[(rows["kernel"] == kernel) & (rows["cell"] == cell) & (rows["metric"] == metric)]
        values = rows["value"].dropna().tolist()
        return statistics.median(values) if values else None

    def manifest(self, kernel: str, arch: int | None = None) -> dict[str, Any] | None:
        """The manifest of a kernel for the device that ran, or for `arch`; the lowest one where no device ran."""
        ran = [p.arch for p in self.archive.run.passes if p.arch]
        wanted = arch if arch is not None else (ran[0] if ran else None)
        found = {a: m for (a, name), m in self.archive.manifests.items() if name == kernel}
        if wanted is not None:
            return found.get(wanted)
        return found[min(found)] if found else None


def arm_of(gate: Gate) -> str:
    """The arm a gate judged, without `interpreted`, which is its place."""
    return gate.arm.removesuffix(" interpreted")


def within(value: float, figure: float, tolerance: float = FIGURE) -> bool:
    """Whether a figure is met: |value / figure - 1| <= tolerance."""
    return math.isfinite(value) and abs(value / figure - 1) <= tolerance


def ends_missed(low: float, high: float, figure: tuple[float, float], inner: tuple[float, float]) -> list[str]:
    """Which ends of a range are not the figure's, within FIGURE.

    Args:
        low, high: ours. figure: the paper's range over all its cells and cards. inner: its range over our cells, which
            ours must reach. An end between the two is met.
    """
    outside = {"lowest": low < figure[0] * (1 - FIGURE) or low > inner[0] * (1 + FIGURE)}
    outside["highest"] = high > figure[1] * (1 + FIGURE) or high < inner[1] * (1 - FIGURE)
    return [name for name, missed in outside.items() if missed]


def span(found: Sequence[Compared]) -> tuple[float, float, float]:
    """Median, lowest and highest of the cells' median ratios."""
    values = [compared.us.median for compared in found]
    return statistics.median(values), min(values), max(values)


def need_floor(found: Sequence[Compared]) -> None:
    """Where `not different` speaks for a claim, there must have been something to differ from.

    Raises:
        Open: a cell has no A/A control.
    """
    bare = [compared.cell for compared in found if compared.floor is None]
    if bare:
        raise Open("undecided", f"no A/A control on {', '.join(dict.fromkeys(bare))}")


def over(found: Sequence[Compared], limit: float) -> str | None:
    """`refuted` where a cell is above the limit in every pass, beyond its A/A floor; `undecided` where one is above it
    in the median only, or has no floor; None where none is above."""
    if any(c.floor is not None and c.us.low > limit * (1 + c.floor) for c in found):
        return "refuted"
    return "undecided" if any(c.floor is None or c.us.median > limit for c in found) else None


def worst_floor(found: Sequence[Compared]) -> float | None:
    """The largest A/A floor of these cells, None where any has none."""
    floors = [compared.floor for compared in found]
    return max(f for f in floors if f is not None) if floors and None not in floors else None


def x(value: float) -> str:
    """A ratio as text."""
    return f"{value:.3g}x" if value < 10 else f"{value:.1f}x"


def between(low: float, high: float) -> str:
    """`1.02x to 1.3x`, or one ratio where both read the same."""
    return f"{x(low)} to {x(high)}" if x(low) != x(high) else x(low)


def counted(number: int, what: str) -> str:
    """`1 cell`, `12 cells`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
