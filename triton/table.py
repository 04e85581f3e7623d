"""The block table (algorithm: Table, Insert): keys, the hash, one probe, publication, and the wait for an index.

Three things are forced by the language and shape every kernel here:

* `tl.atomic_cas` takes no mask, so a lane that must not claim a slot compares and swaps -1 for -1 at a scratch address
  of its own; what it reads there is thrown away.
* An atomic wants a tensor of pointers: `pointer + zeros` where all lanes mean one address.
* A tile runs in step, so a lane's call ends when the tile's does.
"""

import triton
import triton.language as tl


@triton.jit
def block_key(bx, by, bz):
    """Keys (LANES,) i64, never negative, so that -1 is free for `empty`."""
    bias = 1 << 20
    return ((bx.to(tl.int64) + bias) << 42) | ((by.to(tl.int64) + bias) << 21) | (bz.to(tl.int64) + bias)


@triton.jit
def block_hash(bx, by, bz, mask):
    """First slot (LANES,) i32 of a key's probe."""
    mixed = (bx.to(tl.uint32) * 73856093) ^ (by.to(tl.uint32) * 19349663) ^ (bz.to(tl.uint32) * 83492791)
    return (mixed & mask.to(tl.uint32)).to(tl.int32)


@triton.jit
def key_at(volume, slot):
    """Addresses of the keys; an entry is two i64 (key; index and pad)."""
    return volume.table + 2 * slot.to(tl.int64)


@triton.jit
def index_at(volume, slot):
    """Addresses of the indices, i32."""
    return volume.table.to(tl.pointer_type(tl.int32)) + (4 * slot.to(tl.int64) + 2)


@triton.jit
def scratch_slot(scratch, LANES: tl.constexpr, SLOTS: tl.constexpr):
    """Scratch addresses: (program * LANES + lane) mod SLOTS. With SLOTS = LANES every program shares the same few."""
    return scratch + (tl.program_id(0) * LANES + tl.arange(0, LANES)) % SLOTS


@triton.jit
def publish(volume, slot, bx, by, bz, won):
    """What the winners of a slot do: take an index, write the coordinates, publish by a releasing exchange.

    Beyond the pool the tombstone -2 is published before the winner gives up, so a waiter always ends.
    """
    nothing = tl.zeros_like(slot)
    index = tl.atomic_add(volume.count + nothing, 1, mask=won, sem="relaxed")
    fits = won & (index < volume.capacity)
    spilled = won & (index >= volume.capacity)
    tl.store(volume.coords + 3 * index, bx, mask=fits)
    tl.store(volume.coords + 3 * index + 1, by, mask=fits)
    tl.store(volume.coords + 3 * index + 2, bz, mask=fits)
    tl.atomic_add(volume.count + nothing, -1, mask=spilled, sem="relaxed")
    tl.atomic_xchg(index_at(volume, slot), tl.where(fits, index, -2), mask=won, sem="release")
    count_failed(volume, spilled)


@triton.jit
def count_failed(volume, failed):
    """failed_inserts += 1 for every lane in `failed`."""
    here = volume.failed_inserts + tl.zeros_like(failed.to(tl.int32))
    tl.atomic_add(here, tl.full(failed.shape, 1, tl.int64), mask=failed, sem="relaxed")


@triton.jit
def claim(volume, slot, want, bx, by, bz, empty, scratch):
    """Compare-and-swap for the lanes that saw an empty slot; the rest swap at their scratch address.

    Returns:
        which lanes are done (they won the slot, or another lane had put the same key there), and which of them won.
    """
    nobody = tl.full(want.shape, -1, tl.int64)
    address = tl.where(empty, key_at(volume, slot), scratch)
    previous = tl.atomic_cas(address, nobody, tl.where(empty, want, nobody), sem="relaxed")
    won = empty & (previous == -1)
    publish(volume, slot, bx, by, bz, won)
    return won | (empty & (previous == want)), won


@triton.jit
def wait_index(volume, slot, waiting):
    """Read the index of each waiting lane: plainly once, then past L1 until no lane of the tile sees -1.

    Every winner of this tile has published before it comes here, so the loop waits for other programs only, and those
    are running: they have claimed a slot.
    """
    address = index_at(volume, slot)
    unpublished = waiting & (tl.load(address, mask=waiting, other=0) == -1)
    while tl.max(unpublished.to(tl.int32), 0) > 0:
        unpublished = unpublished & (tl.load(address, mask=unpublished, other=0, volatile=True) == -1)
