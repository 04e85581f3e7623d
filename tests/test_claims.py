"""Claims: every id has one, and every verdict turns when its samples are altered against it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.archive.read import find, load
from harness.archive.schema import TELEMETRY, Gate, Pass, Reduction, Skipped
from harness.archive.write import SUMS, sums_text
from harness.claims import evaluate, figures
from harness.claims.evaluate import IDS, best, verdicts
from harness.claims.registry import DECIDED, REGISTRY, VERDICTS, Open, View
from harness.errors import IrrError
from tests.synthetic import DEVICE, UUID, gate, sample_rows, write_archive

CA, CU = "cuda/allocate/plain", "cuda/update/plain"
TA, TU = "triton/allocate/static8", "triton/update/static8"
OA, OU = "rust-oxide/allocate/plain", "rust-oxide/update/plain"
SCOPED = "rust-oxide/allocate/scoped"
NULL = "cuda/floor/null"

# Invented times of CUDA's kernels, us: only their ratios to the others below matter.
ALLOCATE = {"base": 30.0, "pts-20k": 20.0, "pts-1280k": 64.0, "r-0.25": 28.0, "r-2.0": 36.0, "plane-320k": 32.0}
UPDATE = {"base": 250.0, "pts-20k": 20.0, "pts-1280k": 600.0, "r-0.25": 200.0, "r-2.0": 260.0, "plane-320k": 280.0}

Spec = dict[str, Any]
"""Keywords of write_archive, with `times` and keywords of sample_rows instead of `samples`."""


def scaled(
    kernel: str, base: Mapping[str, float], factors: float | Mapping[str, float], *words: str
) -> dict[Any, float]:
    """Times of a kernel: the base's times a factor, or a factor a cell."""
    one = isinstance(factors, (int, float))
    return {
        (kernel, cell, *words): us * (factors if one else factors[cell])
        for cell, us in base.items()
        if one or cell in factors
    }


def cuda(base: Mapping[str, float] = ALLOCATE, concurrent: float | None = None) -> dict[Any, float]:
    times = scaled(CA, base, 1.0)
    return times | (scaled(CA, base, concurrent, "concurrent") if concurrent is not None else {})


def paper_ratios(column: str) -> dict[str, float]:
    found = {cell: figures.cell_ratio(cell, column) for cell in ALLOCATE}
    return {cell: value for cell, value in found.items() if value is not None}


RUST3, TRITON3 = paper_ratios("rust_over_cuda"), paper_ratios("triton_over_cuda")
TABLE1 = {
    **cuda(),
    **scaled(CU, UPDATE, 1.0),
    **scaled(OA, ALLOCATE, RUST3),
    **scaled(TA, ALLOCATE, TRITON3),
    **scaled(OU, UPDATE, 1.05),
    **scaled(TU, UPDATE, 1.8),
}
LOST = {"lost_blocks": 13, "failed_inserts": 40, "blocks": 1147, "status": "lossy"}
DROPPED = {"dropped_points": 27943, "status": "lossy"}
LF = {(TA, "base"): 480.0, (TA, "lf-lo"): 480.0, (TA, "lf-mid"): 480.0, (TA, "lf-hi"): 500.0}
LF_UPDATE = {(TU, cell): 300.0 for cell in ("base", "lf-lo", "lf-mid", "lf-hi")}
ONE = {"lost_blocks": 1, "failed_inserts": 2, "blocks": 1159, "status": "lossy"}
PAPER_LOSS = {
    (TA, "lf-lo"): ONE,
    (TA, "lf-mid"): ONE,
    (TA, "lf-hi"): LOST,
    (TU, "lf-hi"): DROPPED,
    (TU, "lf-lo"): {"dropped_points": 155, "status": "lossy"},
    (TU, "lf-mid"): {"dropped_points": 155, "status": "lossy"},
}


def findings(**values: Any) -> Spec:
    return {"evidence": {key.replace("__", "."): value for key, value in values.items()}}


def timed(times: Mapping[Any, float], **more: Any) -> Spec:
    return {"times": times, **more}


def used(percent: int, earlier: int | None = None) -> dict[str, bytes]:
    """telemetry.csv with this utilisation at any time of pass 0's and the controls' worker; before it another's."""
    names = [column.name for column in TELEMETRY]
    text = ",".join(names) + "\n"
    for reading in (earlier, percent):
        for t in range(60) if reading is not None else ():
            values = {"pass": 0, "device_uuid": UUID, "t_s": t / 2, "utilisation": reading}
            text += ",".join(str(values.get(name, "")) for name in names) + "\n"
    return {"telemetry.csv": text.encode()}


def counters(**values: float) -> list[dict[str, Any]]:
    """Counters by short name: hit/sectors/stall/ns and cuda/plain/scoped, as hit_cuda=55."""
    metrics = {
        "hit": "l1tex__t_sector_hit_rate.pct",
        "sectors": "lts__t_sectors.sum",
        "ns": "gpu__time_duration.sum",
        "stall": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    }
    kernels = {"cuda": CA, "plain": OA, "scoped": SCOPED}
    rows = []
    for key, value in values.items():
        metric, kernel = key.split("_")
        rows.append(
            {
                "device_uuid": "u",
                "cell": "base",
                "kernel": kernels[kernel],
                "metric": metrics[metric],
                "unit": "",
                "value": value,
            }
        )
    return rows


def manifest(kernel: str, registers: int, branches: int, memory: int, **more: Any) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "arch": 90,
        "status": "ok",
        "registers": registers,
        "compiler": {"contains_fix": True},
        "sass": {"BRA": branches, "LDG": memory, "instructions": 500},
        **more,
    }


def arms(hausdorff: float, ok: bool = True) -> list[Gate]:
    gates = [gate("triton-while", "gpu", "base", "cross-arm", "cross-arm", detail={"hausdorff_m": hausdorff})]
    for arm in ("cuda", "rust-nvptx", "triton-while"):
        gates += [
            gate(arm, "gpu", "base", "sphere", "analytic", detail={"mean_m": 0.000015}),
            gate(arm, "gpu", "base", ok=ok, message="1 block missing"),
            gate(arm, "gpu", "base", "loss", "loss"),
        ]
    return gates


NO_OXIDE = {"skipped": [Skipped(kernel="rust-oxide/*", cell="*", status="needs-toolchain", why="no cargo-oxide")]}


def lost_at(cell: str, missing: int, **more: Any) -> Spec:
    """P7: the static probe loses at lf-hi, and the exact-set gates of its arm count what is missing in a cell."""
    detail = {"missing": missing}
    return timed(LF, loss={(TA, "lf-hi"): LOST}, gates=[gate("triton", "gpu", cell, detail=detail, **more)])


def around(cell: str, arm: str = "cuda", **more: Any) -> list[Gate]:
    return [gate(arm, "gpu", cell, when=when, **more) for when in ("before", "after")]


def fma(**change: Any) -> Spec:
    """raw/fma.json with the blog's figures, some changed."""
    numbers: dict[str, Any] = {
        "pixels": 27510,
        "max": 392,
        "class": 3484,
        "net": -8912,
        "strict_nvcc": 27592,
        "strict_oxide": 31606,
        "sum": 1_490_000_000,
        "escape": 0,
        "gpu": 0,
        **change,
    }
    off = {lang: f"{lang}/fma/mandelbrot-off-b256" for lang in ("cuda", "rust-oxide")}
    zero = {"max": 0, "class": 0, "net": 0}
    escaped = "b" if numbers["escape"] else "a"
    patterns = {"strict": "s", "nvcc": "na", "oxide": "oa", "nvcc+escape": f"n{escaped}", "oxide+escape": f"o{escaped}"}
    document = {
        "size": 4096,
        "iterations": 500,
        "patterns": {
            n: {"sum": numbers["sum"], "hash": h} for n, h in {**patterns, **dict.fromkeys(off.values(), "off")}.items()
        },
        "pairs": [
            {"a": "nvcc", "b": "oxide", **{k: numbers[k] for k in ("pixels", "max", "class", "net")}},
            {"a": "nvcc", "b": "strict", "pixels": numbers["strict_nvcc"], **zero},
            {"a": "strict", "b": "oxide", "pixels": numbers["strict_oxide"], **zero},
            {"a": "nvcc", "b": "nvcc+escape", "pixels": numbers["escape"], **zero},
            {"a": "oxide", "b": "oxide+escape", "pixels": numbers["escape"], **zero},
            {"a": off["cuda"], "b": off["rust-oxide"], "pixels": numbers["gpu"], **zero},
        ],
    }
    return {"files": {"fma.json": json.dumps(document).encode()}}


def study(
    program: str = "mandelbrot", block: int = 256, rust: float = 1.0, off: float = 1.0, off_rust: float = 1.0
) -> dict:
    """Times of the contraction study: C++ default 900 us, the others as factors of it."""
    cell = program.split("-")[0]
    return {
        (f"{lang}/fma/{program}-{kind}-b{block}", cell): 900.0 * factor
        for lang, kind, factor in (
            ("cuda", "default", 1.0),
            ("rust-oxide", "default", rust),
            ("cuda", "off", off),
            ("rust-oxide", "off", off_rust),
        )
    }


CPP, RUSTY = (f"{lang}/fma/mandelbrot-default-b256" for lang in ("cuda", "rust-oxide"))


def gpu_drew(nvcc: str = "na", oxide: str = "oa", **change: Any) -> Spec:
    """The blog's figures, and the hashes of the images that a GPU drew."""
    images = json.loads(fma(**change)["files"]["fma.json"])
    images["patterns"] |= {CPP: {"sum": 1, "hash": nvcc}, RUSTY: {"sum": 1, "hash": oxide}}
    return {"files": {"fma.json": json.dumps(images).encode()}}


def loops(cuda_default: int = 11) -> Spec:
    values: dict[str, int] = {}
    parts = {
        "cuda": {"add": 4, "mul": 2, "fused": 1, "branches": 1},
        "rust-oxide": {"add": 2, "mul": 1, "fused": 3, "branches": 2},
    }
    lengths = {
        ("cuda", "default"): cuda_default,
        ("rust-oxide", "default"): 11,
        ("cuda", "off"): 12,
        ("rust-oxide", "off"): 13,
    }
    for (lang, kind), length in lengths.items():
        prefix = f"sass.{lang}/fma/mandelbrot-{kind}-b256.sm_89.loop"
        values[f"{prefix}.instructions"] = length
        values |= {f"{prefix}.{part}": n for part, n in parts[lang].items()}
    return {"evidence": values}


def bools(prefix: str, names: Sequence[str], value: bool) -> dict[str, bool]:
    return {f"{prefix}.{name}.builds": value for name in names}


def oxide(**change: Any) -> Spec:
    operations = ("load", "store", "acqrel", "seqcst")
    values = bools("oxide.parent", operations, False) | bools("oxide.fix", operations, True)
    values |= {"oxide.fix.clobber_unconditional": True, "oxide.fix.seqcst_fused": True}
    return {"evidence": values | {key.replace("__", "."): value for key, value in change.items()}}


def pool(**change: float) -> Spec:
    values = {
        "seconds": 0.002,
        "needed_blocks": 1160,
        "lost_blocks": 560,
        "dropped_points": 1000,
        "lost_samples": 1000,
        **change,
    }
    return {"evidence": {f"small_pool.cpu.600.{key}": value for key, value in values.items()}}


def hypotheses(launch: float) -> Spec:
    names = (
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
    )
    values = {f"hypothesis.{name}.ratio": 1.0 for name in names}
    return {"evidence": {**values, "hypothesis.host-launch.ratio": launch}, **timed({**cuda(), (OA, "base"): 30.0})}


REAL = {"real-a": 30.0, "real-b": 32.0}
LOADS = {"base": 30.0, "lf-566": 50.0, "lf-941": 190.0}
NOWAIT = "cuda/allocate/nowait"
WHILE = "triton/allocate/while"
UNKNOWN = dict.fromkeys(("us", "cycles", "blocks", "lost_blocks", "failed_inserts", "dropped_points"))
"""What a batch that did not come back leaves: nothing."""


def unbounded(**one: Any) -> Spec:
    """O2's kernels at every load; in the highest one, columns of the unbounded probe's samples."""
    return timed({**cuda(LOADS), **scaled(WHILE, LOADS, 1.6)}, loss={(WHILE, "lf-941"): one})


def global_atomics(plain: float, fixed: float) -> Spec:
    """O3's kernels: cuda-oxide's update, and the one with global atomics, over CUDA's."""
    times = {**scaled(CU, UPDATE, 1.0), **scaled(OU, UPDATE, plain)}
    return timed({**times, **scaled("rust-oxide/update/global", UPDATE, fixed)})


def without_wait(factor: float, **one: Any) -> Spec:
    """O6's kernels; fields of the kernel's own gate on base."""
    gates = [gate("cuda", "gpu", "base"), gate(NOWAIT, "gpu", "base", **one)]
    return timed({**cuda(), **scaled(NOWAIT, ALLOCATE, factor)}, gates=gates)


