"""The paper's claims, P1 to P43: each one function over an archive, statements in our words, figures in data/paper/.

Ratios are judged in regime `serial` on a fresh table; the derived `reference` value stands beside them (method: Launch
regime). A figure of other cards is met within registry.FIGURE; a statement without scope is refuted by one
counterexample beyond the A/A floor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.archive.read import Frame
from harness.claims import figures, statistics
from harness.claims.registry import FIGURE, Compared, Open, Verdict, View, arm_of, claim, span, within, worst_floor, x
from harness.claims.statistics import CONCURRENT, FILLED, PASS, SERIAL
from harness.workload.volume import table_size

PAPER_AXES = ("baseline", "points", "extent", "shape", "loadfactor")
"""Axes the paper has; `load` (a table given by hand) is ours."""

CUDA_ALLOCATE, CUDA_UPDATE = "cuda/allocate/plain", "cuda/update/plain"
TRITON_ALLOCATE, TRITON_UPDATE = "triton/allocate/static8", "triton/update/static8"
SMALL = "pts-20k"
FIGURE_WORDS = f"within {FIGURE:.0%} of the paper's figure, which is how far its own two cards are apart"


def figures_verdict(misses: Sequence[str], checked: int, reason: str, **numbers: object) -> Verdict:
    """reproduced when no figure is missed, else differs, naming the misses."""
    if checked == 0:
        return Verdict("undecided", f"nothing to compare: {reason}")
    if misses:
        shown = "; ".join(misses[:4]) + (f"; and {len(misses) - 4} more" if len(misses) > 4 else "")
        return Verdict("differs", f"{len(misses)} of {checked} figures are not met: {shown}. {reason}", **numbers)  # type: ignore[arg-type]
    return Verdict("reproduced", f"all {checked} figures are met. {reason}", **numbers)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------- the table and its key


@claim(
    "P1",
    "A block key in one 64-bit word can be published by one compare-exchange, so that a look-up never scans the whole "
    "table; a key in three words published one after the other cannot.",
    scope="any machine; probes per insert counted on the host",
    paper="a full-table scan per lookup with three words",
    tolerance="a full scan is as many probes as slots; twice the mean probes counts as degraded",
)
def packed_key(view: View) -> Verdict:
    names = (
        "probes.key64.mean",
        "probes.key64.max",
        "probes.three_words.mean",
        "probes.three_words.max",
        "probes.slots",
    )
    mean, most, three_mean, three_most, slots = view.need(*names)
    numbers = f"probes per insert: one word mean {mean:.3g}, most {most:.0f}; three words mean {three_mean:.3g}, most "
    numbers += f"{three_most:.0f}; {slots:.0f} slots"
    if most >= slots:
        return Verdict("refuted", f"the packed key scans the whole table as well. {numbers}.", three_mean / mean)
    if three_most >= slots or three_mean >= 2 * mean:
        return Verdict("reproduced", f"{numbers}.", three_mean / mean)
    return Verdict(
        "undecided", f"no scan was seen with three words at this number of threads. {numbers}.", three_mean / mean
    )


@claim(
    "P2",
    "The table has the next power of two above twice the pool, so it is at most half full.",
    scope="every cell whose table is not given by hand (axis load)",
    paper="at most 0.5",
    tolerance="none: whole numbers",
)
def half_full(view: View) -> Verdict:
    rows, wrong = [], []
    for cell, facts in sorted(view.archive.run.cells.items()):
        if view.axis(cell.split("+")[0]) in ("load", "program") or facts.table <= 0:
            continue
        fullest = facts.pool / facts.table
        rows.append({"cell": cell, "pool": facts.pool, "table": facts.table, "fullest": fullest})
        if fullest > 0.5 or facts.table != table_size(facts.pool):
            wrong.append(f"{cell}: pool {facts.pool} in {facts.table} slots")
    if not rows:
        raise Open("undecided", "the archive has no cell with a table of the default size")
    most = max(row["fullest"] for row in rows)
    if wrong:
        return Verdict("refuted", f"not so in {len(wrong)} of {len(rows)} cells: {wrong[0]}.", most, rows=tuple(rows))
    return Verdict(
        "reproduced",
        f"{len(rows)} cells: with its pool full a table is {most:.3g} full at most.",
        most,
        rows=tuple(rows),
    )


@claim(
    "P3",
    "An occlusion test in only one of the two passes leaves the surface as it is and changes the block count.",
    scope="a planted fault on the host, base",
    tolerance="surface: 1e-7 m, a float32 rounding at half a metre",
)
def occlusion_once(view: View) -> Verdict:
    blocks, true, surface = view.need(
        "fault.occlusion_one_pass.blocks", "fault.occlusion_one_pass.blocks_true", "fault.occlusion_one_pass.surface_m"
    )
    numbers = f"{blocks:.0f} blocks instead of {true:.0f}, surface moved by {surface:.3g} m"
    if blocks != true and surface <= 1e-7:
        return Verdict("reproduced", f"{numbers}.", blocks - true)
    return Verdict("refuted", f"{numbers}.", blocks - true)


@claim(
    "P4",
    "Most of the extraction's time is the copy to the host, not the kernel.",
    scope="base on one GPU; the share depends on the PCIe link",
    paper="1.825 ms, of it 82-97 % copy; kernel and allocation 0.319 ms",
    tolerance="share inside the paper's range",
)
def extraction_is_copy(view: View) -> Verdict:
    total, copy, kernel = view.need("extract.total_ms", "extract.copy_ms", "extract.kernel_ms", verdict="needs-gpu")
    low, high = figures.paper("extract_copy_share")
    share = copy / total
    reason = f"{total:.3g} ms in all, copy {copy:.3g} ms ({share:.0%}), kernel and allocation {kernel:.3g} ms."
    return Verdict("reproduced" if low <= share <= high else "differs", reason, share)


@claim(
    "P5",
    "Another hash in one arm would show in the times as if it were the language.",
    scope="the same kernel with another hash",
    tolerance="times: beyond the A/A floor; without a GPU: mean probes per insert differ by more than 5 %",
)
def another_hash(view: View) -> Verdict:
    kernel = "cuda/allocate/otherhash"
    if kernel in view.table.kernels():
        found = view.need_sweep(kernel, CUDA_ALLOCATE)
        moved = [c for c in found if c.difference.side]
        middle, low, high = span(found)
        rows = tuple(c.row() for c in found)
        reason = f"the other hash moves allocate in {len(moved)} of {len(found)} cells, {x(low)} to {x(high)}"
        verdict = "reproduced" if moved else "undecided"
        return Verdict(verdict, f"{reason}.", middle, low, high, worst_floor(found), rows)
    mean, other = view.need("probes.key64.mean", "probes.other_hash.mean")
    change = other / mean
    reason = f"mean probes per insert {mean:.4g} and {other:.4g} with the other hash (on the host; no time was taken)"
    return Verdict("reproduced" if abs(change - 1) > 0.05 else "undecided", f"{reason}.", change)


# ------------------------------------------------------------------------------------------------------ correctness


@claim(
    "P6",
    "Every arm reproduces a sphere within a quarter voxel, has the exact number of blocks and drops nothing; the arms' "
    "surfaces agree.",
    scope="the GPU arms that are not bounded, on base",
    paper="Hausdorff 5.5e-8 m between arms, mean |r - R| 0.000015 m",
    tolerance="gates pass; Hausdorff at most 1e-6 m (a hundredth of a percent of a voxel)",
)
def arms_agree(view: View) -> Verdict:
    view.need_gpu()
    gates = [g for g in view.gates(place="gpu") if g.cell == "base" and "/" not in g.arm]  # arms, not lone kernels
    sphere = [g for g in gates if g.gate == "sphere"]
    exact = [g for g in gates if g.tier == "exact" and g.gate == "exact-set"]
    loss = [g for g in gates if g.tier == "loss"]
    cross = [g for g in gates if g.tier == "cross-arm" and g.detail.get("hausdorff_m") is not None]
    for name, group in (("sphere", sphere), ("exact set", exact), ("loss", loss), ("cross-arm surface", cross)):
        if not group:
            raise Open("undecided", f"no {name} gate on base")
    arms = sorted({g.arm for g in exact})
    if len({arm.split("-")[0] for arm in arms}) < 3:
        raise Open("undecided", f"needs an arm of each of three languages, has {', '.join(arms)}")
    failed = [g for g in (*sphere, *exact, *loss, *cross) if not g.ok]
    if failed:
        return Verdict("refuted", f"{failed[0].gate} fails for {failed[0].subject}: {failed[0].message}")
    distance = max(float(g.detail["hausdorff_m"]) for g in cross)
    error = max(float(g.detail["mean_m"]) for g in sphere)
    reason = f"{', '.join(arms)}: mean |r - R| at most {error:.3g} m, Hausdorff at most {distance:.3g} m"
    return Verdict("reproduced" if distance <= 1e-6 else "differs", f"{reason}.", distance)


@claim(
    "P7",
    "A correctness gate found lost blocks at a load that no earlier benchmark had reached.",
    scope="the bounded Triton probe",
    paper="13 blocks at lf-hi",
    tolerance="blocks lost somewhere, none at base, and the exact gate red there",
)
def gate_found_loss(view: View) -> Verdict:
    losses = _losses(view)
    lost = {cell: blocks for cell, (blocks, _) in losses.items() if blocks[1]}
    if "base" not in losses:
        raise Open("undecided", "the static probe was not timed on base")
    if losses["base"][0][1]:
        return Verdict("refuted", f"base loses {losses['base'][0][1]:.0f} blocks already.", losses["base"][0][1])
    if not lost:
        return Verdict("differs", f"no block was lost in any of {len(losses)} cells.", 0)
    cell = min(lost, key=lambda name: view.archive.run.cells[name].load_factor)
    load = view.archive.run.cells[cell].load_factor
    reason = f"none at base; from {cell} (load {load:.3f}) on blocks are lost, {lost[cell][1]:.0f} there."
    return Verdict("reproduced", reason, lost[cell][1], lost[cell][0], lost[cell][1])


@claim(
    "P8",
    "A half-voxel bias shared by all arms passes the plane and the cross-arm comparison; only the sphere shows it.",
    scope="a planted fault in every arm at once",
    paper="0.005 m radius error, 0.000015 m once corrected: 340x",
    tolerance="plane and cross-arm green, sphere red",
)
def half_voxel(view: View) -> Verdict:
    plane, cross, sphere = view.need(
        "fault.half_voxel.plane_ok", "fault.half_voxel.cross_arm_ok", "fault.half_voxel.sphere_ok", kind=bool
    )
    wrong, right = view.need("fault.half_voxel.radius_error_m", "sphere.radius_error_m")
    words = (
        f"plane {_colour(plane)}, cross-arm {_colour(cross)}, sphere {_colour(sphere)}; mean radius "
        f"error {wrong:.3g} m "
    )
    words += f"with the bias, {right:.3g} m without ({wrong / right:.0f}x)"
    holds = plane and cross and not sphere
    return Verdict("reproduced" if holds else "refuted", f"{words}.", wrong / right)


def _colour(ok: bool) -> str:
    return "green" if ok else "red"


@claim(
    "P9",
    "Open3D's voxel block grid agrees on the shape of the result.",
    scope="third-party gate; another algorithm, so surfaces and overlap, not equality",
    tolerance="the third-party gate's own",
)
def third_party(view: View) -> Verdict:
    gates = view.gates("third-party")
    if not gates:
        raise Open("undecided", "the third-party gate was not run")
    failed = [g for g in gates if not g.ok]
    if failed:
        return Verdict("refuted", f"{failed[0].subject}: {failed[0].message}", rows=tuple(g.detail for g in gates[:8]))
    compared = sum(g.compared for g in gates)
    return Verdict("reproduced", f"{len(gates)} comparisons pass, {compared} vertices or blocks compared.", compared)


# -------------------------------------------------------------------------------------------------- how it measures


@claim(
    "P10",
    "Timing a single launch measures the host's wake-up as much as the kernel.",
    scope="allocate on base; wall time of one launch with a wait against the kernel in a graph",
    paper="about 130 us of wake-up, a spurious 4x tail",
    tolerance="wake-up within a factor of two: it is the host's scheduler, not the GPU",
)
def single_launch(view: View) -> Verdict:
    wall, tail, kernel = view.need(
        "single_launch.wall_us.p50", "single_launch.wall_us.p99", "single_launch.graph_us.p50", verdict="needs-gpu"
    )
    figure = figures.paper("launch_wakeup_us")
    extra = wall - kernel
    reason = (
        f"one launch reads {wall:.3g} us (p99 {tail:.3g}), the kernel in a graph {kernel:.3g} us: "
        f"{extra:.3g} us are the host."
    )
    if extra < kernel:
        return Verdict("differs", f"less than the kernel itself. {reason}", extra)
    return Verdict("reproduced" if figure / 2 <= extra <= figure * 2 else "differs", reason, extra)


@claim(
    "P11",
    "Allocating again into a volume that has its blocks times a look-up path, not an insertion.",
    scope="cuda/allocate/plain, serial: filled table against fresh",
    tolerance="faster beyond the A/A floor in every cell",
)
def filled_is_lookup(view: View) -> Verdict:
    view.need_kernels(CUDA_ALLOCATE)
    found: list[Compared] = []
    for cell in view.cells():
        pair = _between(view, CUDA_ALLOCATE, cell)
        if pair is not None and len(pair.us.passes) >= statistics.MIN_PASSES:
            found.append(pair)
    if not found:
        raise Open("undecided", f"no cell has {statistics.MIN_PASSES} passes of fresh and filled tables")
    faster = [c for c in found if c.difference.side < 0]
    slower = [c for c in found if c.difference.side > 0]
    middle, low, high = span(found)
    rows = tuple(c.row() for c in found)
    reason = f"filled over fresh {x(middle)} ({x(low)} to {x(high)}) over {len(found)} cells; faster in {len(faster)}"
    if slower:
        verdict, reason = "refuted", f"{slower[0].cell} is slower on a filled table. {reason}"
    else:
        verdict = "reproduced" if len(faster) == len(found) else "undecided"
    return Verdict(verdict, f"{reason}.", middle, low, high, worst_floor(found), rows)


def _between(view: View, kernel: str, cell: str) -> Compared | None:
    """One kernel's filled against its fresh, same pass and round; the floor is the larger of the two states'."""
    table = view.table
    us, cycles = (
        statistics.ratio_of(table.series(kernel, cell, FILLED, value), table.series(kernel, cell, SERIAL, value))
        for value in ("us", "cycles")
    )
    if us is None:
        return None
    stage = kernel.split("/")[1]
    floors = [table.floor(cell, stage, regime) for regime in (FILLED, SERIAL)]
    aa_floor = None if None in floors else max(f for f in floors if f is not None)
    return Compared(cell, us, cycles, aa_floor, statistics.different(us, cycles, aa_floor))


@claim(
    "P12",
    "Running one arm after the other makes the clock's ramp look like a language.",
    scope="one cubin under two names, in blocked order from idle clocks (cell base+blocked) and interleaved",
    paper="1575 to 2842 MHz within one session",
    tolerance="the blocked twin leaves the interleaved A/A floor",
)
def blocked_order(view: View) -> Verdict:
    twin = f"{CUDA_ALLOCATE}@twin"
    view.need_kernels(CUDA_ALLOCATE, twin)
    left, right = (view.table.medians(kernel, "base+blocked") for kernel in (twin, CUDA_ALLOCATE))
    aa_floor = view.table.floor("base", "allocate")
    # In blocked order no round holds both, so the passes' medians are compared: that is the error the claim is about.
    medians = [left[key] / right[key] for key in left if key in right]
    if not medians or aa_floor is None:
        raise Open("undecided", "needs base in blocked order (base+blocked) beside base in turns")
    worst = max(medians, key=lambda value: abs(value - 1))
    clocks = view.table.rows.loc[view.table.rows["cell"] == "base+blocked", "sm_clock_mhz"].dropna()
    ramp = f", SM clock {clocks.min():.0f} to {clocks.max():.0f} MHz" if len(clocks) else ""
    reason = (
        f"the same cubin differs from itself by {worst - 1:+.2%} in blocked order, by {aa_floor:.2%} in turns{ramp}."
    )
    verdict = "reproduced" if abs(worst - 1) > aa_floor else "differs"
    return Verdict(verdict, reason, worst, min(medians), max(medians), aa_floor)


@claim(
    "P13",
    "A job that shares the device gives an error of a hundred times that looks like a result.",
    scope="base beside a second process that computes (cell base+shared), flagged as shared",
    paper="4.455 ms against 0.044 ms: 100x",
    tolerance="at least ten times: the size of the error depends on the other job",
)
def shared_device(view: View) -> Verdict:
    view.need_gpu()
    found = []
    for kernel in view.table.kernels(cell="base+shared"):
        shared, alone = (view.table.select(kernel, cell, status=("ok", "lossy")) for cell in ("base+shared", "base"))
        shared, alone = shared.dropna(subset=["us"]), alone.dropna(subset=["us"])
        if len(shared) and len(alone):
            found.append((float(shared["us"].max()) / statistics.median(alone["us"].tolist()), kernel))
    if not found:
        raise Open("undecided", "needs base beside a second process (base+shared) and alone")
    factor, kernel = max(found)
    reason = f"{kernel} reads up to {factor:.3g} times its own time beside another process."
    return Verdict("reproduced" if factor >= 10 else "differs", reason, factor)


@claim(
    "P14",
    "Percentiles are given per stage with the number of samples, clocks and temperature per cell.",
    scope="every kernel, cell and regime of the archive",
    tolerance="p95 from 40 samples, p99 from 200, else absent; a clock and a temperature with every sample",
)
def distributions(view: View) -> Verdict:
    view.need_gpu()
    rows = view.archive.samples
    timed = rows[rows["status"].isin(("ok", "lossy"))]
    if timed.empty:
        raise Open("undecided", "no timed sample")
    sizes = timed.groupby(["kernel", "cell", "launch", "table", "l2", "load"]).size()
    bare = int(timed["sm_clock_mhz"].isna().sum() + timed["temperature_c"].isna().sum())
    short = int((sizes < statistics.PERCENTILE_SAMPLES[95]).sum())
    with99 = int((sizes >= statistics.PERCENTILE_SAMPLES[99]).sum())
    reason = (
        f"{len(sizes)} distributions, {int(sizes.min())} to {int(sizes.max())} samples each; p95 in "
        f"{len(sizes) - short}, "
    )
    reason += f"p99 in {with99}; {bare} missing clocks or temperatures."
    return Verdict("reproduced" if not short and not bare else "undecided", reason, len(sizes))


@claim(
    "P15",
    "The matrix has four axes and runs on two GPUs, three times.",
    scope="all archives of the matrix together",
    paper="points, extent, load factor, shape; two GPUs; three passes each",
    tolerance="none",
    spans=True,
)
def matrix_is_whole(views: Sequence[View]) -> Verdict:
    axes: set[str] = set()
    passes: dict[str, int] = {}
    for view in views:
        if not view.gpu or view.archive.run.quick or view.archive.run.study != "matrix":
            continue
        axes |= {view.axis(cell) for cell in view.archive.run.cells}
        for p in view.archive.run.passes:
            passes[p.device_uuid] = passes.get(p.device_uuid, 0) + p.complete
    if not passes:
        raise Open("needs-gpu", "no matrix of a GPU is archived")
    missing = [axis for axis in ("points", "extent", "loadfactor", "shape") if axis not in axes]
    reason = f"axes {', '.join(sorted(axes - {''}))}; passes per device {', '.join(map(str, sorted(passes.values())))}"
    if missing:
        raise Open("undecided", f"no cell of axis {', '.join(missing)}; {reason}")
    if len([n for n in passes.values() if n >= 3]) < 2:
        raise Open("needs-two-gpus", f"{len(passes)} device(s) with three passes needed twice; {reason}")
    return Verdict("reproduced", f"{reason}.", len(passes))


@claim(
    "P16",
    "A batch made smaller because a cell's volumes do not fit is reported, not applied silently.",
    scope="every timed batch",
    tolerance="none",
)
def reductions_reported(view: View) -> Verdict:
    view.need_gpu()
    run = view.archive.run
    rows = view.archive.samples[view.archive.samples["stage"].isin(("allocate", "update"))]
    if rows.empty:
        raise Open("undecided", "no timed batch")
    reported = {(r.cell, r.batch) for r in run.reductions}
    small = rows[rows["launches"] != run.batch][["cell", "launches"]].drop_duplicates().to_numpy().tolist()
    silent = [(cell, launches) for cell, launches in small if (cell, launches) not in reported]
    if silent:
        return Verdict(
            "refuted",
            f"{silent[0][0]} ran with {silent[0][1]} launches instead of {run.batch}, unreported.",
            len(silent),
        )
    reason = f"{len(rows)} batches of {run.batch} launches; {len(small)} cells with fewer, all reported."
    return Verdict("reproduced", reason, len(small))


# ------------------------------------------------------------------------------------------------------- the matrix


@claim(
    "P17",
    "Table 1: in allocate Rust stays close to CUDA C++ and Triton is more than ten times behind; in "
    "update all are close.",
    scope="the paper's synthetic cells",
    paper="allocate Rust 1.02-3.33, Triton 11.2-31.7; update Rust 0.96-1.18, Triton 1.1-2.5",
    tolerance=f"both ends of our range inside the paper's range widened by {FIGURE:.0%}",
)
def by_stage(view: View) -> Verdict:
    pairs = {
        ("allocate", "rust"): (view.rust("allocate"), CUDA_ALLOCATE),
        ("allocate", "triton"): (TRITON_ALLOCATE, CUDA_ALLOCATE),
        ("update", "rust"): (view.rust("update"), CUDA_UPDATE),
        ("update", "triton"): (TRITON_UPDATE, CUDA_UPDATE),
    }
    misses, rows = [], []
    for (stage, language), (kernel, base) in pairs.items():
        found = view.need_sweep(kernel, base, axes=PAPER_AXES, least=3)
        _, low, high = span(found)
        figure = figures.stage_range(stage, language)
        rows.append(
            {"stage": stage, "kernel": kernel, "low": low, "high": high, "paper": list(figure), "cells": len(found)}
        )
        if low < figure[0] * (1 - FIGURE) or high > figure[1] * (1 + FIGURE):
            misses.append(f"{stage} {language} {low:.3g}-{high:.3g} (paper {figure[0]}-{figure[1]})")
    words = "; ".join(f"{r['kernel']} {r['low']:.3g}-{r['high']:.3g}" for r in rows)
    triton = rows[1]
    return figures_verdict(
        misses,
        4,
        f"Ranges: {words}.",
        measured=triton["high"],
        low=triton["low"],
        high=triton["high"],
        rows=tuple(rows),
    )


@claim(
    "P18",
    "Table 3: the allocate ratio of each cell.",
    scope="the paper's synthetic cells",
    paper="Table 3 (data/paper/cells_allocate.csv)",
    tolerance=FIGURE_WORDS,
)
def by_cell(view: View) -> Verdict:
    rows, misses, checked = [], [], 0
    for column, kernel in (("rust_over_cuda", view.rust("allocate")), ("triton_over_cuda", TRITON_ALLOCATE)):
        for compared in view.need_sweep(kernel, CUDA_ALLOCATE, axes=PAPER_AXES, least=3):
            figure = figures.cell_ratio(compared.cell, column)
            if figure is None:
                continue
            checked += 1
            rows.append(compared.row(kernel=kernel, paper=figure))
            if not within(compared.us.median, figure):
                misses.append(f"{kernel} on {compared.cell} {compared.us.median:.3g} (paper {figure})")
    return figures_verdict(
        misses,
        checked,
        "Serial; the derived reference stands in the table.",
        measured=checked - len(misses),
        rows=tuple(rows),
    )


@claim(
    "P19",
    "Real depth data sits at the worse end of Triton's range; Rust shows no such effect.",
    scope="cells of real depth frames",
    paper="Triton 17.3-31.6 (median 25.2) on real cells, 21.5 over all; Rust 1.12-1.41",
    tolerance="Triton's median on real cells above its median over the sweep, beyond the A/A floor",
)
def real_cells(view: View) -> Verdict:
    view.need_kernels(TRITON_ALLOCATE, CUDA_ALLOCATE)
    real = view.sweep(TRITON_ALLOCATE, CUDA_ALLOCATE, axes=("real",))
    if not real:
        raise Open("needs-data", "no cell of real depth frames in this archive")
    synthetic = view.need_sweep(TRITON_ALLOCATE, CUDA_ALLOCATE, axes=PAPER_AXES, least=3)
    middle, low, high = span(real)
    other = span(synthetic)[0]
    aa_floor = worst_floor([*real, *synthetic])
    reason = f"Triton {x(low)} to {x(high)} on {len(real)} real cells, median {x(middle)}; synthetic median {x(other)}"
    cast = view.sweep(TRITON_ALLOCATE, CUDA_ALLOCATE, axes=("trajectory",))
    reason += f", of {len(cast)} cells of ray-cast frames {x(span(cast)[0])}." if cast else "."
    if aa_floor is None or abs(middle / other - 1) <= aa_floor:
        verdict = "undecided"
    else:
        verdict = "reproduced" if middle > other else "refuted"
    return Verdict(verdict, reason, middle, low, high, aa_floor, tuple(c.row() for c in real))


@claim(
    "P20",
    "The wide ends of both ratio ranges belong to the smallest cell, because a fixed cost per launch dominates there.",
    scope="allocate over the sweep; the fixed cost is the null kernel's",
    paper="pts-20k",
    tolerance=(
        "the widest ratio of Rust and of Triton is pts-20k's, beyond the A/A floor, and the null kernel "
        "is at least half of it"
    ),
)
def smallest_cell(view: View) -> Verdict:
    null = "cuda/floor/null"
    ends, rows = {}, []
    for language, kernel in (("Rust", view.rust("allocate")), ("Triton", TRITON_ALLOCATE)):
        found = view.need_sweep(kernel, CUDA_ALLOCATE, axes=PAPER_AXES, least=3)
        if SMALL not in {c.cell for c in found}:
            raise Open("undecided", f"{SMALL} was not timed with {kernel}")
        widest = max(found, key=lambda c: abs(math.log(c.us.median)))
        ends[language] = widest
        rows.append(widest.row(kernel=kernel))
    base, nothing = view.median_us(CUDA_ALLOCATE, SMALL), view.median_us(null, SMALL)
    alone, side = view.median_us(CUDA_ALLOCATE, SMALL, SERIAL), view.median_us(CUDA_ALLOCATE, SMALL, CONCURRENT)
    if base is None or nothing is None:
        raise Open("undecided", f"no null kernel on {SMALL}")
    share = nothing / base
    words = "; ".join(f"{name} widest on {c.cell} ({x(c.us.median)})" for name, c in ends.items())
    reason = f"{words}; the null kernel is {share:.0%} of CUDA's allocate on {SMALL}"
    if alone is not None and side is not None:
        reason += f", and eight branches read {side:.3g} us where one stream reads {alone:.3g} us"
    published = sorted(figures.rows("cells_allocate"), key=lambda row: float(row["triton_over_cuda"]))
    reason += f" (in the paper's own Table 3 Triton's ends are {published[0]['cell']} and {published[-1]['cell']})"
    holds = all(c.cell == SMALL and c.difference.side for c in ends.values()) and share >= 0.5
    return Verdict("reproduced" if holds else "refuted", f"{reason}.", share, rows=tuple(rows))


@dataclass(frozen=True)
class Total:
    """allocate + update of an arm against CUDA's: microseconds a launch, ratio (median over passes), passes, and
    allocate's share of CUDA's total."""

    us: float
    base_us: float
    ratio: float
    passes: int
    allocate_share: float


def _totals(view: View, allocate: str, update: str, cell: str) -> dict[tuple[str, int], float]:
    """allocate + update per pass, from the passes' medians."""
    medians = [view.table.medians(kernel, cell) for kernel in (allocate, update)]
    return {key: medians[0][key] + medians[1][key] for key in sorted(medians[0].keys() & medians[1].keys())}


