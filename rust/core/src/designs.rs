//! Other ways to allocate: the two designs that the paper tried and dropped (claim P41), and ours.

use crate::band::{self, Camera};
use crate::insert::{self, KEY_EMPTY};
use crate::target::Target;
use crate::volume::{Entry, Volume};

/// A block's index is the number of its slot: no counter, no publication, no wait.
///
/// What it breaks: indices go up to the mask, so the pool must be as large as the table. A block beyond the pool is in
/// the table and nowhere else. `count` is still kept, by an addition that nobody waits for.
///
/// # Safety
/// As for [`crate::allocate`].
#[inline(always)]
pub unsafe fn allocate_slot_index<T: Target>(volume: &Volume, points: *const f32, n: i32, i: u32, camera: Camera) {
    if i >= n as u32 {
        return;
    }
    unsafe {
        band::walk::<T, _>(volume, points, i, camera, |sample| {
            let [bx, by, bz] = sample.block();
            let key = insert::pack(bx, by, bz);
            let mut slot = insert::hash(bx, by, bz, volume.mask);
            let mut probe = 0u32;
            while probe <= volume.mask {
                let entry = volume.table.add(slot as usize);
                let mut found = T::plain_key(&raw const (*entry).key);
                if found == KEY_EMPTY {
                    found = T::claim_key(&raw mut (*entry).key, KEY_EMPTY, key);
                    if found == KEY_EMPTY {
                        store_coords(volume, slot as i32, bx, by, bz);
                        (*entry).index = slot as i32;
                        T::add_count(volume.count, 1);
                        return;
                    }
                }
                if found == key {
                    return;
                }
                slot = slot.wrapping_add(1) & volume.mask;
                probe = probe.wrapping_add(1);
            }
            T::add_counter(volume.failed_inserts);
        })
    }
}

#[inline(always)]
unsafe fn store_coords(volume: &Volume, index: i32, bx: i32, by: i32, bz: i32) {
    if index < volume.capacity {
        unsafe {
            let coords = volume.coords.add(3 * index as usize);
            *coords = bx;
            *coords.add(1) = by;
            *coords.add(2) = bz;
        }
    }
}

/// A target that can exchange a whole entry.
pub trait Wide {
    /// Store (`key`, `index`) if the entry is still as cleared (`empty` in both words); the key found there.
    ///
    /// # Safety
    /// `entry` is valid; other threads may exchange it meanwhile.
    unsafe fn claim_entry(entry: *mut Entry, empty: i64, key: i64, index: i32) -> i64;
}

/// Key and index are published by one 128-bit compare-exchange, so that nobody waits for an index.
///
/// What it breaks: the index must be taken before it is known who wins. A loser keeps its own for its next block; what
/// it still holds at the end is lost to the pool, and `count` counts it.
///
/// # Safety
/// As for [`crate::allocate`].
#[inline(always)]
pub unsafe fn allocate_wide<T: Target, W: Wide>(volume: &Volume, points: *const f32, n: i32, i: u32, camera: Camera) {
    if i >= n as u32 {
        return;
    }
    let mut spare = -1i32;
    unsafe {
        band::walk::<T, _>(volume, points, i, camera, |sample| {
            let [bx, by, bz] = sample.block();
            let key = insert::pack(bx, by, bz);
            let mut slot = insert::hash(bx, by, bz, volume.mask);
            let mut probe = 0u32;
            while probe <= volume.mask {
                let entry = volume.table.add(slot as usize);
                let mut found = T::plain_key(&raw const (*entry).key);
                if found == KEY_EMPTY {
                    if spare < 0 {
                        spare = T::add_count(volume.count, 1);
                    }
                    found = W::claim_entry(entry, KEY_EMPTY, key, spare);
                    if found == KEY_EMPTY {
                        store_coords(volume, spare, bx, by, bz);
                        spare = -1;
                        return;
                    }
                }
                if found == key {
                    return;
                }
                slot = slot.wrapping_add(1) & volume.mask;
                probe = probe.wrapping_add(1);
            }
            T::add_counter(volume.failed_inserts);
        })
    }
}

/// No wait for an index that allocate does not use.
///
/// # Safety
/// As for [`crate::allocate`].
#[inline(always)]
pub unsafe fn allocate_nowait<T: Target>(volume: &Volume, points: *const f32, n: i32, i: u32, camera: Camera) {
    if i >= n as u32 {
        return;
    }
    unsafe {
        band::walk::<T, _>(volume, points, i, camera, |sample| {
            let [bx, by, bz] = sample.block();
            insert::find_or_insert::<T, false>(volume, bx, by, bz);
        })
    }
}

/// No wait, and no question for the block that the ray is still in.
///
/// # Safety
/// As for [`crate::allocate`].
#[inline(always)]
pub unsafe fn allocate_ray<T: Target>(volume: &Volume, points: *const f32, n: i32, i: u32, camera: Camera) {
    if i >= n as u32 {
        return;
    }
    let mut last = [i32::MAX, 0, 0];
    unsafe {
        band::walk::<T, _>(volume, points, i, camera, |sample| {
            let block = sample.block();
            if block[0] != last[0] || block[1] != last[1] || block[2] != last[2] {
                last = block;
                insert::find_or_insert::<T, false>(volume, block[0], block[1], block[2]);
            }
        })
    }
}