PROBES = {
    "probes__key64__mean": 1.1,
    "probes__key64__max": 9,
    "probes__three_words__mean": 40.0,
    "probes__slots": 32768,
}
BIAS = {
    "fault__half_voxel__plane_ok": True,
    "fault__half_voxel__cross_arm_ok": True,
    "fault__half_voxel__radius_error_m": 0.005,
    "sphere__radius_error_m": 0.000015,
}
COMPILE = {"compile__static8__s": 0.5, "compile__static8__cubin_bytes": 10_000}
MANIFESTS = [manifest(CA, 34, 72, 11), manifest(SCOPED, 28, 63, 6)]
WHILE_BUILT = [manifest("triton/allocate/while", 40, 10, 10)]


def scaling(cuda: float, triton: float, tight: float, geometry: float = 2.36) -> dict[Any, float]:
    """Times on 132 multiprocessors, and on 56 that many times as long; no more than the multiprocessors explain."""
    whole = {CA: 24.0, TA: 166.0, f"{TA}-s256": 1800.0, "cuda/floor/geometry": 8.0, OA: 24.0}
    factors = {CA: cuda, TA: triton, f"{TA}-s256": tight, "cuda/floor/geometry": geometry, OA: cuda}
    return {
        **{(kernel, "base+sms132"): us for kernel, us in whole.items()},
        **{(kernel, "base+sms56"): us * factors[kernel] for kernel, us in whole.items()},
    }


SIZES = {"256": 1800.0, "1024": 900.0, "16384": 481.0, "524288": 480.0}


def sizes(**us: float) -> dict[Any, float]:
    named = {**SIZES, **{key[1:]: value for key, value in us.items()}}
    return {(TA, "base"): 480.0, **cuda({"base": 30.0}), **{(f"{TA}-s{n}", "base"): v for n, v in named.items()}}


def alternatives(cas_cuda: float, cas_rust: float) -> dict[Any, float]:
    return {
        (CA, "base"): 30.0,
        (OA, "base"): 31.0,
        ("cuda/allocate/cas128", "base"): 30.0 * cas_cuda,
        ("rust-oxide/allocate/cas128", "base"): 31.0 * cas_rust,
        ("cuda/allocate/slotindex", "base"): 33.0,
        ("rust-oxide/allocate/slotindex", "base"): 34.0,
    }


def saxpy(rust: float) -> Spec:
    # 900 us for 12 bytes an element of 2^24: 223.7 GB/s; a card of 243 GB/s is then at 92 %.
    return {"evidence": {"saxpy.elements": 2**24, "device.bandwidth_gb_s": 243.0}, **timed(study("saxpy", rust=rust))}


def jit(factor: float) -> Spec:
    name = "cuda/fma/mandelbrot-default-b256"
    times = {(name, "mandelbrot"): 900.0, (name, "mandelbrot", "jit"): 900.0 * factor}
    return {**timed({**times, (f"{name}@sm80", "mandelbrot", "jit"): 900.0 * factor}), "evidence": {"jit.ms": 13.0}}


def blocks(at512: float) -> dict[Any, float]:
    return {**study(block=128, rust=0.966), **study(block=256, rust=0.968), **study(block=512, rust=at512)}


def controls(fused: float, unsigned: float, rust: float = 0.968) -> dict[Any, float]:
    return {
        **study(rust=rust),
        ("cuda/fma/mandelbrot-oxide-default-b256", "mandelbrot"): 900.0 * fused,
        ("cuda/fma/mandelbrot-u32-default-b256", "mandelbrot"): 900.0 * unsigned,
    }


def extraction(share: float, total: float = 1.0, kernel: float = 1.0) -> Spec:
    """P4: the copy's share of the extraction, and the paper's two times by these factors."""
    whole = 1.825 * total
    return findings(extract__total_ms=whole, extract__copy_ms=whole * share, extract__kernel_ms=0.319 * kernel)


def real_frames(triton: float = 1.0, rust: float = 1.0, **more: Any) -> Spec:
    """P19: the paper's ratios on synthetic cells, and the ends of its ranges on two real ones by these factors."""
    times = {**cuda(), **cuda(REAL), **scaled(TA, ALLOCATE, TRITON3), **scaled(OA, ALLOCATE, RUST3)}
    ends = {(TA, triton): (17.3, 31.6), (OA, rust): (1.12, 1.41)}
    for (kernel, factor), both in ends.items():
        times |= scaled(kernel, REAL, {cell: ratio * factor for cell, ratio in zip(REAL, both, strict=True)})
    return timed(times, **more)


