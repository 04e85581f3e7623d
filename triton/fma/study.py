"""The contraction study's two programs in Triton, one point a lane. Every operation is a plain operator, so the
compiler alone decides what it fuses (enable_fp_fusion); division is rounded to nearest, as in the other languages."""

import triton
import triton.language as tl


@triton.jit
def saxpy(n, a, x, y, LANES: tl.constexpr):
    i = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = i < n
    result = a * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside)
    tl.store(y + i, result, mask=inside)


@triton.jit
def mandelbrot(width, height, limit, out, LANES: tl.constexpr):
    i = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = i < width * height
    cx = -2.0 + tl.div_rn(3.0 * (i % width).to(tl.float32), width.to(tl.float32) + tl.zeros([LANES], tl.float32))
    cy = -1.5 + tl.div_rn(3.0 * (i // width).to(tl.float32), height.to(tl.float32) + tl.zeros([LANES], tl.float32))
    zx = tl.zeros([LANES], tl.float32)
    zy = tl.zeros([LANES], tl.float32)
    n = tl.zeros([LANES], tl.int32)
    # A tile has one loop: it runs until its last lane has ended, and lanes that have ended keep their count.
    alive = inside & (n < limit)
    while tl.max(alive.to(tl.int32), 0) > 0:
        alive = alive & (zx * zx + zy * zy <= 4.0) & (n < limit)
        t = zx * zx - zy * zy + cx
        zy = 2.0 * zx * zy + cy
        zx = t
        n += alive.to(tl.int32)
    tl.store(out + i, n, mask=inside)
