"""Our own claims, O1 to O10: what the seeds' open questions come to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.claims import statistics
from harness.claims.paper import CUDA_ALLOCATE, CUDA_UPDATE, PAPER_AXES, REGIME_EXPLAINS, launch_shares
from harness.claims.registry import (
    Compared,
    Open,
    Verdict,
    View,
    arm_of,
    between,
    claim,
    counted,
    need_floor,
    over,
    span,
    worst_floor,
    x,
)

LIMIT = 2.5
"""The factor the paper's Triton keeps in its regular stage (P43): an irregular stage within it is no special case."""

BROKEN = ("failed", "hung")
"""What became of a sample whose gate failed, whose kernel broke the device, or that never came back."""


@claim(
    "O1",
    "The residual of Rust's allocate that the paper leaves unattributed is the launch regime: CUDA "
    "on a stream per volume, "
    "the others on one stream.",
    scope="the paper's synthetic cells: serial against the derived reference regime",
    tolerance="explained share 1 - log(serial) / log(reference), median over cells: at least 0.8 holds, below "
    "0.2 refutes; cells whose reference ratio is not clear of 1 by the A/A floor say nothing",
)
def residual_is_regime(view: View) -> Verdict:
    found = view.need_sweep(view.rust("allocate"), CUDA_ALLOCATE, axes=PAPER_AXES, least=3)
    explained = launch_shares(found)
    shares = list(explained.values())
    rows = [c.row(explained=explained[c.cell]) for c in found if c.cell in explained]
    if len(shares) < 3:
        reason = f"{len(shares)} of {len(found)} cells have a residual in the reference regime, 3 needed."
        return Verdict("undecided", reason, rows=tuple(rows), weight=len(found))
    middle = statistics.median(shares)
    serial = statistics.median([row["ratio"] for row in rows])
    reference = statistics.median([row["reference"] for row in rows])
    reason = (
        f"over {len(rows)} cells Rust's median ratio is {x(reference)} with CUDA alone on one branch a volume "
        f"(derived) and {x(serial)} with both on one stream: the launch explains {middle:.0%} of it."
    )
    verdict = "reproduced" if middle >= REGIME_EXPLAINS else "refuted" if middle < 0.2 else "undecided"
    return Verdict(verdict, reason, middle, min(shares), max(shares), worst_floor(found), tuple(rows))


@claim(
    "O2",
    "A Triton probe without a bound loses nothing at any load and stays within 2.5 times CUDA C++.",
    scope="while against plain (both wait for the index) and while-nowait against nowait, all loads up to 0.94",
    tolerance=(
        "no lossy, failed or hung sample and none without a count, a load above 0.9 among them; no cell above 2.5x: in "
        "every pass and beyond the A/A floor refutes, in the median only or without a floor decides nothing"
    ),
)
def unbounded_triton(view: View) -> Verdict:
    pairs = [("triton/allocate/while", CUDA_ALLOCATE), ("triton/allocate/while-nowait", "cuda/allocate/nowait")]
    timed = set(view.table.kernels("allocate"))
    pairs = [pair for pair in pairs if set(pair) <= timed]
    if not pairs:
        view.need_kernels("triton/allocate/while", CUDA_ALLOCATE)
    found: list[Compared] = []
    rows = []
    for kernel, base in pairs:
        here = view.need_sweep(kernel, base)
        found += here
        rows += [c.row(kernel=kernel) for c in here]
    samples = view.archive.samples[view.archive.samples["kernel"].isin([kernel for kernel, _ in pairs])]
    lossy = samples[(samples["status"] == "lossy") | (samples["lost_blocks"] > 0) | (samples["failed_inserts"] > 0)]
    broken = samples[samples["status"].isin(BROKEN)]
    uncounted = samples[samples["lost_blocks"].isna() & ~samples["status"].isin(BROKEN)]
    loads = [
        view.archive.run.cells[cell].load_factor
        for cell in sorted(set(samples["cell"]))
        if cell in view.archive.run.cells
    ]
    middle, low, high = span(found)
    worst = max(found, key=lambda c: c.us.median)
    reason = (
        f"{len(lossy) or 'none'} of {len(samples):,} samples up to load {max(loads):.3f} lost a block, and allocate "
        f"takes {between(low, high)} the time of CUDA C++'s that waits as it does, most on {worst.cell}."
    )
    if len(broken):
        reason += f" {len(broken):,} samples failed or never came back, first on {broken['cell'].iloc[0]}."
    if len(uncounted):
        reason += f" Of {len(uncounted):,} samples nothing says what they lost."
    slow, aa_floor = over(found, LIMIT), worst_floor(found)
    if len(lossy) or len(broken):
        verdict = "refuted"
    else:
        verdict = slow or ("reproduced" if max(loads) > 0.9 and not len(uncounted) else "undecided")
    return Verdict(verdict, reason, middle, low, high, aa_floor, tuple(rows))


