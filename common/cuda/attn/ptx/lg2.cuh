// lg2.approx: log2(x) in one instruction. PTX ISA, "Floating Point Instructions: lg2".
#pragma once

namespace attn {

// log2(x) with an error of at most 2^-22.6 of it or, between 0.5 and 2, absolute; -inf for 0 and subnormals.
static __device__ __forceinline__ float log2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

} // namespace attn
