"""Probes per insert of the table's protocol, run step by step for as many threads as a GPU holds at once (P1, P5).

A simulation, not a measurement: every thread inserts the blocks of one point's samples in their order, all threads
advance together, and each makes one memory operation a step: read an entry, compare-exchange a word, store a word. Of
several compare-exchanges of one word in a step the lowest thread's comes first. On two cores of a host the same races
need a thread to lose its processor between two instructions; here they happen as often as they do on a machine that
runs all threads in turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.workload.reference import walk
from harness.workload.scenes import Scene
from harness.workload.table import block_hash, pack
from harness.workload.volume import VolumeConfig

EMPTY = np.int64(-(1 << 62))
READ, CLAIM, STORE_Y, STORE_Z = range(4)


@dataclass(frozen=True)
class Probes:
    """Attributes:
    mean, most: slots that one insert looks at. entries: slots taken at the end. blocks: distinct blocks asked for.
    """

    mean: float
    most: int
    entries: int
    blocks: int


def mixed_hash(blocks: np.ndarray, mask: int) -> np.ndarray:
    """First slot (m,) i64 by the finalizer of MurmurHash3 over the packed key (cuda/allocate/otherhash)."""
    h = pack(blocks).astype(np.uint64)
    with np.errstate(over="ignore"):
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return ((h ^ (h >> np.uint64(33))) & np.uint64(mask)).astype(np.int64)


def simulate(blocks: np.ndarray, counts: np.ndarray, home: np.ndarray, mask: int, three_words: bool) -> Probes:
    """Insert every thread's blocks, all threads in step.

    Args:
        blocks: (m, 3) block of each insert, thread by thread. counts: (threads,) inserts of each thread.
        home: (m,) first slot of each insert.
        three_words: the key as three words, the first claimed by a compare-exchange and the others stored after it, so
            that a reader in between takes the entry for another block; else one word.
    """
    words = np.asarray(blocks, np.int64).T if three_words else pack(blocks)[None, :]
    table = np.full((len(words), mask + 1), EMPTY)
    place = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    end = place + counts
    alive = counts > 0
    place, end = place[alive], end[alive]
    slot, doing, probes = home[place].astype(np.int64), np.full(len(place), READ), np.ones(len(place), np.int64)
    looked = np.zeros(len(blocks), np.int64)
    while len(place):
        found = table[:, slot]
        wanted = words[:, place]
        same, empty = (found == wanted).all(axis=0), found[0] == EMPTY
        reads, claims = doing == READ, doing == CLAIM
        done = reads & same
        onward = reads & ~same & ~empty
        # Of the threads that exchange one word in this step the first in order wins.
        trying = np.flatnonzero(claims & empty)
        _, first = np.unique(slot[trying], return_index=True)
        winners = trying[first]
        table[0, slot[winners]] = wanted[0, winners]
        won = np.zeros(len(place), bool)
        won[winners] = True
        lost = claims & ~won
        equal = lost & (table[0, slot] == wanted[0])
        onward |= lost & ~equal
        storing_y, storing_z = doing == STORE_Y, doing == STORE_Z
        doing = np.where(reads & ~same & empty, CLAIM, doing)
        if three_words:
            for word, storing in ((1, storing_y), (2, storing_z)):
                table[word, slot[storing]] = wanted[word, storing]
            done |= storing_z
            doing = np.where(won, STORE_Y, np.where(storing_y, STORE_Z, np.where(equal, READ, doing)))
        else:
            done |= won | equal
        slot = np.where(onward, (slot + 1) & mask, slot)
        probes += onward
        doing = np.where(onward, READ, doing)
        full = probes > mask + 1
        probes[full] = mask + 1
        done |= full
        if done.any():
            looked[place[done]] = probes[done]
            place = place + done
            left = place < end
            place, end, done = place[left], end[left], done[left]
            slot, doing, probes = slot[left], doing[left], probes[left]
            slot[done], doing[done], probes[done] = home[place[done]], READ, 1
    return Probes(float(looked.mean()), int(looked.max()), int((table[0] != EMPTY).sum()), len(np.unique(pack(blocks))))


def probe_evidence(cell: str, scene: Scene, config: VolumeConfig) -> list[dict[str, Any]]:
    """The findings of one cell, as rows of an archive's evidence.json."""
    index, voxels = (np.concatenate(part) for part in zip(*((i, v) for i, v, _ in walk(
        scene.points, scene.camera, config)), strict=True))  # fmt: skip
    blocks, counts = voxels >> 3, np.bincount(index, minlength=len(scene))
    home = block_hash(blocks, config.mask).astype(np.int64)
    found = {
        "key64": simulate(blocks, counts, home, config.mask, False),
        "three_words": simulate(blocks, counts, home, config.mask, True),
        "other_hash": simulate(blocks, counts, mixed_hash(blocks, config.mask), config.mask, False),
    }
    how = f"simulated in NumPy on {cell}: {len(scene)} threads in step, one memory operation a step each"
    rows = [{"name": "probes.slots", "value": config.slots, "unit": "slots", "how": how}]
    for name, probes in found.items():
        for key, value, unit in (
            ("mean", probes.mean, "slots"),
            ("max", probes.most, "slots"),
            ("entries", probes.entries, "slots"),
            ("blocks", probes.blocks, "blocks"),
        ):
            rows.append({"name": f"probes.{name}.{key}", "value": value, "unit": unit, "how": how})
    return rows
