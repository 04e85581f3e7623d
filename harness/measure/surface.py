"""The finding `surface`: one fused surface, thinned so that the page can show it."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

from harness.workload.cells import Cell

MOST_TRIANGLES = 16_000
"""What is kept. The cell base has 282,096 triangles, 10 MB; in cubes of 3 cm its shape is still plain, in 0.09 MB."""


def thin(triangles: np.ndarray, edge: float) -> tuple[np.ndarray, np.ndarray]:
    """A triangle soup with its corners gathered in cubes: each cube's corners become their mean.

    Args:
        triangles: (t, 3, 3) f32 metres. edge: of the cubes, metres.

    Returns:
        vertices (v, 3) f32, faces (f, 3) u32 without those that lost their area, each once; the same for any order of
        the soup.
    """
    corners = triangles.reshape(-1, 3).astype(np.float64)
    x, y, z = (np.floor(corners / edge).astype(np.int64) + (1 << 20)).T  # as a block's key packs its coordinates
    cubes, which = np.unique((x << 42) | (y << 21) | z, return_inverse=True)
    # Sums of metres in multiples of 2^-40: exact, so that no order of adding enters.
    fixed = np.round(corners * 2.0**40).astype(np.int64)
    sums = np.zeros((len(cubes), 3), np.int64)
    np.add.at(sums, which, fixed)
    vertices = (sums / np.bincount(which, minlength=len(cubes))[:, None] / 2.0**40).astype(np.float32)
    faces = which.reshape(-1, 3)
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (a != c)]
    turned = np.stack([np.roll(faces, -k, axis=1) for k in range(3)])[faces.argmin(axis=1), np.arange(len(faces))]
    return vertices, np.unique(turned, axis=0).astype(np.uint32)


def surface_finding(arm: str, cell: str, triangles: np.ndarray, voxel: float) -> list[dict[str, Any]]:
    """The row of evidence.json, none where there is no surface.

    Args:
        triangles: (t, 3, 3) f32 metres. voxel: metres; the cubes begin at two voxels and grow until few are left.
    """
    if not len(triangles):
        return []
    edge = 2 * voxel
    vertices, faces = thin(triangles, edge)
    while len(faces) > MOST_TRIANGLES:
        edge *= 1.5
        vertices, faces = thin(triangles, edge)
    value = {"arm": arm, "cell": cell, "vertices": _packed(vertices, "<f4"), "triangles": _packed(faces, "<u4")}
    how = f"{len(triangles)} triangles of {arm} on {cell}, corners gathered in cubes of {edge:g} m; zlib and base64"
    return [{"name": "surface", "value": value, "unit": "m", "how": how}]


def _packed(array: np.ndarray, kind: str) -> str:
    return base64.b64encode(zlib.compress(array.astype(kind).tobytes(), 9)).decode("ascii")


def host_surface(cell: Cell) -> list[dict[str, Any]]:
    """The surface of a cell fused by the CUDA kernels on the host.

    Raises:
        IrrError: the host library cannot be built here.
    """
    from harness.device.host import HostVolume

    volume, scene = HostVolume(cell.config), cell.scene()
    volume.launch("cuda/allocate/plain", scene)
    volume.launch("cuda/update/plain", scene)
    triangles, _ = volume.extract()
    return surface_finding("cpu", cell.name, triangles, cell.config.voxel)
