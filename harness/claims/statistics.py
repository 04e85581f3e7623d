"""How samples become a number (method: Statistics, A/A, Order). Pure functions of a samples table.

A pass's ratio is the median over rounds of the ratio within the round; over passes stand the median and the range.
Only samples with status ok enter. Nothing is dropped, nothing is pooled across archives.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from harness.archive.read import Frame

PASS = ["pass", "device_uuid"]
CI_PASSES = 6
"""Passes from which on an interval is given; below, a bootstrap of three numbers only repeats their range."""
CI_DRAWS = 2_000
PERCENTILE_SAMPLES = {50: 1, 95: 40, 99: 200}
"""Samples below which a percentile is absent: p95 of fewer than 40 is the largest or second largest sample."""
MIN_PASSES = 2
"""Passes below which nothing is called different: a single pass has no range."""


@dataclass(frozen=True)
class Regime:
    """The regime part of a sample's key; the default is where verdicts are judged."""

    launch: str = "serial"
    table: str = "fresh"
    l2: str = "asreset"
    load: str = "aot"

    def __str__(self) -> str:
        return f"{self.launch}, {self.table}, {self.l2}, {self.load}"


SERIAL = Regime()
CONCURRENT = Regime(launch="concurrent")
FILLED = Regime(table="filled")


@dataclass(frozen=True)
class Ratio:
    """A ratio of two kernels, or of one kernel in two regimes.

    Attributes:
        passes: the ratio of each pass, ordered by device and pass.
        devices: the device of each.
        rounds: rounds compared, all passes together.
        ahead: rounds in which the ratio is below 1.
    """

    passes: tuple[float, ...]
    devices: tuple[str, ...]
    rounds: int
    ahead: int

    @property
    def median(self) -> float:
        return median(self.passes)

    @property
    def low(self) -> float:
        return min(self.passes)

    @property
    def high(self) -> float:
        return max(self.passes)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the median over passes, None below CI_PASSES passes."""
        return bootstrap(self.passes, self.devices)


def median(values: Sequence[float]) -> float:
    """Median as the mean of the middle two, in plain Python so that no library's rounding enters."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Nearest-rank percentile, None where there are too few samples to have one."""
    if len(values) < PERCENTILE_SAMPLES[percent]:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def _stream(label: str, count: int, below: int) -> list[int]:
    """`count` whole numbers below `below` from a frozen stream: SHA-256 in counter mode, the same on every machine and
    with every library version, which no package's generator promises."""
    numbers: list[int] = []
    block = 0
    while len(numbers) < count:
        digest = hashlib.sha256(f"irr bootstrap 1/{label}/{block}".encode()).digest()
        # 32 bits for a range of a few dozen: the bias of the remainder is below 1e-8.
        numbers += [int.from_bytes(digest[i : i + 4], "little") % below for i in range(0, 32, 4)]
        block += 1
    return numbers[:count]


@lru_cache(maxsize=512)
def _draws(size: int) -> np.ndarray:
    return np.array(_stream(f"{size}", CI_DRAWS * size, size)).reshape(CI_DRAWS, size)


def bootstrap(values: Sequence[float], strata: Sequence[str]) -> tuple[float, float] | None:
    """95 % interval of the median, resampling passes within each device (a stratum); None below CI_PASSES values."""
    if len(values) < CI_PASSES:
        return None
    groups: dict[str, list[float]] = {}
    for value, stratum in zip(values, strata, strict=True):
        groups.setdefault(stratum, []).append(value)
    resampled = [np.array(groups[name])[_draws(len(groups[name]))] for name in sorted(groups)]
    medians = np.sort(np.median(np.concatenate(resampled, axis=1), axis=1))
    return float(medians[int(0.025 * CI_DRAWS)]), float(medians[int(0.975 * CI_DRAWS) - 1])


Round = tuple[str, int, int]
"""(device, pass, round): what two samples must share to stand in one ratio."""