# id -> archives that differ in what the claim is about, each with the verdict it must give.
CASES: dict[str, list[tuple[str, Spec]]] = {
    "P1": [
        ("reproduced", findings(**PROBES, probes__three_words__max=32768)),
        ("undecided", findings(**{**PROBES, "probes__three_words__mean": 1.2}, probes__three_words__max=11)),
        ("refuted", findings(**{**PROBES, "probes__key64__max": 32768}, probes__three_words__max=32768)),
    ],
    "P2": [
        ("reproduced", {"cells": ["base", "r-1.0", "lf-566"]}),
        ("refuted", {"cells": ["base"], "slots": 16384}),
        ("undecided", {"cells": ["lf-566"]}),
    ],
    "P3": [
        (
            "reproduced",
            findings(
                fault__occlusion_one_pass__blocks=1208,
                fault__occlusion_one_pass__blocks_true=1160,
                fault__occlusion_one_pass__surface_m=0.0,
            ),
        ),
        (
            "refuted",
            findings(
                fault__occlusion_one_pass__blocks=1160,
                fault__occlusion_one_pass__blocks_true=1160,
                fault__occlusion_one_pass__surface_m=0.0,
            ),
        ),
        (
            "refuted",
            findings(
                fault__occlusion_one_pass__blocks=1208,
                fault__occlusion_one_pass__blocks_true=1160,
                fault__occlusion_one_pass__surface_m=0.01,
            ),
        ),
    ],
    "P4": [
        ("reproduced", extraction(0.83)),
        ("differs", extraction(0.7)),
        ("refuted", extraction(0.33)),
        ("needs-gpu", {}),
    ],
    "P5": [
        ("reproduced", timed({**cuda(), ("cuda/allocate/otherhash", "base"): 33.0})),
        ("undecided", timed({**cuda(), ("cuda/allocate/otherhash", "base"): 30.0})),
        ("reproduced", findings(probes__key64__mean=1.1, probes__other_hash__mean=1.6)),
        ("undecided", findings(probes__key64__mean=1.1, probes__other_hash__mean=1.11)),
    ],
    "P6": [
        ("reproduced", {"gates": arms(5e-8), "gpu": True}),
        ("refuted", {"gates": arms(5e-8, ok=False), "gpu": True}),
        ("differs", {"gates": arms(1e-3), "gpu": True}),
    ],
    "P7": [
        ("reproduced", lost_at("lf-hi", 13)),
        ("reproduced", lost_at("lf-hi", 13, ok=False, message="13 blocks missing")),
        ("differs", lost_at("lf-hi", 0)),  # the samples' count saw it, the gate did not
        ("undecided", lost_at("lf-lo", 13)),
        ("undecided", timed(LF, loss={(TA, "lf-hi"): LOST}, gates=[gate("cuda", "gpu", "lf-hi")])),
        ("differs", timed(LF)),
        ("undecided", timed({(TA, "base"): 480.0, (TA, "pts-20k"): 200.0})),  # no cell so loaded that the paper's loses
        ("refuted", timed(LF, loss={(TA, "base"): LOST})),
    ],
    "P8": [
        ("reproduced", findings(**BIAS, fault__half_voxel__sphere_ok=False)),
        ("refuted", findings(**BIAS, fault__half_voxel__sphere_ok=True)),
        (
            "differs",
            findings(**{**BIAS, "fault__half_voxel__radius_error_m": 0.0017}, fault__half_voxel__sphere_ok=False),
        ),
    ],
    "P9": [
        ("reproduced", {"gates": [gate("cpu", "host", "base", "open3d", "third-party")]}),
        ("refuted", {"gates": [gate("cpu", "host", "base", "open3d", "third-party", ok=False, message="far")]}),
        ("undecided", {}),
    ],
    "P10": [
        (
            "reproduced",
            findings(single_launch__wall_us__p50=160, single_launch__wall_us__p99=500, single_launch__graph_us__p50=25),
        ),
        (
            "differs",
            findings(single_launch__wall_us__p50=35, single_launch__wall_us__p99=60, single_launch__graph_us__p50=25),
        ),
    ],
    "P11": [
        ("reproduced", timed({**cuda(), **scaled(CA, ALLOCATE, 0.6, "filled")})),
        ("refuted", timed({**cuda(), **scaled(CA, ALLOCATE, 1.3, "filled")})),
        ("undecided", timed({**cuda(), **scaled(CA, ALLOCATE, 1.0, "filled")})),
        ("undecided", timed({**cuda(), **scaled(CA, ALLOCATE, 0.6, "filled")}, twins=False)),
        ("undecided", timed({**cuda(), **scaled(CA, ALLOCATE, 0.6, "filled")}, passes=1)),
        # In time, not in cycles: the clock was lower.
        ("undecided", timed({**cuda(), **scaled(CA, ALLOCATE, 0.6, "filled")}, filled_clock=2500.0)),
    ],
    "P12": [
        ("reproduced", timed({(CA, "base"): 30.0, (CA, "base+blocked"): 40.0}, blocked=0.8, ramp=100)),
        ("differs", timed({(CA, "base"): 30.0, (CA, "base+blocked"): 30.0}, noise=0.0, ramp=100)),
        # The twins differ, and the clock stood still: whatever it is, it is no ramp.
        ("differs", timed({(CA, "base"): 30.0, (CA, "base+blocked"): 40.0}, blocked=0.8)),
        # The control is one pass by design; what it is held against is not.
        ("reproduced", timed({(CA, "base"): 30.0, (CA, "base+blocked"): 40.0}, blocked=0.8, ramp=100, control=1)),
        ("undecided", timed({(CA, "base"): 30.0, (CA, "base+blocked"): 40.0}, blocked=0.8, ramp=100, passes=1)),
        (
            "undecided",
            timed(
                {(CA, "base"): 30.0, (CA, "base+blocked"): 40.0},
                blocked=0.8,
                loss={(kernel, "base+blocked"): {"sm_clock_mhz": None} for kernel in (CA, f"{CA}@twin")},
            ),
        ),
    ],
    "P13": [
        ("reproduced", timed({(CA, "base"): 30.0, (CA, "base+shared"): 900.0})),
        ("differs", timed({(CA, "base"): 30.0, (CA, "base+shared"): 60.0}, files=used(90))),
        ("undecided", timed({(CA, "base"): 30.0, (CA, "base+shared"): 60.0}, files=used(1))),
        ("undecided", timed({(CA, "base"): 30.0, (CA, "base+shared"): 60.0}, files=used(1, earlier=90))),
        ("undecided", timed({(CA, "base"): 30.0, (CA, "base+shared"): 60.0})),
        ("undecided", timed({(CA, "base"): 30.0})),
    ],
    "P14": [
        ("reproduced", timed(cuda({"base": 30.0}), rounds=70)),
        ("differs", timed(cuda({"base": 30.0}), rounds=30)),
        ("undecided", timed(cuda({"base": 30.0}), rounds=6)),
        ("undecided", timed(cuda({"base": 30.0}), rounds=70, loss={(CA, "base"): {"sm_clock_mhz": None}})),
    ],
    "P16": [
        ("undecided", timed({(CA, "base"): 30.0})),  # nothing was made smaller, nothing is shown
        ("refuted", timed({(CA, "base"): 30.0}, launches=4)),
        (
            "reproduced",
            timed({(CA, "base"): 30.0}, launches=4, reductions=[Reduction(cell="base", batch=4, why="memory")]),
        ),
    ],
    "P17": [
        ("reproduced", timed(TABLE1)),
        ("differs", timed({**TABLE1, **scaled(TU, UPDATE, 3.5)})),
        ("needs-toolchain", timed({k: v for k, v in TABLE1.items() if not k[0].startswith("rust")}, **NO_OXIDE)),
        ("undecided", timed({k: v for k, v in TABLE1.items() if not k[0].startswith("rust")})),
        ("undecided", timed(TABLE1, passes=1)),
    ],
    "P18": [
        ("reproduced", timed(TABLE1)),
        ("differs", timed({**TABLE1, (OA, "pts-20k"): 20.0})),
    ],
    "P19": [
        ("reproduced", real_frames()),
        ("differs", real_frames(triton=1.15)),
        ("refuted", real_frames(triton=0.6)),
        ("refuted", real_frames(rust=1.25)),  # Rust shows the effect as well
        (
            "undecided",
            {k: v for k, v in real_frames().items() if k != "times"}
            | {"times": {key: us for key, us in real_frames()["times"].items() if key[0] != OA}},
        ),
        ("needs-data", timed({**cuda(), **scaled(TA, ALLOCATE, TRITON3)})),
    ],
    "P20": [
        ("refuted", timed({**TABLE1, (NULL, "pts-20k"): 12.0})),
        (
            "reproduced",
            timed(
                {
                    **cuda(),
                    **scaled(OA, ALLOCATE, {**RUST3, "pts-20k": 3.3}),
                    (NULL, "pts-20k"): 12.0,
                    **scaled(TA, ALLOCATE, {**dict.fromkeys(ALLOCATE, 12.0), "pts-20k": 30.0}),
                }
            ),
        ),
        (
            "refuted",
            timed(
                {
                    **cuda(),
                    **scaled(OA, ALLOCATE, {**RUST3, "pts-20k": 3.3}),
                    (NULL, "pts-20k"): 2.0,
                    **scaled(TA, ALLOCATE, {**dict.fromkeys(ALLOCATE, 12.0), "pts-20k": 30.0}),
                }
            ),
        ),
    ],
    "P21": [
        (
            "reproduced",
            timed(
                {
                    **TABLE1,
                    **scaled(TA, ALLOCATE, 15.0),
                    **scaled(TU, UPDATE, {"base": 1.5, "pts-1280k": 2.0, "plane-320k": 1.0}),
                }
            ),
        ),
        ("differs", timed({**TABLE1, **scaled(TA, ALLOCATE, 2.0), **scaled(TU, UPDATE, 1.0)})),
    ],
    "P22": [
        ("reproduced", timed({**cuda(), **scaled(TA, ALLOCATE, TRITON3)})),
        ("refuted", timed({**cuda(), **scaled(TA, ALLOCATE, {**TRITON3, "r-2.0": 30.0})})),
        ("undecided", timed({**cuda(), **scaled(TA, ALLOCATE, 17.0)})),
    ],
    "P23": [
        ("reproduced", timed(scaling(cuda=1.8, triton=2.0, tight=1.0))),
        ("differs", timed(scaling(cuda=1.8, triton=2.0, tight=2.0))),
        ("differs", timed(scaling(cuda=1.0, triton=2.0, tight=1.0))),
        # The geometry is arithmetic: where even it is slower than the multiprocessors that are left, more was taken.
        ("undecided", timed(scaling(cuda=1.8, triton=2.0, tight=1.0, geometry=500.0))),
        ("undecided", timed({k: us for k, us in scaling(1.8, 2.0, 1.0).items() if k[0] != "cuda/floor/geometry"})),
        ("undecided", timed(cuda())),
    ],
    "P25": [
        ("reproduced", timed({**cuda({"base": 30.0}), (TA, "base"): 524.0, (f"{TA}-s256", "base"): 1812.0})),
        ("differs", timed({**cuda({"base": 30.0}), (TA, "base"): 524.0, (f"{TA}-s256", "base"): 700.0})),
        ("refuted", timed({**cuda({"base": 30.0}), (TA, "base"): 524.0, (f"{TA}-s256", "base"): 520.0})),
    ],
    "P26": [
        ("reproduced", timed(sizes())),
        ("refuted", timed(sizes(_524288=300.0))),
        ("undecided", timed({**cuda({"base": 30.0}), (TA, "base"): 480.0})),
    ],
    "P27": [
        ("reproduced", timed({**cuda({"base": 30.0}), (TA, "base"): 30 * 17.9, (f"{TA}-s256", "base"): 30 * 73.0})),
        ("differs", timed({**cuda({"base": 30.0}), (TA, "base"): 30 * 17.9, (f"{TA}-s256", "base"): 30 * 40.0})),
        ("differs", timed({**cuda({"base": 30.0}), (TA, "base"): 30 * 17.9, (f"{TA}-s256", "base"): 30 * 36.0})),
        ("refuted", timed({**cuda({"base": 30.0}), (TA, "base"): 30 * 17.9, (f"{TA}-s256", "base"): 30 * 33.0})),
    ],
    "P28": [
        ("reproduced", timed({**cuda({"base": 30.0}), (SCOPED, "base"): 36.0}, manifests=MANIFESTS)),
        ("undecided", timed({**cuda({"base": 30.0}), (SCOPED, "base"): 30.0}, manifests=MANIFESTS)),
        (
            "differs",
            timed(
                {**cuda({"base": 30.0}), (SCOPED, "base"): 36.0}, manifests=[MANIFESTS[0], manifest(SCOPED, 50, 80, 20)]
            ),
        ),
        ("differs", {"manifests": MANIFESTS, "counters": counters(ns_cuda=45.0, ns_scoped=42.0), "gpu": True}),
        ("needs-toolchain", timed(cuda({"base": 30.0}), **NO_OXIDE)),
        ("undecided", timed(cuda({"base": 30.0}))),
    ],
    "P29": [("reproduced", hypotheses(1.0)), ("refuted", hypotheses(1.3))],
    "P30": [
        (
            "reproduced",
            {
                "counters": counters(
                    hit_cuda=55.9,
                    hit_scoped=28.9,
                    sectors_cuda=100.0,
                    sectors_scoped=170.0,
                    stall_cuda=12.0,
                    stall_scoped=15.0,
                )
            },
        ),
        (
            "differs",
            {
                "counters": counters(
                    hit_cuda=51.5,
                    hit_scoped=28.1,
                    sectors_cuda=799.0,
                    sectors_scoped=1011.0,
                    stall_cuda=12.0,
                    stall_scoped=15.0,
                )
            },
        ),
        (
            "refuted",
            {
                "counters": counters(
                    hit_cuda=51.5,
                    hit_scoped=52.0,
                    sectors_cuda=799.0,
                    sectors_scoped=790.0,
                    stall_cuda=12.0,
                    stall_scoped=12.0,
                )
            },
        ),
    ],
    "P31": [
        ("reproduced", timed({**cuda(), **scaled(OA, ALLOCATE, {**RUST3, "pts-20k": 3.34})})),
        ("differs", timed({**cuda(concurrent=0.5), **scaled(OA, ALLOCATE, 1.0)})),
        # A residual as the paper's, and the launch explains it or does not.
        ("reproduced", timed({**cuda(concurrent=0.5), **scaled(OA, ALLOCATE, {**RUST3, "pts-20k": 3.34})})),
        ("differs", timed({**cuda(concurrent=0.3), **scaled(OA, ALLOCATE, {**RUST3, "pts-20k": 3.34})})),
    ],
    "P32": [
        ("reproduced", findings(**COMPILE, compile__static32__s=1200.0, compile__static32__cubin_bytes=37_000)),
        ("differs", findings(**COMPILE, compile__static32__s=2.0, compile__static32__cubin_bytes=37_000)),
        (
            "refuted",
            findings(
                **COMPILE,
                compile__static32__s=1200.0,
                compile__static32__cubin_bytes=37_000,
                compile__runtime_bound__compiles=True,
            ),
        ),
    ],
    "P33": [
        ("reproduced", timed({**LF, **LF_UPDATE}, loss=PAPER_LOSS)),
        ("differs", timed({**LF, **LF_UPDATE}, loss={(TA, "lf-hi"): LOST, (TU, "lf-hi"): DROPPED})),
        ("refuted", timed({**LF, **LF_UPDATE}, loss=PAPER_LOSS, changing=(TA, "lf-hi"))),
    ],
    "P34": [
        ("reproduced", timed(LF, loss={(TA, "lf-hi"): LOST})),
        ("refuted", timed(LF, loss={(TA, "lf-hi"): {**LOST, "blocks": 1218}})),
        ("undecided", timed(LF)),
    ],
    "P35": [
        ("refuted", {"manifests": WHILE_BUILT, "gates": [gate("triton-while", "interpreter", "base")]}),
        ("reproduced", {"manifests": [{**WHILE_BUILT[0], "status": "failed", "reason": "no while"}]}),
        ("reproduced", findings(compile__unbounded__compiles=False)),
        (
            "refuted",
            {
                **findings(compile__unbounded__compiles=True),
                "gates": [gate("triton-while interpreted", "interpreter", "base")],
            },
        ),
        (
            "undecided",
            {"manifests": WHILE_BUILT, "gates": [gate("triton-while", "gpu", "base", ok=False, message="lost")]},
        ),
        ("undecided", {}),
        (
            "needs-toolchain",
            {"skipped": [Skipped(kernel="triton/*", cell="*", status="needs-toolchain", why="no Triton")]},
        ),
    ],
    "P36": [
        ("reproduced", findings(triton__scalar_atomic__outcome="abort", triton__version="3.6.0")),
        ("refuted", findings(triton__scalar_atomic__outcome="compiles", triton__version="3.6.0")),
    ],
    "P37": [
        ("reproduced", findings(triton__atomic_cas__parameters=["pointer", "cmp", "val", "sem", "scope"])),
        ("refuted", findings(triton__atomic_cas__parameters=["pointer", "cmp", "val", "mask"])),
    ],
    "P38": [
        ("reproduced", {"counters": counters(hit_plain=53.4, hit_scoped=28.1)}),
        ("refuted", {"counters": counters(hit_plain=53.4, hit_scoped=54.0)}),
        ("undecided", {"counters": counters(hit_plain=53.4, hit_scoped=52.0)}),
    ],
    "P39": [
        ("reproduced", oxide()),
        ("refuted", oxide(oxide__parent__load__builds=True)),
        ("needs-toolchain", {"study": "host"}),
        ("undecided", {}),
    ],
    "P40": [
        (
            "reproduced",
            timed(
                {
                    **cuda(),
                    (TA, "base"): 480.0,
                    (TA, "r-0.25"): 470.0,
                    (TA, "r-2.0"): 500.0,
                    (f"{TA}-load", "base"): 450.0,
                }
            ),
        ),
        (
            "refuted",
            timed(
                {
                    **cuda(),
                    (TA, "base"): 480.0,
                    (TA, "r-0.25"): 470.0,
                    (TA, "r-2.0"): 500.0,
                    (f"{TA}-load", "base"): 50.0,
                }
            ),
        ),
    ],
    "P41": [
        ("reproduced", timed(alternatives(1.1, 1.1))),
        ("refuted", timed(alternatives(1.1, 0.8))),
        ("undecided", timed(cuda({"base": 30.0}))),
        (
            "needs-toolchain",
            timed({k: v for k, v in alternatives(1.1, 1.1).items() if not k[0].startswith("rust")}, **NO_OXIDE),
        ),
        ("undecided", timed(alternatives(1.1, 1.1), twins=False)),
    ],
    "P42": [
        ("reproduced", timed(cuda({"base": 30.0}), gates=around("base"))),
        ("undecided", timed(cuda({"base": 30.0}), gates=around("base")[:1])),
        ("undecided", timed(cuda({"base": 30.0}), gates=around("base", ok=False, message="wrong"))),
        ("undecided", timed(cuda({"base": 30.0}), gates=around("base"), twins=False)),
        # The red gate is CUDA's, and the samples that are marked are Triton's.
        (
            "undecided",
            timed(
                {**cuda({"base": 30.0}), (TA, "base"): 480.0},
                gates=[*around("base", ok=False, message="wrong"), *around("base", "triton")],
                loss={(TA, "base"): LOST},
            ),
        ),
        # The red gate is Triton's, and so are the samples that are marked.
        (
            "reproduced",
            timed(
                {**cuda({"base": 30.0}), (TA, "base"): 480.0},
                gates=[*around("base"), *around("base", "triton", ok=False, message="wrong")],
                loss={(TA, "base"): {"status": "failed"}},
            ),
        ),
        # An arm's kernel is sound in another arm; the one that is not has to be marked.
        (
            "reproduced",
            timed(
                {**cuda({"base": 30.0}), (CU, "base"): 250.0, (TU, "base"): 400.0},
                gates=[*around("base"), *around("base", "triton-update", ok=False, message="wrong")],
                loss={(TU, "base"): {"status": "failed"}},
            ),
        ),
        ("undecided", timed(cuda({"base": 30.0}), gates=[*around("base"), *around("base", "unknown", ok=False)])),
        ("undecided", timed(cuda({"base": 30.0}), gates=around("base"), stranger=True)),
        ("reproduced", timed({**cuda({"base": 30.0}), (TA, "base"): 480.0}, gates=around("base"))),
        # Half a pass is missing: another median.
        ("undecided", timed({**cuda({"base": 30.0}), (TA, "base"): 480.0}, gates=around("base"), short=TA)),
    ],
    "P43": [
        ("reproduced", timed({**scaled(CU, UPDATE, 1.0), **scaled(TU, UPDATE, 1.4)})),
        (
            "refuted",
            timed({**scaled(CU, UPDATE, 1.0), **scaled(TU, UPDATE, {**dict.fromkeys(UPDATE, 1.4), "r-2.0": 2.8})}),
        ),
    ],
    "B1": [("reproduced", saxpy(1.0)), ("differs", saxpy(1.05))],
    "B2": [
        ("reproduced", timed(study(rust=0.9675))),
        ("differs", timed(study(rust=1.03))),
        ("needs-toolchain", timed({k: v for k, v in study().items() if k[0].startswith("cuda")}, **NO_OXIDE)),
        ("undecided", timed({k: v for k, v in study().items() if k[0].startswith("cuda")})),
    ],
    "B3": [
        ("reproduced", findings(clock__bias__mandelbrot=3e-5, clock__bias__saxpy=7e-5)),
        ("differs", findings(clock__bias__mandelbrot=3e-5, clock__bias__saxpy=7e-3)),
    ],
    "B4": [("reproduced", jit(1.0)), ("differs", jit(1.1))],
    "B5": [("reproduced", timed(blocks(0.977))), ("undecided", timed(blocks(0.967)))],
    "B6": [("reproduced", fma()), ("refuted", fma(pixels=27511)), ("undecided", {})],
    "B7": [
        (
            "reproduced",
            {
                "evidence": {
                    "ptx.rust-oxide/fma/mandelbrot-default-b256.loop.fused": 2,
                    "sass.rust-oxide/fma/mandelbrot-default-b256.loop.fused": 3,
                }
            },
        ),
        (
            "refuted",
            {
                "evidence": {
                    "ptx.rust-oxide/fma/mandelbrot-default-b256.loop.fused": 3,
                    "sass.rust-oxide/fma/mandelbrot-default-b256.loop.fused": 3,
                }
            },
        ),
    ],
    "B8": [("reproduced", fma()), ("refuted", fma(escape=4))],
    "B9": [("reproduced", fma()), ("refuted", fma(escape=4))],
    "B10": [("reproduced", fma()), ("refuted", fma(net=8912))],
    "B11": [
        ("reproduced", {**timed(study(off=1.04, off_rust=1.04 * 1.0735)), **fma()}),
        ("differs", {**timed(study(off=1.04, off_rust=1.04 * 0.95)), **fma()}),
        ("refuted", {**timed(study(off=1.04, off_rust=1.04 * 1.0735)), **fma(gpu=5)}),
    ],
    "B12": [
        ("reproduced", timed(study(rust=0.9675, off=1.041, off_rust=0.9675 * 1.1555))),
        ("differs", timed(study(rust=0.9675, off=1.041, off_rust=0.9675 * 1.06))),
        ("refuted", timed(study(rust=0.9675, off=1.041, off_rust=0.9675 * 1.03))),
        ("refuted", timed(study(rust=0.9675, off=1.041, off_rust=0.9675 * 1.06), floor=0.03)),
        ("undecided", timed(study(rust=0.9675, off=1.041, off_rust=0.9675 * 1.1555), twins=False)),
    ],
    "B13": [("reproduced", loops()), ("differs", loops(12)), ("needs-toolchain", {"study": "fma"}), ("undecided", {})],
    "B14": [
        ("reproduced", timed(controls(0.97, 1.0))),
        ("reproduced", timed(controls(1.0, 0.97))),
        ("refuted", timed(controls(1.0, 1.0))),
        ("differs", timed(controls(1.04, 1.0, rust=1.03))),  # slower: the fusions explain no win
        ("differs", timed(controls(0.97, 1.0, rust=1.03))),
    ],
    "B15": [
        ("reproduced", findings(fma__trivial_pixels__equal=True, fma__trivial_pixels__images_differ=27510)),
        ("refuted", findings(fma__trivial_pixels__equal=False, fma__trivial_pixels__images_differ=27510)),
    ],
    "B16": [
        ("reproduced", timed(study(), power={CPP: 306.0}, clock={CPP: 1485.0})),
        ("differs", timed(study(), power={CPP: 290.0}, clock={CPP: 1485.0})),
        ("differs", timed(study(), power={CPP: 306.0})),  # more power, the same clock
        ("differs", timed(study(), power={CPP: 306.0}, clock={CPP: 1515.0})),
    ],
    "B17": [
        (
            "reproduced",
            findings(install__curand_needed=True, install__default_arch=80, install__materialize_needs_nvjitlink=True),
        ),
        (
            "refuted",
            findings(install__curand_needed=False, install__default_arch=80, install__materialize_needs_nvjitlink=True),
        ),
    ],
    "B18": [
        ("reproduced", findings(rustc__host__fma_instructions=0, rustc__host__fma_instructions_mul_add=2)),
        ("refuted", findings(rustc__host__fma_instructions=1, rustc__host__fma_instructions_mul_add=2)),
        ("undecided", findings(rustc__host__fma_instructions=0, rustc__host__fma_instructions_mul_add=0)),
    ],
    "B19": [("refuted", findings(fma__ptxas_nofmad__pixels=0)), ("reproduced", findings(fma__ptxas_nofmad__pixels=12))],
    "O1": [
        ("reproduced", timed({**cuda(concurrent=0.6), **scaled(OA, ALLOCATE, 1.01)})),
        ("refuted", timed({**cuda(concurrent=0.95), **scaled(OA, ALLOCATE, 1.5)})),
        ("undecided", timed({**cuda(concurrent=1.0), **scaled(OA, ALLOCATE, 1.0)})),
    ],
    "O2": [
        ("reproduced", unbounded()),
        ("refuted", timed({**cuda(LOADS), **scaled(WHILE, LOADS, 3.0)})),
        ("refuted", unbounded(**LOST)),
        ("refuted", unbounded(lost_blocks=1)),
        ("refuted", unbounded(failed_inserts=1)),
        ("refuted", unbounded(status="lossy")),
        ("refuted", unbounded(**UNKNOWN, status="hung")),
        ("refuted", unbounded(**UNKNOWN, status="failed")),
        ("undecided", timed({**cuda({"base": 30.0}), (WHILE, "base"): 30.0})),
    ],
    "O3": [
        ("reproduced", global_atomics(1.2, 1.0)),
        ("reproduced", global_atomics(1.2, 1.02)),
        ("refuted", global_atomics(1.2, 1.05)),
        ("refuted", global_atomics(1.0, 1.0)),
        (
            "undecided",
            timed(
                {
                    **scaled(CU, UPDATE, 1.0),
                    **scaled(OU, UPDATE, dict.fromkeys(UPDATE, 1.0) | {"base": 1.2}),
                    **scaled("rust-oxide/update/global", UPDATE, 1.0),
                }
            ),
        ),
    ],
    "O4": [
        (
            "reproduced",
            timed({**scaled(CU, UPDATE, 1.0), **scaled("cuda/update/packed", UPDATE, 0.5), **scaled(OU, UPDATE, 1.2)}),
        ),
        (
            "refuted",
            timed({**scaled(CU, UPDATE, 1.0), **scaled("cuda/update/packed", UPDATE, 0.95), **scaled(OU, UPDATE, 1.2)}),
        ),
        (  # the layout takes 0.8, the language 1 / 0.8: as far from 1
            "undecided",
            timed({(CU, "base"): 250.0, ("cuda/update/packed", "base"): 200.0, (OU, "base"): 312.5}),
        ),
    ],
    "O5": [
        ("reproduced", pool()),
        ("refuted", pool(lost_blocks=559)),
        ("refuted", pool(dropped_points=999)),
        ("refuted", pool(seconds=30.0)),
        ("undecided", {}),
    ],
    "O6": [
        ("reproduced", without_wait(0.8)),
        ("refuted", without_wait(0.8, ok=False, message="2 blocks missing")),
        ("undecided", timed({**cuda(), **scaled(NOWAIT, ALLOCATE, 0.8)})),
        ("refuted", timed({**cuda(), **scaled(NOWAIT, ALLOCATE, 1.2)})),
        ("refuted", timed({**cuda(), **scaled(NOWAIT, ALLOCATE, 0.8)}, loss={(NOWAIT, "r-2.0"): LOST})),
        (
            "refuted",
            timed(
                {**cuda(), **scaled(NOWAIT, ALLOCATE, 0.8)}, loss={(NOWAIT, "r-2.0"): {**UNKNOWN, "status": "failed"}}
            ),
        ),
        ("undecided", without_wait(1.0)),
    ],
    "O7": [
        (
            "reproduced",
            timed(
                {
                    **cuda(),
                    **scaled(OA, ALLOCATE, 1.0),
                    **scaled("rust-nvptx/allocate/plain", ALLOCATE, 1.0),
                    **scaled(CU, UPDATE, 1.0),
                    **scaled(OU, UPDATE, 1.0),
                    **scaled("rust-nvptx/update/plain", UPDATE, 1.0),
                }
            ),
        ),
        (
            "refuted",
            timed(
                {
                    **cuda(),
                    **scaled(OA, ALLOCATE, 1.0),
                    **scaled("rust-nvptx/allocate/plain", ALLOCATE, 1.0),
                    **scaled(CU, UPDATE, 1.0),
                    **scaled(OU, UPDATE, 1.2),
                    **scaled("rust-nvptx/update/plain", UPDATE, 1.0),
                }
            ),
        ),
        ("needs-toolchain", timed({**cuda(), **scaled("rust-nvptx/allocate/plain", ALLOCATE, 1.0)}, **NO_OXIDE)),
        ("undecided", timed({**cuda(), **scaled("rust-nvptx/allocate/plain", ALLOCATE, 1.0)})),
    ],
}


