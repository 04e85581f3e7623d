"""algorithm.md in NumPy float32, one rounding an operation: what every arm must equal, and the host's own arithmetic.

Nothing here shares code with a kernel. Arithmetic runs in chunks of points, so that 1.28 M points (10.9 M samples)
stay far below 2 GB, and nothing is cached on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from harness.workload.scenes import Scene
from harness.workload.table import pack, unpack
from harness.workload.volume import BLOCK_VOXELS, KEY_BIAS, VolumeConfig

CHUNK = 1 << 15
"""Points a chunk: 9 x 32,768 samples keep every temporary array near 1 MiB, which the cache likes best."""

FRAMES_AT_ONCE = 4
"""Frames summed side by side: each holds about 40 bytes a sample, 150 MB for 640 x 640 pixels."""

NEAREST = np.float32(1e-6)
"""Points this near the camera have no direction (algorithm: Point)."""

VOXEL_MIN, VOXEL_MAX = -8 * KEY_BIAS, 8 * KEY_BIAS - 1
"""Voxels of the blocks that a key can hold, -2^20 .. 2^20 - 1; all are exact in float32."""

UNIT_ROUNDOFF = 2.0**-24
SMALLEST_NORMAL = 2.0**-126
EXACT_INTEGERS = 1 << 24
"""float32 sums of integers are exact, in any order, as long as they do not pass this."""


def _components(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y, z = np.ascontiguousarray(np.asarray(values, np.float32).T)
    return x, y, z


def _length(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.sqrt((x * x + y * y) + z * z)


def _voxel(p: np.ndarray, u: np.ndarray, t: np.ndarray | np.float32, inv: np.float32) -> np.ndarray:
    """Voxel coordinate, still float32: floor((p + u t) inv)."""
    return np.floor((p + u * t) * inv)


def skip_mask(points: np.ndarray, camera: np.ndarray, config: VolumeConfig) -> np.ndarray:
    """Points that the host removes before any arm sees them (contract: fuse).

    A point goes when a coordinate is not finite, when it is within 1e-6 m of the camera (or so far that its distance
    overflows), or when one of its samples, seen or occluded, falls into a block outside -2^20 .. 2^20 - 1. Rounding
    is monotonic, so a coordinate's extremes over s = -k .. k are at the two ends, and only those are computed.

    Args:
        points: (n, 3) f32, metres. camera: (3,) f32, metres.

    Returns:
        (n,) bool, True where the point is removed.
    """
    skip = np.zeros(len(points), bool)
    ends = [np.float32(s) * config.h for s in (-config.steps, config.steps)]
    with np.errstate(all="ignore"):
        for start in range(0, len(points), CHUNK):
            part = slice(start, start + CHUNK)
            p = _components(points[part])
            d = [axis - np.float32(c) for axis, c in zip(p, camera, strict=True)]
            dist = _length(*d)
            good = (dist > NEAREST) & np.isfinite(dist)
            for axis, delta in zip(p, d, strict=True):
                u = delta / dist
                for t in ends:
                    v = _voxel(axis, u, t, config.inv)
                    good &= (v >= VOXEL_MIN) & (v <= VOXEL_MAX)
            skip[part] = ~good
    return skip


def walk(
    points: np.ndarray, camera: np.ndarray, config: VolumeConfig
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Every sample after the occlusion test, point by point and s = -k .. k within a point.

    Args:
        points: (n, 3) f32, metres; those of `skip_mask` have no samples. camera: (3,) f32, metres.

    Yields:
        point index (m,) i32, voxel coordinates (m, 3) i32, signed distance (m,) f32 in metres.
    """
    h, inv, trunc = config.h, config.inv, config.trunc
    half = np.float32(0.5)
    t = (np.arange(-config.steps, config.steps + 1, dtype=np.float32) * h)[None, :]
    skip = skip_mask(points, camera, config)
    for start in range(0, len(points), CHUNK):
        kept = np.flatnonzero(~skip[start : start + CHUNK]).astype(np.int32) + np.int32(start)
        if not len(kept):
            continue
        p = _components(points[kept])
        d = [axis - np.float32(c) for axis, c in zip(p, camera, strict=True)]
        dist = _length(*d)
        voxels, centres = [], []
        for axis, delta, c in zip(p, d, camera, strict=True):
            u = delta / dist
            v = _voxel(axis[:, None], u[:, None], t, inv)
            voxels.append(v.astype(np.int32))
            centres.append((v + half) * h - np.float32(c))
        sdf = dist[:, None] - _length(*centres)
        seen = ~(sdf < -trunc)
        index = np.broadcast_to(kept[:, None], seen.shape)[seen]
        yield index, np.stack([v[seen] for v in voxels], axis=-1), sdf[seen]