@claim(
    "O3",
    "cuda-oxide's slower update comes from atomics on generic addresses; with global ones it is level with CUDA C++.",
    scope="rust-oxide/update plain and global",
    tolerance=(
        "plain slower than global beyond the A/A floor in most cells, and global within 3 % of CUDA in the median; in "
        "no cell slower, or further than 3 % and the A/A floor apart, refutes"
    ),
)
def generic_atomics(view: View) -> Verdict:
    plain, fixed = "rust-oxide/update/plain", "rust-oxide/update/global"
    gain = view.need_sweep(plain, fixed)
    left = view.need_sweep(fixed, CUDA_UPDATE)
    slower = [c for c in gain if c.difference.side > 0]
    middle, low, high = span(gain)
    need_floor((*gain, *left))
    rest, least, most = span(left)
    reason = (
        f"with generic addresses update takes {between(low, high)} the time it takes with global ones, more beyond "
        f"the A/A floor in {len(slower)} of {len(gain)} cells; with global ones {between(least, most)} CUDA C++'s, "
        f"{x(rest)} in the median{_atomics(view, plain, fixed)}."
    )
    apart = abs(rest - 1)
    if not slower or apart > 0.03 + (worst_floor(left) or 0.0):
        verdict = "refuted"
    else:
        verdict = "reproduced" if 2 * len(slower) > len(gain) and apart <= 0.03 else "undecided"
    rows = (*(c.row(pair="plain/global") for c in gain), *(c.row(pair="global/cuda") for c in left))
    return Verdict(verdict, reason, middle, low, high, worst_floor(gain), rows)


def _atomics(view: View, plain: str, fixed: str) -> str:
    """Which operations the two kernels have for an addition, in machine code and, counted on base, at L2."""
    words = []
    for kernel, which in ((plain, "generic"), (fixed, "global")):
        counts = (view.manifest(kernel) or {}).get("sass")
        if isinstance(counts, dict):
            found = {op: int(sum(counts.get(name, 0) for name in names)) for op, names in ATOMIC_OPS.items()}
            sectors = {op: view.counter(kernel, f"lts__t_sectors_op_{op.lower()}.sum") for op in found}
            told = [f"{number} {op}" for op, number in found.items()]
            told += [f"{n / 1e6:.3g} million {op} sectors" for op, n in sectors.items() if n is not None]
            words.append(f"the {which} kernel has {', '.join(told)}")
    return f"; {'; '.join(words)}" if len(words) == 2 else ""


ATOMIC_OPS = {"ATOM": ("ATOM", "ATOMG"), "RED": ("RED",)}
"""An addition that returns what was there, and one that does not, with SASS's names for each."""


@claim(
    "O4",
    "The layout of the voxels costs more than the language.",
    scope="update: cuda/update/packed against plain, beside every other language's plain against CUDA's",
    tolerance=(
        "|log ratio| of the layout above that of every lossless language in the cells both have, beyond the A/A floor; "
        "below it beyond the floor in one cell refutes, within the floor in one or without a floor decides nothing"
    ),
)
def layout_over_language(view: View) -> Verdict:
    packed = {c.cell: c for c in view.need_sweep("cuda/update/packed", CUDA_UPDATE)}
    languages = ("rust-oxide/update/plain", "rust-nvptx/update/plain", "triton/update/while")
    others = [k for k in view.table.kernels("update") if k in languages]
    if not others:
        raise view.untimed("another language's update", languages)
    rows, losses, open_cells = [], [], 0
    for kernel in others:
        for c in view.sweep(kernel, CUDA_UPDATE):
            layout = packed.get(c.cell)
            if layout is None:
                continue
            mine, theirs = abs(math.log(layout.us.median)), abs(math.log(c.us.median))
            rows.append({"cell": c.cell, "kernel": kernel, "layout": layout.us.median, "language": c.us.median})
            if c.floor is None or layout.floor is None:
                open_cells += 1
                continue
            slack = max(c.floor, layout.floor)
            if theirs > mine + slack:
                losses.append(f"{kernel} on {c.cell}: {x(c.us.median)}, layout {x(layout.us.median)}")
            elif theirs > mine - slack:
                open_cells += 1
    if not rows:
        raise Open("undecided", "the layouts and the languages share no cell")
    middle, low, high = span(list(packed.values()))
    reason = (
        f"packed voxels take {between(low, high)} of the plain layout's time; against {len(others)} languages' plain "
        f"updates, in {len(rows)} comparisons"
    )
    if losses:
        return Verdict(
            "refuted",
            f"{reason}, the language costs more in {len(losses)}: {losses[0]}.",
            middle,
            low,
            high,
            rows=tuple(rows),
        )
    verdict = "undecided" if open_cells else "reproduced"
    return Verdict(
        verdict,
        f"{reason}, the layout changes more in {len(rows) - open_cells} and {open_cells or 'none'} lie within the A/A "
        "floor.",
        middle,
        low,
        high,
        worst_floor(list(packed.values())),
        tuple(rows),
    )


