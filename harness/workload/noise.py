"""Noise of a structured-light depth sensor, for depth that has none (ray cast, rendered).

The model of the first Kinect by Nguyen, Izadi and Lovell, "Modeling Kinect Sensor Noise for Improved 3D Reconstruction
and Tracking", 3DIMPVT 2012: axial standard deviation 0.0012 + 0.0019 (z - 0.4)^2 metres, to which
0.0001 / sqrt(z) * theta^2 / (pi/2 - theta)^2 is added where the surface is seen at more than 60 degrees; readings
beyond 82 degrees are lost (the model's data end there). Its lateral noise, a pixel at most, is left out.
"""

from __future__ import annotations

import numpy as np

GRAZING = np.deg2rad(82.0)
STEEP = np.deg2rad(60.0)
SEED = 2012


def axial_sigma(z: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Standard deviation of a depth reading, metres, at depth z metres and incidence theta radians."""
    sigma = 0.0012 + 0.0019 * (z - 0.4) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        steep = 0.0001 / np.sqrt(z) * theta**2 / (np.pi / 2 - theta) ** 2
    return sigma + np.where(theta > STEEP, steep, 0.0)


def add_noise(depth: np.ndarray, incidence: np.ndarray, frame: int) -> np.ndarray:
    """Readings (h, w) f64 metres of a sensor, 0 where it has none; the same for a frame's number on every machine.

    Args:
        depth: (h, w) metres, 0 for no reading. incidence: (h, w) radians between ray and surface normal.
    """
    draw = np.random.default_rng([SEED, frame]).standard_normal(depth.shape)
    noisy = depth + draw * axial_sigma(depth, incidence)
    return np.where((depth > 0) & (incidence < GRAZING) & (noisy > 0), noisy, 0.0)


def incidence_of(depth: np.ndarray, focal: tuple[float, float], centre: tuple[float, float]) -> np.ndarray:
    """Incidence (h, w) radians of a depth image, from the surface through neighbouring pixels (central differences).

    Args:
        depth: (h, w) metres. focal, centre: fx, fy and cx, cy in pixels.
    """
    v, u = np.mgrid[0 : depth.shape[0], 0 : depth.shape[1]]
    ray = np.stack([(u - centre[0]) / focal[0], (v - centre[1]) / focal[1], np.ones(depth.shape)], axis=-1)
    place = ray * depth[..., None]
    normal = np.cross(np.gradient(place, axis=1), np.gradient(place, axis=0))
    length = np.linalg.norm(normal, axis=-1) * np.linalg.norm(ray, axis=-1)
    cosine = np.divide(np.abs((normal * ray).sum(axis=-1)), length, out=np.zeros(depth.shape), where=length > 0)
    return np.arccos(np.clip(cosine, 0, 1))
