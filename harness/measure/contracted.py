"""What contraction changes in a fused volume: the `/fma` builds against their own language's uncontracted ones (study
`contracted`). A GPU finding, made once a device; no exact gate judges a contracted kernel, since contraction may move a
sample across a face or over the occlusion bound."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.build.kernels import ARMS, KERNELS, Arm
from harness.gates.result import GateResult, judge
from harness.gates.table import table_gate
from harness.measure.plan import CONTRACTED
from harness.workload.fused import RawVolume
from harness.workload.table import pack
from harness.workload.volume import BLOCK_VOXELS

Finding = dict[str, Any]

RARE = 1e-3
"""Share of samples that a rounding may move: one lies within an ulp of a face about once in a million, so that more
than this is another program."""


@dataclass(frozen=True)
class VolumeDifference:
    """Volume b against volume a of one scene.

    Attributes:
        blocks_one: blocks that only one of them has.
        voxels: voxels whose weight differs; one that only one volume has counts where its weight is not 0.
        moved: samples in another voxel, at least: of those that left a voxel, as many as arrived in one.
        single: samples, at least, that only one of the two took (the occlusion test flipped, or the other lost them).
        samples: of a.
        tsdf: largest difference of two tsdf sums of equal weight; 0 where no weight is shared.
    """

    blocks_one: int
    voxels: int
    moved: int
    single: int
    samples: int
    tsdf: float


def compare_volumes(a: RawVolume, b: RawVolume) -> VolumeDifference:
    """Voxel by voxel, blocks matched by their coordinates, whatever their order. Weights must be counts (cap off)."""
    keys = [pack(volume.coords[: volume.count]) for volume in (a, b)]
    _, here, there = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    weights = a.voxels["weight"][here], b.voxels["weight"][there]
    change = weights[1].astype(np.float64) - weights[0]
    alone = [np.delete(v.voxels["weight"], shared, axis=0) for v, shared in ((a, here), (b, there))]
    left = float(-change[change < 0].sum()) + float(alone[0].sum(dtype=np.float64))
    arrived = float(change[change > 0].sum()) + float(alone[1].sum(dtype=np.float64))
    apart = np.abs(b.voxels["tsdf"][there].astype(np.float64) - a.voxels["tsdf"][here])[change == 0]
    return VolumeDifference(
        blocks_one=len(alone[0]) + len(alone[1]),
        voxels=int((change != 0).sum()) + sum(int((weight != 0).sum()) for weight in alone),
        moved=int(min(left, arrived)),
        single=int(abs(left - arrived)),
        samples=int(a.voxels["weight"].sum(dtype=np.float64)),
        tsdf=float(apart.max()) if apart.size else 0.0,
    )


def arms_with_twins(labels: Collection[str]) -> list[Arm]:
    """Arms of one language whose two kernels are here in both builds."""
    return [
        arm
        for arm in ARMS.values()
        if arm.place == "gpu" and arm.allocate is not None and arm.update is not None
        if KERNELS[arm.allocate].language == KERNELS[arm.update].language and KERNELS[arm.update].voxels == "arrays"
        if {arm.allocate, arm.update, arm.allocate + CONTRACTED, arm.update + CONTRACTED} <= set(labels)
    ]


def contraction_findings(
    cell: Any, name: str, kernels: Mapping[str, Any], labels: Collection[str]
) -> tuple[list[Finding], list[GateResult]]:
    """Every arm's contracted volume against its own uncontracted one, which is run twice: what two runs of the same
    code differ in (the order of float additions in the tsdf sums) is no effect of contraction.

    Args:
        cell: device.gpu.GpuCell. name: the cell's. kernels: loaded ones by sample name. labels: those of the plan.

    Returns:
        Rows of evidence.json, `contraction.ARM.CELL.*` and `contraction.ARM.same_code`; and two gates an arm: the
        contracted allocate's table, and `contraction_gate` of its update.
    """
    found: list[Finding] = []
    gates: list[GateResult] = []
    for arm in arms_with_twins(labels):
        assert arm.allocate is not None and arm.update is not None
        plain, again = (cell.run_once(kernels[arm.allocate], kernels[arm.update]).raw() for _ in range(2))
        fused = cell.run_once(kernels[arm.allocate + CONTRACTED], kernels[arm.update + CONTRACTED]).raw()
        noise, change = compare_volumes(plain, again), compare_volumes(plain, fused)
        how = (
            f"{arm.allocate}{CONTRACTED} then {arm.update}{CONTRACTED} against the same without contraction on {name}, "
            "cap off"
        )
        values = {
            "blocks_in_one": (change.blocks_one, "blocks", "blocks that only one of the two volumes has"),
            "voxels_differing": (change.voxels, "voxels", "voxels whose weight differs"),
            "samples_moved": (change.moved, "samples", "in another voxel: min(sum of dw > 0, sum of -dw > 0)"),
            "samples_in_one": (change.single, "samples", "taken by one of the two only: |sum of dw|"),
            "samples": (change.samples, "samples", "sum of the uncontracted weights"),
            "dropped_samples": (fused.dropped_points, "samples", "the contracted update found no block for them"),
            "tsdf_difference": (change.tsdf, "", "largest, of sums with equal weights"),
            "voxels_again": (noise.voxels, "voxels", "whose weight differs in two runs without contraction"),
            "tsdf_again": (
                noise.tsdf,
                "",
                "as tsdf_difference, of two runs without contraction: another order of additions",
            ),
        }
        found += [
            {"name": f"contraction.{arm.name}.{name}.{key}", "value": value, "unit": unit, "how": f"{what}; {how}"}
            for key, (value, unit, what) in values.items()
        ]
        kernels_of = arm.allocate + CONTRACTED, arm.update + CONTRACTED
        same = all(_same_code(kernels[kernel], kernels[kernel + CONTRACTED]) for kernel in (arm.allocate, arm.update))
        what = "whether allocate's and update's instructions are the same in both builds: nothing was contracted"
        found.append({"name": f"contraction.{arm.name}.same_code", "value": same, "unit": "", "how": what})
        bounded = any(KERNELS[kernel].bounded for kernel in (arm.allocate, arm.update))
        gates.append(table_gate(fused, cell.config, f"{kernels_of[0]} on {name}"))
        gates.append(contraction_gate(plain, fused, noise, change, bounded, f"{kernels_of[1]} on {name}"))
    return found, gates


def _same_code(off: Any, on: Any) -> bool:
    """Whether two loaded kernels have the same instructions; not where nothing says what they have."""
    return bool(off.manifest.code_sha256) and off.manifest.code_sha256 == on.manifest.code_sha256


def contraction_gate(
    plain: RawVolume, fused: RawVolume, noise: VolumeDifference, change: VolumeDifference, bounded: bool, subject: str
) -> GateResult:
    """Whether the difference can be contraction's: a few samples on a face or on the occlusion bound, and nothing lost.

    Args:
        bounded: the arm's probe is, so that it may lose blocks, other ones in every run; its losses are in the samples.
    """
    most = RARE * change.samples
    checks = {
        "blocks": (plain.count > 0 and fused.count > 0, f"{plain.count} and {fused.count} blocks"),
        "moved": (change.moved <= most, f"{change.moved} of {change.samples} samples moved, too many for a rounding"),
    }
    if not bounded:
        checks |= {
            "inserts": (fused.failed_inserts == 0, f"{fused.failed_inserts} failed inserts"),
            "taken": (change.single <= most, f"{change.single} of {change.samples} samples in one of the two only"),
            "again": (
                noise.blocks_one == noise.voxels == 0,
                f"two runs without contraction differ in {noise.blocks_one} blocks and {noise.voxels} voxels",
            ),
        }
    detail = {"blocks_in_one": change.blocks_one, "voxels_differing": change.voxels, "samples_moved": change.moved}
    compared = min(plain.count, fused.count) * BLOCK_VOXELS
    return judge("contraction", "loss", subject, compared, checks, {**detail, "samples_in_one": change.single})
