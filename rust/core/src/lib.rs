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
mod packed;
mod target;
mod update;
mod volume;

pub use band::{Camera, Sample};
pub use packed::{Vector, update_packed};
pub use target::Target;
pub use update::update;
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
