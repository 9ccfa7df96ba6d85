// Which rows a block of a grid over tiles of rows, heads and batch works on, and in which order blocks start.
#pragma once

#include <attn/element.cuh>
#include <attn/mask.cuh>
#include <attn/wgmma_tile.cuh>

namespace attn {

// A row of Q and O.
struct Row {
    int query, head;
};

// What a block works on, or one group of its rows.
struct Work {
    int batch, head_q, head_kv, row; // the first query row
    int groups;                      // of 64 rows, one per warpgroup; the last may be ragged. Of one group: all, or 0 if it has no rows
    int tiles;                       // of keys that the last row sees
    int heads;                       // from head_q on, of which row p is query p / heads of the (p % heads)th

    __device__ __forceinline__ Row at(int p) const { return {p / heads, head_q + p % heads}; }
};

// PACKED: rows are those of all query heads of a key head, which are the heads of the grid; else of one.
template <class Preset, bool PACKED = false>
static __device__ __forceinline__ Work work_of_block(const AttentionParams &params) {
    constexpr int BLOCK_N = Preset::BLOCK_N, GROUPS = Preset::BLOCK_M / WGMMA_M;
    const int heads = PACKED ? params.heads_q / params.heads_kv : 1, rows = params.seq_q * heads;
    const int groups = (rows + WGMMA_M - 1) / WGMMA_M; // of all blocks
    int head = blockIdx.y + gridDim.y * blockIdx.z, row_tile = blockIdx.x;
    int spare = 0; // groups without rows that the first block has, rather than the last
    // Under the causal mask the blocks whose rows see most keys start first, for as many heads at a time as have K and V that stay in
    // L2 together. And they are full: groups without rows are in the block whose rows see fewest keys.
    if (params.mask == ATTENTION_CAUSAL) {
        constexpr int ROW_BYTES = Preset::HEAD_DIM * sizeof(typename Preset::Element::Storage);
        constexpr int KEYS = (32 << 20) / (2 * ROW_BYTES); // of which K and V take 32 MB
        const int all_heads = gridDim.y * gridDim.z, l2_heads = min(all_heads, max(1, KEYS / params.seq_kv));
        const int block = blockIdx.x + gridDim.x * head, turn = block / (l2_heads * gridDim.x);
        const int first_head = turn * l2_heads, members = min(l2_heads, all_heads - first_head);
        const int in_turn = block - first_head * gridDim.x;
        row_tile = gridDim.x - 1 - in_turn / members;
        head = first_head + in_turn % members;
        spare = gridDim.x * GROUPS - groups;
    }
    const int end = (row_tile + 1) * GROUPS - spare, first = max(0, end - GROUPS);
    const int batch = head / gridDim.y, head_q = head % gridDim.y * heads;
    const int key_end = visible_keys(params, (min(end * WGMMA_M, rows) - 1) / heads);
    return {batch, head_q, kv_head(params, head_q), first * WGMMA_M, min(end, groups) - first, (key_end + BLOCK_N - 1) / BLOCK_N,
            heads};
}

// The same for one group of a block whose groups lie apart: `row` is as far before the group's rows as these are from the block's
// first in shared memory. Blocks take the groups of a head in turn, to and fro (0 1 2 2 1 0): of an even number each has the same
// work under the causal mask. Groups that lack rows see fewest keys.
template <class Preset>
static __device__ __forceinline__ Work work_of_group(const AttentionParams &params, int group) {
    constexpr int BLOCK_N = Preset::BLOCK_N, GROUPS = Preset::BLOCK_M / WGMMA_M;
    const int blocks = gridDim.x, block = blockIdx.x;
    const int spare = blocks * GROUPS - (params.seq_q + WGMMA_M - 1) / WGMMA_M;
    const auto first_row = [&](int of) { return (of * blocks + (of % 2 ? blocks - 1 - block : block) - spare) * WGMMA_M; };
    const int row = first_row(group), head_q = blockIdx.y, batch = blockIdx.z;
    const int key_end = visible_keys(params, min(first_row(GROUPS - 1) + WGMMA_M, params.seq_q) - 1);
    return {batch, head_q, kv_head(params, head_q), row - group * WGMMA_M, row < 0 ? 0 : GROUPS, (key_end + BLOCK_N - 1) / BLOCK_N,
            1};
}

} // namespace attn
