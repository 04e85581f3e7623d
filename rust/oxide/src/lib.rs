//! rust/core under cuda-oxide: four ways to read a slot and to make an atomic addition, one kernel each.
//!
//! | kernel | first read of key, of index | atomics |
//! |---|---|---|
//! | `allocate_plain`, `update_plain` | plain, plain: the paper's final form | cuda_device's, generic addresses |
//! | `allocate_scoped` | plain, scoped: its first form | the same |
//! | `allocate_volatile` | volatile, volatile | the same |
//! | `allocate_global`, `update_global` | plain, plain | `.global` by inline PTX: our expert form |

#![no_std]
#![allow(clippy::too_many_arguments)]

pub mod fma;
mod target;

/// `#[kernel]` implements a trait of cuda-oxide's host crate for every kernel, so that a Rust program can launch it.
/// Nobody launches these from Rust; the trait alone spares building that crate and CUDA's bindings.
pub mod cuda_host {
    pub trait CudaKernel {
        const PTX_NAME: &'static str;
    }
}

use cuda_device::{kernel, thread};
use irr_core::{Camera, Target, Volume};

use target::{Generic, Global, Plain, Scoped, Volatile};

/// Number of this thread in the grid: one thread a point.
#[inline(always)]
fn thread_index() -> u32 {
    thread::blockIdx_x()
        .wrapping_mul(thread::blockDim_x())
        .wrapping_add(thread::threadIdx_x())
}

#[inline(always)]
unsafe fn allocate<T: Target>(volume: &Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    let camera = Camera { x: cx, y: cy, z: cz };
    unsafe { irr_core::allocate::<T>(volume, points, n, thread_index(), camera) }
}

#[inline(always)]
unsafe fn update<T: Target>(volume: &Volume, points: *const f32, colors: *const u8, n: i32, cx: f32, cy: f32, cz: f32) {
    let camera = Camera { x: cx, y: cy, z: cz };
    unsafe { irr_core::update::<T>(volume, points, colors, n, thread_index(), camera) }
}

/// # Safety
/// See [`irr_core::allocate`]; so for all of these.
#[kernel]
pub unsafe fn allocate_plain(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Generic<Plain>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`allocate_plain`].
#[kernel]
pub unsafe fn allocate_scoped(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Generic<Scoped>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`allocate_plain`].
#[kernel]
pub unsafe fn allocate_volatile(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Generic<Volatile>>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`allocate_plain`].
#[kernel]
pub unsafe fn allocate_global(volume: Volume, points: *const f32, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { allocate::<Global>(&volume, points, n, cx, cy, cz) }
}

/// # Safety
/// See [`irr_core::update`].
#[kernel]
pub unsafe fn update_plain(volume: Volume, points: *const f32, colors: *const u8, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { update::<Generic<Plain>>(&volume, points, colors, n, cx, cy, cz) }
}

/// # Safety
/// See [`irr_core::update`].
#[kernel]
pub unsafe fn update_global(volume: Volume, points: *const f32, colors: *const u8, n: i32, cx: f32, cy: f32, cz: f32) {
    unsafe { update::<Global>(&volume, points, colors, n, cx, cy, cz) }
}