@claim(
    "O5",
    "A pool that is too small ends at once, and what is lost is counted exactly.",
    scope="base in pools of 1100, 600 and 1 blocks, every arm that was tried",
    tolerance="under one second; lost blocks = needed - pool, dropped points = the samples of the lost blocks",
)
def small_pool(view: View) -> Verdict:
    found: dict[tuple[str, int], dict[str, float]] = {}
    for name, item in view.archive.evidence.items():
        parts = name.split(".")
        if parts[0] != "small_pool" or len(parts) != 4 or not parts[2].isdigit() or isinstance(item.value, bool):
            continue
        if isinstance(item.value, (int, float)):
            found.setdefault((parts[1], int(parts[2])), {})[parts[3]] = item.value
    whole = {"seconds", "needed_blocks", "lost_blocks", "dropped_points", "lost_samples"}
    complete = {key: values for key, values in sorted(found.items()) if whole <= values.keys()}
    if not complete:
        fits = view.archive.run.study == "matrix"
        raise Open("undecided", "this archive has no run in a pool that is too small", fits)
    wrong, rows = [], []
    for (arm, pool), v in complete.items():
        rows.append({"arm": arm, "pool": pool, **{key: v[key] for key in sorted(whole)}})
        needed = v["needed_blocks"] - pool
        if needed <= 0:
            wrong.append(f"{arm} in {pool}: the pool is not too small")
        elif v["seconds"] >= 1:
            wrong.append(f"{arm} in {pool} took {v['seconds']:.3g} s")
        elif v["lost_blocks"] != needed:
            wrong.append(f"{arm} in {pool} says {v['lost_blocks']:.0f} blocks lost, not {needed:.0f}")
        elif v["dropped_points"] != v["lost_samples"]:
            wrong.append(f"{arm} in {pool} says {v['dropped_points']:.0f} points dropped, not {v['lost_samples']:.0f}")
    slowest = max(row["seconds"] for row in rows)
    arms = sorted({row["arm"] for row in rows})
    reason = f"{len(rows)} runs of {len(arms)} arms and kernels in pools that are too small took at most "
    reason += f"{1e3 * slowest:.3g} ms"
    if wrong:
        return Verdict("refuted", f"{wrong[0]}. {reason}.", slowest, rows=tuple(rows))
    return Verdict("reproduced", f"{reason}, and each counted its losses exactly.", slowest, rows=tuple(rows))


@claim(
    "O6",
    "Allocate need not wait for a block's index: it never uses it.",
    scope="cuda/allocate/nowait against plain, serial, fresh",
    tolerance=(
        "exact gates of the nowait kernel green and no sample lossy, failed or hung, faster beyond the A/A floor in "
        "most cells, slower in none; a red gate, such a sample or a slower cell refutes; no gate decides nothing"
    ),
)
def need_not_wait(view: View) -> Verdict:
    kernel = "cuda/allocate/nowait"
    found = view.need_sweep(kernel, CUDA_ALLOCATE)
    samples = view.archive.samples
    broken = samples["status"].isin(BROKEN)  # one that never came back says nothing of its blocks
    judged = samples[(samples["kernel"] == kernel) & (samples["lost_blocks"].notna() | broken)]
    if judged.empty:
        raise Open("undecided", f"no sample says what {kernel} built")
    bad = judged[(judged["lost_blocks"] > 0) | judged["status"].isin(BROKEN)]
    gates = [gate for gate in view.gates("exact") if arm_of(gate) == kernel]
    red = [gate for gate in gates if not gate.ok]
    faster = [c for c in found if c.difference.side < 0]
    slower = [c for c in found if c.difference.side > 0]
    middle, low, high = span(found)
    reason = (
        f"without the wait allocate takes {between(low, high)} of the time, less beyond the A/A floor in "
        f"{len(faster)} of {len(found)} cells; {len(bad) or 'none'} of {len(judged):,} samples lack a block, and "
        f"{len(red) or 'none'} of {len(gates)} exact gates are red."
    )
    if red or len(bad) or slower:
        verdict = "refuted"
    else:
        verdict = "reproduced" if gates and 2 * len(faster) > len(found) else "undecided"
    return Verdict(verdict, reason, middle, low, high, worst_floor(found), tuple(c.row() for c in found))


