"""The schedule: which kernel is timed on which cell in which regime, and in which order. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from harness.archive.schema import PlanEntry
from harness.build.kernels import KERNELS, Kernel
from harness.build.manifest import FLAVOURS
from harness.errors import UsageError
from harness.workload.cells import Cell
from harness.workload.programs import Program

ROUNDS, QUICK_ROUNDS = 30, 5
WARMUPS = 2
BATCH = 8
PASSES = 3
SEED = 20_260

QUICK_CELLS = ("base", "pts-20k", "plane-320k")
FLUSHED_CELLS = ("base", "pts-1280k", "lf-566")

ONLY_ON: dict[str, tuple[str, ...]] = {
    "triton/allocate/static32": ("base", "pts-20k", "lf-hi"),
    "triton/allocate/static8-s256": ("base", "pts-20k", "lf-hi"),
    "rust-oxide/allocate/scoped": ("base", "pts-20k", "lf-918"),
    "rust-oxide/allocate/volatile": ("base", "pts-20k", "lf-918"),
}
"""Kernels that answer a question of a few cells only."""

TWINS = ("cuda/allocate/plain", "cuda/update/plain")
"""Kernels that go through everything under a second name: their ratio is the noise floor (method: A/A)."""

TWIN = "@twin"

CONTRACTED = FLAVOURS["fma"]
"""A kernel as its compiler contracts it: timed, and never judged exactly (harness/measure/contracted.py)."""

OLDER = "@sm80"
"""A program's PTX for sm_80, compiled by the driver for a newer card (B4)."""

CONCURRENT_VARIANTS = ("plain", "while")


def row_of(label: str) -> Kernel:
    """The kernel table's row of a sample name (`@twin`, `@bundled` and `/fma` taken off)."""
    return KERNELS[file_name(label).split("@")[0].removesuffix(CONTRACTED)]


def file_name(label: str) -> str:
    """The name under which a sample's kernel is built: a twin is the same cubin."""
    return label.removesuffix(TWIN)


@dataclass(frozen=True)
class Regime:
    """What else than the kernel and the cell belongs to a sample's key."""

    launch: str = "serial"
    table: str = "fresh"
    l2: str = "asreset"
    load: str = "aot"


@dataclass(frozen=True)
class Rule:
    """One regime of the matrix and what it applies to."""

    regime: Regime
    applies: Callable[[Kernel, str], bool]


MATRIX: tuple[Rule, ...] = (
    Rule(Regime(), lambda kernel, cell: True),
    Rule(Regime(table="filled"), lambda kernel, cell: kernel.stage == "allocate"),
    Rule(
        Regime(launch="concurrent"),
        lambda kernel, cell: kernel.stage in ("allocate", "update") and kernel.variant in CONCURRENT_VARIANTS,
    ),
    Rule(Regime(l2="flushed"), lambda kernel, cell: cell in FLUSHED_CELLS),
)

QUICK: tuple[Rule, ...] = tuple(
    rule for rule in MATRIX if rule.regime.launch == "serial" and rule.regime.l2 == "asreset"
)

HOST: tuple[Rule, ...] = (Rule(Regime(), lambda kernel, cell: kernel.host and kernel.stage in ("allocate", "update")),)
"""On a CPU there is one regime: launches run one after another, and nothing is flushed."""


BLOCKED, SHARED, NO_GRAPH, CAPPED, ALONE = "blocked", "shared", "nograph", "cap32", "alone"
"""Variants of a cell: what a control changes about it, after a plus in its name."""

CONTROL_CELL = "base"
CONTROLS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (NO_GRAPH, ("cuda/floor/null", "cuda/allocate/plain", "cuda/update/plain")),
    (CAPPED, ("cuda/update/plain",)),
    (SHARED, ("cuda/allocate/plain", "cuda/update/plain")),
    (BLOCKED, ("cuda/allocate/plain", "cuda/allocate/plain@twin")),
)
"""The controls that show why a rule exists, with the kernels they are shown on (claims P12, P13 and the graph)."""


def variant_of(name: str) -> tuple[str, str]:
    """(`base`, `blocked`) of `base+blocked`; the variant is empty where there is none."""
    cell, _, variant = name.partition("+")
    return cell, variant