def totals_at(share: float, rust: float = 1.05) -> Spec:
    """P21: CUDA's allocate has this share of its total; the paper's ratios, Rust's on base given."""
    update = dict.fromkeys(("base", "pts-1280k", "plane-320k"), 300.0)
    allocate = {cell: us * share / (1 - share) for cell, us in update.items()}
    theirs = {"base": 2.98, "pts-1280k": 3.2, "plane-320k": 2.44}
    ours = {"base": rust, "pts-1280k": 1.03, "plane-320k": 1.03}
    found = cuda(allocate) | scaled(CU, update, 1.0)
    for kernels, ratios in (((OA, OU), ours), ((TA, TU), theirs)):
        found |= scaled(kernels[0], allocate, ratios) | scaled(kernels[1], update, ratios)
    return timed(found)


def framed(rust: float = 1.02, triton: float = 2.75, **more: Any) -> Spec:
    """P21: Table 2's cells as the paper has them, and one of real frames with these totals."""
    found = dict(totals_at(0.1)["times"]) | {(CA, "real-a"): 30.0, (CU, "real-a"): 270.0}
    for kernels, ratio in (((OA, OU), rust), ((TA, TU), triton)):
        found |= {(kernels[0], "real-a"): 30.0 * ratio, (kernels[1], "real-a"): 270.0 * ratio}
    return timed(found, **more)


def filled(*factors: float) -> Spec:
    """P11: the filled table's time over the fresh one's, a factor a cell, in the order of ALLOCATE."""
    return timed({**cuda(), **scaled(CA, ALLOCATE, dict(zip(ALLOCATE, factors, strict=True)), "filled")})


def launched(serial: float, branches: float) -> Spec:
    """O1: Rust's ratio on one stream, and CUDA's time on branches over its time on one stream."""
    return timed({**cuda(concurrent=branches), **scaled(OA, ALLOCATE, serial)})


def residuals(**one: float) -> Spec:
    """P31: the paper's ratios, some changed; cells with underscores."""
    changed = {cell.replace("_", "-"): ratio for cell, ratio in one.items()}
    return timed({**cuda(), **scaled(OA, ALLOCATE, {**RUST3, "pts-20k": 3.34, **changed})})


def floor_of(load: float = 450.0, few: float = 470.0, **more: Any) -> Spec:
    """P40: the probe with a load in the exchange's place on base, and the probe itself on r-0.25."""
    static = {(TA, "base"): 480.0, (TA, "r-0.25"): few, (TA, "r-2.0"): 500.0, (f"{TA}-load", "base"): load}
    return timed({**cuda(), **static}, **more)


def l1(**change: float) -> Spec:
    """P30: the paper's counters, some changed."""
    paper = {"hit_cuda": 55.9, "hit_scoped": 28.9, "sectors_cuda": 100.0, "sectors_scoped": 170.0}
    return {"counters": counters(**{**paper, "stall_cuda": 12.0, "stall_scoped": 15.0, **change})}


def with_probe32(seconds: float = 1200.0, size: float = 3.7) -> Spec:
    return findings(**COMPILE, compile__static32__s=seconds, compile__static32__cubin_bytes=round(size * 10_000))


def layouts(packed: float, **more: Any) -> Spec:
    """O4: packed voxels over plain ones, Rust's update 1.2 times CUDA's."""
    return timed({**scaled(CU, UPDATE, 1.0), **scaled("cuda/update/packed", UPDATE, packed), **scaled(OU, UPDATE, 1.2)},
                 **more)  # fmt: skip


def causes(**change: Any) -> Spec:
    """P29 with everything ruled out; values of some findings changed, None to leave one out."""
    spec = hypotheses(1.0)
    values = {**spec["evidence"], **{f"hypothesis.{key.replace('__', '.')}": value for key, value in change.items()}}
    return {**spec, "evidence": {key: value for key, value in values.items() if value is not None}}


def split(*factors: float) -> dict[str, float]:
    return dict(zip(ALLOCATE, factors, strict=True))


def changed(document: Spec, name: str, digest: str) -> Spec:
    """The contraction study's document with another hash of one image."""
    images = json.loads(document["files"]["fma.json"])
    images["patterns"][name]["hash"] = digest
    return {"files": {"fma.json": json.dumps(images).encode()}}


