"""Where a fused volume crosses zero, in NumPy: the extracted surface's vertices without the extract kernel.

algorithm: Extract cuts every cube of eight observed voxels into six tetrahedra round the diagonal 0-7. Their edges are
the cube's 12, one diagonal of each of its 6 faces and that diagonal: 19 lines that join corner a to corner b where the
bits of a are a subset of those of b. Each line whose ends differ in sign carries one vertex, so the vertices need no
triangles, and the gates need no GPU and no library.
"""

from __future__ import annotations

import itertools

import numpy as np

from harness.gates.crossarm import hausdorff
from harness.gates.result import GateResult, judge
from harness.workload.fused import Fused
from harness.workload.table import pack
from harness.workload.volume import BLOCK_EDGE

CORNERS = np.array([[c & 1, c >> 1 & 1, c >> 2 & 1] for c in range(8)], np.int32)
"""Corner c of a cube, offsets in x, y, z."""

EDGES = [(a, b) for a, b in itertools.combinations(range(8), 2) if a & b == a]
"""The 19 edges of the six tetrahedra round the diagonal 0-7."""

_CHUNK = 1024


def crossings(fused: Fused) -> np.ndarray:
    """Vertices (k, 3) f64, metres, of the zero crossing; a vertex shared by cubes appears once for each."""
    if not len(fused.coords):
        return np.empty((0, 3))
    keys = pack(fused.coords)
    parts = [_block_crossings(fused, keys, start) for start in range(0, len(keys), _CHUNK)]
    return np.concatenate(parts)


def _block_crossings(fused: Fused, keys: np.ndarray, start: int) -> np.ndarray:
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
        return np.empty((0, 3))
    corner_value = np.stack([value[block, z + oz, y + oy, x + ox] for ox, oy, oz in CORNERS], -1).astype(np.float64)
    origin = coords[block].astype(np.int64) * edge + np.stack([x, y, z], -1)
    vertices = []
    for a, b in EDGES:
        va, vb = corner_value[:, a], corner_value[:, b]
        cut = (va < 0) != (vb < 0)
        t = va[cut] / (va[cut] - vb[cut])
        at = origin[cut] + CORNERS[a] + t[:, None] * (CORNERS[b] - CORNERS[a])
        vertices.append((at + 0.5) * float(fused.voxel))
    return np.concatenate(vertices)


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