def local_index(voxels: np.ndarray) -> np.ndarray:
    """Index (m,) i32 within the block of voxel coordinates (m, 3) i32: (x & 7) + 8 (y & 7) + 64 (z & 7)."""
    x, y, z = voxels.T
    return (x & 7) + 8 * (y & 7) + 64 * (z & 7)


def _runs(keys: np.ndarray) -> np.ndarray:
    """Start of every run of equal keys: neighbours along a ray share blocks, so sorting runs is 4 x less work."""
    starts = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=starts[1:])
    return np.flatnonzero(starts)


@dataclass(frozen=True, eq=False)
class Reference:
    """The exact volume of a scene, cap off and pool unlimited.

    Attributes:
        coords: (m, 3) i32, lexicographic.
        weight, r, g, b: (m, 512) i64 exact sums.
        tsdf: (m, 512) f64 sums of the float32 addends clamp(sdf * inv_trunc, -1, 1).
        bound: (m, 512) f64, how far a float32 sum of the same addends may lie from `tsdf` (see `tsdf_bound`).
        samples: samples after the occlusion test, all blocks together.
        earlier: (m,) i64, those of each block's samples that are of frames before the last; 0 for a single scene.
        skipped: points the host removes.
    """

    coords: np.ndarray
    weight: np.ndarray
    r: np.ndarray
    g: np.ndarray
    b: np.ndarray
    tsdf: np.ndarray
    bound: np.ndarray
    samples: int
    skipped: int
    earlier: np.ndarray

    @property
    def block_samples(self) -> np.ndarray:
        """Samples of each block (m,) i64."""
        return self.weight.sum(axis=1)

    @property
    def keys(self) -> np.ndarray:
        """Block keys (m,) i64, ascending (lexicographic order of coordinates is the order of keys)."""
        return pack(self.coords)


def tsdf_bound(n: np.ndarray, absolute: np.ndarray) -> np.ndarray:
    """How far a float32 sum of n addends, in any order, may lie from the exact sum.

    Every arm adds the same n float32 addends x_i: each comes from operations rounded to nearest without contraction,
    so no arm's addend differs by a bit. A sum in any order, or in any tree, takes n - 1 rounded additions (the one
    onto the initial 0 is exact). With round to nearest its error is at most (n - 1) u sum|x_i|, u = 2^-24, for every
    n and order and without a second-order term (C.-P. Jeannerod and S. M. Rump, "Improved error bounds for inner
    products in floating-point arithmetic", SIAM J. Matrix Anal. Appl. 34(2), 2013). Two more terms keep it a bound:
    global float atomics of a GPU flush subnormal operands and results to zero (PTX ISA, red and atom), at most
    2^-126 each for three numbers an addition; and the oracle itself adds in float64, (n - 1) 2^-53 sum|x_i|.

    Args:
        n: addends of each voxel. absolute: sum of their absolute values, float64.

    Returns:
        The bound, float64; 0 where nothing is added.
    """
    additions = np.maximum(n - 1, 0)
    return additions * (UNIT_ROUNDOFF + 2.0**-53) * absolute + 3 * SMALLEST_NORMAL * n


@dataclass(frozen=True)
class _Sums:
    """Sums of one or more frames: keys (m,) i64 ascending, the others (m, 512) as in Reference; absolute: sum of the
    tsdf addends' absolute values."""

    keys: np.ndarray
    weight: np.ndarray
    r: np.ndarray
    g: np.ndarray
    b: np.ndarray
    tsdf: np.ndarray
    absolute: np.ndarray
    samples: int
    skipped: int

    def __add__(self, other: _Sums) -> _Sums:
        keys = np.union1d(self.keys, other.keys)
        places = [np.searchsorted(keys, part.keys) for part in (self, other)]

        def total(name: str) -> np.ndarray:
            mine, theirs = getattr(self, name), getattr(other, name)
            sums = np.zeros((len(keys), BLOCK_VOXELS), mine.dtype)
            sums[places[0]] = mine
            sums[places[1]] += theirs
            return sums

        sums = {name: total(name) for name in ("weight", "r", "g", "b", "tsdf", "absolute")}
        return _Sums(keys=keys, samples=self.samples + other.samples, skipped=self.skipped + other.skipped, **sums)


