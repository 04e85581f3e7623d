//! rust-oxide/fma/*: the contraction study's programs. cuda-oxide contracts unless it is told not to.

use cuda_device::kernel;

use crate::{cuda_host, thread_index};

/// # Safety
/// See [`irr_fma::saxpy`].
#[kernel]
pub unsafe fn saxpy(n: u32, a: f32, x: *const f32, y: *mut f32) {
    unsafe { irr_fma::saxpy(thread_index(), n, a, x, y) }
}

/// # Safety
/// See [`irr_fma::mandelbrot`].
#[kernel]
pub unsafe fn mandelbrot(width: u32, height: u32, limit: u32, out: *mut i32) {
    unsafe { irr_fma::mandelbrot(thread_index(), width, height, limit, out) }
}
