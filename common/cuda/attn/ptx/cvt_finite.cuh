// cvt.rn.satfinite: two floats rounded to 16 bits each in one instruction. PTX ISA, "Data Movement and Conversion Instructions: cvt".
#pragma once

#include <attn/element.cuh>

namespace attn {

// Two floats as elements of O, the first in the low half. One that is too large for a number becomes the largest with its sign; NaN stays.
template <class Operand>
static __device__ __forceinline__ uint32_t pack_finite(float low, float high);

template <>
__device__ __forceinline__ uint32_t pack_finite<F16>(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <>
__device__ __forceinline__ uint32_t pack_finite<BF16>(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.satfinite.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

} // namespace attn
