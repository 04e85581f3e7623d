//! The hash table: hash, probe, claim, publish, wait.

use crate::target::Target;
use crate::volume::{Entry, Volume};

pub const KEY_EMPTY: i64 = -1;
/// Added to each block coordinate, so that three signed coordinates fit into 21 bits each.
const KEY_BIAS: i64 = 1 << 20;
const INDEX_TOMBSTONE: i32 = -2;
/// What a look-up gives when there is no such block; never stored.
const ABSENT: i32 = -1;

#[inline(always)]
pub fn hash(bx: i32, by: i32, bz: i32, mask: u32) -> u32 {
    let x = (bx as u32).wrapping_mul(73856093);
    let y = (by as u32).wrapping_mul(19349663);
    let z = (bz as u32).wrapping_mul(83492791);
    (x ^ y ^ z) & mask
}

#[inline(always)]
pub fn pack(bx: i32, by: i32, bz: i32) -> i64 {
    let x = (bx as i64).wrapping_add(KEY_BIAS);
    let y = (by as i64).wrapping_add(KEY_BIAS);
    let z = (bz as i64).wrapping_add(KEY_BIAS);
    (x << 42) | (y << 21) | z
}

/// The index of a slot whose key is ours: read once plainly, then past the cache until somebody published it.
///
/// It ends, because the thread that claimed the slot publishes an index or the tombstone before anything else.
#[inline(always)]
unsafe fn wait<T: Target>(entry: *mut Entry) -> i32 {
    unsafe {
        let mut index = T::plain_index(&raw const (*entry).index);
        while index < 0 {
            if index == INDEX_TOMBSTONE {
                return INDEX_TOMBSTONE;
            }
            index = T::reload_index(&raw const (*entry).index);
        }
        index
    }
}

/// The index where it is waited for; ABSENT, without a look at the slot, where it is not.
#[inline(always)]
unsafe fn index_of<T: Target, const WAIT: bool>(entry: *mut Entry) -> i32 {
    if WAIT { unsafe { wait::<T>(entry) } } else { ABSENT }
}

/// The block's index, inserting the block if it is new; negative if the pool or the table is full, and without WAIT
/// for a block that another thread inserts.
///
/// # Safety
/// `volume.table` holds `mask + 1` entries, `volume.coords` three integers for each of `capacity` blocks.
#[inline(always)]
pub unsafe fn find_or_insert<T: Target, const WAIT: bool>(volume: &Volume, bx: i32, by: i32, bz: i32) -> i32 {
    unsafe {
        let key = pack(bx, by, bz);
        let mut slot = hash(bx, by, bz, volume.mask);
        let mut probe = 0u32;
        while probe <= volume.mask {
            let entry = volume.table.add(slot as usize);
            let found = T::plain_key(&raw const (*entry).key);
            if found == key {
                return index_of::<T, WAIT>(entry);
            }
            if found == KEY_EMPTY {
                let before = T::claim_key(&raw mut (*entry).key, KEY_EMPTY, key);
                if before == KEY_EMPTY {
                    return publish::<T>(volume, entry, bx, by, bz);
                }
                if before == key {
                    return index_of::<T, WAIT>(entry);
                }
            }
            slot = slot.wrapping_add(1) & volume.mask;
            probe = probe.wrapping_add(1);
        }
        T::add_counter(volume.failed_inserts);
        ABSENT
    }
}

/// The winner's part: take the next index, write the coordinates, publish; or, with the pool full, publish the tombstone.
#[inline(always)]
unsafe fn publish<T: Target>(volume: &Volume, entry: *mut Entry, bx: i32, by: i32, bz: i32) -> i32 {
    unsafe {
        let index = T::add_count(volume.count, 1);
        if index >= volume.capacity {
            T::add_count(volume.count, -1);
            // Before giving up: whoever waits for this slot must end.
            T::publish_index(&raw mut (*entry).index, INDEX_TOMBSTONE);
            T::add_counter(volume.failed_inserts);
            return INDEX_TOMBSTONE;
        }
        let coords = volume.coords.add(3 * index as usize);
        *coords = bx;
        *coords.add(1) = by;
        *coords.add(2) = bz;
        T::fence();
        T::publish_index(&raw mut (*entry).index, index);
        index
    }
}

/// The block's index; negative if there is none. For a table that nobody is inserting into: an index that is not there
/// now will never be.
///
/// # Safety
/// As for [`find_or_insert`].
#[inline(always)]
pub unsafe fn find<T: Target>(volume: &Volume, bx: i32, by: i32, bz: i32) -> i32 {
    unsafe {
        let key = pack(bx, by, bz);
        let home = hash(bx, by, bz, volume.mask);
        let mut probe = 0u32;
        while probe <= volume.mask {
            // Counted from home, as in C++: with the slot itself stepped, an empty slot and a table gone round are two
            // branches a probe instead of one.
            let entry = volume.table.add((home.wrapping_add(probe) & volume.mask) as usize);
            let found = T::plain_key(&raw const (*entry).key);
            if found == key {
                return T::plain_index(&raw const (*entry).index);
            }
            if found == KEY_EMPTY {
                return ABSENT;
            }
            probe = probe.wrapping_add(1);
        }
        ABSENT
    }
}
