"""A synthetic trajectory: a furnished room, seen by a ray caster, with and without a depth sensor's noise.

It stands in for real frames where there are none, so that warm, cold, dense and noisy cells run on every machine. The
camera walks along one wall and turns a little between frames, as a hand-held one does: neighbouring frames overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.workload.frames import Frame, Intrinsics, rotate, to_scene
from harness.workload.noise import add_noise
from harness.workload.scenes import Scene

SIZE = 640
INTRINSICS = Intrinsics(SIZE / 2, SIZE / 2, SIZE / 2, SIZE / 2)
"""640 x 640 pixels, 90 degrees: the shape of the paper's real frames."""

ROOM = np.array([[-3.0, -1.5, -2.5], [3.0, 1.3, 2.5]])
"""Inside of the walls, metres: 6 x 2.8 x 5 (y down)."""

SPHERES = np.array([[-1.2, 0.9, 1.2, 0.40], [0.6, 0.6, 1.9, 0.25], [1.6, 1.0, 0.9, 0.30], [-0.2, 1.05, 1.0, 0.25]])
"""Centre and radius, metres."""

BOXES = np.array(
    [
        [[-2.6, 0.3, 1.6], [-1.7, 1.3, 2.5]],  # cupboard in the corner
        [[0.0, 0.9, 1.6], [1.2, 1.3, 2.3]],  # table
        [[1.9, -0.6, 2.2], [2.7, 1.3, 2.5]],  # shelf
        [[-0.9, -0.9, 2.42], [0.5, -0.2, 2.5]],  # picture, 8 cm off the wall
    ]
)
"""Corners, metres."""


@dataclass(frozen=True)
class Hits:
    """What a frame's rays hit: depth (h, w) f64 metres along the optical axis, incidence (h, w) radians, colors u8."""

    depth: np.ndarray
    incidence: np.ndarray
    colors: np.ndarray


def pose(number: int) -> np.ndarray:
    """Camera to world (4, 4) of frame `number`: 4 cm and 1.5 degrees a frame."""
    yaw = np.deg2rad(-6.0 + 1.5 * number)
    matrix = np.eye(4)
    matrix[:3, :3] = [[np.cos(yaw), 0, np.sin(yaw)], [0, 1, 0], [-np.sin(yaw), 0, np.cos(yaw)]]
    matrix[:3, 3] = [-0.3 + 0.04 * number, 0.05 * np.sin(0.7 * number), -1.0 + 0.02 * number]
    return matrix


def _rays(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Camera position (3,) and directions (h * w, 3) with a step of 1 along the optical axis."""
    v, u = np.mgrid[0:SIZE, 0:SIZE]
    x, y = (u - INTRINSICS.cx) / INTRINSICS.fx, (v - INTRINSICS.cy) / INTRINSICS.fy
    matrix = pose(number)
    direction = np.stack(rotate(matrix[:3, :3], x, y, np.ones_like(x)), axis=-1)
    return matrix[:3, 3], direction.reshape(-1, 3)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Dot product along the last axis, in a fixed order (see frames.rotate)."""
    return (a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1]) + a[..., 2] * b[..., 2]


def _box(origin: np.ndarray, direction: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where rays enter and leave an axis-aligned box: distances (n, 2), axes of the entry and exit faces (n, 2)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (low - origin) / direction, (high - origin) / direction
    near, far = np.fmin(a, b), np.fmax(a, b)
    return (
        np.stack([near.max(axis=1), far.min(axis=1)], axis=1),
        np.stack([near.argmax(axis=1), far.argmin(axis=1)], axis=1),
    )


def cast(number: int) -> Hits:
    """The nearest surface along every ray of a frame."""
    origin, direction = _rays(number)
    n = len(direction)
    spans, faces = _box(origin, direction, *ROOM)
    best, normal = spans[:, 1].copy(), np.zeros((n, 3))
    normal[np.arange(n), faces[:, 1]] = 1.0
    thing = np.zeros(n, np.int64)
    for number_of, (low, high) in enumerate(BOXES, 1):
        span, face = _box(origin, direction, low, high)
        hit = (span[:, 0] < span[:, 1]) & (span[:, 0] > 0) & (span[:, 0] < best)
        best[hit], thing[hit], normal[hit] = span[hit, 0], number_of, 0.0
        normal[np.flatnonzero(hit), face[hit, 0]] = 1.0
    for number_of, (*centre, radius) in enumerate(SPHERES, 1 + len(BOXES)):
        offset = origin - np.array(centre)
        a, (b, c) = _dot(direction, direction), (_dot(direction, offset), _dot(offset, offset))
        root = b * b - a * (c - radius**2)
        with np.errstate(invalid="ignore"):
            t = (-b - np.sqrt(root)) / a
        hit = (root > 0) & (t > 0) & (t < best)
        best[hit], thing[hit] = t[hit], number_of
        normal[hit] = (offset + t[hit, None] * direction[hit]) / radius
    cosine = np.abs(_dot(direction, normal)) / np.sqrt(_dot(direction, direction))
    place = origin + best[:, None] * direction
    checks = np.floor(place / 0.25).astype(np.int64).sum(axis=1) & 1
    tint = np.array([[37, 59, 83]]) * (thing[:, None] + 2) % 200
    colors = (tint + 40 * checks[:, None]).astype(np.uint8)
    shape = (SIZE, SIZE)
    return Hits(best.reshape(shape), np.arccos(np.clip(cosine, 0, 1)).reshape(shape), colors.reshape(*shape, 3))


def frame(number: int, *, noise: bool = False) -> Frame:
    """One frame of the trajectory; the same noise on every machine."""
    hits = cast(number)
    depth = hits.depth
    if noise:
        depth = add_noise(depth, hits.incidence, number)
    return Frame(f"room-{number:03d}", depth.astype(np.float32), hits.colors, pose(number))


def room(frame_number: int, noise: bool = False) -> Scene:
    """One frame of the trajectory as points."""
    return to_scene(frame(frame_number, noise=noise), INTRINSICS)
