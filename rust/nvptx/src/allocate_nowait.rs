//! rust-nvptx/allocate/nowait: without the wait.

#![no_std]
#![feature(abi_ptx)]

use irr_core::{Camera, VOLUME_LAYOUT, Volume, designs};
use irr_nvptx::{Nvptx, thread_index};

/// Read back by the ABI check.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static irr_volume_layout: [u32; VOLUME_LAYOUT.len()] = VOLUME_LAYOUT;

/// # Safety
/// See [`designs::allocate_nowait`].
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn allocate_nowait(
    volume: Volume,
    points: *const f32,
    n: i32,
    cx: f32,
    cy: f32,
    cz: f32,
) {
    let camera = Camera { x: cx, y: cy, z: cz };
    unsafe { designs::allocate_nowait::<Nvptx>(&volume, points, n, thread_index(), camera) }
}