def total_ratio(view: View, allocate: str, update: str, cell: str) -> Total | None:
    """An arm's total against CUDA's in one cell, None where no pass has both."""
    cuda, ours = _totals(view, CUDA_ALLOCATE, CUDA_UPDATE, cell), _totals(view, allocate, update, cell)
    both = [key for key in cuda if key in ours]
    part = view.median_us(CUDA_ALLOCATE, cell)
    if not both or part is None:
        return None
    base = statistics.median([cuda[key] for key in both])
    us = statistics.median([ours[key] for key in both])
    return Total(us, base, statistics.median([ours[key] / cuda[key] for key in both]), len(both), part / base)


TABLE2 = {"base": "Sphere 320k points", "pts-1280k": "Sphere 1.28M points", "plane-320k": "Plane 320k points"}


@claim(
    "P21",
    "Table 2: allocate is about a tenth of integration, so in total Rust is level with CUDA C++ and Triton is behind.",
    scope="base, pts-1280k and plane-320k; the paper's 1-3 % and 2.6-2.9x are of real frames",
    paper="Rust within 1-3 %, Triton 2.6-2.9x (real frames); Table 2",
    tolerance=f"totals {FIGURE_WORDS}; allocate's share between 5 and 20 %",
)
def totals(view: View) -> Verdict:
    view.need_kernels(CUDA_ALLOCATE, CUDA_UPDATE, TRITON_ALLOCATE, TRITON_UPDATE)
    rust = (view.rust("allocate"), view.rust("update"))
    rows, misses, shares = [], [], {}
    for cell, workload in TABLE2.items():
        published = [row for row in figures.rows("totals_integrate_ms") if row["workload"] == workload]
        for language, kernels in (("rust", rust), ("triton", (TRITON_ALLOCATE, TRITON_UPDATE))):
            total = total_ratio(view, *kernels, cell)
            if total is None or total.passes < statistics.MIN_PASSES:
                continue
            theirs = [float(row[f"{language}_ms"]) / float(row["cuda_ms"]) for row in published]
            shares[cell] = total.allocate_share
            rows.append({"cell": cell, "language": language, "ratio": total.ratio, "paper": theirs})
            if not min(theirs) * (1 - FIGURE) <= total.ratio <= max(theirs) * (1 + FIGURE):
                misses.append(f"{language} on {cell} {total.ratio:.3g}x (paper {min(theirs):.3g}-{max(theirs):.3g})")
    if not shares:
        raise Open("undecided", "no cell of Table 2 has two passes of all arms")
    checked = len(rows) + len(shares)
    misses += [f"allocate is {share:.0%} on {cell}" for cell, share in shares.items() if not 0.05 <= share <= 0.2]
    least, most = min(shares.values()), max(shares.values())
    reason = f"Allocate is {least:.0%} to {most:.0%} of CUDA's total."
    return figures_verdict(misses, checked, reason, measured=statistics.median(list(shares.values())), rows=tuple(rows))


