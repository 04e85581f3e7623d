"""A fused surface that an archive carries, as the page's viewer reads it.

The finding `surface` (evidence.json) holds a thinned triangle mesh: {"arm", "cell", "vertices": base64 of zlib of
little-endian f32 triples in metres, "triangles": the same of u32 triples}.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.claims.registry import View
from harness.errors import IrrError

MAX_VERTICES, MAX_TRIANGLES = 60_000, 120_000
"""What a page still shows fluently; a larger mesh is refused, it was not made by irr."""


@dataclass(frozen=True)
class Surface:
    """vertices (n, 3) f32 metres, triangles (m, 3) indices below n."""

    arm: str
    cell: str
    vertices: np.ndarray
    triangles: np.ndarray

    def mesh(self) -> dict[str, list[int]]:
        """The mesh as page.js reads it: coordinates x, y, z by turns in tenths of a millimetre, corners by threes."""
        return {
            "vertices": np.round(self.vertices.astype(float) * 1e4).astype(int).ravel().tolist(),
            "triangles": self.triangles.ravel().tolist(),
        }

    def size_words(self) -> str:
        """How large it is: `1.02 x 1.02 x 1.02 m`."""
        return " x ".join(f"{side:.2f}" for side in np.ptp(self.vertices, axis=0)) + " m"


def _unpack(text: Any, kind: str, most: int, what: str) -> np.ndarray:
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(str(text), validate=True), 12 * most + 1)
        if len(data) > 12 * most or len(data) % 12:
            raise ValueError
    except (ValueError, binascii.Error, zlib.error):
        raise IrrError(f"the finding surface: {what} are not what irr writes") from None
    return np.frombuffer(data, kind).reshape(-1, 3)


def read_surface(view: View) -> Surface | None:
    """The archive's surface, None where it carries none.

    Raises:
        IrrError: it carries something that is no surface of ours.
    """
    found = view.value("surface", dict)
    if found is None:
        return None
    vertices = _unpack(found.get("vertices"), "<f4", MAX_VERTICES, "vertices")
    triangles = _unpack(found.get("triangles"), "<u4", MAX_TRIANGLES, "triangles")
    if not len(vertices) or not len(triangles) or not np.isfinite(vertices).all() or triangles.max() >= len(vertices):
        raise IrrError("the finding surface is empty, or its triangles name vertices that it does not have")
    return Surface(str(found.get("arm", "")), str(found.get("cell", "")), vertices, triangles)