@claim(
    "O7",
    "Stock rustc's kernels are as fast as cuda-oxide's.",
    scope="the same core, rust-nvptx against rust-oxide, allocate and update",
    tolerance="no cell differs beyond the A/A floor",
    otherwise="Not tested: other architectures.",
)
def stock_rustc(view: View) -> Verdict:
    found: list[Compared] = []
    rows = []
    for stage in ("allocate", "update"):
        here = view.need_sweep(f"rust-nvptx/{stage}/plain", f"rust-oxide/{stage}/plain")
        found += here
        rows += [c.row(stage=stage) for c in here]
    apart = [row for row in rows if row["side"]]
    if not apart:
        need_floor(found)
    middle, low, high = span(found)
    reason = (
        f"stock rustc's kernels take {between(low, high)} the time of cuda-oxide's, different beyond the A/A floor in "
    )
    reason += f"{len(apart)} of {len(rows)} comparisons"
    if apart:
        worst = max(apart, key=lambda row: abs(math.log(row["ratio"])))
        reason += f", most in {worst['stage']} on {worst['cell']} ({x(worst['ratio'])})"
        fixed = [
            c for stage in ("allocate", "update")
            for c in view.sweep(f"rust-nvptx/{stage}/plain", f"rust-oxide/{stage}/global")
        ]  # fmt: skip
        if fixed:
            rest = [c for c in fixed if c.difference.side]
            reason += f"; of cuda-oxide's with global atomics {x(span(fixed)[1])} to {x(span(fixed)[2])}, different in "
            reason += f"{len(rest)} of {len(fixed)}"
    return Verdict(
        "refuted" if apart else "reproduced", f"{reason}.", middle, low, high, worst_floor(found), tuple(rows)
    )


@claim(
    "O8",
    "The same source builds the same blocks on the host, on the GPU and in Triton's interpreter.",
    scope="exact gates of the CUDA source on host and GPU and of the Triton source on interpreter and GPU",
    tolerance="every exact-set gate green, all four places judged",
    spans=True,
)
def same_blocks(views: Sequence[View]) -> Verdict:
    places = {
        ("cpu", "host"): [],
        ("cuda", "gpu"): [],
        ("triton-while", "interpreter"): [],
        ("triton-while", "gpu"): [],
    }
    for view in views:
        for gate in view.gates("exact", gate="exact-set"):
            if (arm_of(gate), gate.place) in places:
                places[arm_of(gate), gate.place].append((view.archive.name, gate))
    words = ", ".join(f"{arm} on {place} {len(gates)}" for (arm, place), gates in places.items())
    failed = [(name, g) for gates in places.values() for name, g in gates if not g.ok]
    if failed:
        name, gate = failed[0]
        return Verdict("refuted", f"{gate.subject} in {name}: {gate.message}.")
    missing = [f"{arm} on {place}" for (arm, place), gates in places.items() if not gates]
    if missing:
        only_gpu = all(name.endswith("gpu") for name in missing)
        raise Open(
            "needs-gpu" if only_gpu else "undecided", f"not judged: {', '.join(missing)} (exact-set gates: {words})"
        )
    total = sum(g.compared for gates in places.values() for _, g in gates)
    return Verdict("reproduced", f"every exact-set gate is green: {words}; {total:,} blocks compared.", total)


CONTROL, ALONE = "base", "base+alone"
"""The cell of the controls, and the same on one device while the others rest."""


