// How kernel.cu declares variants whose blocks run in clusters: as <attn/mapped.cuh> has it, with
//
//   ATTN_CLUSTER_VARIANT(family, name, Preset)
//
// `Preset` also says CLUSTER, the number of blocks, neighbours in x of the grid. BLOCK_M sizes the
// grid: a cluster has CLUSTER times as many query rows. The emulator has its own version of this header.
#pragma once

#include <attn/mapped.cuh>
#include <attn/ptx/cluster.cuh>

#define ATTN_CLUSTER_INSTANCE(symbol, ...)                                                                             \
    extern "C" __global__ void __cluster_dims__(__VA_ARGS__::CLUSTER, 1, 1)                                            \
        __launch_bounds__(__VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS)                                               \
            symbol(const __grid_constant__ AttentionLaunch launch) {                                                   \
        attention<__VA_ARGS__>(launch);                                                                                \
    }

#define ATTN_CLUSTER_VARIANT(family, name, Preset)                                                                     \
    ATTN_CLUSTER_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d64), Preset<attn::F16, 64>)                              \
    ATTN_CLUSTER_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d128), Preset<attn::F16, 128>)                            \
    ATTN_CLUSTER_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_e4m3_d64), Preset<attn::E4M3, 64>)                            \
    ATTN_CLUSTER_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_e4m3_d128), Preset<attn::E4M3, 128>)                          \
    ATTN_CLUSTER_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d64), Preset<attn::BF16, 64>)                            \
    ATTN_CLUSTER_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d128), Preset<attn::BF16, 128>)
