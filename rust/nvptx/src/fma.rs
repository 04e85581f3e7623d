//! rust-nvptx/fma/*: the contraction study's programs. This compiler never contracts; both builds are the same code.

#![no_std]
#![feature(abi_ptx)]

#[path = "../../fma/study.rs"]
mod study;

use irr_nvptx::thread_index;

/// # Safety
/// See [`study::saxpy`].
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn saxpy(n: u32, a: f32, x: *const f32, y: *mut f32) {
    unsafe { study::saxpy(thread_index(), n, a, x, y) }
}

/// # Safety
/// See [`study::mandelbrot`].
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn mandelbrot(width: u32, height: u32, limit: u32, out: *mut i32) {
    unsafe { study::mandelbrot(thread_index(), width, height, limit, out) }
}
