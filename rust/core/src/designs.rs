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

/// Beyond this many voxels from the camera, or the camera from the origin, every sample is walked: cuda/walls.cuh.
const NEAR_VOXELS: f32 = 16384.0;

/// A sample's place along one axis, in voxels; rounded as in the walk.
#[inline(always)]
fn along(volume: &Volume, p: f32, u: f32, s: i32) -> f32 {
    (p + u * (s as f32 * volume.voxel)) * volume.inv_voxel
}

/// The blocks of a ray between its first and its last sample along one axis: the lower one, and the wall to the next.
#[derive(Clone, Copy)]
struct Axis {
    low: i32,
    wall: f32,
    apart: i32,
}

#[inline(always)]
fn axis(a: i32, b: i32) -> Axis {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    let wall = if low == high { f32::INFINITY } else { (8 * high) as f32 };
    Axis {
        low,
        wall,
        apart: high - low,
    }
}

/// The ray's blocks by the walls between them, each asked for once and no index waited for. The argument why no sample
/// needs to be looked at, and why only the last one can be occluded, stands in cuda/walls.cuh.
///
/// # Safety
/// As for [`crate::allocate`].
#[inline(always)]
pub unsafe fn allocate_walls<T: Target>(volume: &Volume, points: *const f32, n: i32, i: u32, camera: Camera) {
    if i >= n as u32 {
        return;
    }
    let (px, py, pz) = unsafe {
        let point = points.add(3 * i as usize);
        (*point, *point.add(1), *point.add(2))
    };
    let (dx, dy, dz) = (px - camera.x, py - camera.y, pz - camera.z);
    let dist = T::sqrt((dx * dx + dy * dy) + dz * dz);
    if !(dist > band::NEAREST) {
        return;
    }
    let reach = NEAR_VOXELS * volume.voxel;
    let within = |c: f32| c < reach && c > -reach;
    if !(dist < reach && within(camera.x) && within(camera.y) && within(camera.z)) {
        return unsafe { allocate_nowait::<T>(volume, points, n, i, camera) };
    }
    let (ux, uy, uz) = (dx / dist, dy / dist, dz / dist);
    let first = -volume.steps;
    let mut last = volume.steps;
    let x = T::floor_to_int(along(volume, px, ux, last));
    let y = T::floor_to_int(along(volume, py, uy, last));
    let z = T::floor_to_int(along(volume, pz, uz, last));
    let ex = (x as f32 + 0.5) * volume.voxel - camera.x;
    let ey = (y as f32 + 0.5) * volume.voxel - camera.y;
    let ez = (z as f32 + 0.5) * volume.voxel - camera.z;
    if dist - T::sqrt((ex * ex + ey * ey) + ez * ez) < -volume.trunc {
        last -= 1;
    }
    if last < first {
        return;
    }
    let ax = axis(T::floor_to_int(along(volume, px, ux, first)) >> 3, x >> 3);
    let ay = axis(T::floor_to_int(along(volume, py, uy, first)) >> 3, y >> 3);
    let az = axis(T::floor_to_int(along(volume, pz, uz, first)) >> 3, z >> 3);
    if ax.apart > 1 || ay.apart > 1 || az.apart > 1 {
        return unsafe { allocate_nowait::<T>(volume, points, n, i, camera) };
    }
    let mut seen = 0u32;
    let mut s = first;
    while s <= last {
        let code = (along(volume, px, ux, s) >= ax.wall) as u32
            | ((along(volume, py, uy, s) >= ay.wall) as u32) << 1
            | ((along(volume, pz, uz, s) >= az.wall) as u32) << 2;
        seen |= 1 << code;
        s += 1;
    }
    while seen != 0 {
        let bit = seen & seen.wrapping_neg();
        seen ^= bit;
        let bx = ax.low + (bit & 0xaa != 0) as i32;
        let by = ay.low + (bit & 0xcc != 0) as i32;
        let bz = az.low + (bit & 0xf0 != 0) as i32;
        unsafe { insert::find_or_insert::<T, false>(volume, bx, by, bz) };
    }
}
