//! The target operations of stock rustc's PTX: atomics and reads of `.global` addresses by inline assembly.
//!
//! The addresses are generic ones in Rust's types. Saying `.global` is what makes the float additions `RED` instead of
//! `ATOM` with a fall-back loop for shared memory (updates: 141 against 174 us at base on one H200), and the plain reads
//! `LDG` instead of `LD`, as nvcc has them.

#![no_std]
#![feature(asm_experimental_arch, stdarch_nvptx)]

use core::arch::{asm, nvptx};

use irr_core::{Target, Vector};

/// A GPU thread.
pub struct Nvptx;

impl Target for Nvptx {
    #[inline(always)]
    unsafe fn plain_key(key: *const i64) -> i64 {
        let found: i64;
        unsafe {
            asm!("ld.global.b64 {found}, [{key}];", found = out(reg64) found, key = in(reg64) key,
                options(readonly, nostack))
        };
        found
    }

    #[inline(always)]
    unsafe fn plain_index(index: *const i32) -> i32 {
        let found: i32;
        unsafe {
            asm!("ld.global.b32 {found}, [{index}];", found = out(reg32) found, index = in(reg64) index,
                options(readonly, nostack))
        };
        found
    }

    #[inline(always)]
    unsafe fn plain_weight(weight: *const f32) -> f32 {
        let found: f32;
        unsafe {
            asm!("ld.global.f32 {found}, [{weight}];", found = out(reg32) found, weight = in(reg64) weight,
                options(readonly, nostack))
        };
        found
    }

    #[inline(always)]
    unsafe fn reload_index(index: *const i32) -> i32 {
        unsafe { index.read_volatile() }
    }

    #[inline(always)]
    unsafe fn claim_key(slot: *mut i64, empty: i64, key: i64) -> i64 {
        let before: i64;
        unsafe {
            asm!("atom.global.relaxed.gpu.cas.b64 {before}, [{slot}], {empty}, {key};",
                before = out(reg64) before, slot = in(reg64) slot, empty = in(reg64) empty, key = in(reg64) key)
        };
        before
    }

    #[inline(always)]
    unsafe fn add_count(count: *mut i32, delta: i32) -> i32 {
        let before: i32;
        unsafe {
            asm!("atom.global.relaxed.gpu.add.s32 {before}, [{count}], {delta};",
                before = out(reg32) before, count = in(reg64) count, delta = in(reg32) delta)
        };
        before
    }

    #[inline(always)]
    unsafe fn publish_index(index: *mut i32, value: i32) {
        let _before: i32;
        unsafe {
            asm!("atom.global.relaxed.gpu.exch.b32 {before}, [{index}], {value};",
                before = out(reg32) _before, index = in(reg64) index, value = in(reg32) value)
        }
    }

    #[inline(always)]
    unsafe fn add_counter(counter: *mut u64) {
        unsafe { asm!("red.global.relaxed.gpu.add.u64 [{counter}], 1;", counter = in(reg64) counter) }
    }

    #[inline(always)]
    unsafe fn add_voxel(sum: *mut f32, value: f32) {
        unsafe {
            asm!("red.global.relaxed.gpu.add.f32 [{sum}], {value};", sum = in(reg64) sum, value = in(reg32) value)
        }
    }

    #[inline(always)]
    fn fence() {
        // What __threadfence is in CUDA C++.
        unsafe { asm!("fence.acq_rel.gpu;") }
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        let root: f32;
        unsafe {
            asm!("sqrt.rn.f32 {root}, {x};", root = out(reg32) root, x = in(reg32) x, options(pure, nomem, nostack))
        };
        root
    }

    #[inline(always)]
    fn floor_to_int(x: f32) -> i32 {
        let whole: i32;
        unsafe {
            asm!("cvt.rmi.s32.f32 {whole}, {x};", whole = out(reg32) whole, x = in(reg32) x, options(pure, nomem, nostack))
        };
        whole
    }
}

impl Vector for Nvptx {
    /// sm_90 and up.
    #[inline(always)]
    unsafe fn add_four(sums: *mut f32, [a, b, c, d]: [f32; 4]) {
        unsafe {
            asm!("red.global.relaxed.gpu.add.v4.f32 [{sums}], {{ {a}, {b}, {c}, {d} }};", sums = in(reg64) sums,
                a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d)
        }
    }
}

/// Number of this thread in the grid: one thread a point.
#[inline(always)]
pub fn thread_index() -> u32 {
    unsafe {
        (nvptx::_block_idx_x() as u32)
            .wrapping_mul(nvptx::_block_dim_x() as u32)
            .wrapping_add(nvptx::_thread_idx_x() as u32)
    }
}
