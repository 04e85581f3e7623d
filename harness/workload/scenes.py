"""Scenes: points, colours and a camera (algorithm: Scenes). Computed in float64, cast to float32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Scene:
    """Input of one integration. Its arrays are never written to.

    Attributes:
        points: (n, 3) f32, metres, C-contiguous.
        colors: (n, 3) u8.
        camera: (3,) f32, metres.
    """

    points: np.ndarray
    colors: np.ndarray
    camera: np.ndarray

    def __len__(self) -> int:
        return len(self.points)


def index_colors(n: int) -> np.ndarray:
    """Colours (n, 3) u8 of n points: (37 i, 59 i, 83 i) mod 256."""
    i = np.arange(256)[:, None]
    period = ((i * np.array([37, 59, 83])) % 256).astype(np.uint8)
    return np.tile(period, (-(-n // 256), 1))[:n]


def _scene(points: np.ndarray) -> Scene:
    points = np.ascontiguousarray(points, np.float32)
    return Scene(points, index_colors(len(points)), np.zeros(3, np.float32))


def sphere(radius: float, rows: int, columns: int) -> Scene:
    """Points on a sphere round the camera: theta_i = pi (i + 0.5) / rows, phi_j = 2 pi j / columns."""
    theta = np.pi * (np.arange(rows) + 0.5) / rows
    phi = 2 * np.pi * np.arange(columns) / columns
    ring = np.sin(theta)[:, None]
    # One coordinate at a time: twenty million points in float64 at once take seconds to move.
    points = np.empty((rows, columns, 3), np.float32)
    for axis, unit in enumerate((ring * np.cos(phi), ring * np.sin(phi), np.cos(theta)[:, None])):
        points[..., axis] = radius * unit
    return _scene(points.reshape(-1, 3))


def plane(n: int) -> Scene:
    """Points on the plane z = 0.5: x_i, y_j = -1 + 2 i / (n - 1), i then j."""
    axis = -1 + 2 * np.arange(n) / (n - 1)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    return _scene(np.stack([x, y, np.full_like(x, 0.5)], axis=-1).reshape(-1, 3))
