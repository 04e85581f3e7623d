"""Checks of harness/device/gpu.py over simulated CuPy; run as a program, because both stand in for the process's own.

python tests/simulated/gpu_path.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import builds  # noqa: E402
import cupy_on_host  # noqa: E402

cupy_on_host.install()

from harness.device import gpu  # noqa: E402
from harness.measure.inventory import Built, find_built  # noqa: E402
from harness.measure.sampler import measure  # noqa: E402
from harness.workload.reference import evaluate, evaluate_frames  # noqa: E402
from harness.workload.scenes import Scene, sphere  # noqa: E402
from harness.workload.volume import ENTRY_DTYPE, VOXEL_FIELDS, VolumeConfig  # noqa: E402

SCENE = sphere(0.2, 100, 200)
CONFIG = VolumeConfig(512)


def kernels(folder: Path) -> dict[str, gpu.LoadedKernel]:
    names = [*builds.HELPERS, *builds.FLOORS, "cuda/allocate/nowait", "cuda/integrate/ray"]
    builds.make_build(folder, names)
    loaded = {}
    for name in names:
        found = find_built(folder, cupy_on_host.ARCH, name)
        assert isinstance(found, Built)
        loaded[name] = gpu.load(found.manifest, found.cubin)
    return loaded


def update_alone(rig: gpu.GpuCell, update: gpu.LoadedKernel) -> None:
    """Which stream gets what in each regime, that only the launches lie between the events, and whose time `us` is."""
    main, times = rig.gpu.stream.ptr, sys.modules["cupy"].cuda
    real, times.get_elapsed_time = times.get_elapsed_time, lambda begin, end: 0.75  # milliseconds
    try:
        for launch, l2, graph in (
            ("serial", "asreset", True),
            ("serial", "flushed", True),
            ("concurrent", "asreset", True),
            ("concurrent", "flushed", True),
            ("serial", "asreset", False),
        ):
            batch = rig.batch(update, launch, "fresh", l2, graph)
            with cupy_on_host.recorded() as steps:
                reading = measure(batch)
            # Three launches between the events: a launch is a third of what they enclose, in microseconds.
            assert batch.launches == 3 and reading.us == 250.0, reading.us

            stamps = [i for i, s in enumerate(steps) if s.of == "irr_stamp"]
            begin, *inside, end = steps[stamps[0] + 1 : stamps[1]]
            assert (begin.what, begin.stream, end.what, end.stream) == ("record", main, "record", main)
            launches = [s for s in inside if s.what == "launch"]
            assert [s.of for s in launches] == [update.manifest.entry] * 3
            assert {s.what for s in inside} <= {"launch", "record", "wait"}, "a reset or a flush is timed"
            assert not [s for s in steps[: stamps[0]] + steps[stamps[1] + 1 :] if s.what == "launch"]

            if launch == "serial":
                assert inside == launches and {s.stream for s in launches} == {main}
            else:
                assert len({s.stream for s in launches} | {main}) == 4, "a stream a volume, none of them the batch's"
                fork = inside[0]
                assert (fork.what, fork.stream) == ("record", main)
                for each in launches:
                    waits, work, done = [s for s in inside if s.stream == each.stream]
                    assert waits.what == "wait" and waits.of is fork.of and work is each and done.what == "record"
                    assert [s.stream for s in inside if s.what == "wait" and s.of is done.of] == [main]

            # Flushed: after the reset's last write, one of twice the L2 on the same stream into memory of its own; and
            # every launch has points of its own. As reset: neither.
            with cupy_on_host.recorded() as reset:
                batch.reset()
            *writes, last = steps[: stamps[0]]
            assert {s.stream for s in [*writes, last]} == {main}
            if l2 == "flushed":
                assert writes == reset and last.of not in {s.of for s in reset}
                assert last.what == "memset" and last.size >= 2 * rig.gpu.l2_bytes > 0
            else:
                assert [*writes, last] == reset
            assert len({s.points for s in launches}) == (3 if l2 == "flushed" else 1)
    finally:
        times.get_elapsed_time = real


def every_volume_is_exact(rig: gpu.GpuCell, reference: object) -> None:
    for volume in rig.volumes:
        fused = volume.fused("cuda")
        assert np.array_equal(fused.coords, reference.coords)
        assert np.array_equal(fused.weight, reference.weight)


def main(folder: Path) -> None:
    loaded = kernels(folder)
    device = gpu.Gpu()
    assert device.uuid == cupy_on_host.UUID and device.arch == 90
    reference = evaluate(SCENE, CONFIG)
    needed = len(reference.coords)
    rig = gpu.GpuCell(device, CONFIG, SCENE, loaded["cuda/allocate/plain"], 3, loaded["cuda/floor/record"])
    assert rig.built == needed

    # Update from the built table and zeroed voxels: a second batch gives the same sums, not twice as much.
    for launch, l2 in (("serial", "asreset"), ("concurrent", "asreset"), ("serial", "flushed")):
        batch = rig.batch(loaded["cuda/update/plain"], launch, "fresh", l2)
        for _ in range(3):
            reading = measure(batch)
        every_volume_is_exact(rig, reference)
        assert (
            reading.counters is not None and reading.counters.blocks == needed and not reading.counters.dropped_points
        )
        assert reading.mhz is not None and abs(reading.mhz - 2000) < 1 and reading.us > 0

    update_alone(rig, loaded["cuda/update/plain"])

    # Allocate: fresh begins empty, filled begins full, whatever ran before; both end with the whole set.
    for table in ("fresh", "filled"):
        batch = rig.batch(loaded["cuda/allocate/plain"], "serial", table, "asreset")
        for _ in range(2):
            batch.reset()
            keys = [volume.table.get().view(ENTRY_DTYPE)["key"] for volume in rig.volumes]
            assert all(int((k != -1).sum()) == (needed if table == "filled" else 0) for k in keys)
            assert measure(batch).counters.blocks == needed  # type: ignore[union-attr]

    # One pass for both begins with an empty table and zeroed voxels.
    for _ in range(2):
        assert measure(rig.batch(loaded["cuda/integrate/ray"])).counters.blocks == needed  # type: ignore[union-attr]
    every_volume_is_exact(rig, reference)
    integrate = loaded["cuda/integrate/ray"]
    assert np.array_equal(rig.run_once(integrate, integrate).fused("integrate").weight, reference.weight)

    # Without a graph the same work is enqueued by hand.
    plain = rig.batch(loaded["cuda/update/plain"], graph=False)
    measure(plain)
    every_volume_is_exact(rig, reference)

    # The floor adds at the recorded offsets: as many additions as update makes, in the same voxels.
    offsets = rig.offsets().get()
    assert len(offsets) == reference.samples
    floor = rig.batch(loaded["cuda/floor/atomics"])
    assert measure(floor).counters is None
    every_volume_is_exact(rig, reference)  # weight 1 a sample, as update

    # Gates' volume: any allocate, then any update, from an empty table.
    measure(rig.batch(loaded["cuda/floor/null"]))
    volume = rig.run_once(loaded["cuda/allocate/nowait"], loaded["cuda/update/plain"])
    fused = volume.fused("nowait")
    assert np.array_equal(fused.weight, reference.weight) and np.array_equal(fused.coords, reference.coords)
    surface = volume.extract(loaded["cuda/extract/plain"])
    distance = np.abs(np.linalg.norm(surface.vertices.reshape(-1, 3), axis=1) - 0.2)
    assert len(surface.vertices) > 1000 and distance.mean() < 0.0025

    # A packed volume is read back from float4s.
    four = np.arange(4 * needed * 512, dtype=np.float32).reshape(needed, 512, 4)
    volume.voxels.reshape(-1)[: four.size].set(four.reshape(-1))
    raw = volume.raw(layout="packed")
    assert np.array_equal(raw.voxels["weight"], four[..., 1]) and np.array_equal(raw.voxels["g"], four[..., 3])
    volume.clear_voxels(needed, "packed")
    assert not volume.voxels.reshape(-1)[: four.size].get().any()
    rig.close()

    # A warm cell: fresh is the table that the frames before left; their voxels are there for gates, and only for gates.
    before = [SCENE, Scene(SCENE.points + np.float32(0.03), SCENE.colors, SCENE.camera + np.float32(0.03))]
    timed = Scene(SCENE.points - np.float32(0.05), SCENE.colors, SCENE.camera - np.float32(0.05))
    helpers = loaded["cuda/allocate/plain"], loaded["cuda/update/plain"]
    warm = gpu.GpuCell(device, CONFIG, timed, helpers[0], 2, loaded["cuda/floor/record"], before, helpers[1])
    whole, earlier = evaluate_frames([*before, timed], CONFIG), evaluate_frames(before, CONFIG)
    assert warm.warm is not None
    assert (warm.warm.blocks, warm.built) == (len(earlier.coords), len(whole.coords)) and warm.warm.blocks < warm.built
    for table, start in (("fresh", warm.warm.blocks), ("filled", warm.built)):
        batch = warm.batch(helpers[0], "serial", table, "asreset")
        for _ in range(2):
            batch.reset()
            keys = [volume.table.get().view(ENTRY_DTYPE)["key"] for volume in warm.volumes]
            assert all(int((k != -1).sum()) == start for k in keys)
            assert measure(batch).counters.blocks == warm.built  # type: ignore[union-attr]
    alone = evaluate(timed, CONFIG)
    for _ in range(2):
        assert measure(warm.batch(helpers[1])).counters.blocks == warm.built  # type: ignore[union-attr]
        assert all(v.fused("cuda").weight.sum(dtype=np.float64) == alone.samples for v in warm.volumes)
    for allocate, update in (helpers, (integrate, integrate)):
        fused = warm.run_once(allocate, update).fused("warm")
        assert np.array_equal(fused.coords, whole.coords) and np.array_equal(fused.weight, whole.weight)
        assert np.array_equal(fused.r, whole.r) and (np.abs(fused.tsdf - whole.tsdf) <= whole.bound).all()
    packed = {name: np.random.default_rng(1).random((3, 512), np.float32) for name in VOXEL_FIELDS}
    warm.volumes[1].set_voxels(packed, "packed")
    read = warm.volumes[1].raw(layout="packed").voxels
    assert all(np.array_equal(read[name][:3], packed[name]) for name in VOXEL_FIELDS)
    warm.close()

    # Memory: a batch is cut to what fits, and nothing fits where not even one volume does.
    one = gpu.volume_bytes(CONFIG)
    assert gpu.fitting_batch(CONFIG, 8, 1 << 40, 15_000) == 8
    assert 0 < gpu.fitting_batch(CONFIG, 8, 4 * one, 1000) < 4
    assert gpu.fitting_batch(CONFIG, 8, one // 2, 1000) == 0

    # Clock stamps: only multiprocessors that wrote both count.
    before, after = np.zeros(4, gpu.STAMP_DTYPE), np.zeros(4, gpu.STAMP_DTYPE)
    assert gpu.clock_mhz(before, after) is None
    before[1], after[1], after[2] = (1000, 5000), (2000, 6980), (9, 9)
    assert gpu.clock_mhz(before, after) == 1980.0
    print("all right")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