TRITON_LIKE = {**dict.fromkeys(ALLOCATE, 12.0), "pts-20k": 30.0}
SMALLEST = {**cuda(), **scaled(OA, ALLOCATE, {**RUST3, "pts-20k": 3.3}), **scaled(TA, ALLOCATE, TRITON_LIKE)}
STOCK = {
    **cuda(),
    **scaled(CU, UPDATE, 1.0),
    **scaled(OA, ALLOCATE, 1.0),
    **scaled(OU, UPDATE, 1.0),
    **scaled("rust-nvptx/allocate/plain", ALLOCATE, 1.0),
    **scaled("rust-nvptx/update/plain", UPDATE, 1.0),
}

# On both sides of every figure of a tolerance, nearer than a factor of two: another figure fails one of them. `floor`
# is the A/A floor that the twins show.
EDGES: dict[str, list[tuple[str, Spec]]] = {
    "P1": [
        ("differs", findings(**{**PROBES, "probes__three_words__mean": 2.3}, probes__three_words__max=11)),
        ("undecided", findings(**{**PROBES, "probes__three_words__mean": 2.1}, probes__three_words__max=11)),
        ("reproduced", findings(**{**PROBES, "probes__three_words__mean": 1.2}, probes__three_words__max=32768)),
    ],
    "P2": [("refuted", {"cells": ["base"], "slots": slots}) for slots in (65536, 49152)],
    "P3": [
        (
            verdict,
            findings(
                fault__occlusion_one_pass__blocks=1208,
                fault__occlusion_one_pass__blocks_true=1160,
                fault__occlusion_one_pass__surface_m=surface,
            ),
        )
        for verdict, surface in (("reproduced", 7e-8), ("refuted", 1.5e-7))
    ],
    "P4": [
        *((v, extraction(share)) for v, share in (("reproduced", 0.83), ("differs", 0.81), ("reproduced", 0.965))),
        *((v, extraction(share)) for v, share in (("differs", 0.98), ("differs", 0.55), ("refuted", 0.45))),
        *((v, extraction(0.9, total=by)) for v, by in (("reproduced", 1.08), ("differs", 1.15), ("differs", 0.85))),
        *((v, extraction(0.9, kernel=by)) for v, by in (("reproduced", 1.08), ("differs", 1.15), ("differs", 0.85))),
    ],
    "P5": [
        ("reproduced", findings(probes__key64__mean=1.0, probes__other_hash__mean=1.07)),
        ("undecided", findings(probes__key64__mean=1.0, probes__other_hash__mean=1.035)),
        ("undecided", timed({**cuda(), ("cuda/allocate/otherhash", "base"): 33.0}, floor=0.15)),
    ],
    "P6": [
        ("reproduced", {"gates": arms(7e-8), "gpu": True}),
        ("differs", {"gates": arms(1.5e-7), "gpu": True}),
        ("reproduced", {"gates": [*arms(5e-8), gate("cuda", "gpu", "r-2.0", ok=False)], "gpu": True}),
        ("reproduced", {"gates": [*arms(5e-8), gate(NOWAIT, "gpu", "base", ok=False)], "gpu": True}),
        ("undecided", {"gates": [g for g in arms(5e-8) if not g.arm.startswith("rust")], "gpu": True}),
        ("undecided", {"gates": [g for g in arms(5e-8) if g.tier != "loss"], "gpu": True}),
    ],
    "P8": [
        ("refuted", findings(**{**BIAS, f"fault__half_voxel__{name}_ok": False}, fault__half_voxel__sphere_ok=False))
        for name in ("plane", "cross_arm")
    ],
    "P10": [
        (
            verdict,
            findings(
                single_launch__wall_us__p50=extra + graph,
                single_launch__wall_us__p99=tail * (extra + graph),
                single_launch__graph_us__p50=graph,
            ),
        )
        for verdict, extra, graph, tail in (
            ("reproduced", 70, 25, 4),
            ("differs", 60, 25, 4),
            ("reproduced", 250, 25, 4),
            ("differs", 270, 25, 4),
            ("differs", 90, 100, 4),
            ("reproduced", 130, 25, 2.2),
            ("differs", 130, 25, 1.8),
            ("reproduced", 130, 25, 7.5),
            ("differs", 130, 25, 8.5),
        )
    ],
    "P11": [
        ("reproduced", filled(0.6, 0.6, 0.6, 0.6, 1.0, 1.0)),
        ("undecided", filled(0.6, 0.6, 0.6, 1.0, 1.0, 1.0)),
        ("undecided", filled(0.6, 0.6, 1.0, 1.0, 1.0, 1.0)),
        ("refuted", filled(0.6, 0.6, 0.6, 0.6, 0.6, 1.3)),
    ],
    "P12": [
        (verdict, timed({(CA, "base"): 30.0, (CA, "base+blocked"): 40.0}, blocked=0.8, ramp=ramp))
        for verdict, ramp in (("reproduced", 4), ("differs", 2))  # MHz a round of six, from 1500
    ],
    "P13": [
        ("reproduced", timed({(CA, "base"): 30.0, (CA, "base+shared"): 360.0})),
        ("differs", timed({(CA, "base"): 30.0, (CA, "base+shared"): 240.0}, files=used(90))),
        ("reproduced", timed({(CA, "base"): 30.0, (CA, "base+shared"): 900.0}, control=1)),
        ("undecided", timed({(CA, "base"): 30.0, (CA, "base+shared"): 900.0}, passes=1)),
    ],
    "P14": [
        ("reproduced", timed(cuda({"base": 30.0}), rounds=67)),
        ("differs", timed(cuda({"base": 30.0}), rounds=66)),
        ("differs", timed(cuda({"base": 30.0}), rounds=14)),
        ("undecided", timed(cuda({"base": 30.0}), rounds=13)),
        ("undecided", timed(cuda({"base": 30.0}), rounds=70, loss={(CA, "base"): {"temperature_c": None}})),
    ],
    "P17": [
        ("reproduced", timed({**TABLE1, (OA, "pts-20k"): 20.0 * 3.1})),
        ("differs", timed({**TABLE1, (OA, "pts-20k"): 20.0 * 2.9})),  # inside the range, which it does not fill
        ("reproduced", timed({**TABLE1, (TA, "r-2.0"): 36.0 * 12.2})),
        ("differs", timed({**TABLE1, (TA, "r-2.0"): 36.0 * 12.6})),
        ("reproduced", timed({**TABLE1, **scaled(TU, UPDATE, 2.7)})),
        ("differs", timed({**TABLE1, **scaled(TU, UPDATE, 2.9)})),
        ("reproduced", timed({**TABLE1, **scaled(OU, UPDATE, 0.9)})),
        ("differs", timed({**TABLE1, **scaled(OU, UPDATE, 0.82)})),
        ("undecided", timed({key: us for key, us in TABLE1.items() if key[1] in ("base", "r-2.0")})),
    ],
    "P18": [
        ("reproduced", timed({**TABLE1, (OA, "pts-20k"): 20.0 * 3.33 * 1.08})),
        ("differs", timed({**TABLE1, (OA, "pts-20k"): 20.0 * 3.33 * 1.15})),
    ],
    "P19": [
        *(
            (verdict, real_frames(triton=17.55 / 24.45 * factor, floor=0.05))
            for verdict, factor in (("undecided", 1.04), ("differs", 1.07), ("refuted", 0.93))
        ),
        *((v, real_frames(triton=by)) for v, by in (("reproduced", 1.08), ("reproduced", 0.92), ("differs", 0.88))),
        *((v, real_frames(rust=by)) for v, by in (("reproduced", 1.08), ("reproduced", 0.92), ("differs", 1.15))),
        *((v, real_frames(rust=by)) for v, by in (("differs", 0.87), ("refuted", 1.2), ("refuted", 0.82))),
        ("undecided", real_frames(twins=False)),
    ],
    "P20": [
        ("reproduced", timed({**SMALLEST, (NULL, "pts-20k"): 11.0})),
        ("refuted", timed({**SMALLEST, (NULL, "pts-20k"): 9.0})),
        ("undecided", timed({**SMALLEST, (NULL, "pts-20k"): 11.0}, twins=False)),
    ],
    "P21": [
        *((v, totals_at(share)) for v, share in (("reproduced", 0.06), ("differs", 0.04), ("reproduced", 0.19))),
        ("differs", totals_at(0.22)),
        *((v, totals_at(0.1, r)) for v, r in (("reproduced", 1.19), ("differs", 1.28), ("reproduced", 0.97))),
        ("differs", totals_at(0.1, 0.89)),
        *((v, framed(rust=r)) for v, r in (("reproduced", 1.02), ("differs", 1.04), ("reproduced", 0.98))),
        *((v, framed(rust=r, floor=0.02)) for v, r in (("reproduced", 1.04), ("differs", 1.06), ("differs", 0.94))),
        *((v, framed(triton=r)) for v, r in (("reproduced", 3.1), ("differs", 3.3), ("differs", 2.2))),
    ],
    "P22": [
        (
            verdict,
            timed(
                {
                    **cuda(),
                    **scaled(TA, ALLOCATE, {**dict.fromkeys(ALLOCATE, 20.0), "pts-1280k": 20.0 * up, "r-2.0": 15.0}),
                },
                floor=0.02,
            ),
        )
        for verdict, up in (("undecided", 1.03), ("reproduced", 1.06))
    ]
    + [
        ("undecided", timed({key: us for key, us in TABLE1.items() if key[1] != cell}))
        for cell in ("pts-20k", "pts-1280k", "r-0.25", "r-2.0")
    ],
    "P23": [
        ("reproduced", timed(scaling(cuda=1.12, triton=2.0, tight=1.0))),
        ("differs", timed(scaling(cuda=1.05, triton=2.0, tight=1.0))),
        ("differs", timed(scaling(cuda=1.8, triton=1.05, tight=1.0))),
        *(
            (verdict, timed(scaling(cuda=1.8, triton=2.0, tight=tight)))
            for verdict, tight in (("reproduced", 1.15), ("differs", 1.25), ("reproduced", 0.83), ("differs", 0.75))
        ),
        ("reproduced", timed(scaling(cuda=1.8, triton=2.0, tight=1.0, geometry=2.85))),
        ("undecided", timed(scaling(cuda=1.8, triton=2.0, tight=1.0, geometry=3.1))),
        ("undecided", timed(scaling(cuda=1.8, triton=2.0, tight=1.0), passes=1)),
    ],
    "P25": [
        (verdict, timed({**cuda({"base": 30.0}), (TA, "base"): 524.0, (f"{TA}-s256", "base"): 1812.0 * factor}))
        for verdict, factor in (("reproduced", 1.08), ("differs", 1.15), ("reproduced", 0.92), ("differs", 0.85))
    ],
    "P26": [
        ("reproduced", timed(sizes(_524288=473.0))),
        ("refuted", timed(sizes(_524288=466.0))),
        ("reproduced", timed(sizes(_524288=466.0), floor=0.05)),
        ("undecided", timed({k: us for k, us in sizes().items() if k[0] not in (f"{TA}-s256", f"{TA}-s1024")})),
        ("undecided", timed({k: us for k, us in sizes().items() if k[0] != f"{TA}-s524288"})),
        ("undecided", timed(sizes(), passes=1)),
    ],
    "P27": [
        (
            verdict,
            timed({**cuda({"base": 30.0}), (TA, "base"): 30 * 17.9 * one, (f"{TA}-s256", "base"): 30 * 73.0 * other}),
        )
        for verdict, one, other in (("reproduced", 1.08, 0.92), ("differs", 1.15, 1.0), ("differs", 1.0, 0.85))
    ],
    "P28": [
        *(
            (verdict, {"manifests": MANIFESTS, "counters": counters(ns_cuda=45.0, ns_scoped=45.0 * factor)})
            for verdict, factor in (("reproduced", 1.03), ("undecided", 1.015), ("undecided", 0.985))
        ),
        *(
            ("differs", timed({**cuda({"base": 30.0}), (SCOPED, "base"): 36.0}, manifests=[MANIFESTS[0], one]))
            for one in (manifest(SCOPED, 34, 63, 6), manifest(SCOPED, 28, 72, 6), manifest(SCOPED, 28, 63, 11))
        ),
        ("undecided", timed({**cuda({"base": 30.0}), (SCOPED, "base"): 36.0}, manifests=MANIFESTS, floor=0.3)),
        (
            "differs",
            timed(
                {**cuda({"base": 30.0}), (SCOPED, "base"): 30.0}, manifests=[MANIFESTS[0], manifest(SCOPED, 50, 80, 20)]
            ),
        ),
        ("undecided", timed({**cuda({"base": 30.0}), (SCOPED, "base"): 36.0}, manifests=MANIFESTS, passes=1)),
    ],
    "P29": [
        ("undecided", causes(registers__range=[1.0, 1.2])),
        ("undecided", causes(registers__range=[0.8, 1.0])),
        ("refuted", causes(registers__range=[0.8, 0.9])),
        ("refuted", causes(registers__range=[1.1, 1.2])),
        ("undecided", causes(fence__range=[0.8, 0.9])),  # CUDA C++ has a fence as well
        ("refuted", causes(fence__range=[0.8, 0.9], volatile__range=[1.2, 1.3])),
        ("undecided", causes(clamp__ratio=None)),
        ("undecided", {**causes(), "twins": False}),
    ],
    "P30": [
        ("reproduced", l1(hit_cuda=60.0)),
        ("differs", l1(hit_cuda=62.0)),
        ("reproduced", l1(hit_scoped=33.0)),
        ("differs", l1(hit_scoped=35.0)),
        ("reproduced", l1(sectors_scoped=183.0)),
        ("differs", l1(sectors_scoped=196.0)),
        ("differs", l1(stall_scoped=12.0)),
        ("refuted", l1(hit_scoped=55.9)),
        ("refuted", l1(sectors_scoped=100.0)),
    ],
    "P31": [
        ("reproduced", residuals(base=0.93)),
        ("differs", residuals(base=0.85)),
        ("reproduced", residuals(base=1.85)),
        ("differs", residuals(base=2.0)),
        ("reproduced", residuals(**{"r-0.25": 1.37})),
        ("differs", residuals(**{"r-0.25": 1.31})),  # inside the range, which it does not fill
        ("reproduced", residuals(pts_20k=3.34 * 1.08)),
        ("differs", residuals(pts_20k=3.34 * 1.15)),
        ("differs", residuals(**{cell: 1.4 for cell in ALLOCATE if cell != "pts-20k"})),
        ("undecided", timed({**cuda(), **scaled(OA, {cell: ALLOCATE[cell] for cell in ("base", "pts-20k")}, 1.2)})),
    ],
    "P32": [
        ("reproduced", with_probe32(seconds=70.0)),
        ("differs", with_probe32(seconds=50.0)),
        ("reproduced", with_probe32(size=3.7 * 1.08)),
        ("differs", with_probe32(size=3.7 * 1.15)),
    ],
    "P33": [
        ("differs", timed({**LF, **LF_UPDATE}, loss={**PAPER_LOSS, (TA, "lf-hi"): {**LOST, "lost_blocks": 14}})),
        ("differs", timed({**LF, **LF_UPDATE}, loss={**PAPER_LOSS, (TU, "lf-hi"): {"dropped_points": 27942}})),
        ("refuted", timed({**LF, **LF_UPDATE}, loss=PAPER_LOSS, changing=(TU, "lf-hi"))),
        ("undecided", timed({(TA, "base"): 480.0, (TA, "lf-lo"): 480.0}, loss={(TA, "lf-lo"): ONE})),
        # A filled table has nothing left to lose: that its samples lose nothing is no change.
        ("reproduced", timed({**LF, **LF_UPDATE, (TA, "lf-hi", "filled"): 90.0}, loss=PAPER_LOSS)),
        ("reproduced", timed(LF, loss={key: row for key, row in PAPER_LOSS.items() if key[0] == TA})),
    ],
    "P34": [("reproduced", timed(LF, loss={(TA, "lf-hi"): {**LOST, "blocks": 1217}}))],
    "P35": [
        ("refuted", {"manifests": WHILE_BUILT, "gates": [gate("triton-while", "gpu", "base"), other]})
        for other in (
            gate("triton", "gpu", "base", ok=False),
            gate("triton-while", "gpu", "base", "memcheck", "sanitizer", ok=False),
        )
    ],
    "P38": [
        ("reproduced", {"counters": counters(hit_plain=53.4, hit_scoped=47.0)}),
        ("undecided", {"counters": counters(hit_plain=53.4, hit_scoped=49.4)}),
    ],
    "P39": [
        *(("refuted", oxide(**{f"oxide__fix__{name}__builds": False})) for name in ("load", "store", "acqrel")),
        ("refuted", oxide(oxide__fix__seqcst__builds=False)),
        ("refuted", oxide(oxide__fix__clobber_unconditional=False)),
        ("refuted", oxide(oxide__fix__seqcst_fused=False)),
    ],
    "P40": [
        *((v, floor_of(load=us)) for v, us in (("reproduced", 340.0), ("refuted", 300.0), ("reproduced", 690.0))),
        ("refuted", floor_of(load=760.0)),
        *((v, floor_of(few=us)) for v, us in (("reproduced", 350.0), ("refuted", 310.0), ("reproduced", 720.0))),
        ("refuted", floor_of(few=790.0)),
        ("undecided", floor_of(passes=1)),
    ],
    "P41": [
        ("refuted", timed(alternatives(1.2, 1.0))),
        ("refuted", timed(alternatives(0.8, 0.8))),
        ("reproduced", timed(alternatives(1.0, 1.0))),
    ],
    "P43": [
        *(
            (
                verdict,
                timed(
                    {**scaled(CU, UPDATE, 1.0), **scaled(TU, UPDATE, {**dict.fromkeys(UPDATE, 1.4), "base": ratio})},
                    floor=0.1,
                ),
            )
            for verdict, ratio in (("reproduced", 2.4), ("undecided", 2.6), ("refuted", 2.9))
        ),
        ("undecided", timed({**scaled(CU, UPDATE, 1.0), **scaled(TU, UPDATE, 1.4)}, twins=False)),
        ("undecided", timed({(CU, "base"): 1.0, (TU, "base"): 1.0, (CU, "r-2.0"): 1.0, (TU, "r-2.0"): 1.0})),
    ],
    "B1": [
        (verdict, {**saxpy(1.0), "evidence": {"saxpy.elements": 2**24, "device.bandwidth_gb_s": bandwidth}})
        for verdict, bandwidth in (("reproduced", 233.0), ("differs", 228.0), ("reproduced", 252.0), ("differs", 260.0))
    ]
    + [("undecided", {**saxpy(1.0), "twins": False}), ("reproduced", {**saxpy(1.02), "floor": 0.03})],
    "B2": [
        ("reproduced", timed(study(rust=0.975))),
        ("differs", timed(study(rust=0.984))),
        ("differs", timed(study(rust=0.951))),
        ("differs", timed(study(rust=0.9675), floor=0.05)),
        ("differs", timed(study(rust=0.9675), one_round=(RUSTY, 1.05))),  # behind in one round of eighteen
    ],
    "B3": [
        (verdict, findings(clock__bias__mandelbrot=one, clock__bias__saxpy=other))
        for verdict, one, other in (
            ("reproduced", 8e-4, 0.0),
            ("differs", 1.5e-3, 0.0),
            ("reproduced", 0.0, -8e-4),
            ("differs", 0.0, -1.5e-3),
        )
    ],
    "B4": [
        ("reproduced", {**jit(1.02), "floor": 0.03}),
        ("undecided", {**jit(1.0), "twins": False}),
        ("undecided", {**jit(1.0), "passes": 1}),
    ],
    "B5": [
        ("reproduced", timed(blocks(0.977), floor=0.004)),
        ("undecided", timed(blocks(0.977), floor=0.0065)),
        ("differs", timed(blocks(0.992))),
        ("undecided", timed(blocks(0.977), twins=False)),
    ],
    "B6": [("reproduced", gpu_drew()), ("undecided", gpu_drew(nvcc="x")), ("undecided", gpu_drew(oxide="x"))]
    + [
        ("refuted", fma(**{name: value}))
        for name, value in (("max", 391), ("class", 3485), ("strict_nvcc", 27593), ("strict_oxide", 31605))
    ],
    "B7": [
        (
            "refuted",
            {
                "evidence": {
                    "ptx.rust-oxide/fma/mandelbrot-default-b256.loop.fused": ptx,
                    "sass.rust-oxide/fma/mandelbrot-default-b256.loop.fused": sass,
                }
            },
        )
        for ptx, sass in ((3, 4), (1, 3))
    ],
    "B8": [("reproduced", gpu_drew()), ("undecided", gpu_drew(oxide="x")), ("refuted", gpu_drew(escape=1))],
    "B9": [
        ("reproduced", gpu_drew()),
        ("undecided", gpu_drew(oxide="x")),
        ("refuted", fma(pixels=0)),
        ("refuted", changed(fma(), "nvcc+escape", "x")),
        ("refuted", changed(fma(), "oxide+escape", "x")),
    ],
    "B10": [
        ("reproduced", gpu_drew()),
        ("undecided", gpu_drew(nvcc="x")),
        ("reproduced", fma(sum=round(1.49e9 * 1.004))),
        ("refuted", fma(sum=round(1.49e9 * 1.008))),
        ("refuted", fma(sum=round(1.49e9 * 0.992))),
    ],
    "B11": [
        (verdict, {**timed(study(off=1.04, off_rust=1.04 * rust), floor=floor), **fma()})
        for verdict, rust, floor in (
            ("reproduced", 1.0735, 0.001),
            ("reproduced", 1.08, 0.0),
            ("differs", 1.09, 0.0),
            ("differs", 1.058, 0.0),
            ("differs", 1.0735, 0.1),
        )
    ]
    + [
        (
            "differs",
            {
                **timed(study(off=1.04, off_rust=1.04 * 1.0735), one_round=("rust-oxide/fma/mandelbrot-off-b256", 0.9)),
                **fma(),
            },
        )
    ],
    "B12": [
        (verdict, timed(study(rust=0.9675, off=off, off_rust=0.9675 * off_rust)))
        for verdict, off, off_rust in (
            ("reproduced", 1.049, 1.147),
            ("differs", 1.056, 1.1555),
            ("differs", 1.041, 1.171),
        )
    ],
    "B14": [
        ("reproduced", timed(controls(0.98, 1.0))),
        ("refuted", timed(controls(0.99, 1.0))),
        ("refuted", timed(controls(1.03, 1.0))),
        ("undecided", timed(controls(0.97, 1.0), floor=0.05)),
        ("undecided", timed({key: us for key, us in controls(0.97, 1.0).items() if "u32" not in key[0]})),
        ("undecided", timed(controls(0.97, 1.0), passes=1)),
    ],
    "B15": [("refuted", findings(fma__trivial_pixels__equal=True, fma__trivial_pixels__images_differ=0))],
    "B17": [
        (
            "refuted",
            findings(
                install__curand_needed=True, install__default_arch=arch, install__materialize_needs_nvjitlink=jitlink
            ),
        )
        for arch, jitlink in ((90, True), (80, False))
    ],
    "O1": [
        ("reproduced", launched(1.009, 0.95)),
        ("undecided", launched(1.022, 0.95)),
        ("undecided", launched(1.1, 0.95)),
        ("undecided", launched(1.166, 0.95)),
        ("refuted", launched(1.337, 0.95)),
        ("undecided", {**launched(1.009, 0.95), "floor": 0.1}),
        ("undecided", {**launched(1.009, 0.95), "twins": False}),
    ],
    "O2": [
        *(
            (verdict, timed({**cuda(LOADS), **scaled(WHILE, LOADS, ratio)}, floor=0.1))
            for verdict, ratio in (("reproduced", 2.4), ("undecided", 2.6), ("refuted", 2.9))
        ),
        ("undecided", timed({**cuda(LOADS), **scaled(WHILE, LOADS, 1.6)}, twins=False)),
        ("undecided", timed({**cuda({"lf-566": 50.0}), (WHILE, "lf-566"): 60.0})),
        ("undecided", unbounded(lost_blocks=None)),
    ],
    "O3": [
        ("undecided", {**global_atomics(1.2, 1.04), "floor": 0.02}),
        ("refuted", global_atomics(1.2, 0.95)),
        ("reproduced", global_atomics(1.2, 0.98)),
        ("undecided", {**global_atomics(1.2, 1.0), "twins": False}),
        *(
            (
                verdict,
                timed(
                    {
                        **scaled(CU, UPDATE, 1.0),
                        **scaled(OU, UPDATE, split(*factors)),
                        **scaled("rust-oxide/update/global", UPDATE, 1.0),
                    }
                ),
            )
            for verdict, factors in (
                ("undecided", (1.2, 1.2, 1.2, 1.0, 1.0, 1.0)),
                ("undecided", (1.2, 1.2, 1.0, 1.0, 1.0, 1.0)),
                ("reproduced", (1.2, 1.2, 1.2, 1.2, 1.0, 1.0)),
            )
        ),
    ],
    "O4": [
        ("undecided", layouts(0.5, twins=False)),
        ("undecided", layouts(0.85, floor=0.05)),  # |log| 0.163 and 0.182: apart by less than the floor
        ("undecided", layouts(0.81, floor=0.05)),
        ("reproduced", layouts(0.75, floor=0.05)),
        ("refuted", layouts(0.9, floor=0.05)),
    ],
    "O5": [
        ("reproduced", pool(seconds=0.8)),
        ("refuted", pool(seconds=1.5)),
        ("refuted", pool(needed_blocks=600, lost_blocks=0)),
        ("refuted", pool(lost_blocks=561)),
    ],
    "O6": [
        *(
            (verdict, {**without_wait(0.8), **timed({**cuda(), **scaled(NOWAIT, ALLOCATE, split(*factors))})})
            for verdict, factors in (
                ("reproduced", (0.8, 0.8, 0.8, 0.8, 1.0, 1.0)),
                ("undecided", (0.8, 0.8, 0.8, 1.0, 1.0, 1.0)),
                ("undecided", (0.8, 0.8, 1.0, 1.0, 1.0, 1.0)),
                ("refuted", (0.8, 0.8, 0.8, 0.8, 0.8, 1.2)),
            )
        ),
        ("refuted", without_wait(0.8, name="exact-tsdf", ok=False)),
        ("undecided", without_wait(0.8, name="sphere", tier="analytic", ok=False)),
        ("refuted", {**without_wait(0.8), "loss": {(NOWAIT, "base"): {"lost_blocks": 1}}}),
    ],
    "O7": [
        ("undecided", timed(STOCK, twins=False)),
        ("reproduced", timed({**STOCK, ("rust-nvptx/allocate/plain", "base"): 30.0 * 1.04}, floor=0.05)),
        ("refuted", timed({**STOCK, ("rust-nvptx/allocate/plain", "base"): 30.0 * 1.07}, floor=0.05)),
    ],
}
for _identity, _edges in EDGES.items():
    CASES[_identity] += _edges


