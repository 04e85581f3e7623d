//! The walk through the truncation band along one ray.

use crate::target::Target;
use crate::volume::Volume;

/// Where the rays start, metres.
#[derive(Clone, Copy)]
pub struct Camera {
    pub x: f32,
    pub y: f32,
    pub z: f32,
}

/// One sample: its voxel and the signed distance of the voxel's centre, metres.
#[derive(Clone, Copy)]
pub struct Sample {
    pub x: i32,
    pub y: i32,
    pub z: i32,
    pub sdf: f32,
}

impl Sample {
    /// Coordinates of the block: an arithmetic shift, so that -1 lies in block -1.
    #[inline(always)]
    pub fn block(&self) -> [i32; 3] {
        [self.x >> 3, self.y >> 3, self.z >> 3]
    }

    /// Index of the voxel inside its block: x + 8 y + 64 z.
    #[inline(always)]
    pub fn local(&self) -> usize {
        ((self.x & 7) + 8 * (self.y & 7) + 64 * (self.z & 7)) as usize
    }
}

/// A point this close to the camera has no direction.
pub const NEAREST: f32 = 1e-6;

/// Hand every sample of point `i` that is not occluded to `visit`, from the near end of the band to the far end.
///
/// # Safety
/// `points` holds at least `3 * (i + 1)` floats.
#[inline(always)]
pub unsafe fn walk<T: Target, F: FnMut(Sample)>(
    volume: &Volume,
    points: *const f32,
    i: u32,
    camera: Camera,
    mut visit: F,
) {
    let (px, py, pz) = unsafe {
        let point = points.add(3 * i as usize);
        (*point, *point.add(1), *point.add(2))
    };
    let (dx, dy, dz) = (px - camera.x, py - camera.y, pz - camera.z);
    let dist = T::sqrt((dx * dx + dy * dy) + dz * dz);
    // Written so that a distance that is not a number is skipped too.
    if !(dist > NEAREST) {
        return;
    }
    let (ux, uy, uz) = (dx / dist, dy / dist, dz / dist);
    let mut s = -volume.steps;
    while s <= volume.steps {
        let t = s as f32 * volume.voxel;
        let x = T::floor_to_int((px + ux * t) * volume.inv_voxel);
        let y = T::floor_to_int((py + uy * t) * volume.inv_voxel);
        let z = T::floor_to_int((pz + uz * t) * volume.inv_voxel);
        let ex = (x as f32 + 0.5) * volume.voxel - camera.x;
        let ey = (y as f32 + 0.5) * volume.voxel - camera.y;
        let ez = (z as f32 + 0.5) * volume.voxel - camera.z;
        let sdf = dist - T::sqrt((ex * ex + ey * ey) + ez * ez);
        // Occlusion, the same in allocate and update: a voxel further behind the surface is not seen.
        if !(sdf < -volume.trunc) {
            visit(Sample { x, y, z, sdf });
        }
        s += 1;
    }
}
