// The emulated side of <attn/cluster.cuh>: as <attn/mapped.cuh>, and beside each record the blocks of a cluster.
#pragma once

#include <attn/mapped.cuh>
#include <attn/ptx/cluster.cuh>

namespace {
int32_t attention_clusters[AttentionTable::CAPACITY]; // 0: no cluster

struct AttentionClusterRegistration {
    explicit AttentionClusterRegistration(int32_t blocks) { // of the instance that was registered last
        if (attention_table.count <= AttentionTable::CAPACITY) attention_clusters[attention_table.count - 1] = blocks;
    }
};
} // namespace

#define ATTN_CLUSTER_INSTANCE(family, name, suffix, dtype, dim, ...)                                                   \
    ATTN_MAPPED_INSTANCE(family, name, suffix, dtype, dim, __VA_ARGS__)                                                \
    ATTN_RECORD(AttentionClusterRegistration, ATTN_CONCAT(ATTN_STAGE, name##suffix##_cluster), __VA_ARGS__::CLUSTER)

#define ATTN_CLUSTER_VARIANT(family, name, Preset)                                                                     \
    ATTN_CLUSTER_INSTANCE(family, name, _f16_d64, ATTENTION_F16, 64, Preset<attn::F16, 64>)                            \
    ATTN_CLUSTER_INSTANCE(family, name, _f16_d128, ATTENTION_F16, 128, Preset<attn::F16, 128>)                         \
    ATTN_CLUSTER_INSTANCE(family, name, _e4m3_d64, ATTENTION_E4M3, 64, Preset<attn::E4M3, 64>)                         \
    ATTN_CLUSTER_INSTANCE(family, name, _e4m3_d128, ATTENTION_E4M3, 128, Preset<attn::E4M3, 128>)                      \
    ATTN_CLUSTER_INSTANCE(family, name, _bf16_d64, ATTENTION_BF16, 64, Preset<attn::BF16, 64>)                         \
    ATTN_CLUSTER_INSTANCE(family, name, _bf16_d128, ATTENTION_BF16, 128, Preset<attn::BF16, 128>)
