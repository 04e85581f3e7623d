"""The hash table's invariant, on the memory as it lies."""

from __future__ import annotations

import numpy as np

from harness.gates.result import GateResult, judge
from harness.workload.fused import RawVolume
from harness.workload.table import block_hash, pack, unpack
from harness.workload.volume import INDEX_TOMBSTONE, KEY_EMPTY, VolumeConfig


def table_gate(raw: RawVolume, config: VolumeConfig, subject: str) -> GateResult:
    """Every key is found from its hash, no key stands twice, the indices are 0 .. count - 1, each once, and lead to
    the key's coordinates; every index is published; tombstones only where the pool was full."""
    keys, index = raw.table["key"], raw.table["index"]
    used = keys != KEY_EMPTY
    slots = np.flatnonzero(used)
    held, held_index = keys[slots], index[slots]
    blocks = unpack(held)
    malformed = int((pack(blocks) != held).sum())
    twice = len(held) - len(np.unique(held))
    unreachable = _unreachable(used, slots, block_hash(blocks, config.mask))

    tombstones = int((held_index == INDEX_TOMBSTONE).sum())
    built = held_index >= 0
    unpublished = len(held) - tombstones - int(built.sum())
    stray = int((index[~used] != -1).sum())
    numbers = np.sort(held_index[built])
    permutation = len(numbers) == raw.count and bool((numbers == np.arange(len(numbers))).all())
    inside = built & (held_index < min(raw.count, len(raw.coords)))
    coords = raw.coords[held_index[inside]]
    misplaced = int((coords != blocks[inside]).any(axis=1).sum()) + int((built & ~inside).sum())
    full = raw.count == config.capacity
    return judge(
        "table",
        "table",
        subject,
        len(held),
        {
            "size": (len(keys) == config.slots, f"{len(keys)} slots, not {config.slots}"),
            "form": (malformed == 0, f"{malformed} keys are not the key of any block"),
            "once": (twice == 0, f"{twice} keys stand more than once"),
            "reach": (unreachable == 0, f"{unreachable} keys are not found from their hash"),
            "published": (unpublished == 0, f"{unpublished} keys have no published index"),
            "stray": (stray == 0, f"{stray} slots hold an index without a key"),
            "permutation": (permutation, f"the indices of {len(numbers)} keys are not 0 .. {raw.count - 1}, each once"),
            "coords": (misplaced == 0, f"{misplaced} indices lead to another block's coordinates"),
            "tombstones": (tombstones == 0 or full, f"{tombstones} tombstones although the pool was not full"),
            "count": (0 <= raw.count <= config.capacity, f"count is {raw.count} in a pool of {config.capacity}"),
        },
        {
            "keys": len(held),
            "count": raw.count,
            "slots": len(keys),
            "tombstones": tombstones,
            "longest_probe": _longest_probe(slots, block_hash(blocks, config.mask), config.mask),
        },
    )


def _distance(slots: np.ndarray, first: np.ndarray, mask: int) -> np.ndarray:
    return (slots - first.astype(np.int64)) & mask


def _longest_probe(slots: np.ndarray, first: np.ndarray, mask: int) -> int:
    return int(_distance(slots, first, mask).max()) + 1 if len(slots) else 0


def _unreachable(used: np.ndarray, slots: np.ndarray, first: np.ndarray) -> int:
    """Keys with an empty slot between their hash and where they lie: linear probing would stop there."""
    mask = len(used) - 1
    empties = np.concatenate([[0], np.cumsum(np.tile(~used, 2))])
    start = first.astype(np.int64)
    return int((empties[start + _distance(slots, first, mask)] != empties[start]).sum())
