"""Where a fused volume crosses zero, in NumPy: the extracted surface's vertices without the extract kernel.

algorithm: Extract cuts every cube of eight observed voxels into six tetrahedra round the diagonal 0-7. Their edges are
the cube's 12, one diagonal of each of its 6 faces and that diagonal: 19 lines that join corner a to corner b where the
bits of a are a subset of those of b. Each line whose ends differ in sign carries one vertex, so the vertices need no
triangles, and the gates need no GPU and no library.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from harness.gates.once import Once
from harness.gates.result import GateResult, judge
from harness.workload.fused import Fused
from harness.workload.table import pack
from harness.workload.volume import BLOCK_EDGE, BLOCK_VOXELS

CORNERS = np.array([[c & 1, c >> 1 & 1, c >> 2 & 1] for c in range(8)], np.int32)
"""Corner c of a cube, offsets in x, y, z."""

EDGES = [(a, b) for a, b in itertools.combinations(range(8), 2) if a & b == a]
"""The 19 edges of the six tetrahedra round the diagonal 0-7."""

SURFACE_VOXELS = 2_000_000
"""Surfaces are compared with each other up to here: base and the load cells, not r-2.0."""

_CHUNK = 1024


def crossings(fused: Fused) -> np.ndarray:
    """Vertices (k, 3) f64, metres, of the zero crossing; a vertex shared by cubes appears once for each."""
    return crossing_edges(fused)[1]


def crossing_edges(fused: Fused) -> tuple[np.ndarray, np.ndarray]:
    """The crossings with the edges that they lie on, once for each cube that has the edge; found once a volume.

    Returns:
        edges (k,) i64, numbered (block's place in `fused`, cube in the block, edge of the cube); vertices (k, 3) f64.
    """
    return _CROSSINGS(fused, lambda: _find_crossings(fused))


_CROSSINGS: Once[Fused, tuple[np.ndarray, np.ndarray]] = Once()


def _find_crossings(fused: Fused) -> tuple[np.ndarray, np.ndarray]:
    keys = pack(fused.coords)
    parts = [_block_crossings(fused, keys, start) for start in range(0, len(keys), _CHUNK)]
    edges = [np.empty(0, np.int64), *(edges for edges, _ in parts)]
    return np.concatenate(edges), np.concatenate([np.empty((0, 3)), *(vertices for _, vertices in parts)])


def _block_crossings(fused: Fused, keys: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    coords = fused.coords[start : start + _CHUNK]
    edge = BLOCK_EDGE
    shape = (len(coords), edge + 1, edge + 1, edge + 1)
    # Axes are block, z, y, x, as the local index runs; the ninth layer is the first of the next block.
    value, weight = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for corner in CORNERS:
        neighbour = pack(coords + corner)
        rank = np.minimum(np.searchsorted(keys, neighbour), len(keys) - 1)
        found = np.flatnonzero(keys[rank] == neighbour)
        into = tuple(slice(edge, None) if c else slice(0, edge) for c in corner[::-1])
        take = tuple(slice(0, 1) if c else slice(0, edge) for c in corner[::-1])
        cube = (len(found), edge, edge, edge)
        weight[(found, *into)] = fused.weight[rank[found]].reshape(cube)[(slice(None), *take)]
        value[(found, *into)] = fused.tsdf[rank[found]].reshape(cube)[(slice(None), *take)]
    seen = weight > 0
    value = np.divide(value, weight, out=np.zeros_like(value), where=seen)

    def corner_of(array: np.ndarray, c: int) -> np.ndarray:
        x, y, z = CORNERS[c]
        return array[:, z : z + edge, y : y + edge, x : x + edge]

    inside = value < 0
    whole = np.logical_and.reduce([corner_of(seen, c) for c in range(8)])
    some = np.logical_or.reduce([corner_of(inside, c) for c in range(8)])
    every = np.logical_and.reduce([corner_of(inside, c) for c in range(8)])
    block, z, y, x = np.nonzero(whole & some & ~every)
    if not len(block):
        return np.empty(0, np.int64), np.empty((0, 3))
    corner_value = np.stack([value[block, z + oz, y + oy, x + ox] for ox, oy, oz in CORNERS], -1).astype(np.float64)
    origin = coords[block].astype(np.int64) * edge + np.stack([x, y, z], -1)
    cube = ((start + block.astype(np.int64)) * BLOCK_VOXELS + x + 8 * y + 64 * z) * len(EDGES)
    edges, vertices = [], []
    for number, (a, b) in enumerate(EDGES):
        va, vb = corner_value[:, a], corner_value[:, b]
        cut = (va < 0) != (vb < 0)
        t = va[cut] / (va[cut] - vb[cut])
        at = origin[cut] + CORNERS[a] + t[:, None] * (CORNERS[b] - CORNERS[a])
        vertices.append((at + 0.5) * float(fused.voxel))
        edges.append(cube[cut] + number)
    return np.concatenate(edges), np.concatenate(vertices)


def distinct(vertices: np.ndarray) -> np.ndarray:
    """Vertices (k, 3) that differ in any bit, once each: cubes share them, and a tree of equal points is slow.

    Told apart by a 64-bit hash of their bits; a collision (1e-9 for a million vertices) would leave one out.
    """
    bits = np.ascontiguousarray(vertices, np.float64).view(np.uint64).reshape(-1, 3)
    with np.errstate(over="ignore"):
        mixed = bits * np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
        mixed ^= mixed >> np.uint64(29)
        code = (mixed * np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93], np.uint64)).sum(axis=1)
    return np.asarray(vertices)[np.unique(code, return_index=True)[1]]


def hausdorff(a: np.ndarray, b: np.ndarray) -> float:
    """Largest distance, metres, of a vertex of either surface (k, 3) from the other's nearest; inf if one is empty."""
    if not len(a) or not len(b):
        return float("inf")
    a, b = distinct(a), distinct(b)
    return float(max(_nearest(a, b).max(), _nearest(b, a).max()))


def _nearest(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Distance of each of `points` to the nearest of `others`."""
    from scipy.spatial import cKDTree

    return cKDTree(others).query(points)[0]


@dataclass(frozen=True)
class Apart:
    """How far apart two surfaces are, metres: at most, and on average over the vertices of both; vertices of each, one
    for every edge crossed. Infinite if only one has a surface, 0 if neither has."""

    most: float
    mean: float
    vertices: tuple[int, int]


def surfaces_apart(a: Fused, b: Fused) -> Apart:
    """How far apart the surfaces of two volumes are.

    The largest distance is an upper bound of the Hausdorff distance, and equal to it up to rounding: a crossing is
    compared with the other's on the same edge, and only where the other has none (a value next to 0 changed sign) with
    its nearest vertex.
    """
    known = np.union1d(pack(a.coords), pack(b.coords))
    (edges_a, at_a), (edges_b, at_b) = (_common_edges(volume, known) for volume in (a, b))
    counts = len(edges_a), len(edges_b)
    if not len(edges_a) and not len(edges_b):
        return Apart(0.0, 0.0, counts)
    if not len(edges_a) or not len(edges_b):
        return Apart(float("inf"), float("inf"), counts)
    if np.array_equal(edges_a, edges_b):
        here = there = np.arange(len(edges_a))
    else:
        _, here, there = np.intersect1d(edges_a, edges_b, assume_unique=True, return_indices=True)
    parts = [np.linalg.norm(at_a[here] - at_b[there], axis=1)]
    alone_a, alone_b = np.delete(at_a, here, axis=0), np.delete(at_b, there, axis=0)
    for alone, other in ((alone_a, at_b), (alone_b, at_a)):
        if len(alone):
            parts.append(_nearest(distinct(alone), distinct(other)))
    every = np.concatenate(parts)
    return Apart(float(every.max()), float(every.mean()), counts)


def surface_distance(a: Fused, b: Fused) -> float:
    """The largest distance of `surfaces_apart`, metres."""
    return surfaces_apart(a, b).most


def _common_edges(fused: Fused, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`crossing_edges`, with blocks numbered by their place among `known` keys."""
    edges, vertices = crossing_edges(fused)
    per_block = BLOCK_VOXELS * len(EDGES)
    place = np.searchsorted(known, pack(fused.coords))
    return place[edges // per_block] * per_block + edges % per_block, vertices


def extract_gate(triangles: np.ndarray, fused: Fused, subject: str) -> GateResult:
    """The extract kernel's vertices are the crossings that NumPy finds, both ways.

    The kernel computes in float32: a corner (v + 0.5) h rounds twice, a crossing four times more, each by at most
    2^-24 of the coordinate, so 8 roundings of the largest coordinate are allowed.

    Args:
        triangles: (t, 3, 3) f32, metres.
    """
    found = np.asarray(triangles, np.float64).reshape(-1, 3)
    wanted = crossings(fused)
    limit = 8 * 2.0**-24 * (float(np.abs(wanted).max()) + float(fused.voxel)) if len(wanted) else 0.0
    apart = hausdorff(found, wanted) if len(found) or len(wanted) else 0.0
    return judge(
        "extract",
        "exact",
        subject,
        # A volume without a crossing has no surface: then its voxels are what was looked at.
        min(len(found), len(wanted)) if len(found) or len(wanted) else fused.weight.size,
        {"apart": (apart <= limit, f"the surfaces are {apart:.3g} m apart, more than rounding ({limit:.3g} m)")},
        {"triangles": len(found) // 3, "crossings": len(wanted), "hausdorff_m": apart, "limit_m": limit},
    )
