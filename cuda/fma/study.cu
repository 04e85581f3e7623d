// The contraction study's two programs, as the blog writes them: one point, one thread; every multiply and add is a
// plain operator, so the compiler alone decides which pairs become one fused operation.

extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

// Escape-time iterations of pixel (i % width, i / width) over [-2, 1] x [-1.5, 1.5]. Integer is int in the blog's C++
// source and unsigned in its Rust source. The loop is not shared with the one below: passing its pairs as a parameter
// gave 12 instructions and two branches instead of 11 and one.
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

// The three pairs that cuda-oxide's chain fuses, written out: what the fusions alone are worth in C++ (B14).
extern "C" __global__ void mandelbrot_oxide(int width, int height, int limit, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width * height) return;
  float cx = -2.0f + 3.0f * (float)(i % width) / (float)width;
  float cy = -1.5f + 3.0f * (float)(i / width) / (float)height;
  float zx = 0.0f, zy = 0.0f;
  int n = 0;
  while (n < limit && __fmaf_rn(zx, zx, zy * zy) <= 4.0f) {
    float t = __fmaf_rn(zx, zx, -(zy * zy)) + cx;
    zy = __fmaf_rn(2.0f * zx, zy, cy);
    zx = t;
    n++;
  }
  out[i] = n;
}
