//! rust-nvptx/update/packed: four of a voxel's five sums side by side.

#![no_std]
#![feature(abi_ptx)]

use irr_core::{Camera, VOLUME_LAYOUT, Volume};
use irr_nvptx::{Nvptx, thread_index};

/// Read back by the ABI check.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static irr_volume_layout: [u32; VOLUME_LAYOUT.len()] = VOLUME_LAYOUT;

/// # Safety
/// See [`irr_core::update_packed`].
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn update_packed(
    volume: Volume,
    points: *const f32,
    colors: *const u8,
    n: i32,
    cx: f32,
    cy: f32,
    cz: f32,
) {
    let camera = Camera { x: cx, y: cy, z: cz };
    unsafe { irr_core::update_packed::<Nvptx, Nvptx>(&volume, points, colors, n, thread_index(), camera) }
}
