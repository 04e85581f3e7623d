"""A fused surface that an archive carries, and the viewer's data.

The finding `surface` (evidence.json) holds a thinned triangle mesh: {"arm", "cell", "vertices": base64 of zlib of
little-endian f32 triples in metres, "triangles": the same of u32 triples}.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
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

    def trace(self) -> dict[str, Any]:
        """The mesh as the viewer reads it: coordinates to a tenth of a millimetre."""
        x, y, z = (np.round(self.vertices[:, axis].astype(float), 4).tolist() for axis in range(3))
        i, j, k = (self.triangles[:, corner].tolist() for corner in range(3))
        return {"x": x, "y": y, "z": z, "i": i, "j": j, "k": k}


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


@cache
def plotly_source() -> str | None:
    """plotly.js from the installed wheel, safe inside a script element; None where the wheel is absent."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    if not path.is_file():
        return None
    # In a script element only these would end or change it; in JavaScript both stand in strings, where \/ and \! are
    # the same characters.
    return path.read_text(encoding="utf-8").replace("</script", "<\\/script").replace("<!--", "<\\!--")
