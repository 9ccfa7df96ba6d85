// Scheduler: which items there are, in which order, and which block takes which. All of it is arithmetic, so that the loading and the
// computing warpgroups of all blocks agree, and outputs do not depend on who takes what.
#pragma once

#include <attn/element.cuh>
#include <attn/mask.cuh>
#include <type_traits>

namespace {

// BLOCK_M rows, as 16 for each warp, and the keys that some of them see.
struct Item {
    static constexpr int NO_MORE = -1;

    int batch, head_q, head_kv;
    int row;       // the first query; those before the sequence's start or behind its end do not exist
    int warps_log; // 2 to this power is the number of warps that have the rows of one query head; the next have those of the next
    int key_tiles; // or NO_MORE

    // The query head and first query of the warp's 16 rows.
    __device__ __forceinline__ int head_of(int warp) const { return head_q + (warp >> warps_log); }
    __device__ __forceinline__ int row_of(int warp) const { return row + (warp & ((1 << warps_log) - 1)) * 16; }
};
static_assert(std::is_trivially_default_constructible_v<Item>, "item_of() makes it");

// Item number `index`. Under the causal mask those with the most keys come first, for as many heads at a time as have K and V that
// stay in L2 together; else head by head. Rows are counted from the sequence's end, so that those which do not exist lie in the tile
// with the fewest keys.
template <class Preset>
__device__ __forceinline__ Item item_of(const AttentionParams &params, int index) {
    Item item;
    item.warps_log = 4; // more than there are: all have the same head
    int heads = 1;      // of a tile: the largest power of two that divides the group
    const int group = params.heads_q / params.heads_kv;
    if constexpr (Preset::PACKED) {
        for (item.warps_log = 3; item.warps_log > 0 && group % (2 * heads) == 0; heads *= 2) --item.warps_log;
    }
    const int queries = Preset::BLOCK_M / heads, tiles = (params.seq_q + queries - 1) / queries;
    const int columns = params.heads_q / heads, all_columns = columns * params.batch; // of tiles with the same queries
    if (index >= tiles * all_columns) {
        item.key_tiles = Item::NO_MORE;
        return item;
    }
    int tile = index % tiles, column = index / tiles;
    if (params.mask == ATTENTION_CAUSAL) {
        constexpr int KEYS = (32 << 20) / (2 * Preset::KvTile::ROW_BYTES); // of which K and V take 32 MB
        const int together = min(all_columns, max(1, KEYS / params.seq_kv) * (group / heads));
        const int first = index / (together * tiles) * together, members = min(together, all_columns - first);
        const int rank = index - first * tiles;
        tile = tiles - 1 - rank / members;
        column = first + rank % members;
    }
    item.batch = column / columns;
    item.head_q = column % columns * heads;
    item.head_kv = attn::kv_head(params, item.head_q);
    item.row = tile * queries - (tiles * queries - (params.seq_q + 15) / 16 * 16);
    const int key_end = attn::visible_keys(params, min(item.row + queries, params.seq_q) - 1);
    item.key_tiles = (key_end + Preset::BLOCK_N - 1) / Preset::BLOCK_N;
    return item;
}

// The index of this block's item of the round. To and fro: who gets the longest of one round gets the shortest of the next. That
// leaves blocks as equal as a counter would from which each takes its next item (README), and needs none.
__device__ __forceinline__ int index_of_round(int round) {
    const int place = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    return round * gridDim.x + place;
}

} // namespace
