//! rust-nvptx/fma/*: the contraction study's programs. This compiler never contracts; both builds are the same code.

#![no_std]
#![feature(abi_ptx, asm_experimental_arch)]

use irr_nvptx::thread_index;

/// # Safety
/// See [`irr_fma::saxpy`].
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn saxpy(n: u32, a: f32, x: *const f32, y: *mut f32) {
    unsafe { irr_fma::saxpy(thread_index(), n, a, x, y) }
}

/// # Safety
/// See [`irr_fma::mandelbrot`].
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn mandelbrot(width: u32, height: u32, limit: u32, out: *mut i32) {
    unsafe { irr_fma::mandelbrot(thread_index(), width, height, limit, out) }
}

/// A width of 0 divides by zero, which Rust checks: the launch ends with an error instead of a picture.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    unsafe { core::arch::asm!("trap;", options(noreturn)) }
}