def _sums(scene: Scene, config: VolumeConfig) -> _Sums:
    """Sums of one frame. Memory: about 40 bytes a sample on the way."""
    chunks: list[tuple[np.ndarray, ...]] = []
    known = np.empty(0, np.int64)
    one = np.float32(1)
    for index, voxels, sdf in walk(scene.points, scene.camera, config):
        keys = pack(voxels >> 3)
        starts = _runs(keys)
        distinct, rank = np.unique(keys[starts], return_inverse=True)
        lengths = np.diff(starts, append=len(keys))
        addend = np.clip(sdf * config.inv_trunc, -one, one)
        chunks.append((distinct, rank, lengths, local_index(voxels).astype(np.int16), index, addend))
        known = np.union1d(known, distinct)

    # A chunk ranks its own blocks; only now, with all of them known, has every sample its voxel in the whole.
    flat = [
        np.repeat(np.searchsorted(known, distinct)[rank] * BLOCK_VOXELS, lengths) + local
        for distinct, rank, lengths, local, *_ in chunks
    ]
    where = np.concatenate([np.empty(0, np.int64), *flat])
    index = np.concatenate([np.empty(0, np.int32), *(chunk[4] for chunk in chunks)])
    addends = np.concatenate([np.empty(0, np.float32), *(chunk[5] for chunk in chunks)]).astype(np.float64)
    del chunks, flat
    size = len(known) * BLOCK_VOXELS

    def total(values: np.ndarray | None = None) -> np.ndarray:
        return np.bincount(where, values, size).reshape(-1, BLOCK_VOXELS)

    r, g, b = (total(scene.colors[index, channel]).astype(np.int64) for channel in range(3))
    skipped = int(skip_mask(scene.points, scene.camera, config).sum())
    return _Sums(known, total(), r, g, b, total(addends), total(np.abs(addends)), len(where), skipped)


def evaluate(scene: Scene, config: VolumeConfig) -> Reference:
    """The exact volume of a scene (pool, table and cap of the configuration play no part)."""
    return evaluate_frames([scene], config)


def evaluate_frames(scenes: Sequence[Scene], config: VolumeConfig) -> Reference:
    """The exact volume of frames fused one after another: every sum is a sum over all of them.

    Memory: about 40 bytes a sample of one frame on the way, 28 KiB a block at the end.
    """
    *before, last = scenes
    whole = final = _sums(last, config)
    with ThreadPoolExecutor(FRAMES_AT_ONCE) as pool:
        for start in range(0, len(before), FRAMES_AT_ONCE):
            for sums in pool.map(lambda scene: _sums(scene, config), before[start : start + FRAMES_AT_ONCE]):
                whole += sums
    earlier = whole.weight.sum(axis=1)
    earlier[np.searchsorted(whole.keys, final.keys)] -= final.weight.sum(axis=1)
    return Reference(
        coords=unpack(whole.keys),
        weight=whole.weight,
        r=whole.r,
        g=whole.g,
        b=whole.b,
        tsdf=whole.tsdf,
        bound=tsdf_bound(whole.weight, whole.absolute),
        samples=whole.samples,
        skipped=whole.skipped,
        earlier=earlier,
    )


def block_keys(scene: Scene, config: VolumeConfig) -> tuple[np.ndarray, int]:
    """Keys (m,) i64 of the exact block set, ascending, and the number of samples after the occlusion test."""
    known, samples = np.empty(0, np.int64), 0
    for index, voxels, _ in walk(scene.points, scene.camera, config):
        keys = pack(voxels >> 3)
        known = np.union1d(known, keys[_runs(keys)])
        samples += len(index)
    return known, samples


def exact_blocks(scene: Scene, config: VolumeConfig) -> np.ndarray:
    """Coordinates (m, 3) i32 of the exact block set, lexicographic, without the sums."""
    return unpack(block_keys(scene, config)[0])


def exact_block_count(scene: Scene, config: VolumeConfig) -> int:
    """Blocks of the exact set: what a pool must hold for nothing to be lost."""
    return len(exact_blocks(scene, config))