@claim(
    "P22",
    "More points and more extent move Triton's allocate ratio in opposite directions.",
    scope="points pts-20k to pts-1280k, extent r-0.25 to r-2.0",
    paper="17.2 to 24.6 with points, 21.2 to 11.3 with extent",
    tolerance="end over beginning beyond the A/A floor, one up, one down",
)
def opposite_levers(view: View) -> Verdict:
    found = {c.cell: c for c in view.need_sweep(TRITON_ALLOCATE, CUDA_ALLOCATE, axes=("points", "extent"))}
    ends = (("points", "pts-20k", "pts-1280k"), ("extent", "r-0.25", "r-2.0"))
    changes = {}
    for axis, first, last in ends:
        if first not in found or last not in found:
            raise Open("undecided", f"the {axis} axis lacks {first} or {last}")
        changes[axis] = found[last].us.median / found[first].us.median
    aa_floor = worst_floor(list(found.values()))
    reason = f"with points the ratio changes {changes['points']:.3g}x, with extent {changes['extent']:.3g}x."
    rows = tuple(c.row() for c in found.values())
    if aa_floor is None or any(abs(change - 1) <= 2 * aa_floor for change in changes.values()):
        return Verdict(
            "undecided", f"not clear of the A/A floor: {reason}", changes["points"], floor=aa_floor, rows=rows
        )
    opposite = (changes["points"] - 1) * (changes["extent"] - 1) < 0
    return Verdict("reproduced" if opposite else "refuted", reason, changes["points"], floor=aa_floor, rows=rows)