@claim(
    "O9",
    "Devices measured at once read the same as one alone.",
    scope="every kernel of base, serial, fresh: the first device beside the others, and in base+alone while they rest",
    tolerance=(
        "time at once over alone, the median over kernels in each pass: beyond the A/A floor on one side in every pass "
        "refutes; within it in the median holds, unless a kernel is beyond it on one side in every pass"
    ),
)
def at_once_as_alone(view: View) -> Verdict:
    view.need_gpu()
    devices = {p.device_uuid for p in view.archive.run.passes}
    if len(devices) < 2:
        raise Open("needs-two-gpus", f"{len(devices)} device ran")
    kernels = view.table.kernels(cell=ALONE)
    if not kernels:
        apart = "the devices ran one after another" if view.archive.run.at_once is False else f"no sample of {ALONE}"
        raise Open("undecided", f"{apart}: nothing was timed both beside others and alone")
    floors = [view.table.floor(cell, stage) for cell in (CONTROL, ALONE) for stage in ("allocate", "update")]
    here = [floor for floor in floors if floor is not None]
    us, cycles, rows = _beside(view, kernels, "us"), _beside(view, kernels, "cycles"), []
    for kernel, passes in us.items():
        values = list(passes.values())
        rows.append({"kernel": kernel, "ratio": statistics.median(values), "low": min(values), "high": max(values)})
    factors = _by_pass(us)
    if len(factors) < statistics.MIN_PASSES or not here:
        raise Open("undecided", f"{len(factors)} passes of {ALONE}'s kernels beside others, {len(here)} A/A floors")
    aa_floor, middle, low, high = max(here), statistics.median(factors), min(factors), max(factors)
    worst = max(rows, key=lambda row: abs(math.log(row["ratio"])))
    apart = [row for row in rows if row["low"] > 1 + aa_floor or row["high"] < 1 - aa_floor]
    others = "another device" if len(devices) == 2 else f"{len(devices) - 1} other devices"
    reason = (
        f"{len(rows)} kernels take {middle:.4g} times as long beside {others} as alone "
        f"({low:.4g} to {high:.4g} by pass, A/A floor {aa_floor:.2%}"
    )
    reason += f", {statistics.median(_by_pass(cycles)):.4g} in cycles" if cycles else ""
    reason += f"), most apart {worst['kernel']} with {worst['ratio']:.4g} ({worst['low']:.4g} to {worst['high']:.4g}); "
    reason += f"beyond the floor in every pass: {', '.join(row['kernel'] for row in apart) or 'none'}."
    if abs(middle - 1) <= aa_floor:
        verdict = "undecided" if apart else "reproduced"
    else:
        verdict = "refuted" if low > 1 + aa_floor or high < 1 - aa_floor else "undecided"
    return Verdict(verdict, reason, middle, low, high, aa_floor, tuple(rows))


def _beside(view: View, kernels: Sequence[str], value: str) -> dict[str, dict[int, float]]:
    """Time (or cycles) beside other devices over alone, by kernel and pass, on the device that was timed alone."""
    found: dict[str, dict[int, float]] = {}
    for kernel in kernels:
        alone = statistics.pass_medians(view.table.series(kernel, ALONE, value=value))
        beside = statistics.pass_medians(view.table.series(kernel, CONTROL, value=value))
        # Alone is a pass for each beside, or one for all of them where an archive has no more.
        once = {device: rest for (device, _), rest in alone.items()}
        here = {key: median for key, median in beside.items() if key[0] in once}
        passes = {n: median / alone.get((device, n), once[device]) for (device, n), median in here.items()}
        if passes:
            found[kernel] = passes
    return found


def _by_pass(ratios: dict[str, dict[int, float]]) -> list[float]:
    """The median over kernels in each pass."""
    numbers = sorted({number for passes in ratios.values() for number in passes})
    return [statistics.median([p[number] for p in ratios.values() if number in p]) for number in numbers]


# ------------------------------------------------------------------------------------------------------- contraction

RARE = 1e-5
"""Share of a frame's samples that differ where contraction alone is at work: a sample lies within a rounding of a face
or of the occlusion bound about once in a million."""


@dataclass(frozen=True)
class Contraction:
    """What contraction changes in one arm's volume of one cell (findings `contraction.ARM.CELL.*`).

    Attributes:
        same_code: both builds have the same instructions: the compiler contracts nothing.
        samples: of the uncontracted build. moved: samples in another voxel. single: taken by one build only.
        voxels: whose weight differs. blocks: that one build only has. dropped: samples without a block.
        tsdf: largest difference of two sums of equal weight.
        noise, again: voxels and tsdf as above, of two runs of the uncontracted build; a bounded probe may lose others.
    """

    arm: str
    cell: str
    same_code: bool
    samples: int
    moved: int
    single: int
    voxels: int
    blocks: int
    dropped: int
    tsdf: float
    noise: int
    again: float

    @property
    def differs(self) -> bool:
        return bool(self.voxels or self.blocks or self.dropped)


