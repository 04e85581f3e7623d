//! The target operations for cuda-oxide.

use core::marker::PhantomData;

use cuda_device::atomic::AtomicOrdering::Relaxed;
use cuda_device::atomic::{DeviceAtomicF32, DeviceAtomicI32, DeviceAtomicI64, DeviceAtomicU64};
use cuda_device::fence::threadfence;
use cuda_device::ptx_asm;
use irr_core::Target;

/// How the first reads of a slot are made.
pub trait Reads {
    /// # Safety
    /// See [`Target::plain_key`].
    unsafe fn key(key: *const i64) -> i64;

    /// # Safety
    /// See [`Target::plain_key`].
    unsafe fn index(index: *const i32) -> i32;
}

/// Both plain, served from L1.
pub struct Plain;

impl Reads for Plain {
    #[inline(always)]
    unsafe fn key(key: *const i64) -> i64 {
        unsafe { *key }
    }

    #[inline(always)]
    unsafe fn index(index: *const i32) -> i32 {
        unsafe { *index }
    }
}

/// The index by a scoped atomic load, as one writes it who shares a location: coherent on the device, so never from L1.
pub struct Scoped;

impl Reads for Scoped {
    #[inline(always)]
    unsafe fn key(key: *const i64) -> i64 {
        unsafe { *key }
    }

    #[inline(always)]
    unsafe fn index(index: *const i32) -> i32 {
        unsafe { reload(index) }
    }
}

/// Both volatile.
pub struct Volatile;

impl Reads for Volatile {
    #[inline(always)]
    unsafe fn key(key: *const i64) -> i64 {
        unsafe { key.read_volatile() }
    }

    #[inline(always)]
    unsafe fn index(index: *const i32) -> i32 {
        unsafe { index.read_volatile() }
    }
}

#[inline(always)]
unsafe fn reload(index: *const i32) -> i32 {
    unsafe { DeviceAtomicI32::from_ptr(index as *mut i32).load(Relaxed) }
}

/// sqrt.rn: `f32::sqrt` would be a library call, which switches cuda-oxide to an older dialect below Blackwell.
#[inline(always)]
fn sqrt(x: f32) -> f32 {
    let mut root = 0.0f32;
    unsafe { ptx_asm!("sqrt.rn.f32 %0, %1;", out("=f") root, in("f") x, options(register_only)) };
    root
}

/// Inline for the same reason.
#[inline(always)]
fn floor_to_int(x: f32) -> i32 {
    let mut whole = 0i32;
    unsafe { ptx_asm!("cvt.rmi.s32.f32 %0, %1;", out("=r") whole, in("f") x, options(register_only)) };
    whole
}

/// cuda_device's own atomics. Their addresses are generic, so a float addition becomes ATOM with a fall-back loop for
/// shared memory instead of RED (updates: 174 against 140 us at base on one H200).
pub struct Generic<R>(PhantomData<R>);

impl<R: Reads> Target for Generic<R> {
    #[inline(always)]
    unsafe fn plain_key(key: *const i64) -> i64 {
        unsafe { R::key(key) }
    }

    #[inline(always)]
    unsafe fn plain_index(index: *const i32) -> i32 {
        unsafe { R::index(index) }
    }

    #[inline(always)]
    unsafe fn plain_weight(weight: *const f32) -> f32 {
        unsafe { *weight }
    }

    #[inline(always)]
    unsafe fn reload_index(index: *const i32) -> i32 {
        unsafe { reload(index) }
    }

    #[inline(always)]
    unsafe fn claim_key(slot: *mut i64, empty: i64, key: i64) -> i64 {
        match unsafe { DeviceAtomicI64::from_ptr(slot) }.compare_exchange(empty, key, Relaxed, Relaxed) {
            Ok(before) => before,
            Err(before) => before,
        }
    }

    #[inline(always)]
    unsafe fn add_count(count: *mut i32, delta: i32) -> i32 {
        unsafe { DeviceAtomicI32::from_ptr(count) }.fetch_add(delta, Relaxed)
    }

    #[inline(always)]
    unsafe fn publish_index(index: *mut i32, value: i32) {
        unsafe { DeviceAtomicI32::from_ptr(index) }.swap(value, Relaxed);
    }

    #[inline(always)]
    unsafe fn add_counter(counter: *mut u64) {
        unsafe { DeviceAtomicU64::from_ptr(counter) }.fetch_add(1, Relaxed);
    }

    #[inline(always)]
    unsafe fn add_voxel(sum: *mut f32, value: f32) {
        unsafe { DeviceAtomicF32::from_ptr(sum) }.fetch_add(value, Relaxed);
    }

    #[inline(always)]
    fn fence() {
        threadfence()
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        sqrt(x)
    }

    #[inline(always)]
    fn floor_to_int(x: f32) -> i32 {
        floor_to_int(x)
    }
}

/// Atomics that say `.global`.
pub struct Global;

impl Target for Global {
    #[inline(always)]
    unsafe fn plain_key(key: *const i64) -> i64 {
        unsafe { *key }
    }

    #[inline(always)]
    unsafe fn plain_index(index: *const i32) -> i32 {
        unsafe { *index }
    }

    #[inline(always)]
    unsafe fn plain_weight(weight: *const f32) -> f32 {
        unsafe { *weight }
    }

    #[inline(always)]
    unsafe fn reload_index(index: *const i32) -> i32 {
        unsafe { reload(index) }
    }

    #[inline(always)]
    unsafe fn claim_key(slot: *mut i64, empty: i64, key: i64) -> i64 {
        let mut before = 0i64;
        unsafe {
            ptx_asm!("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;", out("=l") before, in("l") slot as u64,
                in("l") empty, in("l") key, clobber("memory"))
        };
        before
    }

    #[inline(always)]
    unsafe fn add_count(count: *mut i32, delta: i32) -> i32 {
        let mut before = 0i32;
        unsafe {
            ptx_asm!("atom.relaxed.gpu.global.add.s32 %0, [%1], %2;", out("=r") before, in("l") count as u64,
                in("r") delta, clobber("memory"))
        };
        before
    }

    #[inline(always)]
    unsafe fn publish_index(index: *mut i32, value: i32) {
        let mut _before = 0i32;
        unsafe {
            ptx_asm!("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;", out("=r") _before, in("l") index as u64,
                in("r") value, clobber("memory"))
        };
    }

    #[inline(always)]
    unsafe fn add_counter(counter: *mut u64) {
        unsafe {
            ptx_asm!("red.relaxed.gpu.global.add.u64 [%0], %1;", in("l") counter as u64, in("l") 1u64, clobber("memory"))
        };
    }

    #[inline(always)]
    unsafe fn add_voxel(sum: *mut f32, value: f32) {
        unsafe {
            ptx_asm!("red.relaxed.gpu.global.add.f32 [%0], %1;", in("l") sum as u64, in("f") value, clobber("memory"))
        };
    }

    #[inline(always)]
    fn fence() {
        threadfence()
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        sqrt(x)
    }

    #[inline(always)]
    fn floor_to_int(x: f32) -> i32 {
        floor_to_int(x)
    }
}
