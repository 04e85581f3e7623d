"""Block keys and the hash, as algorithm: Table states them; for the host side (oracle, gates, tests)."""

from __future__ import annotations

import numpy as np

from harness.workload.volume import HASH_MULTIPLIERS, KEY_BIAS


def pack(blocks: np.ndarray) -> np.ndarray:
    """Keys (m,) i64 of block coordinates (m, 3) i32, each within -2^20 .. 2^20 - 1."""
    x, y, z = np.asarray(blocks, np.int64).T + KEY_BIAS
    return (x << 42) | (y << 21) | z


def unpack(keys: np.ndarray) -> np.ndarray:
    """Block coordinates (m, 3) i32 of keys (m,) i64."""
    keys = np.asarray(keys, np.int64)
    field = (1 << 21) - 1
    axes = [(keys >> 42) & field, (keys >> 21) & field, keys & field]
    return (np.stack(axes, axis=-1) - KEY_BIAS).astype(np.int32)


def block_hash(blocks: np.ndarray, mask: int) -> np.ndarray:
    """First slot (m,) u32 of block coordinates (m, 3) i32; u32 arithmetic wraps as in the kernels."""
    x, y, z = np.asarray(blocks, np.int32).astype(np.uint32).T
    mx, my, mz = (np.uint32(m) for m in HASH_MULTIPLIERS)
    with np.errstate(over="ignore"):
        return ((x * mx) ^ (y * my) ^ (z * mz)) & np.uint32(mask)
