// How kernel.cu declares variants that take an AttentionServed: as <attn/mapped_halves.cuh> has it, four instances each.
//
//   ATTN_SERVED_VARIANT(family, name, Preset)
//
// The kernel is `template <class Preset> __device__ void attention(const AttentionServed &)`. The emulator has its own version of this
// header.
#pragma once

#include <attn/mapped.cuh>
#include <attn/served.h>

#define ATTN_SERVED_INSTANCE(symbol, ...)                                                                              \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS)                        \
        symbol(const __grid_constant__ AttentionServed served) {                                                       \
        attention<__VA_ARGS__>(served);                                                                                \
    }

#define ATTN_SERVED_VARIANT(family, name, Preset)                                                                      \
    ATTN_SERVED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d64), Preset<attn::F16, 64>)                               \
    ATTN_SERVED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d96), Preset<attn::F16, 96>)                               \
    ATTN_SERVED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d128), Preset<attn::F16, 128>)                             \
    ATTN_SERVED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d64), Preset<attn::BF16, 64>)                             \
    ATTN_SERVED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d96), Preset<attn::BF16, 96>)                             \
    ATTN_SERVED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d128), Preset<attn::BF16, 128>)