SPANNING = {"P15", "P24", "O8"}
"""Claims over several archives; their cases stand below."""


def build(root: Path, spec: Spec) -> Path:
    """An archive of a case: `times` and keywords of sample_rows make its samples."""
    spec = dict(spec)
    keywords = {
        key: spec.pop(key)
        for key in ("passes", "rounds", "noise", "twins", "power", "clock", "loss", "launches")
        if key in spec
    }
    times = spec.pop("times", {})
    changing, blocked = spec.pop("changing", None), spec.pop("blocked", None)
    filled_clock, ramp = spec.pop("filled_clock", None), spec.pop("ramp", 0)
    control, stranger = spec.pop("control", None), spec.pop("stranger", False)
    floor, slots = spec.pop("floor", 0.0), spec.pop("slots", None)
    short, one_round = spec.pop("short", None), spec.pop("one_round", ("", 1.0))
    rows = sample_rows(times, **keywords, uuid=spec.get("uuid", UUID))
    rows = [row for row in rows if not (row["kernel"] == short and row["pass"] == 1 and row["round"] >= 3)]
    if control is not None:
        rows = [row for row in rows if "+" not in row["cell"] or row["pass"] < control]
    if stranger:
        rows[-1]["device_uuid"] = "GPU-elsewhere"
    for row in rows:
        if (row["kernel"], row["pass"], row["round"]) == (one_round[0], 0, 0):
            row["us"] *= one_round[1]
        if row["table"] == "filled":
            row |= {"lost_blocks": 0, "failed_inserts": 0, "status": "ok"}
        if changing is not None and (row["kernel"], row["cell"]) == changing and row["pass"] == 1:
            row["lost_blocks" if row["stage"] == "allocate" else "dropped_points"] += 1
        if blocked is not None and row["kernel"].endswith("@twin") and row["cell"] == "base+blocked":
            row["us"] *= blocked
        if row["kernel"].endswith("@twin"):
            row["us"], row["cycles"] = row["us"] * (1 + floor), row["cycles"] * (1 + floor)
        if ramp and row["cell"] == "base+blocked":
            row["sm_clock_mhz"] += ramp * row["round"]
        if filled_clock is not None and row["table"] == "filled":
            row["cycles"] = row["us"] * filled_clock
    spec.setdefault("evidence", {})
    path = write_archive(root, samples=rows, **spec)
    if slots is not None:
        run = path / "raw" / "run.json"
        run.write_text(run.read_text().replace('"table": 32768', f'"table": {slots}'))
        (path / SUMS).write_text(sums_text(path))
    return path