@claim(
    "P23",
    "The arms' allocate gets faster with more SMs; Triton with 256 scratch slots does not.",
    scope="one card with a part of its SMs (cells base+smsN)",
    paper="1.1-2.2x of 2.33x; Triton with 256 slots 0.89-1.07x",
    tolerance=f"arms at least 1.1x; 256 slots inside the paper's range widened by {FIGURE:.0%}",
)
def scales_with_sms(view: View) -> Verdict:
    view.need_gpu()
    cells = {}
    for cell in {str(c) for c in view.table.rows["cell"]}:
        if cell.startswith("base+sms") and cell[8:].isdigit():
            cells[int(cell[8:])] = cell
    if len(cells) < 2:
        raise Open("undecided", "needs base on two numbers of SMs (base+smsN)")
    few, many = min(cells), max(cells)
    available = many / few
    scaling = {}
    for kernel in view.table.kernels("allocate", cells[few]):
        slow, fast = view.median_us(kernel, cells[few]), view.median_us(kernel, cells[many])
        if slow is not None and fast is not None and "@" not in kernel:
            scaling[kernel] = slow / fast
    tight = scaling.pop("triton/allocate/static8-s256", None)
    arms = {k: v for k, v in scaling.items() if k.endswith("/plain") or k == TRITON_ALLOCATE}
    if not arms or tight is None:
        raise Open("undecided", "needs the arms and triton/allocate/static8-s256 on both numbers of SMs")
    low, high = figures.paper("scaling_256_slots")
    words = ", ".join(f"{k} {v:.3g}x" for k, v in sorted(arms.items()))
    reason = f"of {available:.3g}x SMs ({few} to {many}): {words}; 256 slots {tight:.3g}x."
    misses = [f"{k} {v:.3g}x" for k, v in sorted(arms.items()) if v < 1.1]
    if not low * (1 - FIGURE) <= tight <= high * (1 + FIGURE):
        misses.append(f"256 slots {tight:.3g}x")
    rows = tuple({"kernel": k, "scaling": v} for k, v in sorted(arms.items()))
    return figures_verdict(misses, len(arms) + 1, reason, measured=tight, rows=rows)


