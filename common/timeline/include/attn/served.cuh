// As the plain header has it, with notes where an entry begins and ends.
#pragma once

#include <attn/mapped.cuh>

#include_next <attn/served.cuh>

#undef ATTN_SERVED_INSTANCE
#define ATTN_SERVED_INSTANCE(symbol, ...)                                                                              \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS)                        \
        symbol(const __grid_constant__ AttentionServed served) {                                                       \
        ATTN_TIMELINE_BODY(symbol, attention<__VA_ARGS__>(served))                                                     \
    }
