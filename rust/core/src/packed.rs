//! Update of packed voxels: tsdf, weight, r, g of a voxel side by side in the memory of the first four arrays, b in its
//! own (cuda/device/packed.cuh).

use crate::band::{self, Camera};
use crate::insert;
use crate::target::Target;
use crate::update::{Color, truncated, voxel_offset};
use crate::volume::Volume;

/// A target that adds to four neighbouring floats by one operation.
pub trait Vector {
    /// Add to each of four sums; the four additions need not be seen at once.
    ///
    /// # Safety
    /// `sums` is valid for four floats and aligned to 16 bytes; other threads may add to them meanwhile.
    unsafe fn add_four(sums: *mut f32, values: [f32; 4]);
}

/// Otherwise as [`crate::update`].
///
/// # Safety
/// As for [`crate::update`]; the memory of tsdf, weight, r and g is one, aligned to 16 bytes.
#[inline(always)]
pub unsafe fn update_packed<T: Target, V: Vector>(
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
            let sums = volume.tsdf.add(4 * voxel);
            if volume.cap > 0.0 && T::plain_weight(sums.add(1)) >= volume.cap {
                return;
            }
            V::add_four(sums, [truncated(volume, sample.sdf), 1.0, color.r, color.g]);
            T::add_voxel(volume.b.add(voxel), color.b);
        })
    }
}
