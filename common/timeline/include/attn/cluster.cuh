// As the plain header has it, with notes where an entry begins and ends.
#pragma once

#include <attn/mapped.cuh>

#include_next <attn/cluster.cuh>

#undef ATTN_CLUSTER_INSTANCE
#define ATTN_CLUSTER_INSTANCE(symbol, ...)                                                                             \
    extern "C" __global__ void __cluster_dims__(__VA_ARGS__::CLUSTER, 1, 1)                                            \
        __launch_bounds__(__VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS)                                               \
            symbol(const __grid_constant__ AttentionLaunch launch) {                                                   \
        ATTN_TIMELINE_BODY(symbol, attention<__VA_ARGS__>(launch))                                                     \
    }
