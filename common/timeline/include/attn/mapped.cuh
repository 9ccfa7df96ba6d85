// As the plain header has it, with notes where an entry begins and ends.
#pragma once

#include <attn/variant.cuh>

#include_next <attn/mapped.cuh>

#undef ATTN_MAPPED_INSTANCE
#define ATTN_MAPPED_INSTANCE(symbol, ...)                                                                              \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS)                        \
        symbol(const __grid_constant__ AttentionLaunch launch) {                                                       \
        ATTN_TIMELINE_BODY(symbol, attention<__VA_ARGS__>(launch))                                                     \
    }
