// Which rows a block of a grid over tiles of rows, heads and batch works on, and in which order blocks start.
#pragma once

#include <attn/element.cuh>
#include <attn/mask.cuh>

namespace attn {

// What a block works on.
struct Work {
    int batch, head_q, head_kv, row; // the first query row
    int tiles;                       // of keys that the last row sees
};

template <class Preset>
static __device__ __forceinline__ Work work_of_block(const AttentionParams &params) {
    constexpr int BLOCK_M = Preset::BLOCK_M, BLOCK_N = Preset::BLOCK_N;
    int head = blockIdx.y + gridDim.y * blockIdx.z, row_tile = blockIdx.x;
    // Under the causal mask the last rows see most keys. Their blocks start first, for as many heads at a time as have K and
    // V that stay in L2 together.
    if (params.mask == ATTENTION_CAUSAL) {
        constexpr int KEYS = (32 << 20) / (2 * Preset::KvCodes::ROW_BYTES); // of which K and V take 32 MB
        const int heads = gridDim.y * gridDim.z, group_heads = min(heads, max(1, KEYS / params.seq_kv));
        const int block = blockIdx.x + gridDim.x * head, group = block / (group_heads * gridDim.x);
        const int first_head = group * group_heads, members = min(group_heads, heads - first_head);
        const int in_group = block - first_head * gridDim.x;
        row_tile = gridDim.x - 1 - in_group / members;
        head = first_head + in_group % members;
    }
    const int batch = head / gridDim.y, head_q = head % gridDim.y, row = row_tile * BLOCK_M;
    const int key_end = visible_keys(params, min(row + BLOCK_M, params.seq_q) - 1);
    return {batch, head_q, kv_head(params, head_q), row, (key_end + BLOCK_N - 1) / BLOCK_N};
}

} // namespace attn