class Table:
    """A samples table with its keys looked up once: a matrix has 10^5 rows and claims ask it 10^4 times."""

    def __init__(self, samples: Frame) -> None:
        self.rows = samples
        # Places of a group's rows, not a table of each: pandas takes longer to make one than to answer from a list.
        self._groups: dict[tuple[str, ...], list[int]] = {}
        keys = (samples[name].tolist() for name in ("kernel", "cell", "launch", "table", "l2", "load"))
        for at, key in enumerate(zip(*keys, strict=True)):
            self._groups.setdefault(key, []).append(at)
        self._lists: dict[str, list[Any]] = {}
        rows = samples[["kernel", "cell", "stage"]].drop_duplicates()
        self._stage = {(str(k), str(c)): str(s) for k, c, s in rows.to_numpy().tolist()}
        self._series: dict[tuple[str, str, Regime, str, tuple[str, ...]], dict[Round, float]] = {}
        self._floors: dict[tuple[str, str, Regime], float | None] = {}

    def select(self, kernel: str, cell: str, regime: Regime = SERIAL, status: tuple[str, ...] = ("ok",)) -> Frame:
        """Samples of one kernel in one cell and regime, of these statuses."""
        return self.rows.iloc[self._places(kernel, cell, regime, status)]

    def _places(self, kernel: str, cell: str, regime: Regime, status: tuple[str, ...]) -> list[int]:
        """Rows of one kernel in one cell and regime, of these statuses, in the table's order."""
        group = self._groups.get((kernel, cell, regime.launch, regime.table, regime.l2, regime.load), [])
        found = self._list("status")
        return [at for at in group if found[at] in status]

    def whole(self, kernel: str, cell: str, regime: Regime = SERIAL) -> bool:
        """Whether every sample of a kernel in this cell and regime is ok, and there is one."""
        group = self._groups.get((kernel, cell, regime.launch, regime.table, regime.l2, regime.load), [])
        found = self._list("status")
        return bool(group) and all(found[at] == "ok" for at in group)

    def _list(self, column: str) -> list[Any]:
        if column not in self._lists:
            if column == "cycles or clock":
                values = self.rows["cycles"].fillna(self.rows["us"] * self.rows["sm_clock_mhz"])
            else:
                values = self.rows[column]
            self._lists[column] = values.tolist()
        return self._lists[column]

    def series(
        self, kernel: str, cell: str, regime: Regime = SERIAL, value: str = "us", status: tuple[str, ...] = ("ok",)
    ) -> dict[Round, float]:
        """`us` or `cycles` of a kernel's samples by round. Cycles are the stamps', or time x clock where there are none
        (us x MHz). Only a table that shows times asks for other statuses than ok."""
        key = (kernel, cell, regime, value, status)
        if key not in self._series:
            numbers = self._list("us" if value == "us" else "cycles or clock")
            devices, passes, turns = (self._list(name) for name in ("device_uuid", "pass", "round"))
            self._series[key] = {
                (devices[at], passes[at], turns[at]): numbers[at]
                for at in self._places(kernel, cell, regime, status)
                if numbers[at] > 0
            }
        return self._series[key]

    def medians(self, kernel: str, cell: str, regime: Regime = SERIAL) -> dict[tuple[str, int], float]:
        """Median time of each pass, by (device, pass)."""
        return pass_medians(self.series(kernel, cell, regime))

    def cells(self, kernel: str, regime: Regime = SERIAL) -> list[str]:
        """Cells in which the kernel has an ok sample in this regime, sorted."""
        wanted = (regime.launch, regime.table, regime.l2, regime.load)
        found = [key[1] for key in self._groups if key[0] == kernel and key[2:] == wanted]
        return sorted(cell for cell in found if self.series(kernel, cell, regime))

    def kernels(self, stage: str | None = None, cell: str | None = None) -> list[str]:
        """Kernels that were sampled, sorted."""
        return sorted({k for (k, c), s in self._stage.items() if stage in (None, s) and cell in (None, c)})

    def regimes(self) -> list[Regime]:
        """Regimes that were sampled, sorted."""
        return sorted({Regime(*key[2:]) for key in self._groups}, key=str)

    def floor(self, cell: str, stage: str, regime: Regime = SERIAL) -> float | None:
        """The A/A floor: the largest |median ratio - 1| over passes of any twin of this stage; None without a twin."""
        key = (cell, stage, regime)
        if key not in self._floors:
            twins = [kernel for kernel in self.kernels(stage, cell) if kernel.endswith("@twin")]
            pairs = [ratio(self, twin, twin.removesuffix("@twin"), cell, regime) for twin in twins]
            found = [abs(value - 1) for pair in pairs if pair is not None for value in pair.passes]
            self._floors[key] = max(found) if found else None
        return self._floors[key]