def control_plan(plan: Sequence[PlanEntry], together: bool = False) -> list[PlanEntry]:
    """Entries of the controls, as far as the plan has their cell and kernels: a control needs its counterpart.

    Args:
        together: several devices run at once. Then every kernel of the cell is timed once more on the first of them,
            while the others rest (claim O9); first of all controls, so that the device is as warm as in its passes.
    """
    here = {(entry.cell, entry.kernel) for entry in plan}
    usual = Regime()
    labels = [e.kernel for e in plan if e.cell == CONTROL_CELL and Regime(e.launch, e.table, e.l2, e.load) == usual]
    controls = (((ALONE, tuple(labels)),) if together else ()) + CONTROLS
    return [
        PlanEntry(
            cell=f"{CONTROL_CELL}+{variant}",
            kernel=label,
            stage=row_of(label).stage,
            launch=usual.launch,
            table=usual.table,
            l2=usual.l2,
            load=usual.load,
        )
        for variant, labels in controls
        for label in labels
        if (CONTROL_CELL, label) in here
    ]


def matrix_kernels(rows: Iterable[Kernel]) -> list[Kernel]:
    """Those of the rows that stand in the standard matrix."""
    return [row for row in rows if row.matrix and row.stage != "extract"]


def make_plan(cells: Sequence[Cell], rows: Sequence[Kernel], rules: Sequence[Rule] = MATRIX) -> list[PlanEntry]:
    """Every entry, by cell in the given order; a twin stands beside its kernel in each of its regimes."""
    plan = []
    for cell in cells:
        for row in rows:
            if cell.name not in ONLY_ON.get(row.name, (cell.name,)):
                continue
            for rule in rules:
                if not rule.applies(row, cell.name):
                    continue
                labels = [row.name, row.name + TWIN] if row.name in TWINS else [row.name]
                regime = rule.regime
                plan += [
                    PlanEntry(
                        cell=cell.name,
                        kernel=label,
                        stage=row.stage,
                        launch=regime.launch,
                        table=regime.table,
                        l2=regime.l2,
                        load=regime.load,
                    )
                    for label in labels
                ]
    return plan


PROGRAM_ROUNDS = 10

PROGRAM_BLOCK = 256
"""Threads a block of the blog's programs; the other sizes are a control."""


def program_plan(programs: Sequence[Program], names: Collection[str]) -> list[PlanEntry]:
    """Entries of the contraction study: every kernel at the blog's block size, the C++ one twice (A/A), and
    the default C++ and Rust ones at the other sizes (B5) and from PTX through the driver's compiler (B4).

    Args:
        names: sample names that are there (`@nofmad` among them); twins and `load = jit` are made here.
    """
    plan = []
    for program in programs:
        standard = [f"{language}/fma/{program.name}-default-b{PROGRAM_BLOCK}" for language in ("cuda", "rust-oxide")]
        swept = {name.removesuffix(f"-b{PROGRAM_BLOCK}") for name in standard}
        mine = [
            name
            for name in names
            if name.split("/")[2].startswith(program.name)
            and (f"-b{PROGRAM_BLOCK}" in name or name.rpartition("-b")[0] in swept)
        ]
        entries = [(name, "aot") for name in mine]
        entries += [(standard[0] + TWIN, "aot")] if standard[0] in mine else []
        entries += [(name + suffix, "jit") for name in standard if name in mine for suffix in ("", OLDER)]
        plan += [
            PlanEntry(
                cell=program.name, kernel=label, stage="fma", launch="serial", table="fresh", l2="asreset", load=load
            )
            for label, load in entries
        ]
    return plan


def quick_cells(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of --quick among the chosen ones.

    Raises:
        UsageError: none is left.
    """
    chosen = [cell for cell in cells if cell.name in QUICK_CELLS]
    if not chosen:
        raise UsageError(f"--quick has the cells {', '.join(QUICK_CELLS)}, and --cells names none of them")
    return chosen


def shuffled(
    entries: Sequence[PlanEntry], seed: int, pass_number: int, uuid: str, round_number: int
) -> list[PlanEntry]:
    """The order of one round of a cell: all its entries once, shuffled by the recorded seed; the same everywhere.

    A generator seeded with a string hashes it by SHA-512, so the order does not depend on Python's hash seed.
    """
    cell = entries[0].cell if entries else ""
    order = list(entries)
    random.Random(f"{seed}/{pass_number}/{uuid}/{cell}/{round_number}").shuffle(order)
    return order


def blocked(entries: Sequence[PlanEntry], rounds: int) -> list[list[PlanEntry]]:
    """The order that the matrix avoids, for the control (P12): all rounds of one entry, then all of the next."""
    return [[entry] * rounds for entry in entries]
