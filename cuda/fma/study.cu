// The contraction study's two programs, as the blog writes them: one point, one thread; every multiply and add is a
// plain operator, so the compiler alone decides which pairs become one fused operation.

extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

// Escape-time iterations of pixel (i % width, i / width) over [-2, 1] x [-1.5, 1.5]. Integer is the only difference
// between the two entries: int is what the C++ source of the blog has, unsigned what its Rust source has.
template <class Integer>
__device__ __forceinline__ void escape_time(Integer width, Integer height, Integer limit, int* out) {
  Integer i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width * height) return;
  float cx = -2.0f + 3.0f * (float)(i % width) / (float)width;
  float cy = -1.5f + 3.0f * (float)(i / width) / (float)height;
  float zx = 0.0f, zy = 0.0f;
  Integer n = 0;
  while (n < limit && zx * zx + zy * zy <= 4.0f) {
    float t = zx * zx - zy * zy + cx;
    zy = 2.0f * zx * zy + cy;
    zx = t;
    n++;
  }
  out[i] = (int)n;
}

extern "C" __global__ void mandelbrot(int width, int height, int limit, int* out) {
  escape_time<int>(width, height, limit, out);
}

extern "C" __global__ void mandelbrot_u32(unsigned width, unsigned height, unsigned limit, int* out) {
  escape_time<unsigned>(width, height, limit, out);
}
