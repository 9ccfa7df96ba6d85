// Scheduler: which items there are, in which order, and which block takes which. All of it is arithmetic: blocks agree without a word, and
// outputs do not depend on who takes what.
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
static_assert(std::is_trivially_default_constructible_v<Item>, "Schedule::item() makes it");

// The items of a launch, in sections: under the causal mask of as many heads as have K and V that stay in L2 together, but of two items
// for each block at least. In a section those with the most keys come first. Without a mask all items are equal, and in one section,
// head by head.
//
// A section takes as many rounds as give each block one of its items. Rounds go to and fro: who gets the longest of one gets the shortest
// of the next. The last round has the shortest items, and may have fewer than there are blocks: the next section is turned by as many
// blocks, so that its last round goes to others. That leaves blocks as equal as a counter would from which each takes its next item
// (README), and needs none.
template <class Preset>
struct Schedule {
    int heads_log; // a tile has rows of 2 to this power query heads
    int tiles;     // with rows of the same heads
    int columns;   // of tiles with the same queries: heads, or groups of them, of all sequences
    int together;  // columns of a section, but for the last
    int rounds;    // of a section

    // What the block takes next.
    int first; // column of the section
    int round; // of the section
    int place; // of the block, counted from the one with which the section starts

    static __device__ __forceinline__ Schedule start(const AttentionParams &params) {
        Schedule schedule;
        const int group = params.heads_q / params.heads_kv;
        schedule.heads_log = 0;
        if constexpr (Preset::PACKED) { // the largest power of two that divides the group, up to one head for each warp
            while (schedule.heads_log < 3 && group % (2 << schedule.heads_log) == 0) ++schedule.heads_log;
        }
        const int queries = Preset::BLOCK_M >> schedule.heads_log, blocks = gridDim.x;
        schedule.tiles = (params.seq_q + queries - 1) / queries;
        schedule.columns = (params.heads_q >> schedule.heads_log) * params.batch;
        schedule.together = schedule.columns;
        if (params.mask == ATTENTION_CAUSAL) {
            constexpr int KEYS = (32 << 20) / (2 * Preset::KvTile::ROW_BYTES); // of which K and V take 32 MB
            const int in_l2 = max(1, KEYS / params.seq_kv) * (group >> schedule.heads_log);
            const int of_two_rounds = (2 * blocks + schedule.tiles - 1) / schedule.tiles;
            schedule.together = min(schedule.columns, max(in_l2, of_two_rounds));
        }
        schedule.rounds = (schedule.together * schedule.tiles + blocks - 1) / blocks;
        schedule.first = schedule.round = 0;
        schedule.place = blockIdx.x;
        return schedule;
    }

    // The block's next item.
    __device__ __forceinline__ Item next(const AttentionParams &params) {
        const int blocks = gridDim.x;
#pragma unroll 1
        while (first < columns) {
            const int members = min(together, columns - first);
#pragma unroll 1
            while (round < rounds) {
                const int rank = round * blocks + (round % 2 == 0 ? place : blocks - 1 - place);
                ++round;
                if (rank < members * tiles) return item(params, members, rank);
            }
            const int last_round = together * tiles - (rounds - 1) * blocks; // items of it, in a whole section
            place += rounds % 2 == 0 ? last_round : blocks - last_round;
            if (place >= blocks) place -= blocks;
            first += together;
            round = 0;
        }
        Item item;
        item.key_tiles = Item::NO_MORE;
        return item;
    }

  private:
    // Item number `rank` of the section, which has `members` columns. Rows are counted from the sequence's end, so that those which
    // do not exist lie in the tile with the fewest keys.
    __device__ __forceinline__ Item item(const AttentionParams &params, int members, int rank) const {
        const bool is_causal = params.mask == ATTENTION_CAUSAL;
        const int tile = is_causal ? tiles - 1 - rank / members : rank % tiles;
        const int column = is_causal ? first + rank % members : rank / tiles;
        const int columns_of_sequence = params.heads_q >> heads_log, queries = Preset::BLOCK_M >> heads_log;
        Item item;
        item.batch = column / columns_of_sequence;
        item.head_q = column % columns_of_sequence << heads_log;
        item.head_kv = attn::kv_head(params, item.head_q);
        item.row = tile * queries - (tiles * queries - (params.seq_q + 15) / 16 * 16);
        item.warps_log = Preset::PACKED ? 3 - heads_log : 4; // 4: at least as many warps as there are, all with the same head
        const int key_end = attn::visible_keys(params, min(item.row + queries, params.seq_q) - 1);
        item.key_tiles = (key_end + Preset::BLOCK_N - 1) / Preset::BLOCK_N;
        return item;
    }
};

} // namespace