def lets_through(views: Sequence[View]) -> None:
    """Every predicate over these archives, nothing but `Open` caught: judge() turns an error into `undecided`, for
    archives of any shape, and a slip of ours must not hide there."""
    for claim, asked in [(c, v) for c in evaluate.registered() for v in ([views] if c.spans else views)]:
        try:
            found = claim.decide(asked)
        except Open as open_:
            found = open_.verdict
        assert found.verdict in VERDICTS, claim.id


@pytest.mark.parametrize(
    ("identity", "number", "verdict", "spec"),
    [(i, n, v, s) for i, cases in CASES.items() for n, (v, s) in enumerate(cases)],
    ids=[f"{i}-{n}-{v}" for i, cases in CASES.items() for n, (v, _) in enumerate(cases)],
)
def test_a_verdict_follows_its_samples(tmp_path: Path, identity: str, number: int, verdict: str, spec: Spec) -> None:
    view = View(load(build(tmp_path / "a", spec)))
    found = evaluate.judge(REGISTRY.claims[identity], view)
    assert found.verdict == verdict, found.reason
    assert found.reason and evaluate.UNFIT not in found.reason
    if verdict in DECIDED and found.low is not None and found.high is not None:
        assert found.low <= found.high
    if verdict == "refuted" and REGISTRY.claims[identity].source == "paper":
        assert "ot tested" in found.reason
    lets_through([view])


def test_no_predicate_errs_over_the_committed_archives() -> None:
    lets_through([View(load(root)) for root in find(evaluate.RESULTS)])


def test_every_verdict_turns() -> None:
    assert set(CASES) | SPANNING == set(IDS)
    for identity, cases in CASES.items():
        assert len({verdict for verdict, _ in cases}) >= 2, identity
        assert any(verdict in DECIDED for verdict, _ in cases), identity


# ------------------------------------------------------------------------------------------- claims over several


def views(tmp_path: Path, *specs: Spec) -> list[View]:
    return [View(load(build(tmp_path / f"a{n}", spec))) for n, spec in enumerate(specs)]


MATRIX = timed({(CA, cell): 30.0 for cell in ("pts-20k", "r-0.25", "lf-lo", "plane-320k")})


def test_p15_needs_two_devices_of_three_passes(tmp_path: Path) -> None:
    claim = REGISTRY.claims["P15"]
    one, other = views(tmp_path, MATRIX, {**MATRIX, "uuid": "GPU-2", "device_name": "Another Synthetic Device"})
    assert evaluate.judge(claim, [one]).verdict == "needs-two-gpus"
    assert evaluate.judge(claim, [one, other]).verdict == "reproduced"
    (short,) = views(tmp_path / "x", timed({(CA, "pts-20k"): 30.0}))
    assert evaluate.judge(claim, [short]).verdict == "undecided"
    assert evaluate.judge(claim, []).verdict == "needs-gpu"
    # Two devices, each with three passes of half the axes: neither ran the matrix.
    halves = [timed({(CA, cell): 30.0 for cell in cells}) for cells in (("pts-20k", "r-0.25"), ("lf-lo", "plane-320k"))]
    halved = views(tmp_path / "y", halves[0], {**halves[1], "uuid": "GPU-2"})
    assert evaluate.judge(claim, halved).verdict == "undecided"
    assert evaluate.judge(claim, [one, *halved]).verdict == "needs-two-gpus"


def test_p24_compares_two_kinds_of_card(tmp_path: Path) -> None:
    claim = REGISTRY.claims["P24"]
    near = {**TABLE1, **scaled(TA, ALLOCATE, {cell: ratio * 1.08 for cell, ratio in TRITON3.items()})}
    far = {**TABLE1, **scaled(TA, ALLOCATE, {cell: ratio * 1.13 for cell, ratio in TRITON3.items()})}
    card = {"uuid": "GPU-2", "device_name": "Another Synthetic Device"}
    first, alike, close, apart = views(tmp_path, timed(TABLE1), timed(TABLE1), timed(near, **card), timed(far, **card))
    assert evaluate.judge(claim, [first]).verdict == "needs-two-gpus"
    assert evaluate.judge(claim, [first, alike]).verdict == "needs-two-gpus"
    assert evaluate.judge(claim, [first, close]).verdict == "reproduced"
    assert evaluate.judge(claim, [first, apart]).verdict == "refuted"


def on_two(root: Path, first: Mapping[Any, float], second: Mapping[Any, float], **more: Any) -> View:
    """An archive of two devices of one kind, each with times of its own."""
    uuids = ("GPU-aaaa-1", "GPU-bbbb-2")
    rows = []
    for seed, (uuid, times) in enumerate(zip(uuids, (first, second), strict=True)):
        rows += sample_rows(times, uuid=uuid, seed=seed)
    passes = [
        Pass(number=n, device_uuid=uuid, device_name=DEVICE, arch=90, started_utc="2026-01-02T03:04:05Z", complete=True)
        for n in range(3) for uuid in uuids
    ]  # fmt: skip
    return View(load(write_archive(root, samples=rows, passes=passes, uuid=uuids[0], at_once=True, **more)))


def by(factor: float) -> dict[Any, float]:
    """The paper's ratios, Triton's by a factor."""
    return {**TABLE1, **scaled(TA, ALLOCATE, {cell: ratio * factor for cell, ratio in TRITON3.items()})}


def test_p24_two_cards_of_one_kind_can_refute_and_not_confirm(tmp_path: Path) -> None:
    claim = REGISTRY.claims["P24"]
    alike, apart = on_two(tmp_path / "a", TABLE1, by(1.05)), on_two(tmp_path / "b", TABLE1, by(1.13))
    found = evaluate.judge(claim, [alike])
    assert found.verdict == "undecided" and found.measured == pytest.approx(0.05, abs=0.005)
    assert "side by side" in found.reason and "unlike balance" in found.reason
    assert {"GPU-aaaa", "GPU-bbbb"} <= set(found.rows[0])
    assert evaluate.judge(claim, [apart]).verdict == "refuted"
    (fewer,) = views(tmp_path / "c", {**timed(scaling(cuda=2.0, triton=1.0, tight=1.0)), "study": "scaling"})
    words = evaluate.judge(claim, [alike, fewer]).reason
    assert "on 56 and on all 132 multiprocessors" in words and f"{TA} 3.46x and 6.92x" in words
    (other,) = views(tmp_path / "d", timed(by(1.13), uuid="GPU-3", device_name="Another Synthetic Device"))
    assert evaluate.judge(claim, [on_two(tmp_path / "e", TABLE1, TABLE1), other]).verdict == "refuted"
    (close,) = views(tmp_path / "f", timed(by(1.05), uuid="GPU-3", device_name="Another Synthetic Device"))
    assert evaluate.judge(claim, [on_two(tmp_path / "g", TABLE1, TABLE1), close]).verdict == "reproduced"


def test_devices_that_disagree_are_named(tmp_path: Path) -> None:
    faster, slower = ({**cuda(), **scaled(CA, ALLOCATE, factor, "filled")} for factor in (0.6, 1.3))
    found = {row["id"]: row for row in evaluate.judged([on_two(tmp_path / "a", faster, slower)])}
    assert found["P11"]["verdict"] == "undecided"
    assert [row["verdict"] for row in found["P11"]["devices"]] == ["reproduced", "refuted"]
    assert "The devices disagree: GPU-aaaa alone reproduced, GPU-bbbb alone refuted." in found["P11"]["reason"]
    alike = {row["id"]: row for row in evaluate.judged([on_two(tmp_path / "b", faster, faster)])}
    assert [row["verdict"] for row in alike["P11"]["devices"]] == ["reproduced", "reproduced"]
    assert "device" not in alike["P11"]["reason"]
    (single,) = views(tmp_path / "c", timed(faster))
    assert not {row["id"]: row for row in evaluate.judged([single])}["P11"]["devices"]


def test_devices_that_measure_further_apart_than_the_floor_are_told(tmp_path: Path) -> None:
    scratch = {**cuda({"base": 30.0}), (TA, "base"): 524.0}
    one, other = ({**scratch, (f"{TA}-s256", "base"): us} for us in (1750.0, 1880.0))
    found = {row["id"]: row for row in evaluate.judged([on_two(tmp_path / "a", one, other)])}["P25"]
    assert found["verdict"] == "reproduced" and "By device: 3.3" in found["reason"] and " and 3.5" in found["reason"]
    assert found["range"][0] == pytest.approx(3.34, rel=0.01) and found["range"][1] == pytest.approx(3.59, rel=0.01)


def test_p13_holds_a_device_against_itself(tmp_path: Path) -> None:
    first = {(CA, "base"): 30.0, (CA, "base+shared"): 360.0}
    found = evaluate.judge(REGISTRY.claims["P13"], on_two(tmp_path / "a", first, {(CA, "base"): 90.0}))
    assert found.verdict == "reproduced" and found.measured == pytest.approx(12, rel=0.02)


def test_o9_a_kernel_that_is_apart_in_every_pass_leaves_it_open(tmp_path: Path) -> None:
    times = {**TABLE1, **{(key[0], "base+alone"): us for key, us in TABLE1.items() if key[1:] == ("base",)}}
    claim = REGISTRY.claims["O9"]
    assert evaluate.judge(claim, on_two(tmp_path / "a", times, TABLE1)).verdict == "reproduced"
    slow = times | {(TA, "base+alone"): 1.05 * times[TA, "base+alone"]}
    found = evaluate.judge(claim, on_two(tmp_path / "b", slow, TABLE1))
    assert found.verdict == "undecided" and f"beyond the floor in every pass: {TA}." in found.reason


