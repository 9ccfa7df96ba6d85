// As the plain header has it, with notes. Without notes: matrix_descriptor, wgmma_fence and fence_operands, which wait for nobody.
#pragma once

#include <attn/timeline.cuh>

#define wgmma_commit plain_wgmma_commit
#define wgmma_wait plain_wgmma_wait
#define wgmma_f16 plain_wgmma_f16
#define wgmma_bf16 plain_wgmma_bf16
#define wgmma_e4m3 plain_wgmma_e4m3
#include_next <attn/ptx/wgmma.cuh>
#undef wgmma_commit
#undef wgmma_wait
#undef wgmma_f16
#undef wgmma_bf16
#undef wgmma_e4m3

namespace attn {

static __device__ __forceinline__ void wgmma_commit(int line = __builtin_LINE()) {
    plain_wgmma_commit();
    timeline::mark(timeline::PRODUCT_COMMIT, line);
}

template <int PENDING>
static __device__ __forceinline__ void wgmma_wait(int line = __builtin_LINE()) {
    timeline::begin(timeline::PRODUCT_WAIT, line, PENDING);
    plain_wgmma_wait<PENDING>();
    timeline::finish();
}
template <int PENDING, class Registers>
static __device__ __forceinline__ void wgmma_wait(Registers &registers, int line = __builtin_LINE()) {
    timeline::begin(timeline::PRODUCT_WAIT, line, PENDING);
    plain_wgmma_wait<PENDING>(registers);
    timeline::finish();
}
template <int PENDING, class Registers, class Others>
static __device__ __forceinline__ void wgmma_wait(Registers &registers, Others &others, int line = __builtin_LINE()) {
    timeline::begin(timeline::PRODUCT_WAIT, line, PENDING);
    plain_wgmma_wait<PENDING>(registers, others);
    timeline::finish();
}

// The first operand is a descriptor, or registers.
template <bool TRANS_B, int COUNT>
static __device__ __forceinline__ void wgmma_f16(float (&d)[COUNT], uint64_t a, uint64_t b, bool accumulate,
                                                 int line = __builtin_LINE()) {
    timeline::run<timeline::WARPGROUP_PRODUCT>(line);
    plain_wgmma_f16<TRANS_B>(d, a, b, accumulate);
}
template <bool TRANS_B, int COUNT>
static __device__ __forceinline__ void wgmma_f16(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                                                 int line = __builtin_LINE()) {
    timeline::run<timeline::WARPGROUP_PRODUCT>(line);
    plain_wgmma_f16<TRANS_B>(d, a, b, accumulate);
}
template <bool TRANS_B, int COUNT>
static __device__ __forceinline__ void wgmma_bf16(float (&d)[COUNT], uint64_t a, uint64_t b, bool accumulate,
                                                  int line = __builtin_LINE()) {
    timeline::run<timeline::WARPGROUP_PRODUCT>(line);
    plain_wgmma_bf16<TRANS_B>(d, a, b, accumulate);
}
template <bool TRANS_B, int COUNT>
static __device__ __forceinline__ void wgmma_bf16(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                                                  int line = __builtin_LINE()) {
    timeline::run<timeline::WARPGROUP_PRODUCT>(line);
    plain_wgmma_bf16<TRANS_B>(d, a, b, accumulate);
}
template <int COUNT>
static __device__ __forceinline__ void wgmma_e4m3(float (&d)[COUNT], uint64_t a, uint64_t b, bool accumulate,
                                                  int line = __builtin_LINE()) {
    timeline::run<timeline::WARPGROUP_PRODUCT>(line);
    plain_wgmma_e4m3(d, a, b, accumulate);
}
template <int COUNT>
static __device__ __forceinline__ void wgmma_e4m3(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                                                  int line = __builtin_LINE()) {
    timeline::run<timeline::WARPGROUP_PRODUCT>(line);
    plain_wgmma_e4m3(d, a, b, accumulate);
}

} // namespace attn
