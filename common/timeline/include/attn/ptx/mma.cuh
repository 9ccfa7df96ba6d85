// As the plain header has it, with notes.
#pragma once

#include <attn/timeline.cuh>

#define mma_m16n8k16_f16_f32 plain_mma_m16n8k16_f16_f32
#define mma_m16n8k16_bf16_f32 plain_mma_m16n8k16_bf16_f32
#define mma_m16n8k32_e4m3_f32 plain_mma_m16n8k32_e4m3_f32
#include_next <attn/ptx/mma.cuh>
#undef mma_m16n8k16_f16_f32
#undef mma_m16n8k16_bf16_f32
#undef mma_m16n8k32_e4m3_f32

namespace attn {

static __device__ __forceinline__ void mma_m16n8k16_f16_f32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                                            int line = __builtin_LINE()) {
    timeline::run<timeline::WARP_PRODUCT>(line);
    plain_mma_m16n8k16_f16_f32(d, a, b);
}

static __device__ __forceinline__ void mma_m16n8k16_bf16_f32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                                             int line = __builtin_LINE()) {
    timeline::run<timeline::WARP_PRODUCT>(line);
    plain_mma_m16n8k16_bf16_f32(d, a, b);
}

static __device__ __forceinline__ void mma_m16n8k32_e4m3_f32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                                             int line = __builtin_LINE()) {
    timeline::run<timeline::WARP_PRODUCT>(line);
    plain_mma_m16n8k32_e4m3_f32(d, a, b);
}

} // namespace attn