@claim(
    "P24",
    "The ratios agree across cards.",
    scope="archives of two kinds of card with the same kernels",
    paper="Triton 17.9x on both at base; Rust 1.01-1.03x on both with real data",
    tolerance=f"the cards' medians within {FIGURE:.0%} in every cell",
    spans=True,
)
def cards_agree(views: Sequence[View]) -> Verdict:
    by_card: dict[str, View] = {}
    for view in views:
        if view.gpu and not view.archive.run.quick and view.archive.run.study == "matrix":
            for name in view.archive.device_names[:1]:
                by_card[name] = view
    if len(by_card) < 2:
        kinds = ", ".join(by_card) or "none"
        raise Open("needs-two-gpus", f"two kinds of card needed, archived: {kinds}; two of one kind share its balance")
    (first, a), (second, b) = sorted(by_card.items())[:2]
    rows, apart = [], []
    for kernel in (a.rust("allocate"), TRITON_ALLOCATE):
        left = {c.cell: c for c in a.sweep(kernel, CUDA_ALLOCATE, axes=PAPER_AXES)}
        right = {c.cell: c for c in b.sweep(kernel, CUDA_ALLOCATE, axes=PAPER_AXES)}
        for cell in sorted(left.keys() & right.keys()):
            quotient = left[cell].us.median / right[cell].us.median
            rows.append({"cell": cell, "kernel": kernel, first: left[cell].us.median, second: right[cell].us.median})
            if abs(quotient - 1) > FIGURE:
                apart.append(f"{kernel} on {cell} {left[cell].us.median:.3g} and {right[cell].us.median:.3g}")
    if not rows:
        raise Open("undecided", "the two cards share no cell")
    reason = f"{len(rows) - len(apart)} of {len(rows)} ratios agree between {first} and {second}"
    if apart:
        return Verdict("refuted", f"{reason}; not {apart[0]}.", len(apart), rows=tuple(rows))
    return Verdict("reproduced", f"{reason}.", len(rows), rows=tuple(rows))


# --------------------------------------------------------------------------------------------------- Triton's scratch

TIGHT = "triton/allocate/static8-s256"


@claim(
    "P25",
    "A scratch region of 256 slots shared by all programs costs a multiple of one indexed by program.",
    scope="base",
    paper="1.812 ms and 0.524 ms: 3.5x",
    tolerance=FIGURE_WORDS,
)
def scratch_costs(view: View) -> Verdict:
    compared = _need_one(view, TIGHT, TRITON_ALLOCATE, "base")
    slow, fast = figures.paper("scratch_ms")
    reason = f"256 slots take {x(compared.us.median)} the time of a region per program (paper {slow / fast:.3g}x)."
    return _figure(compared, slow / fast, reason)


def _need_one(view: View, kernel: str, base: str, cell: str) -> Compared:
    view.need_kernels(kernel, base)
    compared = view.compare(kernel, base, cell)
    if compared is None or len(compared.us.passes) < statistics.MIN_PASSES:
        raise Open("undecided", f"{kernel} and {base} share fewer than {statistics.MIN_PASSES} passes on {cell}")
    return compared


def _figure(compared: Compared, figure: float, reason: str) -> Verdict:
    met = within(compared.us.median, figure)
    us = compared.us
    return Verdict(
        "reproduced" if met else "differs", reason, us.median, us.low, us.high, compared.floor, (compared.row(),)
    )


@claim(
    "P26",
    "More scratch stops helping before every lane has an address of its own.",
    scope="base, scratch sizes swept (static8-sN; static8 itself has 65,536)",
    tolerance="a size below one address a lane is within 2 % or the A/A floor of the fastest size",
)
def scratch_saturates(view: View) -> Verdict:
    view.need_kernels(TRITON_ALLOCATE)
    facts = view.archive.run.cells.get("base")
    times = {65_536: view.median_us(TRITON_ALLOCATE, "base")}
    for kernel in view.table.kernels("allocate", "base"):
        size = kernel.removeprefix("triton/allocate/static8-s")
        if size != kernel and size.isdigit():
            times[int(size)] = view.median_us(kernel, "base")
    known = {size: us for size, us in sorted(times.items()) if us is not None}
    if facts is None or len(known) < 4 or max(known) < facts.points:
        lanes = "" if facts is None else f", one of at least {facts.points} (a slot a lane)"
        raise Open(
            "undecided", f"needs four sizes of scratch on base{lanes}; has {', '.join(map(str, known)) or 'none'}"
        )
    aa_floor = view.table.floor("base", "allocate") or 0.0
    best = min(known.values())
    enough = min(size for size, us in known.items() if us <= best * (1 + max(0.02, aa_floor)))
    words = ", ".join(f"{size}: {us:.4g} us" for size, us in known.items())
    reason = f"{enough} slots are as fast as any, a slot a lane would be {facts.points} ({words})."
    rows = tuple({"slots": size, "us": us} for size, us in known.items())
    return Verdict("reproduced" if enough < facts.points else "refuted", reason, enough, floor=aa_floor, rows=rows)


@claim(
    "P27",
    "Most of the first reported Triton gap was the size of that scratch region, not the language.",
    scope="base",
    paper="73x with 256 slots, 17.9x after",
    tolerance=f"both figures {FIGURE_WORDS}",
)
def headline_fell(view: View) -> Verdict:
    before, after = figures.paper("headline")
    tight, private = (_need_one(view, kernel, CUDA_ALLOCATE, "base") for kernel in (TIGHT, TRITON_ALLOCATE))
    misses = [
        f"{name} {x(c.us.median)} (paper {figure}x)"
        for name, c, figure in (("256 slots", tight, before), ("per program", private, after))
        if not within(c.us.median, figure)
    ]
    reason = f"{x(tight.us.median)} with 256 slots, {x(private.us.median)} with a region per program."
    return figures_verdict(
        misses,
        2,
        reason,
        measured=tight.us.median,
        low=private.us.median,
        high=tight.us.median,
        floor=tight.floor,
        rows=(tight.row(kernel=TIGHT), private.row(kernel=TRITON_ALLOCATE)),
    )


# ------------------------------------------------------------------------------------------------- Rust's allocate

SCOPED, OXIDE = "rust-oxide/allocate/scoped", "rust-oxide/allocate/plain"
# Rust's pointers are generic: LD and ST reach the same memory as nvcc's LDG and STG.
BRANCHES, GLOBAL_MEMORY = ("BRA", "BSSY", "BSYNC", "BRX"), ("LDG", "STG", "LD", "ST")
HIT, SECTORS, DURATION = "l1tex__t_sector_hit_rate.pct", "lts__t_sectors.sum", "gpu__time_duration.sum"
SCOREBOARD = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"


