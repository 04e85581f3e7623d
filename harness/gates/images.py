"""Whole-image comparison for the contraction study, and the proof that it can see the smallest change.

The blog's first check compared two pixels that exercise no rounding, so it said "equal" under any arithmetic. Here a
comparison covers every pixel, an empty one is refused, and each is repeated on a copy in which one pixel was computed
from a constant one ulp away: if that is not found, the comparison counts for nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from harness.errors import IrrError


@dataclass(frozen=True)
class ImageDifference:
    """How image b departs from image a.

    Attributes:
        pixels: pixels that differ. max: largest difference, iterations.
        class_changes: pixels where exactly one image reached the limit. net: sum of b - a.
        compared: pixels compared.
    """

    pixels: int
    max: int
    class_changes: int
    net: int
    compared: int

    def as_json(self) -> dict[str, int]:
        values = asdict(self)
        values["class"] = values.pop("class_changes")
        del values["compared"]
        return values


def image_hash(image: np.ndarray) -> str:
    """sha256 of the little-endian int32 image, row-major."""
    return hashlib.sha256(np.ascontiguousarray(image, "<i4").tobytes()).hexdigest()


def compare_images(a: np.ndarray, b: np.ndarray, limit: int) -> ImageDifference:
    """Every pixel of two iteration images.

    Raises:
        IrrError: an image is empty, or the shapes differ.
    """
    if a.shape != b.shape or a.size == 0:
        raise IrrError(f"images of {a.shape} and {b.shape} cannot be compared")
    difference = np.subtract(b, a, dtype=np.int64)
    moved = difference != 0
    return ImageDifference(
        pixels=int(moved.sum()),
        max=int(np.abs(difference).max()),
        class_changes=int(((a == limit) != (b == limit)).sum()),
        net=int(difference.sum()),
        compared=a.size,
    )


def plane_axes(size: int) -> tuple[np.ndarray, np.ndarray]:
    """cx of every column and cy of every row, each operation rounded as in the kernels."""
    three, n = np.float32(3), np.float32(size)
    index = np.arange(size, dtype=np.float32)
    return np.float32(-2) + three * index / n, np.float32(-1.5) + three * index / n


MAX_TRIED = 2000
"""Candidates for a planted change: nearly every pixel of the border moves, so a handful is tried."""


def escape_time(cx: np.float32, cy: np.float32, limit: int) -> int:
    """Iterations of one point, every operation rounded by itself. Slow, and needs no compiler."""
    zx = zy = np.float32(0)
    two, four = np.float32(2), np.float32(4)
    n = 0
    with np.errstate(over="ignore"):
        while n < limit and zx * zx + zy * zy <= four:
            zx, zy = zx * zx - zy * zy + cx, two * zx * zy + cy
            n += 1
    return n


def border(images: Iterable[np.ndarray], limit: int) -> np.ndarray:
    """Pixels (k, 2) where an ulp of cx shows: where the images disagree, then those that escape slowly."""
    images = list(images)
    first = images[0]
    differing = np.zeros(first.shape, bool)
    for image in images[1:]:
        differing |= image != first
    slow = (first > limit // 4) & (first < limit) & ~differing
    return np.concatenate([np.argwhere(differing), np.argwhere(slow)])


def plant_one_ulp(image: np.ndarray, candidates: np.ndarray, limit: int) -> tuple[np.ndarray, tuple[int, int]]:
    """A copy of `image` in which one pixel was computed from a cx one ulp away.

    Args:
        candidates: (k, 2) row and column of pixels to try in turn, see `border`.

    Returns:
        The copy and the pixel's (row, column).

    Raises:
        IrrError: no candidate's iterations move with one ulp.
    """
    cxs, cys = plane_axes(image.shape[0])
    for row, column in candidates[:MAX_TRIED]:
        nudged = np.nextafter(cxs[column], np.float32(np.inf), dtype=np.float32)
        iterations = escape_time(np.float32(nudged), np.float32(cys[row]), limit)
        if iterations != image[row, column]:
            copy = image.copy()
            copy[row, column] = iterations
            return copy, (int(row), int(column))
    raise IrrError("no pixel's iterations move with one ulp of cx", "raise --size or --iterations")


def detects(a: np.ndarray, b: np.ndarray, planted: np.ndarray, limit: int) -> bool:
    """Whether comparing with `planted` (b with one pixel changed) gives another answer than comparing with b."""
    return compare_images(b, planted, limit).pixels == 1 and compare_images(a, planted, limit) != compare_images(
        a, b, limit
    )
