//! The contraction study's two programs, as the blog writes them: every multiply and add is a plain operator, so the
//! compiler alone decides which pairs become one fused operation. The same source for every Rust compiler.

#![no_std]

/// # Safety
/// `x` and `y` hold `n` values.
#[inline(always)]
pub unsafe fn saxpy(i: u32, n: u32, a: f32, x: *const f32, y: *mut f32) {
    if i < n {
        unsafe { *y.add(i as usize) = a * *x.add(i as usize) + *y.add(i as usize) }
    }
}

/// Escape-time iterations of pixel (i % width, i / width) over [-2, 1] x [-1.5, 1.5].
///
/// # Safety
/// `out` holds `width * height` values.
#[inline(always)]
pub unsafe fn mandelbrot(i: u32, width: u32, height: u32, limit: u32, out: *mut i32) {
    if i >= width.wrapping_mul(height) {
        return;
    }
    let cx = -2.0f32 + 3.0f32 * ((i % width) as f32) / (width as f32);
    let cy = -1.5f32 + 3.0f32 * ((i / width) as f32) / (height as f32);
    let (mut zx, mut zy) = (0.0f32, 0.0f32);
    let mut n: u32 = 0;
    while n < limit && zx * zx + zy * zy <= 4.0f32 {
        let t = zx * zx - zy * zy + cx;
        zy = 2.0f32 * zx * zy + cy;
        zx = t;
        n = n.wrapping_add(1);
    }
    unsafe { *out.add(i as usize) = n as i32 }
}