@claim(
    "P28",
    "Table 4: Rust's allocate with a scoped load does less work than CUDA C++ and takes longer.",
    scope="base; instruction counts from SASS, time from the matrix or the profiler",
    paper="branches 63 to 72, global memory operations 6 to 11, registers 28 to 34; 52.16 to 44.96 us",
    tolerance="each count lower, the time higher beyond the A/A floor (profiler: 2 %)",
)
def less_work(view: View) -> Verdict:
    view.need_gpu()
    cuda, rust = view.manifest(CUDA_ALLOCATE), view.manifest(SCOPED)
    if rust is None or rust.get("status") != "ok":
        raise Open("needs-toolchain", f"{SCOPED} was not built")
    if cuda is None:
        raise Open("undecided", f"no manifest of {CUDA_ALLOCATE}")
    counts = {
        "branches": tuple(_sass(m, BRANCHES) for m in (rust, cuda)),
        "global memory operations": tuple(_sass(m, GLOBAL_MEMORY) for m in (rust, cuda)),
        "registers": (int(rust.get("registers", 0)), int(cuda.get("registers", 0))),
    }
    slower: int | None = None
    compared = view.compare(SCOPED, CUDA_ALLOCATE, "base")
    if compared is not None and len(compared.us.passes) >= statistics.MIN_PASSES:
        slower, time = compared.difference.side, f"{x(compared.us.median)} the time"
    else:
        ours, theirs = view.counter(SCOPED, DURATION), view.counter(CUDA_ALLOCATE, DURATION)
        if ours is None or theirs is None:
            raise Open("undecided", f"neither times nor counters of {SCOPED}")
        slower = (ours > theirs * 1.02) - (ours < theirs * 0.98)
        time = f"{ours / theirs:.3g}x the time in the profiler"
    less = all(a < b for a, b in counts.values())
    words = ", ".join(f"{name} {a} to {b}" for name, (a, b) in counts.items())
    reason = f"Rust scoped to CUDA: {words}; {time}."
    rows = tuple({"count": name, "rust": a, "cuda": b} for name, (a, b) in counts.items())
    if less and slower > 0:
        return Verdict("reproduced", reason, rows=rows)
    return Verdict("undecided" if less and slower == 0 else "differs", reason, rows=rows)


def _sass(manifest: dict, opcodes: Sequence[str]) -> int:
    counts = manifest.get("sass") or {}
    return sum(int(count) for opcode, count in counts.items() if opcode.split(".")[0] in opcodes)


HYPOTHESES = (
    "registers",
    "clamp",
    "volatile",
    "static-count",
    "dynamic-cas",
    "scope",
    "counter",
    "fence",
    "store",
    "wait",
    "host-launch",
)


@claim(
    "P29",
    "Eleven causes of Rust's allocate gap were tried and ruled out, the launch on the host among them.",
    scope="base; each cause as one variant or one counter",
    paper="registers, clamp, volatile, static count, dynamic CAS, scope, counter, fence, store, wait, host launch",
    tolerance=(
        "a cause moves the ratio when the range over passes is clear of 1 by more than the A/A floor, which is a "
        "counterexample; one within the floor is ruled out, one in between is neither"
    ),
)
def eleven_causes(view: View) -> Verdict:
    kernel = view.rust("allocate")
    aa_floor = view.table.floor("base", "allocate")
    if aa_floor is None:
        raise Open("undecided", "no A/A control on base")
    moved: list[str] = []
    ruled_out: list[str] = []
    between: list[str] = []
    rows: list[dict[str, Any]] = []
    for name in HYPOTHESES:
        change = view.value(f"hypothesis.{name}.ratio")
        if name == "host-launch" and change is None:
            pair = view.compare(kernel, CUDA_ALLOCATE, "base")
            if pair is not None and pair.reference is not None:
                change = pair.reference.median / pair.us.median
        if change is None:
            continue
        low, high = _span(view.value(f"hypothesis.{name}.range", list), change)
        rows.append({"cause": name, "change": change, "low": low, "high": high})
        if low > 1 + aa_floor or high < 1 - aa_floor:
            moved.append(f"{name} {change:.3g}x")
        elif 1 - aa_floor <= low and high <= 1 + aa_floor:
            ruled_out.append(f"{name} {change:.3g}x")
        else:
            between.append(f"{name} {change:.3g}x")
    if moved:
        reason = f"these move it: {', '.join(moved)}; ruled out: {', '.join(ruled_out) or 'none'}"
        reason += f"; neither: {', '.join(between)}." if between else "."
        return Verdict("refuted", reason, len(moved), floor=aa_floor, rows=tuple(rows))
    if len(rows) < len(HYPOTHESES):
        absent = [name for name in HYPOTHESES if name not in {row["cause"] for row in rows}]
        raise Open("undecided", f"{len(rows)} of {len(HYPOTHESES)} causes tried, missing {', '.join(absent)}")
    if between:
        raise Open("undecided", f"within their passes' range neither ruled out nor shown: {', '.join(between)}")
    return Verdict(
        "reproduced", f"none of {len(rows)} moves it beyond the A/A floor.", len(rows), floor=aa_floor, rows=tuple(rows)
    )


def _span(found: Any, median: float) -> tuple[float, float]:
    """Range over passes of a finding; the median alone where there is none."""
    numbers = [float(v) for v in found if isinstance(v, (int, float))] if isinstance(found, list) else []
    return (min(numbers), max(numbers)) if len(numbers) == 2 else (median, median)


def _counters(view: View, metric: str, verdict: str = "undecided") -> tuple[float, float]:
    """A counter of the scoped Rust kernel and of CUDA's."""
    view.need_gpu()
    ours, theirs = view.counter(SCOPED, metric), view.counter(CUDA_ALLOCATE, metric)
    if ours is None or theirs is None:
        raise Open(verdict, f"no counter {metric} of {SCOPED if ours is None else CUDA_ALLOCATE} on base")
    return ours, theirs


@claim(
    "P30",
    "Rust's gap is L1 residency: a lower hit rate, more sectors to L2, and only the long-scoreboard stall grows.",
    scope="base, hardware counters of single launches",
    paper="L1 hits 55.9 to 28.9 %, 1.70x the L2 sectors",
    tolerance=f"hit rates within 5 points, sectors {FIGURE_WORDS}; the other direction refutes",
)
def l1_residency(view: View) -> Verdict:
    hit, hit_cuda = _counters(view, HIT)
    sectors, sectors_cuda = _counters(view, SECTORS)
    stall, stall_cuda = _counters(view, SCOREBOARD)
    change = sectors / sectors_cuda
    reason = (
        f"L1 hits {hit_cuda:.1f} % (CUDA) to {hit:.1f} % (Rust scoped), {x(change)} the L2 sectors, long scoreboard "
    )
    reason += f"{stall_cuda:.3g} to {stall:.3g}."
    if hit >= hit_cuda or change <= 1:
        return Verdict("refuted", reason, change)
    figure_cuda, figure_rust = figures.paper("l1_hit_percent")
    met = (
        abs(hit_cuda - figure_cuda) <= 5
        and abs(hit - figure_rust) <= 5
        and within(change, figures.paper("l2_sectors_ratio"))
    )
    return Verdict("reproduced" if met and stall > stall_cuda else "differs", reason, change)


@claim(
    "P31",
    "After the fix Rust's allocate is 1.02-1.71x CUDA C++ with a median of 1.21x, 3.34x on the smallest cell, and the "
    "residual has no known cause.",
    scope="the paper's synthetic cells, serial; the reference regime stands beside",
    paper="1.02-1.71x, median 1.21x; 3.34x on pts-20k",
    tolerance=f"median and smallest cell {FIGURE_WORDS}, the range inside the paper's widened by {FIGURE:.0%}",
)
def residual(view: View) -> Verdict:
    found = view.need_sweep(view.rust("allocate"), CUDA_ALLOCATE, axes=PAPER_AXES, least=4)
    rest = [c for c in found if c.cell != SMALL]
    small = next((c for c in found if c.cell == SMALL), None)
    if small is None or len(rest) < 3:
        raise Open("undecided", f"needs {SMALL} and three more cells")
    middle, low, high = span(rest)
    figure_low, figure_high = figures.paper("residual")
    misses = []
    if not within(middle, figures.paper("residual_median")):
        misses.append(f"median {x(middle)}")
    if low < figure_low * (1 - FIGURE) or high > figure_high * (1 + FIGURE):
        misses.append(f"range {x(low)}-{x(high)}")
    if not within(small.us.median, figures.paper("residual_smallest")):
        misses.append(f"{SMALL} {x(small.us.median)}")
    references = [c.reference.median for c in rest if c.reference is not None]
    beside = f"; in the derived reference regime median {x(statistics.median(references))}" if references else ""
    if small.reference is not None:
        beside += f", {SMALL} {x(small.reference.median)}"
    reason = f"Serial: median {x(middle)}, {SMALL} {x(small.us.median)}{beside}."
    return figures_verdict(
        misses,
        3,
        reason,
        measured=middle,
        low=low,
        high=high,
        floor=worst_floor(found),
        rows=tuple(c.row() for c in found),
    )


