//! What a target must provide: the only operations that differ between a GPU and the host.

/// Atomics, reads and the two float functions of one target.
///
/// Three reads are intended to race and therefore have names. `plain_*` may be served from a cache that is not
/// coherent: a stale key costs one probe or one failed exchange, a stale index one more read, a stale weight one sample
/// beyond the cap. On one H200 that is the difference between an L1 hit rate of 53 % and of 21 to 28 % (a load that
/// must be coherent cannot be served from L1). `reload_index` must see other threads' writes in the end.
pub trait Target {
    /// First read of a slot's key.
    ///
    /// # Safety
    /// `key` is valid for reads; other threads may exchange it meanwhile. So for every pointer of this trait.
    unsafe fn plain_key(key: *const i64) -> i64;

    /// First read of a slot's index.
    ///
    /// # Safety
    /// See [`Target::plain_key`].
    unsafe fn plain_index(index: *const i32) -> i32;

    /// The weight as the cap test reads it.
    ///
    /// # Safety
    /// See [`Target::plain_key`].
    unsafe fn plain_weight(weight: *const f32) -> f32;

    /// Read an index that is being waited for, past any cache that is not coherent.
    ///
    /// # Safety
    /// See [`Target::plain_key`].
    unsafe fn reload_index(index: *const i32) -> i32;

    /// Claim an empty slot: store `key` if the slot holds `empty`; the key found there.
    ///
    /// # Safety
    /// See [`Target::plain_key`].
    unsafe fn claim_key(slot: *mut i64, empty: i64, key: i64) -> i64;

    /// Add to the number of blocks; the number before.
    ///
    /// # Safety
    /// See [`Target::plain_key`].
    unsafe fn add_count(count: *mut i32, delta: i32) -> i32;

    /// Publish an index, or the tombstone, by exchange.
    ///
    /// # Safety
    /// See [`Target::plain_key`].
    unsafe fn publish_index(index: *mut i32, value: i32);

    /// Add one to a loss counter.
    ///
    /// # Safety
    /// See [`Target::plain_key`].
    unsafe fn add_counter(counter: *mut u64);

    /// Add to a voxel's sum.
    ///
    /// # Safety
    /// See [`Target::plain_key`].
    unsafe fn add_voxel(sum: *mut f32, value: f32);

    /// Order the writes before it with those after it, as every thread of the device sees them.
    fn fence();

    /// Square root, rounded to nearest.
    fn sqrt(x: f32) -> f32;

    /// Largest integer not above x; the nearest one there is if that does not fit, 0 if x is not a number.
    ///
    /// One conversion on a GPU. `floor(x) as i32` says the same and became a rounding, a conversion, three comparisons
    /// and three selections, three times a sample: 17.3 against 15.0 us on a filled table at base on one H200.
    fn floor_to_int(x: f32) -> i32;
}
