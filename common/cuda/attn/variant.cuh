// How kernel.cu declares its variants: one line per preset, of four instances each (f16 and e4m3, two head sizes) or,
// with bf16, six.
//
//   ATTN_VARIANT(family, name, Preset)
//   ATTN_BF16_VARIANT(family, name, Preset)
//
// `Preset<Element, HEAD_DIM>` is a struct of constants: BLOCK_M, BLOCK_N, THREADS, MIN_BLOCKS, PROBABILITY, and `Shared`,
// the layout whose size is the dynamic shared memory. The kernel itself is
// `template <class Preset> __device__ void attention(const AttentionParams &)`. Where it writes AttentionParams::lse, the
// preset also says LSE = true; the host requests it from no other.
// The build defines ATTN_STAGE (stage0_scalar). The emulator has its own version of this header.
#pragma once

#include <attn/params.h>

#define ATTN_CONCAT_(a, b) a##_##b
#define ATTN_CONCAT(a, b) ATTN_CONCAT_(a, b)

#define ATTN_INSTANCE(symbol, ...)                                                                                     \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS)                        \
        symbol(const __grid_constant__ AttentionParams params) {                                                       \
        attention<__VA_ARGS__>(params);                                                                                \
    }

#define ATTN_VARIANT(family, name, Preset)                                                                             \
    ATTN_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d64), Preset<attn::F16, 64>)                                      \
    ATTN_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d128), Preset<attn::F16, 128>)                                    \
    ATTN_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_e4m3_d64), Preset<attn::E4M3, 64>)                                    \
    ATTN_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_e4m3_d128), Preset<attn::E4M3, 128>)

#define ATTN_BF16_VARIANT(family, name, Preset)                                                                        \
    ATTN_VARIANT(family, name, Preset)                                                                                 \
    ATTN_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d64), Preset<attn::BF16, 64>)                                    \
    ATTN_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d128), Preset<attn::BF16, 128>)