# ------------------------------------------------------------------------------------------ what cannot be expressed


@claim(
    "P32",
    "Triton's probe bound must be a compile-time constant, and raising it from 8 to 32 costs "
    "minutes of compiling and a "
    "larger binary.",
    scope="static8 against static32, this Triton",
    paper="seconds to about 20 minutes, 3.7x the cubin",
    tolerance=f"size {FIGURE_WORDS}; a minute or more to compile",
)
def static_bound(view: View) -> Verdict:
    small, large = view.need("compile.static8.cubin_bytes", "compile.static32.cubin_bytes")
    short, long = view.need("compile.static8.s", "compile.static32.s")
    runtime = view.value("compile.runtime_bound.compiles", bool)
    reason = f"8 to 32: {short:.3g} to {long:.3g} s of compiling, {large / small:.3g}x the cubin"
    if runtime is not None:
        reason += (
            f"; a bound known only when running {'compiles' if runtime else 'does not compile'} under static_range"
        )
    if runtime is True:
        return Verdict("refuted", f"{reason}.", large / small)
    misses = [] if within(large / small, figures.paper("probe32_cubin_ratio")) else [f"{large / small:.3g}x the cubin"]
    misses += [] if long >= 60 else [f"{long:.3g} s to compile"]
    return figures_verdict(misses, 2, f"{reason}.", measured=large / small)


Loss = dict[str, tuple[tuple[float, float], tuple[float, float]]]


def losses_of(view: View) -> Loss:
    """Cell -> (least and most lost blocks), (least and most dropped points) of the static probe, over all samples."""
    rows = view.archive.samples
    rows = rows[rows["kernel"].isin((TRITON_ALLOCATE, TRITON_UPDATE)) & rows["status"].isin(("ok", "lossy"))]
    found: Loss = {}
    for cell in view.cells():
        here = rows[rows["cell"] == cell]
        blocks = here.loc[here["stage"] == "allocate", "lost_blocks"].dropna()
        points = here.loc[here["kernel"] == TRITON_UPDATE, "dropped_points"].dropna()
        if len(blocks):
            dropped = (float(points.min()), float(points.max())) if len(points) else (math.nan, math.nan)
            found[cell] = ((float(blocks.min()), float(blocks.max())), dropped)
    return found


def _losses(view: View) -> Loss:
    view.need_kernels(TRITON_ALLOCATE)
    found = losses_of(view)
    if not found:
        raise Open("undecided", "no sample says what the static probe lost")
    return found


@claim(
    "P33",
    "The bounded probe loses from load 0.071 on, the same in every pass; points alone at 0.192, blocks from 0.283.",
    scope="the paper's load-factor cells",
    paper="lf-lo and lf-mid 1 block and 155 points, lf-hi 13 blocks and 27,943 points, base nothing",
    tolerance="whole numbers; a number that changes between samples refutes `identical`, another number differs",
)
def loss_by_load(view: View) -> Verdict:
    losses = _losses(view)
    rows, misses, changing = [], [], []
    for row in figures.rows("loss_triton_static8"):
        if row["cell"] not in losses:
            continue
        (least, most), (few, many) = losses[row["cell"]]
        rows.append({"cell": row["cell"], "load": float(row["load_factor"]), "blocks": most, "points": many,
                     "paper_blocks": int(row["blocks_lost"]), "paper_points": int(row["points_dropped"])})  # fmt: skip
        if least != most or (few != many and not math.isnan(few)):
            changing.append(f"{row['cell']} {least:.0f} to {most:.0f} blocks")
        if most != int(row["blocks_lost"]) or (not math.isnan(many) and many != int(row["points_dropped"])):
            misses.append(
                f"{row['cell']} {most:.0f} blocks, {many:.0f} points (paper {row['blocks_lost']}, "
                f"{row['points_dropped']})"
            )
    if len(rows) < 3:
        raise Open("undecided", f"{len(rows)} of the paper's cells were timed with the static probe")
    loads = [row["load"] for row in rows if row["blocks"] or row["points"] > 0]
    reason = f"Loss begins at load {min(loads):.3f}." if loads else "Nothing was lost."
    if changing:
        return Verdict("refuted", f"it is not the same in every sample: {changing[0]}. {reason}", rows=tuple(rows))
    return figures_verdict(misses, len(rows), reason, measured=min(loads) if loads else None, rows=tuple(rows))


@claim(
    "P34",
    "The loss was not reported: counting blocks beyond the pool does not see a probe that gives up.",
    scope="lossy samples of the bounded probe",
    tolerance="blocks are lost although the pool is not full",
)
def loss_unseen(view: View) -> Verdict:
    view.need_kernels(TRITON_ALLOCATE)
    rows = view.archive.samples
    rows = rows[(rows["kernel"] == TRITON_ALLOCATE) & (rows["lost_blocks"] > 0)]
    if rows.empty:
        raise Open("undecided", "the static probe lost nothing in this archive")
    pools = rows["cell"].map(lambda cell: view.archive.run.cells[cell].pool)
    unseen = rows[rows["blocks"] < pools]
    if unseen.empty:
        return Verdict("refuted", f"in all {len(rows)} lossy samples the pool was full as well.", 0)
    counted = int((unseen["failed_inserts"] > 0).sum())
    worst = unseen.loc[unseen["lost_blocks"].idxmax()]
    reason = (
        f"{len(unseen)} of {len(rows)} lossy samples had room in the pool, so a count of the pool says nothing (worst "
    )
    reason += (
        f"{worst['cell']}: {worst['lost_blocks']:.0f} blocks); our count of given-up probes sees {counted} of them."
    )
    return Verdict("reproduced", reason, float(worst["lost_blocks"]))


@claim(
    "P35",
    "Triton cannot express an unbounded probe.",
    scope="the pinned Triton",
    tolerance="one unbounded kernel that compiles and loses nothing refutes",
)
def unbounded_probe(view: View) -> Verdict:
    kernel = "triton/allocate/while"
    manifest = view.manifest(kernel)
    compiles, why = view.value("compile.unbounded.compiles", bool), ""
    version = view.value("triton.version", str) or "?"
    if manifest is not None:
        compiles, why = manifest.get("status") == "ok", str(manifest.get("reason", ""))
        version = (manifest.get("compiler") or {}).get("version", version)
    if compiles is None:
        raise Open("needs-toolchain", f"{kernel} was not built")
    if not compiles:
        return Verdict("reproduced", f"{kernel} does not compile with Triton {version}. {why}".rstrip())
    gates = [g for g in view.gates() if arm_of(g) == "triton-while" and g.tier in ("exact", "loss")]
    lost = [g for g in gates if not g.ok]
    if lost:
        return Verdict("undecided", f"it compiles (Triton {version}), and {lost[0].gate} fails: {lost[0].message}")
    if not gates:
        raise Open("undecided", f"it compiles (Triton {version}); no gate has judged what it computes")
    places = ", ".join(sorted({g.place for g in gates}))
    loads = [view.archive.run.cells[g.cell].load_factor for g in gates if g.cell in view.archive.run.cells]
    upto = f" up to load {max(loads):.3f}" if loads else ""
    return Verdict(
        "refuted", f"{kernel} compiles with Triton {version} and {len(gates)} gates find nothing lost{upto} ({places})."
    )


@claim(
    "P36",
    "An atomic on a scalar pointer aborts Triton's compiler without a source location.",
    scope="the pinned Triton",
    tolerance="anything but an abort or an error without location refutes it for this version",
)
def scalar_atomic(view: View) -> Verdict:
    (outcome,) = view.need("triton.scalar_atomic.outcome", kind=str)
    version = view.value("triton.version", str) or "?"
    holds = outcome in ("abort", "error-without-location")
    return Verdict("reproduced" if holds else "refuted", f"Triton {version}: {outcome}.", outcome)


