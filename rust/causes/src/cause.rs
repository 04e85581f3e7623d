//! What a cause changes of cuda-oxide's target; everything else is `rust-oxide/allocate/plain`'s.

use core::marker::PhantomData;

use cuda_device::atomic::AtomicOrdering::Relaxed;
use cuda_device::atomic::{BlockAtomicI32, BlockAtomicI64, SystemAtomicI32, SystemAtomicI64};
use cuda_device::ptx_asm;
use irr_core::Target;

use crate::target::{Generic, Plain};
use crate::thread_index;

type Unchanged = Generic<Plain>;

/// The operations that a cause may change.
pub trait Cause {
    /// # Safety
    /// See [`Target::plain_key`]; so for all of these.
    #[inline(always)]
    unsafe fn plain_index(index: *const i32) -> i32 {
        unsafe { Unchanged::plain_index(index) }
    }

    /// # Safety
    /// See [`Target::plain_key`].
    #[inline(always)]
    unsafe fn claim_key(slot: *mut i64, empty: i64, key: i64) -> i64 {
        unsafe { Unchanged::claim_key(slot, empty, key) }
    }

    /// # Safety
    /// See [`Target::plain_key`].
    #[inline(always)]
    unsafe fn add_count(count: *mut i32, delta: i32) -> i32 {
        unsafe { Unchanged::add_count(count, delta) }
    }

    /// # Safety
    /// See [`Target::plain_key`].
    #[inline(always)]
    unsafe fn publish_index(index: *mut i32, value: i32) {
        unsafe { Unchanged::publish_index(index, value) }
    }

    #[inline(always)]
    fn fence() {
        Unchanged::fence()
    }

    #[inline(always)]
    fn floor_to_int(x: f32) -> i32 {
        Unchanged::floor_to_int(x)
    }
}

/// Clamp: the language's own conversion. `as` saturates and makes 0 of what is not a number, with comparisons and
/// selections that the hardware's conversion does not need. Breaks nothing.
pub struct Clamp;

impl Cause for Clamp {
    #[inline(always)]
    fn floor_to_int(x: f32) -> i32 {
        let mut whole = 0.0f32;
        unsafe { ptx_asm!("cvt.rmi.f32.f32 %0, %1;", out("=f") whole, in("f") x, options(register_only)) };
        whole as i32
    }
}

/// Dynamic compare-exchanges: the key is read again, past L1, before one is tried. Breaks nothing.
pub struct FewerExchanges;

impl Cause for FewerExchanges {
    #[inline(always)]
    unsafe fn claim_key(slot: *mut i64, empty: i64, key: i64) -> i64 {
        let found = unsafe { slot.read_volatile() };
        if found != empty {
            return found;
        }
        unsafe { Unchanged::claim_key(slot, empty, key) }
    }
}

/// Scope of one block: too narrow, since other blocks claim the same slots. Breaks the contract; whether a gate sees it
/// is the hardware's business (atomics on global memory are made in L2 whatever their scope). The scope reaches the
/// compare-exchange only: at the pinned revision cuda-oxide writes every `swap` without one, which is the device's.
pub struct BlockScope;

impl Cause for BlockScope {
    #[inline(always)]
    unsafe fn claim_key(slot: *mut i64, empty: i64, key: i64) -> i64 {
        match unsafe { BlockAtomicI64::from_ptr(slot) }.compare_exchange(empty, key, Relaxed, Relaxed) {
            Ok(before) | Err(before) => before,
        }
    }

    #[inline(always)]
    unsafe fn publish_index(index: *mut i32, value: i32) {
        unsafe { BlockAtomicI32::from_ptr(index) }.swap(value, Relaxed);
    }
}

/// Scope of the whole system: wider than needed. Breaks nothing.
pub struct SystemScope;

impl Cause for SystemScope {
    #[inline(always)]
    unsafe fn claim_key(slot: *mut i64, empty: i64, key: i64) -> i64 {
        match unsafe { SystemAtomicI64::from_ptr(slot) }.compare_exchange(empty, key, Relaxed, Relaxed) {
            Ok(before) | Err(before) => before,
        }
    }

    #[inline(always)]
    unsafe fn publish_index(index: *mut i32, value: i32) {
        unsafe { SystemAtomicI32::from_ptr(index) }.swap(value, Relaxed);
    }
}

/// Counter: an index made of the thread's number. Breaks the numbering of the blocks, and nothing is counted.
pub struct NoCounter;

impl Cause for NoCounter {
    #[inline(always)]
    unsafe fn add_count(_count: *mut i32, _delta: i32) -> i32 {
        (thread_index() & 1023) as i32
    }
}

/// Fence: the coordinates may be seen after the index. Nobody reads them before the kernel ends, so no gate sees it.
pub struct NoFence;

impl Cause for NoFence {
    #[inline(always)]
    fn fence() {}
}

/// Wait: the index is not asked for. Breaks nothing, since allocate does not use it.
pub struct NoWait;

impl Cause for NoWait {
    #[inline(always)]
    unsafe fn plain_index(_index: *const i32) -> i32 {
        0
    }
}

/// Store: nothing is published, and nothing is waited for, since a waiter would never end. Breaks every look-up.
pub struct NoStore;

impl Cause for NoStore {
    #[inline(always)]
    unsafe fn plain_index(_index: *const i32) -> i32 {
        0
    }

    #[inline(always)]
    unsafe fn publish_index(_index: *mut i32, _value: i32) {}
}

/// cuda-oxide's target with one cause changed.
pub struct Changed<C>(PhantomData<C>);

impl<C: Cause> Target for Changed<C> {
    #[inline(always)]
    unsafe fn plain_key(key: *const i64) -> i64 {
        unsafe { Unchanged::plain_key(key) }
    }

    #[inline(always)]
    unsafe fn plain_index(index: *const i32) -> i32 {
        unsafe { C::plain_index(index) }
    }

    #[inline(always)]
    unsafe fn plain_weight(weight: *const f32) -> f32 {
        unsafe { Unchanged::plain_weight(weight) }
    }

    #[inline(always)]
    unsafe fn reload_index(index: *const i32) -> i32 {
        unsafe { Unchanged::reload_index(index) }
    }

    #[inline(always)]
    unsafe fn claim_key(slot: *mut i64, empty: i64, key: i64) -> i64 {
        unsafe { C::claim_key(slot, empty, key) }
    }

    #[inline(always)]
    unsafe fn add_count(count: *mut i32, delta: i32) -> i32 {
        unsafe { C::add_count(count, delta) }
    }

    #[inline(always)]
    unsafe fn publish_index(index: *mut i32, value: i32) {
        unsafe { C::publish_index(index, value) }
    }

    #[inline(always)]
    unsafe fn add_counter(counter: *mut u64) {
        unsafe { Unchanged::add_counter(counter) }
    }

    #[inline(always)]
    unsafe fn add_voxel(sum: *mut f32, value: f32) {
        unsafe { Unchanged::add_voxel(sum, value) }
    }

    #[inline(always)]
    fn fence() {
        C::fence()
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        Unchanged::sqrt(x)
    }

    #[inline(always)]
    fn floor_to_int(x: f32) -> i32 {
        C::floor_to_int(x)
    }
}