def pass_medians(series: dict[Round, float]) -> dict[tuple[str, int], float]:
    """Median of each pass, by (device, pass)."""
    passes: dict[tuple[str, int], list[float]] = {}
    for (device, n, _), us in series.items():
        passes.setdefault((device, n), []).append(us)
    return {key: median(values) for key, values in sorted(passes.items())}


def ratio_of(numerator: dict[Round, float], denominator: dict[Round, float]) -> Ratio | None:
    """Ratio of two series, paired within pass and round; None where no round has both."""
    passes: dict[tuple[str, int], list[float]] = {}
    for key in sorted(numerator.keys() & denominator.keys()):
        passes.setdefault(key[:2], []).append(numerator[key] / denominator[key])
    if not passes:
        return None
    ratios = [value for values in passes.values() for value in values]
    return Ratio(
        tuple(median(values) for values in passes.values()),
        tuple(device for device, _ in passes),
        len(ratios),
        sum(value < 1 for value in ratios),
    )


def ratio(table: Table, kernel: str, base: str, cell: str, regime: Regime = SERIAL, value: str = "us") -> Ratio | None:
    """How much slower `kernel` is than `base` in one cell and regime."""
    return ratio_of(table.series(kernel, cell, regime, value), table.series(base, cell, regime, value))


def reference(table: Table, kernel: str, base: str, cell: str, state: str = "fresh") -> Ratio | None:
    """The derived row `reference`: the kernel's `serial` over the base's `concurrent`, same pass and round.

    It stands for what paper/reference_regime.md describes; it is no sampled regime and not the paper's host loop.
    """
    serial, concurrent = Regime(table=state), Regime(launch="concurrent", table=state)
    return ratio_of(table.series(kernel, cell, serial), table.series(base, cell, concurrent))


@dataclass(frozen=True)
class Difference:
    """Whether a ratio differs from 1, and in words why or why not.

    Attributes:
        side: -1 faster, +1 slower, 0 not told apart.
    """

    side: int
    reason: str


def different(us: Ratio, cycles: Ratio | None, aa_floor: float | None) -> Difference:
    """Every pass on the same side of 1, the range clear of the A/A floor, and the same in cycles "
    "(method: Statistics)."""
    if len(us.passes) < MIN_PASSES:
        return Difference(0, f"{len(us.passes)} pass, {MIN_PASSES} needed")
    if aa_floor is None:
        return Difference(0, "no A/A control in this cell and regime")
    side = _side(us, aa_floor)
    if side == 0:
        return Difference(0, f"range {us.low:.3f}-{us.high:.3f} is not clear of the A/A floor {aa_floor:.2%}")
    if cycles is None:
        return Difference(0, "neither cycles nor clocks were read")
    if _side(cycles, aa_floor) != side:
        return Difference(0, f"holds in time, not in cycles ({cycles.low:.3f}-{cycles.high:.3f})")
    return Difference(side, f"every pass, in time and cycles, beyond the A/A floor {aa_floor:.2%}")


def _side(value: Ratio, aa_floor: float) -> int:
    if value.low > 1 + aa_floor:
        return 1
    if value.high < 1 - aa_floor:
        return -1
    return 0


def drift(series: dict[Round, float]) -> float | None:
    """Second half of the rounds over the first, median time, the largest departure over passes; None below 4 rounds."""
    passes: dict[tuple[str, int], list[float]] = {}
    for key in sorted(series):
        passes.setdefault(key[:2], []).append(series[key])
    changes = []
    for values in passes.values():
        half = len(values) // 2
        if half >= 2:
            changes.append(median(values[-half:]) / median(values[:half]))
    return max(changes, key=lambda change: abs(change - 1)) if changes else None
