// The kernel of references on a GPU: in[0] is a ReferenceParams, whose buffers are the test's.
#include "kernel.h"

// CUDA's, where nothing is fused anyway. Not for the linker, which would merge the builds' code.
namespace {
__device__ inline double __dmul_rn(double a, double b) { return a * b; }
__device__ inline float __fmul_rn(float a, float b) { return a * b; }
__device__ inline double __dadd_rn(double a, double b) { return a + b; }
__device__ inline float __fadd_rn(float a, float b) { return a + b; }
} // namespace

#include "../../../src/reference/attend.cu"

KERNEL(reference_f64) { attend<double>(*in<ReferenceParams>(params)); }

KERNEL(reference_f32) { attend<float>(*in<ReferenceParams>(params)); }
