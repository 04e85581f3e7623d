//! The fusion of points into a hash-blocked TSDF, generic over the target's operations.
//!
//! The same bytes are compiled by stock rustc for the GPU (`rust/nvptx`), by cuda-oxide (`rust/oxide`) and for the
//! host (`rust/host`). What differs between them is one implementation of [`Target`] each; nothing here names a machine.
//!
//! Every float operation is one IEEE float32 operation rounded to nearest. rustc never contracts `a * b + c`.

#![no_std]

mod band;
pub mod designs;
mod insert;
mod target;
mod volume;

pub use band::{Camera, Sample};
pub use target::Target;
pub use volume::{Entry, VOLUME_LAYOUT, Volume};

/// Allocate: every sample's block gets a slot and, if the pool has room, an index.
///
/// # Safety
/// `points` holds `3 * n` floats; `volume` points to memory of the sizes that its `mask` and `capacity` say.
#[inline(always)]
pub unsafe fn allocate<T: Target>(volume: &Volume, points: *const f32, n: i32, i: u32, camera: Camera) {
    if i >= n as u32 {
        return;
    }
    unsafe {
        band::walk::<T, _>(volume, points, i, camera, |sample| {
            let [bx, by, bz] = sample.block();
            // The index is waited for, as the paper's kernels do, and then not used.
            insert::find_or_insert::<T, true>(volume, bx, by, bz);
        })
    }
}

/// Update: every sample adds weight 1, its clamped distance and its point's colour to its voxel.
///
/// # Safety
/// As for [`allocate`]; `colors` holds `3 * n` bytes.
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
        let color = colors.add(3 * i as usize);
        let (red, green, blue) = (*color as f32, *color.add(1) as f32, *color.add(2) as f32);
        band::walk::<T, _>(volume, points, i, camera, |sample| {
            let [bx, by, bz] = sample.block();
            let index = insert::find::<T>(volume, bx, by, bz);
            if index < 0 {
                T::add_counter(volume.dropped_points);
                return;
            }
            let voxel = index as usize * BLOCK_VOXELS + sample.local();
            // A plain read: which samples see the cap reached depends on the order of the threads.
            if volume.cap > 0.0 && T::plain_weight(volume.weight.add(voxel)) >= volume.cap {
                return;
            }
            let mut distance = sample.sdf * volume.inv_trunc;
            if distance < -1.0 {
                distance = -1.0;
            }
            if distance > 1.0 {
                distance = 1.0;
            }
            T::add_voxel(volume.weight.add(voxel), 1.0);
            T::add_voxel(volume.tsdf.add(voxel), distance);
            T::add_voxel(volume.r.add(voxel), red);
            T::add_voxel(volume.g.add(voxel), green);
            T::add_voxel(volume.b.add(voxel), blue);
        })
    }
}

/// Voxels a block: 8 x 8 x 8.
pub const BLOCK_VOXELS: usize = 512;
