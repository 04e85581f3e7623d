//! The update of one sample, and what its variants have in common.

use crate::band::{self, Camera, Sample};
use crate::insert;
use crate::target::Target;
use crate::volume::Volume;

/// Voxels a block: 8 x 8 x 8.
const BLOCK_VOXELS: usize = 512;

/// A point's colour, 0 to 255 a channel.
#[derive(Clone, Copy)]
pub struct Color {
    pub r: f32,
    pub g: f32,
    pub b: f32,
}

impl Color {
    /// # Safety
    /// `colors` holds at least `3 * (i + 1)` bytes.
    #[inline(always)]
    pub unsafe fn of(colors: *const u8, i: u32) -> Self {
        unsafe {
            let color = colors.add(3 * i as usize);
            Color {
                r: *color as f32,
                g: *color.add(1) as f32,
                b: *color.add(2) as f32,
            }
        }
    }
}

/// Place of a sample's voxel in an array of the volume.
#[inline(always)]
pub fn voxel_offset(index: i32, sample: &Sample) -> usize {
    index as usize * BLOCK_VOXELS + sample.local()
}

/// The distance in units of the truncation, within [-1, 1].
#[inline(always)]
pub fn truncated(volume: &Volume, sdf: f32) -> f32 {
    let mut distance = sdf * volume.inv_trunc;
    if distance < -1.0 {
        distance = -1.0;
    }
    if distance > 1.0 {
        distance = 1.0;
    }
    distance
}

/// Update: every sample adds weight 1, its clamped distance and its point's colour to its voxel.
///
/// # Safety
/// As for [`crate::allocate`]; `colors` holds `3 * n` bytes.
#[inline(always)]
pub unsafe fn update<T: Target>(
    volume: &Volume,
    points: *const f32,
    colors: *const u8,
    n: i32,
    i: u32,
    camera: Camera,
) {
    if i >= n as u32 {
        return;
    }
    unsafe {
        let color = Color::of(colors, i);
        band::walk::<T, _>(volume, points, i, camera, |sample| {
            let [bx, by, bz] = sample.block();
            let index = insert::find::<T>(volume, bx, by, bz);
            if index < 0 {
                T::add_counter(volume.dropped_points);
                return;
            }
            let voxel = voxel_offset(index, &sample);
            // A plain read: which samples see the cap reached depends on the order of the threads.
            if volume.cap > 0.0 && T::plain_weight(volume.weight.add(voxel)) >= volume.cap {
                return;
            }
            let distance = truncated(volume, sample.sdf);
            T::add_voxel(volume.weight.add(voxel), 1.0);
            T::add_voxel(volume.tsdf.add(voxel), distance);
            T::add_voxel(volume.r.add(voxel), color.r);
            T::add_voxel(volume.g.add(voxel), color.g);
            T::add_voxel(volume.b.add(voxel), color.b);
        })
    }
}
