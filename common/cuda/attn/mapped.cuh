// How kernel.cu declares variants that take an AttentionLaunch: as <attn/variant.cuh> has it, but six instances
// each (bf16, too), with
//
//   ATTN_MAPPED_VARIANT(family, name, Preset)
//
// `Preset` also says Q_BOX_ROWS, K_BOX_ROWS, V_BOX_ROWS and O_BOX_ROWS, the fields of AttentionMaps, and the kernel is
// `template <class Preset> __device__ void attention(const AttentionLaunch &)`. The emulator has its own version of this header.
#pragma once

#include <attn/launch.h>
#include <attn/variant.cuh>
#include <type_traits>

#define ATTN_MAPPED_INSTANCE(symbol, ...)                                                                              \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS)                        \
        symbol(const __grid_constant__ AttentionLaunch launch) {                                                       \
        attention<__VA_ARGS__>(launch);                                                                                \
    }

#define ATTN_MAPPED_VARIANT(family, name, Preset)                                                                      \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d64), Preset<attn::F16, 64>)                               \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d128), Preset<attn::F16, 128>)                             \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_e4m3_d64), Preset<attn::E4M3, 64>)                             \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_e4m3_d128), Preset<attn::E4M3, 128>)                           \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d64), Preset<attn::BF16, 64>)                             \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d128), Preset<attn::BF16, 128>)

extern "C" {
extern __shared__ __align__(1024) unsigned char attn_tiles[];
}

namespace attn {

// As `shared()`, for tiles that TMA swizzles: by the address within 1,024 bytes.
template <class Layout>
static __device__ __forceinline__ Layout &shared_tiles() {
    static_assert(alignof(Layout) <= 1024, "the buffer starts on a 1,024-byte boundary");
    static_assert(std::is_trivially_default_constructible_v<Layout>, "nobody constructs it");
    return *reinterpret_cast<Layout *>(attn_tiles);
}

} // namespace attn