_KEYS = {
    "samples": "samples", "samples_moved": "moved", "samples_in_one": "single", "voxels_differing": "voxels",
    "blocks_in_one": "blocks", "dropped_samples": "dropped", "tsdf_difference": "tsdf", "voxels_again": "noise",
    "tsdf_again": "again",
}  # fmt: skip
"""Last word of a finding -> attribute."""


def contractions(view: View) -> list[Contraction]:
    """Every whole comparison of the archive, by arm and by cell as it has them."""
    found: dict[tuple[str, str], dict[str, int | float]] = {}
    for name, item in view.archive.evidence.items():
        parts = name.split(".", 2)
        if len(parts) < 3 or parts[0] != "contraction":
            continue
        cell, _, key = parts[2].rpartition(".")  # a cell's name may hold a point: r-2.0
        if key in _KEYS and isinstance(item.value, (int, float)) and not isinstance(item.value, bool):
            found.setdefault((parts[1], cell), {})[_KEYS[key]] = item.value
    return [
        Contraction(arm, cell, view.value(f"contraction.{arm}.same_code", bool) is True, **values)  # pyright: ignore[reportArgumentType]
        for (arm, cell), values in found.items()
        if values.keys() == set(_KEYS.values())
    ]


@claim(
    "O10",
    "Arms agree sample by sample only with contraction off: where a compiler contracts, single samples of a depth "
    "frame fall into another voxel or over the bound of the occlusion test; on the synthetic cells none does.",
    scope="every arm's volume, contracted against its own uncontracted one: base, plane-320k, r-2.0 and frames",
    tolerance=(
        "arms whose two builds differ in their code and whose two runs of one build do not: on no synthetic cell a "
        "voxel's weight differs, and on some frame one does, on every frame of at most 1 in 100,000 samples; a "
        "synthetic cell that differs, or no frame that does, refutes"
    ),
    otherwise="Not tested: other architectures, whose compilers may contract other operations.",
)
def contraction_moves_samples(view: View) -> Verdict:
    view.need_gpu()
    found = contractions(view)
    if not found:
        raise view.lacking("contraction.cuda.base.samples_moved")
    fused = [f for f in found if not f.same_code and not f.noise]
    rows = tuple({**dataclasses.asdict(f), "share": (f.moved + f.single) / max(f.samples, 1)} for f in found)
    unfused = sorted({f.arm for f in found if f.same_code})
    frames = [f for f in fused if view.axis(f.cell) in ("trajectory", "real")]
    cells = [f for f in fused if f not in frames]
    if not fused or not frames or not cells:
        where = "an arm whose compiler contracts" if not fused else "a frame" if not frames else "a synthetic cell"
        raise Open("undecided", f"this archive compares no contracted volume of {where}")
    odd, moved = [f for f in cells if f.differs], [f for f in frames if f.differs]
    many = [f for f in frames if f.moved + f.single > RARE * f.samples]
    most = max(frames, key=lambda f: (f.moved + f.single) / max(f.samples, 1))
    reason = (
        f"in {counted(len(cells), 'comparison')} on synthetic cells {len(odd) or 'none'} "
        f"{'differs' if len(odd) < 2 else 'differ'} in a voxel's weight, in {counted(len(frames), 'comparison')} on "
        f"frames {len(moved) or 'none'} {'does' if len(moved) < 2 else 'do'}: most on {most.cell}, where of "
        f"{most.arm}'s {most.samples:,} samples {most.moved:,} lie in another voxel and {most.single:,} are taken by "
        f"one build only"
    )
    if unfused:
        reason += f"; {' and '.join(unfused)} {'has' if len(unfused) == 1 else 'have'} the same code in both builds"
    if odd:
        reason += f"; the first synthetic one is {odd[0].arm} on {odd[0].cell}"
    share = (most.moved + most.single) / max(most.samples, 1)
    verdict = "refuted" if odd or not moved else "undecided" if many else "reproduced"
    return Verdict(verdict, f"{reason}.", share, rows=rows, weight=len(fused))
