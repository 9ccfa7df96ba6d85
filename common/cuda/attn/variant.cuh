// How kernel.cu declares its variants: one line per preset, four instances each (two dtypes, two head sizes).
//
//   ATTN_VARIANT(family, name, Preset)
//
// `Preset<Element, HEAD_DIM>` is a struct of constants: BLOCK_M, BLOCK_N, THREADS, MIN_BLOCKS, PROBABILITY_BITS, and `Shared`,
// the layout whose size is the dynamic shared memory. The kernel itself is
// `template <class Preset> __device__ void attention(const AttentionParams &)`.
// The build defines ATTN_STAGE (stage0_scalar). The emulator shadows this header with one that registers functions
// and records instead of defining GPU entries.
#pragma once

#include <attn/params.h>

#define ATTN_CONCAT_(a, b) a##_##b
#define ATTN_CONCAT(a, b) ATTN_CONCAT_(a, b)

#define ATTN_INSTANCE(symbol, ...)                                                                                     \
    static_assert(__VA_ARGS__::PROBABILITY_BITS == 32 || __VA_ARGS__::PROBABILITY_BITS == 16 ||                        \
                      __VA_ARGS__::PROBABILITY_BITS == 8, "P is f32, f16 or e4m3");                                    \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS)                        \
        symbol(const __grid_constant__ AttentionParams params) {                                                       \
        attention<__VA_ARGS__>(params);                                                                                \
    }

#define ATTN_VARIANT(family, name, Preset)                                                                             \
    ATTN_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d64), Preset<attn::F16, 64>)                                      \
    ATTN_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d128), Preset<attn::F16, 128>)                                    \
    ATTN_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_e4m3_d64), Preset<attn::E4M3, 64>)                                    \
    ATTN_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_e4m3_d128), Preset<attn::E4M3, 128>)
