// generated from harness/workload/volume.py: change the table there

#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Entry {
    pub key: i64,
    pub index: i32,
    pub pad: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Volume {
    /// hash table, mask + 1 entries
    pub table: *mut Entry,
    /// table size - 1, a power of two less one
    pub mask: u32,
    /// blocks in the pool
    pub capacity: i32,
    /// blocks built
    pub count: *mut i32,
    /// winners beyond the pool, exhausted probes
    pub failed_inserts: *mut u64,
    /// update samples that found no index
    pub dropped_points: *mut u64,
    /// block coordinates, three a block
    pub coords: *mut i32,
    /// sum of clamp(sdf / trunc, -1, 1)
    pub tsdf: *mut f32,
    /// sum of weights, 1 a sample
    pub weight: *mut f32,
    /// sum of red
    pub r: *mut f32,
    /// sum of green
    pub g: *mut f32,
    /// sum of blue
    pub b: *mut f32,
    /// voxel edge h, metres
    pub voxel: f32,
    /// 1 / h, rounded once by the host
    pub inv_voxel: f32,
    /// truncation, steps * h
    pub trunc: f32,
    /// 1 / trunc, rounded once by the host
    pub inv_trunc: f32,
    /// weight cap, 0 = off
    pub cap: f32,
    /// samples on each side of the point
    pub steps: i32,
}

/// What the ABI check reads back: size of Entry, of Volume, then offset and size of every field.
pub const VOLUME_LAYOUT: [u32; 38] = [
    size_of::<Entry>() as u32,
    size_of::<Volume>() as u32,
    core::mem::offset_of!(Volume, table) as u32,
    size_of::<*mut Entry>() as u32,
    core::mem::offset_of!(Volume, mask) as u32,
    size_of::<u32>() as u32,
    core::mem::offset_of!(Volume, capacity) as u32,
    size_of::<i32>() as u32,
    core::mem::offset_of!(Volume, count) as u32,
    size_of::<*mut i32>() as u32,
    core::mem::offset_of!(Volume, failed_inserts) as u32,
    size_of::<*mut u64>() as u32,
    core::mem::offset_of!(Volume, dropped_points) as u32,
    size_of::<*mut u64>() as u32,
    core::mem::offset_of!(Volume, coords) as u32,
    size_of::<*mut i32>() as u32,
    core::mem::offset_of!(Volume, tsdf) as u32,
    size_of::<*mut f32>() as u32,
    core::mem::offset_of!(Volume, weight) as u32,
    size_of::<*mut f32>() as u32,
    core::mem::offset_of!(Volume, r) as u32,
    size_of::<*mut f32>() as u32,
    core::mem::offset_of!(Volume, g) as u32,
    size_of::<*mut f32>() as u32,
    core::mem::offset_of!(Volume, b) as u32,
    size_of::<*mut f32>() as u32,
    core::mem::offset_of!(Volume, voxel) as u32,
    size_of::<f32>() as u32,
    core::mem::offset_of!(Volume, inv_voxel) as u32,
    size_of::<f32>() as u32,
    core::mem::offset_of!(Volume, trunc) as u32,
    size_of::<f32>() as u32,
    core::mem::offset_of!(Volume, inv_trunc) as u32,
    size_of::<f32>() as u32,
    core::mem::offset_of!(Volume, cap) as u32,
    size_of::<f32>() as u32,
    core::mem::offset_of!(Volume, steps) as u32,
    size_of::<i32>() as u32,
];