def test_o8_needs_all_four_places(tmp_path: Path) -> None:
    claim = REGISTRY.claims["O8"]
    host = {"gates": [gate("cpu", "host", "base"), gate("triton-while", "interpreter", "base")]}
    gpu = {"gates": [gate("cuda", "gpu", "base"), gate("triton-while", "gpu", "base")], "gpu": True}
    bad = {"gates": [gate("cuda", "gpu", "base", ok=False, message="3 blocks too many")], "gpu": True}
    a, b, c = views(tmp_path, host, gpu, bad)
    assert evaluate.judge(claim, [a]).verdict == "needs-gpu"
    assert evaluate.judge(claim, [a, b]).verdict == "reproduced"
    assert evaluate.judge(claim, [a, b, c]).verdict == "refuted"


# --------------------------------------------------------------------------------------------------- the whole list


def test_every_id_has_one_entry_and_no_archive_gives_no_verdict_by_chance() -> None:
    document = verdicts([])
    assert [row["id"] for row in document][: len(IDS)] == list(IDS)
    assert len(IDS) == 70
    for row in document:
        assert set(row) >= {"id", "source", "statement", "scope", "paper", "measured", "verdict", "reason"}
        assert row["verdict"] in VERDICTS and row["verdict"] not in DECIDED
        assert row["source"] == {"P": "paper", "B": "blog", "O": "ours"}[row["id"][0]]
        assert row["statement"] and row["scope"] and row["reason"]


def test_a_missing_id_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(REGISTRY.claims, "P23")
    with pytest.raises(IrrError, match="P23"):
        verdicts([])


def test_a_matrix_without_a_gpu_decides_nothing_about_time(tmp_path: Path) -> None:
    document = {row["id"]: row for row in verdicts([load(write_archive(tmp_path / "a", cells=["base"]))])}
    assert document["P17"]["verdict"] == document["P43"]["verdict"] == "needs-gpu"
    assert document["P2"]["verdict"] == "reproduced"


def test_the_whole_run_answers_before_the_quick_one(tmp_path: Path) -> None:
    filled = lambda factor: {**cuda(), **scaled(CA, ALLOCATE, factor, "filled")}  # noqa: E731
    quick = build(tmp_path / "quick", {**timed(filled(1.3)), "quick": True, "created_utc": "2026-02-01T00:00:00Z"})
    whole = build(tmp_path / "whole", timed(filled(0.6)))
    answer, archive, elsewhere = best(REGISTRY.claims["P11"], [View(load(p)) for p in (quick, whole)])
    assert answer.verdict == "reproduced" and archive is not None and archive.name == "whole"
    assert [(v.verdict, a.name) for v, a in elsewhere] == [("refuted", "quick")]


def test_the_archive_with_the_most_behind_its_verdict_answers(tmp_path: Path) -> None:
    """The GPU's gates at a high load before the interpreter's at a low one; the matrix's cells before a study's few."""
    few = {"manifests": WHILE_BUILT, "gates": [gate("triton-while", "interpreter", "base")], "cells": ["base"]}
    many = {
        "manifests": WHILE_BUILT,
        "gates": [gate("triton-while", "gpu", "lf-941", when=w) for w in ("before", "after")],
    }
    newer = {"created_utc": "2026-02-01T00:00:00Z"}
    a, b = views(tmp_path / "p35", {**many, "cells": ["lf-941"], "gpu": True}, {**few, **newer})
    answer, archive, _ = best(REGISTRY.claims["P35"], [a, b])
    assert archive is a.archive and "load 0.941" in answer.reason and "on the GPU" in answer.reason
    kept = ("base", "pts-20k", "r-0.25", "r-2.0")
    few = {key: us for key, us in TABLE1.items() if key[1] in kept}
    a, b = views(tmp_path / "p17", timed(TABLE1), {**timed(few), **newer})
    assert best(REGISTRY.claims["P17"], [a, b])[1] is a.archive  # the whole Table 1, not the newer study's four cells
    a, b = views(tmp_path / "p7", lost_at("lf-hi", 13), {**timed({(TA, "base"): 480.0, (TA, "lf-hi"): 480.0}), **newer})
    answer, archive, elsewhere = best(REGISTRY.claims["P7"], [a, b])
    assert (answer.verdict, archive, elsewhere[0][0].verdict) == ("reproduced", a.archive, "differs")


def test_undecided_over_more_cells_is_not_outvoted_by_decided_over_fewer(tmp_path: Path) -> None:
    """P11, P14 and P7: the matrix is undecided over all cells, a newer study decides over one."""
    newer = {"created_utc": "2026-02-01T00:00:00Z", "study": "attribution"}
    few = {**cuda({"base": 30.0}), **scaled(CA, {"base": 30.0}, 0.6, "filled")}
    many = {**cuda(), **scaled(CA, ALLOCATE, {**dict.fromkeys(ALLOCATE, 1.0), "base": 0.6}, "filled")}
    pairs = {
        "P11": (timed(many), timed(few)),
        "P14": (timed(cuda(), rounds=6), timed(cuda({"base": 30.0}), rounds=30)),
        "P7": (timed(LF, loss={(TA, "lf-hi"): LOST}), timed({(TA, "base"): 480.0, (TA, "lf-hi"): 480.0})),
    }
    decided = {"P11": "reproduced", "P14": "differs", "P7": "differs"}
    for identity, (matrix, other) in pairs.items():
        a, b = views(tmp_path / identity, matrix, {**other, **newer})
        for order in ([a, b], [b, a]):
            answer, archive, elsewhere = best(REGISTRY.claims[identity], order)
            assert (answer.verdict, archive) == ("undecided", a.archive), identity
            assert [(v.verdict, w) for v, w in elsewhere] == [(decided[identity], b.archive)]
            assert answer.reason.endswith(f"With less behind it: {decided[identity]} in {b.archive.name}."), identity
        # The other way round the decided verdict has more behind it, and the undecided one is listed.
        c, d = views(tmp_path / f"{identity}-2", other, {**timed(cuda({"r-2.0": 30.0})), **newer})
        answer, archive, _ = best(REGISTRY.claims[identity], [c, d])
        assert (answer.verdict, archive) == (decided[identity], c.archive), identity


def test_an_archive_that_lacks_something_is_no_undecided_one(tmp_path: Path) -> None:
    """What another archive did not measure outvotes nothing, however much else it holds."""
    few = {**cuda({"base": 30.0}), **scaled(CA, {"base": 30.0}, 0.6, "filled")}
    a, b = views(tmp_path, timed(TABLE1), timed(few))
    answer, archive, elsewhere = best(REGISTRY.claims["P11"], [a, b])
    assert (answer.verdict, archive, elsewhere) == ("reproduced", b.archive, [])


def test_an_archive_of_another_study_does_not_say_what_is_missing(tmp_path: Path) -> None:
    matrix, other = views(tmp_path, timed({**cuda(), **scaled(TA, ALLOCATE, TRITON3)}), timed(study()))
    answer, archive, _ = best(REGISTRY.claims["P19"], [other, matrix])
    assert (answer.verdict, archive) == ("needs-data", matrix.archive)


def test_a_refutation_of_the_committed_archives_says_what_was_not_tested() -> None:
    for row in verdicts([load(root) for root in find(evaluate.RESULTS)]):
        if row["verdict"] == "refuted":
            assert "ot tested" in row["reason"], row["id"]


def test_lossy_samples_are_in_no_ratio(tmp_path: Path) -> None:
    spec = timed(
        {**scaled(CU, UPDATE, 1.0), **scaled(TU, UPDATE, {**dict.fromkeys(UPDATE, 1.4), "r-2.0": 9.0})},
        loss={(TU, "r-2.0"): DROPPED},
    )
    found = evaluate.judge(REGISTRY.claims["P43"], View(load(build(tmp_path / "a", spec))))
    assert found.verdict == "reproduced" and "r-2.0" not in {row["cell"] for row in found.rows}


def test_a_cell_with_one_lossy_sample_is_in_no_sweep(tmp_path: Path) -> None:
    """The rounds that happened to lose nothing are not the kernel's."""
    rows = sample_rows({**scaled(CU, UPDATE, 1.0), **scaled(TU, UPDATE, {**dict.fromkeys(UPDATE, 1.4), "r-2.0": 9.0})})
    claim = REGISTRY.claims["P43"]
    assert evaluate.judge(claim, View(load(write_archive(tmp_path / "a", samples=rows)))).verdict == "refuted"
    for row in rows:
        if (row["kernel"], row["cell"], row["pass"], row["round"]) == (TU, "r-2.0", 1, 3):
            row |= DROPPED
    found = evaluate.judge(claim, View(load(write_archive(tmp_path / "b", samples=rows))))
    assert found.verdict == "reproduced" and "r-2.0" not in {row["cell"] for row in found.rows}


def test_the_images_that_a_gpu_drew_answer_before_the_emulation_alone(tmp_path: Path) -> None:
    drawn, emulated = views(tmp_path, gpu_drew(), {**fma(), "created_utc": "2026-02-01T00:00:00Z"})
    for identity in ("B6", "B8", "B9", "B10"):
        answer, archive, _ = best(REGISTRY.claims[identity], [drawn, emulated])
        assert archive is drawn.archive and "that the GPU drew" in answer.reason
        assert "no GPU drew them" in evaluate.judge(REGISTRY.claims[identity], emulated).reason


def test_p8_says_that_the_mean_alone_would_let_the_bias_pass(tmp_path: Path) -> None:
    for number, (passes, words) in enumerate(((True, "the bias would pass"), (False, "the bias shows, too"))):
        values = {**BIAS, "fault__half_voxel__sphere_ok": False, "fault__half_voxel__quarter_voxel_ok": passes}
        (view,) = views(tmp_path / str(number), findings(**values))
        assert words in evaluate.judge(REGISTRY.claims["P8"], view).reason


def test_the_derived_reference_stands_beside_and_judges_nothing(tmp_path: Path) -> None:
    spec = timed({**cuda(concurrent=0.4), **scaled(OA, ALLOCATE, 1.0)})
    found = evaluate.judge(REGISTRY.claims["P31"], View(load(build(tmp_path / "a", spec))))
    assert found.verdict == "differs" and found.measured == pytest.approx(1.0, rel=0.01)
    assert all(row["reference"] == pytest.approx(2.5, rel=0.02) for row in found.rows)


def test_findings_of_any_shape_give_a_verdict(tmp_path: Path) -> None:
    """An archive is untrusted: no value of a finding may break the list of verdicts."""
    names = {name for cases in CASES.values() for _, spec in cases for name in spec.get("evidence", {})}
    assert len(names) > 60
    for number, value in enumerate(("x", [], {"pairs": 1}, 1e308, -1, 0, True, None)):
        hostile = dict.fromkeys(sorted({*names, "fma.images"}), value)
        view = View(load(write_archive(tmp_path / f"a{number}", evidence=hostile, cells=["base"], gpu=True)))
        for claim in evaluate.registered():
            found = evaluate.judge(claim, [view] if claim.spans else view)
            assert found.verdict in VERDICTS, claim.id
        json.dumps(verdicts([view.archive]), allow_nan=False)


def test_an_error_says_that_the_findings_have_an_unexpected_form(tmp_path: Path) -> None:
    view = View(load(write_archive(tmp_path / "a", evidence={"fma.images": {"pairs": [3], "size": 4096}})))
    assert evaluate.judge(REGISTRY.claims["B6"], view).verdict == "undecided"
    hostile = {"pairs": [3], "size": 4096, "iterations": 500}
    view = View(load(write_archive(tmp_path / "b", evidence={"fma.images": hostile}, study="fma")))
    found = evaluate.judge(REGISTRY.claims["B6"], view)
    assert found.verdict == "undecided" and "findings have an unexpected form" in found.reason


def test_what_is_missing_is_named_for_what_it_is(tmp_path: Path) -> None:
    """A study that did not ask has no missing toolchain and no missing GPU; the words name this archive."""
    programs, matrix, host = views(
        tmp_path, {**timed(study()), "study": "fma"}, timed(cuda()), {"study": "host", "cells": ["base"]}
    )
    for identity in ("P17", "P18", "P20", "P28", "P29", "P31", "P35", "P39", "O1", "O3", "O4", "O7"):
        found = evaluate.judge(REGISTRY.claims[identity], programs)
        assert found.verdict == "undecided" and "study fma" in found.reason, (identity, found.reason)
    for number in (*range(1, 6), 7, 11, 12, 13, 14, 16, 17, 19):
        found = evaluate.judge(REGISTRY.claims[f"B{number}"], matrix)
        assert found.verdict == "undecided" and "study matrix" in found.reason, (number, found.reason)
    for identity in ("P4", "P10", "B3", "P17", "B1", "O1"):
        assert evaluate.judge(REGISTRY.claims[identity], host).verdict == "needs-gpu", identity
    for view in (programs, matrix, host):
        for claim in evaluate.registered():
            if not claim.spans:
                assert "no archive" not in evaluate.judge(claim, view).reason, claim.id


def test_images_are_read_from_the_findings_too(tmp_path: Path) -> None:
    document = json.loads(fma()["files"]["fma.json"])
    root = write_archive(tmp_path / "a", evidence={"fma.images": document})
    assert evaluate.judge(REGISTRY.claims["B6"], View(load(root))).verdict == "reproduced"
