//! The core on the host: std threads, and relaxed atomics where the GPU has plain loads that are meant to race.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use std::thread;

use irr_core::{Camera, Target, VOLUME_LAYOUT, Vector, Volume, designs};

mod strips;

/// Points that a thread takes at a time: one block of the GPU's grid.
const BLOCK_POINTS: u32 = 256;

/// A host thread.
struct Host;

impl Target for Host {
    #[inline(always)]
    unsafe fn plain_key(key: *const i64) -> i64 {
        unsafe { AtomicI64::from_ptr(key.cast_mut()) }.load(Ordering::Relaxed)
    }

    #[inline(always)]
    unsafe fn plain_index(index: *const i32) -> i32 {
        unsafe { AtomicI32::from_ptr(index.cast_mut()) }.load(Ordering::Relaxed)
    }

    #[inline(always)]
    unsafe fn plain_weight(weight: *const f32) -> f32 {
        f32::from_bits(unsafe { AtomicU32::from_ptr(weight.cast_mut().cast()) }.load(Ordering::Relaxed))
    }

    #[inline(always)]
    unsafe fn reload_index(index: *const i32) -> i32 {
        // With more threads than cores the publisher may not be running: let it.
        thread::yield_now();
        unsafe { AtomicI32::from_ptr(index.cast_mut()) }.load(Ordering::Relaxed)
    }

    #[inline(always)]
    unsafe fn claim_key(slot: *mut i64, empty: i64, key: i64) -> i64 {
        unsafe { AtomicI64::from_ptr(slot) }
            .compare_exchange(empty, key, Ordering::Relaxed, Ordering::Relaxed)
            .unwrap_or_else(|found| found)
    }

    #[inline(always)]
    unsafe fn add_count(count: *mut i32, delta: i32) -> i32 {
        unsafe { AtomicI32::from_ptr(count) }.fetch_add(delta, Ordering::Relaxed)
    }

    #[inline(always)]
    unsafe fn publish_index(index: *mut i32, value: i32) {
        unsafe { AtomicI32::from_ptr(index) }.swap(value, Ordering::Relaxed);
    }

    #[inline(always)]
    unsafe fn add_counter(counter: *mut u64) {
        unsafe { AtomicU64::from_ptr(counter) }.fetch_add(1, Ordering::Relaxed);
    }

    #[inline(always)]
    unsafe fn add_voxel(sum: *mut f32, value: f32) {
        // The host has no float atomic; the sum is exchanged until nobody came between.
        let sum = unsafe { AtomicU32::from_ptr(sum.cast()) };
        let mut bits = sum.load(Ordering::Relaxed);
        while let Err(found) = sum.compare_exchange_weak(
            bits,
            (f32::from_bits(bits) + value).to_bits(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            bits = found;
        }
    }

    #[inline(always)]
    fn fence() {
        fence(Ordering::AcqRel);
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        x.sqrt()
    }

    #[inline(always)]
    fn floor_to_int(x: f32) -> i32 {
        x.floor() as i32
    }
}

impl Vector for Host {
    #[inline(always)]
    unsafe fn add_four(sums: *mut f32, values: [f32; 4]) {
        for (k, value) in values.into_iter().enumerate() {
            unsafe { Host::add_voxel(sums.add(k), value) }
        }
    }
}

/// What the threads of one launch share. Its pointers are the caller's, valid for the whole call.
struct Inputs<'a> {
    volume: &'a Volume,
    points: *const f32,
    colors: *const u8,
    n: i32,
    camera: Camera,
}

// SAFETY: concurrent writes through the volume's pointers are atomics of `Host`, or a block's coordinates, which its one
// winner writes.
unsafe impl Sync for Inputs<'_> {}

/// One GPU thread's work.
type Kernel = unsafe fn(&Inputs, u32);

unsafe fn allocate(inputs: &Inputs, i: u32) {
    unsafe { irr_core::allocate::<Host>(inputs.volume, inputs.points, inputs.n, i, inputs.camera) }
}

unsafe fn allocate_nowait(inputs: &Inputs, i: u32) {
    unsafe { designs::allocate_nowait::<Host>(inputs.volume, inputs.points, inputs.n, i, inputs.camera) }
}

unsafe fn allocate_ray(inputs: &Inputs, i: u32) {
    unsafe { designs::allocate_ray::<Host>(inputs.volume, inputs.points, inputs.n, i, inputs.camera) }
}

unsafe fn allocate_walls(inputs: &Inputs, i: u32) {
    unsafe { designs::allocate_walls::<Host>(inputs.volume, inputs.points, inputs.n, i, inputs.camera) }
}

unsafe fn update(inputs: &Inputs, i: u32) {
    unsafe { irr_core::update::<Host>(inputs.volume, inputs.points, inputs.colors, inputs.n, i, inputs.camera) }
}

unsafe fn update_packed(inputs: &Inputs, i: u32) {
    unsafe {
        irr_core::update_packed::<Host, Host>(inputs.volume, inputs.points, inputs.colors, inputs.n, i, inputs.camera)
    }
}

/// Run `kernel` once a point.
fn launch(kernel: Kernel, inputs: &Inputs, threads: u32) {
    let blocks = (inputs.n.max(0) as u32).div_ceil(BLOCK_POINTS);
    strips::spread(blocks, threads, |block| {
        for i in block * BLOCK_POINTS..(block + 1) * BLOCK_POINTS {
            // The kernel itself leaves when i >= n, as on the GPU. SAFETY: `irr_launch`'s caller.
            unsafe { kernel(inputs, i) }
        }
    });
}

/// Run one kernel over `n` points on `threads` threads; 0, or -1 if there is no kernel of that name.
///
/// # Safety
/// The pointers are valid for what the volume and `n` say; `colors` may be null for a kernel that takes none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn irr_launch(
    entry: *const c_char,
    volume: *const Volume,
    points: *const f32,
    colors: *const u8,
    n: c_int,
    cx: f32,
    cy: f32,
    cz: f32,
    _scratch: *mut c_void,
    threads: c_int,
) -> c_int {
    let kernel: Kernel = match unsafe { CStr::from_ptr(entry) }.to_bytes() {
        b"allocate" => allocate,
        b"allocate_nowait" => allocate_nowait,
        b"allocate_ray" => allocate_ray,
        b"allocate_walls" => allocate_walls,
        b"update" => update,
        b"update_packed" => update_packed,
        _ => return -1,
    };
    let camera = Camera { x: cx, y: cy, z: cz };
    let inputs = Inputs {
        volume: unsafe { &*volume },
        points,
        colors,
        n,
        camera,
    };
    launch(kernel, &inputs, threads.max(1) as u32);
    0
}

/// Byte offsets of the volume's fields, for the ABI check.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static irr_volume_layout: [u32; VOLUME_LAYOUT.len()] = VOLUME_LAYOUT;
