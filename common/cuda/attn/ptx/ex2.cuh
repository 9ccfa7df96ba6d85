// ex2.approx: 2^x in one instruction. PTX ISA, "Floating Point Instructions: ex2".
#pragma once

namespace attn {

// 2^x with a relative error of at most 2^-22, subnormal results flushed to 0; 0 for -inf. exp2f, which keeps subnormals,
// takes three instructions more.
static __device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

} // namespace attn
