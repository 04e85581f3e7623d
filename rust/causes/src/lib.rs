//! The causes of Rust's allocate gap that the paper tried, one kernel each (claim P29), and its two failed designs (P41).
//!
//! | kernel | what it changes of `rust-oxide/allocate/plain` | what that breaks |
//! |---|---|---|
//! | `allocate_clamp` | float to integer by `as` | nothing |
//! | `allocate_reread` | the key is read again before a compare-exchange | nothing |
//! | `allocate_cta`, `allocate_sys` | scope of compare-exchange and exchange | cta: the contract; sys: nothing |
//! | `allocate_nocounter` | index from the thread's number | numbering and count of the blocks |
//! | `allocate_nofence` | no fence before the publication | nothing that a gate sees |
//! | `allocate_nowait` | no wait for the index | nothing |
//! | `allocate_nostore` | neither publication nor wait | every look-up |
//! | `allocate_slotindex` | index = slot | the pool must be as large as the table |
//! | `allocate_cas128` | key and index claimed by one 128-bit exchange | a loser's index is lost to the pool |

#![no_std]
#![allow(clippy::too_many_arguments)]

mod cause;
#[path = "../../oxide/src/target.rs"]
#[allow(dead_code)]
mod target;

/// See rust/oxide/src/lib.rs.
pub mod cuda_host {
    pub trait CudaKernel {
        const PTX_NAME: &'static str;
    }
}

use cuda_device::{kernel, ptx_asm, thread};
use irr_core::designs::{self, Wide};
use irr_core::{Camera, Entry, Target, Volume};

use cause::{BlockScope, Changed, Clamp, FewerExchanges, NoCounter, NoFence, NoStore, NoWait, SystemScope};
use target::{Generic, Plain};

/// Number of this thread in the grid: one thread a point.
#[inline(always)]
pub fn thread_index() -> u32 {
    thread::blockIdx_x()
        .wrapping_mul(thread::blockDim_x())
        .wrapping_add(thread::threadIdx_x())
}

#[inline(always)]
unsafe fn allocate<T: Target>(volume: &Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    let camera = Camera { x: cx, y: cy, z: cz };
    unsafe { irr_core::allocate::<T>(volume, points, n, thread_index(), camera) }
}

/// # Safety
/// See [`irr_core::allocate`].
#[kernel]
pub unsafe fn allocate_clamp(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Changed<Clamp>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`irr_core::allocate`].
#[kernel]
pub unsafe fn allocate_reread(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Changed<FewerExchanges>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`irr_core::allocate`].
#[kernel]
pub unsafe fn allocate_cta(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Changed<BlockScope>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`irr_core::allocate`].
#[kernel]
pub unsafe fn allocate_sys(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Changed<SystemScope>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`irr_core::allocate`].
#[kernel]
pub unsafe fn allocate_nocounter(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Changed<NoCounter>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`irr_core::allocate`].
#[kernel]
pub unsafe fn allocate_nofence(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Changed<NoFence>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`irr_core::allocate`].
#[kernel]
pub unsafe fn allocate_nowait(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Changed<NoWait>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`irr_core::allocate`].
#[kernel]
pub unsafe fn allocate_nostore(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Changed<NoStore>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`irr_core::allocate`].
#[kernel]
pub unsafe fn allocate_slotindex(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    let camera = Camera { x: cx, y: cy, z: cz };
    unsafe { designs::allocate_slot_index::<Generic<Plain>>(&volume, points, n, thread_index(), camera) }
}

/// The 128-bit exchange: sm_90 and up.
struct Exchange128;

impl Wide for Exchange128 {
    #[inline(always)]
    unsafe fn claim_entry(entry: *mut Entry, empty: i64, key: i64, index: i32) -> i64 {
        let mut before = 0i64;
        let mut _rest = 0i64;
        let value = index as u32 as i64;
        unsafe {
            ptx_asm!(
                "{ .reg .b128 expected, desired, found; mov.b128 expected, {%3, %3}; mov.b128 desired, {%4, %5}; atom.relaxed.gpu.global.cas.b128 found, [%2], expected, desired; mov.b128 {%0, %1}, found; }",
                out("=l") before, out("=l") _rest, in("l") entry as u64, in("l") empty, in("l") key, in("l") value,
                clobber("memory")
            )
        };
        before
    }
}

/// # Safety
/// See [`irr_core::allocate`].
#[kernel]
pub unsafe fn allocate_cas128(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    let camera = Camera { x: cx, y: cy, z: cz };
    unsafe { designs::allocate_wide::<Generic<Plain>, Exchange128>(&volume, points, n, thread_index(), camera) }
}
