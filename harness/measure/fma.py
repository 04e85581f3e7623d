"""The contraction study: do two compilers' programs compute the same image, and which fusion makes the difference?

Without a GPU the emulation's images stand for the compilers' (its patterns name which pairs each fuses); on a GPU the
real kernels' images join them as further patterns, and the kernels are timed (fma_gpu.py). Every comparison is repeated
with one pixel computed from a constant one ulp away, and counts only if that is found.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.build.emulation import PATTERNS, Emulation, load_emulation
from harness.environment import ROOT
from harness.errors import IrrError, UsageError
from harness.gates.images import compare_images, detects, image_hash, plant_one_ulp
from harness.gates.result import GateResult

SIZE, LIMIT = 4096, 500
"""The blog's image: 4096 x 4096 pixels, 500 iterations."""

MAX_SIZE = 16384
"""Pixels an edge: above this five images and their comparisons pass 8 GB."""

Document = dict[str, Any]


def run(size: int = SIZE, limit: int = LIMIT, progress: Callable[[str], None] | None = None) -> Document:
    """The CPU part on this machine, as the `fma` task prints it.

    Raises:
        UsageError: an image that is too small or too large to be one.
        IrrError: the emulation cannot be built, or a comparison cannot see a planted change.
    """
    if not 64 <= size <= MAX_SIZE:
        raise UsageError(f"--size {size} is not between 64 and {MAX_SIZE} pixels an edge")
    if limit < 2:
        raise UsageError(f"--iterations {limit} leaves nothing to iterate", "take at least 2; the blog takes 500")
    emulation = load_emulation(ROOT / "build" / "host")
    images = emulate(emulation, size, limit, progress)
    document, gates = compare_all(images, limit, emulation)
    blind = [gate.message for gate in gates if not gate.ok]
    if blind:
        raise IrrError(f"{len(blind)} of {len(gates)} comparisons cannot be trusted: {blind[0]}")
    return document


def emulate(
    emulation: Emulation, size: int, limit: int, progress: Callable[[str], None] | None = None
) -> dict[str, np.ndarray]:
    """Images (size, size) i32 by pattern name."""
    images = {}
    for name in PATTERNS:
        if progress is not None:
            progress(f"emulating {name}")
        images[name] = emulation.image(name, size, limit)
    return images


def compare_all(
    images: Mapping[str, np.ndarray], limit: int, emulation: Emulation
) -> tuple[Document, list[GateResult]]:
    """Every pair of images, each comparison with its planted change.

    Args:
        images: by name; `strict` must be among them.

    Returns:
        The document of `fma --json` (with `size` and `iterations`), and one gate a pair: whether the comparison saw
        the planted change.
    """
    hashes = {name: image_hash(image) for name, image in images.items()}
    # Pixels where the patterns disagree lie on the border of the set, where an ulp of cx shows.
    strict = images["strict"]
    border = np.argwhere(np.any([image != strict for image in images.values()], axis=0))
    planted = {name: plant_one_ulp(image, border, emulation.escape_time, limit) for name, image in images.items()}
    pairs, gates = [], []
    for a, b in itertools.combinations(images, 2):
        difference = compare_images(images[a], images[b], limit)
        copy, (row, column) = planted[b]
        seen = detects(images[a], images[b], copy, limit)
        gates.append(
            GateResult(
                "image",
                "cross-arm",
                f"{a} against {b}",
                seen,
                difference.compared,
                {**difference.as_json(), "planted_row": row, "planted_column": column},
                "" if seen else f"{a} against {b}: one ulp in pixel ({row}, {column}) is not seen",
            )
        )
        pairs.append({"a": a, "b": b, **difference.as_json()})
    patterns = {name: {"sum": int(image.sum(dtype=np.int64)), "hash": hashes[name]} for name, image in images.items()}
    size = strict.shape[0]
    return {"size": size, "iterations": limit, "patterns": patterns, "pairs": pairs}, gates


def evidence(emulation: Emulation, images: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Findings beside the images: the two-pixel check (B15) and what the host compiler fused."""
    first, last = images["nvcc"], images["oxide"]
    corners = [(0, 0), (0, first.shape[1] - 1)]
    how = f"emulation by {emulation.compiler} {' '.join(emulation.flags)}"
    return [
        {
            "name": "fma.trivial_pixels.equal",
            "value": all(first[pixel] == last[pixel] for pixel in corners),
            "unit": "",
            "how": f"two corner pixels, which escape at once, of the nvcc and oxide images; {how}",
        },
        {
            "name": "fma.trivial_pixels.images_differ",
            "value": int((first != last).sum()),
            "unit": "pixels",
            "how": f"all pixels of the same two images; {how}",
        },
        *(
            {
                "name": f"emulation.{name}.fused_instructions",
                "value": count,
                "unit": "instructions",
                "how": f"objdump of the pattern's row function; {how}",
            }
            for name, count in emulation.fused.items()
        ),
    ]


def as_text(document: Document) -> str:
    """The study as a person reads it: images, then pairs."""
    total = document["size"] ** 2
    lines = [f"Mandelbrot {document['size']} x {document['size']}, {document['iterations']} iterations", ""]
    width = max(map(len, document["patterns"]))
    lines += [f"{'image':{width}}  {'iterations':>14}  sha256"]
    lines += [f"{name:{width}}  {p['sum']:>14,}  {p['hash'][:16]}" for name, p in document["patterns"].items()]
    lines += ["", f"{'a':{width}}  {'b':{width}}  {'pixels':>9} {'share':>8} {'max':>5} {'class':>6} {'net':>8}"]
    for pair in document["pairs"]:
        share = f"{100 * pair['pixels'] / total:.3f}%"
        lines.append(
            f"{pair['a']:{width}}  {pair['b']:{width}}  {pair['pixels']:>9,} {share:>8} {pair['max']:>5} "
            f"{pair['class']:>6,} {pair['net']:>+8,}"
        )
    lines += ["", "Every comparison also found one pixel computed one ulp away. max: iterations; class: pixels where"]
    lines += ["exactly one image reached the limit; net: sum of b - a."]
    return "\n".join(lines)
