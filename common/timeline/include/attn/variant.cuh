// As the plain header has it, with notes where an entry begins and ends.
#pragma once

#include_next <attn/variant.cuh>

#include <attn/timeline.cuh>

#undef ATTN_INSTANCE
#define ATTN_INSTANCE(symbol, ...)                                                                                     \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS)                        \
        symbol(const __grid_constant__ AttentionParams params) {                                                       \
        ATTN_TIMELINE_BODY(symbol, attention<__VA_ARGS__>(params))                                                     \
    }
