"""A point's band of samples (algorithm: Point, Sample): one lane a point, every operation one float32 rounding.

The kernels are compiled with enable_fp_fusion=False, so `a * b + c` stays two roundings. `while`, never `range`, walks
the band: the interpreter cannot take a runtime bound in `range` with NumPy 2.4 and later.
"""

import triton
import triton.language as tl


@triton.jit
def lane_points(n, LANES: tl.constexpr):
    """Indices (LANES,) i32 of this program's points, and which of them exist."""
    i = tl.program_id(0) * LANES + tl.arange(0, LANES)
    return i, i < n


@triton.jit
def view_ray(points, i, exists, cx, cy, cz):
    """The points, their unit directions from the camera, their distances in metres, and which are walked at all."""
    px = tl.load(points + 3 * i, mask=exists, other=0.0)
    py = tl.load(points + 3 * i + 1, mask=exists, other=0.0)
    pz = tl.load(points + 3 * i + 2, mask=exists, other=0.0)
    dx = px - cx
    dy = py - cy
    dz = pz - cz
    distance = tl.sqrt_rn(dx * dx + dy * dy + dz * dz)
    walked = exists & (distance > 1e-6)
    ux = tl.div_rn(dx, distance)
    uy = tl.div_rn(dy, distance)
    uz = tl.div_rn(dz, distance)
    return px, py, pz, ux, uy, uz, distance, walked


@triton.jit
def sample(volume, px, py, pz, ux, uy, uz, distance, cx, cy, cz, s):
    """Voxel (x, y, z) i32 of sample `s`, its signed distance in metres, and whether it passes the occlusion test."""
    t = s.to(tl.float32) * volume.voxel
    x = tl.floor((px + ux * t) * volume.inv_voxel).to(tl.int32)
    y = tl.floor((py + uy * t) * volume.inv_voxel).to(tl.int32)
    z = tl.floor((pz + uz * t) * volume.inv_voxel).to(tl.int32)
    ex = (x.to(tl.float32) + 0.5) * volume.voxel - cx
    ey = (y.to(tl.float32) + 0.5) * volume.voxel - cy
    ez = (z.to(tl.float32) + 0.5) * volume.voxel - cz
    sdf = distance - tl.sqrt_rn(ex * ex + ey * ey + ez * ez)
    return x, y, z, sdf, sdf >= -volume.trunc