@claim("P37", "tl.atomic_cas takes no mask.", scope="the pinned Triton's signature", tolerance="none")
def no_mask(view: View) -> Verdict:
    (names,) = view.need("triton.atomic_cas.parameters", kind=list)
    version = view.value("triton.version", str) or "?"
    text = ", ".join(map(str, names))
    return Verdict("refuted" if "mask" in names else "reproduced", f"Triton {version}: atomic_cas({text}).", text)


@claim(
    "P38",
    "A scoped atomic load cannot be served from L1, whatever its ordering.",
    scope="base; the same Rust kernel with a plain and with a scoped load",
    paper="27 points of L1 hit rate, 1.70x the L2 traffic",
    tolerance="hit rate lower by more than 5 points; not lower refutes",
)
def scoped_load(view: View) -> Verdict:
    view.need_gpu()
    plain, scoped = view.counter(OXIDE, HIT), view.counter(SCOPED, HIT)
    if plain is None or scoped is None:
        raise Open("undecided", f"no counter {HIT} of {OXIDE} and {SCOPED} on base")
    reason = f"L1 hits {plain:.1f} % with a plain first read, {scoped:.1f} % with a scoped load."
    if scoped >= plain:
        return Verdict("refuted", reason, plain - scoped)
    return Verdict("reproduced" if plain - scoped > 5 else "undecided", reason, plain - scoped)


@claim(
    "P39",
    "cuda-oxide's scoped load and store and its AcqRel and SeqCst orderings fail before the fix; "
    "after it they lower, with "
    "an unconditional memory clobber and SeqCst fused.",
    scope="the fix's parent and the fix itself",
    tolerance="none",
)
def oxide_fix(view: View) -> Verdict:
    operations = ("load", "store", "acqrel", "seqcst")
    before = view.need(*(f"oxide.parent.{op}.builds" for op in operations), kind=bool, verdict="needs-toolchain")
    after = view.need(*(f"oxide.fix.{op}.builds" for op in operations), kind=bool, verdict="needs-toolchain")
    clobber, fused = view.need(
        "oxide.fix.clobber_unconditional", "oxide.fix.seqcst_fused", kind=bool, verdict="needs-toolchain"
    )
    words = ", ".join(f"{op} {_does(b)}/{_does(a)}" for op, b, a in zip(operations, before, after, strict=True))
    reason = (
        f"builds before/after: {words}; clobber {'always' if clobber else 'conditional'}, SeqCst "
        f"{'fused' if fused else 'not fused'}."
    )
    holds = not any(before) and all(after) and clobber and fused
    return Verdict("reproduced" if holds else "refuted", reason)


def _does(builds: bool) -> str:
    return "yes" if builds else "no"


@claim(
    "P40",
    "Triton's floor is neither the compare-exchange nor the blocks: replacing the CAS by a load, or "
    "having 65 times fewer "
    "blocks, leaves the time.",
    scope="static8 with its CAS replaced (static8-load) on base; r-0.25 against r-2.0",
    paper="65x fewer blocks",
    tolerance="both times within a factor of 1.5: a part of the time may go, the floor stays",
)
def floor_stays(view: View) -> Verdict:
    load = _need_one(view, "triton/allocate/static8-load", TRITON_ALLOCATE, "base")
    few, many = view.median_us(TRITON_ALLOCATE, "r-0.25"), view.median_us(TRITON_ALLOCATE, "r-2.0")
    cells = view.archive.run.cells
    if few is None or many is None:
        raise Open("undecided", "static8 was not timed on r-0.25 and r-2.0")
    blocks = cells["r-2.0"].blocks / cells["r-0.25"].blocks
    reason = (
        f"a load instead of the CAS takes {x(load.us.median)} the time; with {blocks:.0f}x fewer blocks "
        f"it takes {x(few / many)}."
    )
    holds = 1 / 1.5 <= load.us.median <= 1.5 and 1 / 1.5 <= few / many <= 1.5
    return Verdict(
        "reproduced" if holds else "refuted",
        reason,
        load.us.median,
        load.us.low,
        load.us.high,
        load.floor,
        (load.row(),),
    )


@claim(
    "P41",
    "Publishing key and index by one 128-bit CAS, and using the slot as index, do not close Rust's "
    "gap: they fail alike in "
    "both languages.",
    scope="base",
    tolerance="no variant is faster than plain beyond the A/A floor, and both languages move to the same side",
)
def symmetric_failures(view: View) -> Verdict:
    rows, faster, apart = [], [], []
    for variant in ("cas128", "slotindex"):
        pair = [
            _need_one(view, f"{lang}/allocate/{variant}", f"{lang}/allocate/plain", "base")
            for lang in ("cuda", "rust-oxide")
        ]
        rows += [
            c.row(kernel=f"{lang}/allocate/{variant}") for lang, c in zip(("cuda", "rust-oxide"), pair, strict=True)
        ]
        faster += [f"{variant} {x(c.us.median)}" for c in pair if c.difference.side < 0]
        if pair[0].difference.side != pair[1].difference.side:
            apart.append(f"{variant}: {x(pair[0].us.median)} in CUDA, {x(pair[1].us.median)} in Rust")
    words = ", ".join(f"{row['kernel']} {x(row['ratio'])}" for row in rows)
    if faster or apart:
        return Verdict("refuted", f"{(faster + apart)[0]}. All: {words}.", rows=tuple(rows))
    return Verdict("reproduced", f"{words}.", rows=tuple(rows))


@claim(
    "P42",
    "A comparison must show that both sides did the same work, on the same machine, by the same statistic.",
    scope="every timed cell of a matrix archive, controls aside",
    tolerance="gates green before and after in every cell; one device a pass; an A/A floor in every cell and stage",
)
def comparability(view: View) -> Verdict:
    view.need_gpu()
    rows = view.archive.samples
    timed = rows[rows["status"].isin(("ok", "lossy")) & rows["stage"].isin(("allocate", "update"))]
    if timed.empty:
        raise Open("undecided", "no timed sample")
    gaps: list[str] = []
    timed = timed[~timed["cell"].str.contains("+", regex=False)]  # a control shows a rule by breaking it
    cells = sorted(set(timed["cell"]))
    for cell in cells:
        judged = {when: [g for g in view.gates(when=when) if g.cell == cell] for when in ("before", "after")}
        gaps += [f"{cell} has no gate {when} timing" for when, gates in judged.items() if not gates]
        # A bounded kernel's red gate marks its samples lossy; they are in no ratio.
        gaps += [
            f"{cell}: {g.gate} failed for {g.subject}"
            for gates in judged.values()
            for g in gates
            if not g.ok and _unmarked(timed, cell)
        ]
        gaps += [f"{cell} {stage} has no A/A floor" for stage in sorted(set(timed.loc[timed["cell"] == cell, "stage"]))
                 if view.table.floor(cell, stage) is None]  # fmt: skip
    several = timed.groupby("pass")["device_uuid"].nunique()
    known = {(p.number, p.device_uuid) for p in view.archive.run.passes}
    strangers = {(int(n), str(u)) for n, u in timed[PASS].drop_duplicates().to_numpy().tolist()} - known
    gaps += [f"pass {number} on {uuid} is in no plan" for number, uuid in sorted(strangers)]
    reason = f"{len(cells)} cells: gates before and after, {int(several.sum())} passes on one device each, A/A floors"
    if gaps:
        return Verdict("undecided", f"{len(gaps)} gaps: {gaps[0]}.", len(gaps))
    return Verdict("reproduced", f"{reason} in each.", len(cells))


def _unmarked(timed: Frame, cell: str) -> bool:
    """Whether every sample of the cell claims to be ok."""
    return bool((timed.loc[timed["cell"] == cell, "status"] == "ok").all())


@claim(
    "P43",
    "In update Triton stays within 2.5 times CUDA C++.",
    scope="every cell the static probe does not lose on",
    paper="1.1-2.5x",
    tolerance="one cell above 2.5x beyond the A/A floor refutes",
)
def update_within(view: View) -> Verdict:
    found = view.need_sweep(TRITON_UPDATE, CUDA_UPDATE, least=3)
    limit = figures.stage_range("update", "triton")[1]
    middle, low, high = span(found)
    over = [c for c in found if c.us.low > limit * (1 + (c.floor or 0.0))]
    worst = max(found, key=lambda c: c.us.median)
    reason = f"{x(low)} to {x(high)} over {len(found)} cells, largest on {worst.cell}."
    rows = tuple(c.row() for c in found)
    return Verdict("refuted" if over else "reproduced", reason, middle, low, high, worst_floor(found), rows)
