// Which items there are, in which order, and which block takes which. Lengths lie on the device, so that nobody knows how many items
// there are: a warp counts them, and looks for its next one from where it was. Outputs do not depend on who takes what.
#pragma once

#include <attn/element.cuh>
#include <attn/observe.cuh>
#include <attn/served.h>
#include <type_traits>

namespace {

// A sequence's numbers of queries and keys.
struct Lengths {
    int queries, keys;
};

__device__ __forceinline__ Lengths lengths_of(const AttentionServed &served, int sequence) {
    const AttentionServing &serving = served.serving;
    Lengths of = {served.launch.params.seq_q, served.launch.params.seq_kv};
    if (serving.q_starts) of.queries = serving.q_starts[sequence + 1] - serving.q_starts[sequence];
    if (serving.kv_used) of.keys = serving.kv_used[sequence];
    else if (serving.kv_starts) of.keys = serving.kv_starts[sequence + 1] - serving.kv_starts[sequence];
    return of;
}

// Keys before and behind a query's own that it sees.
struct Window {
    static constexpr int ALL = 1 << 29; // more than a sequence has; two of them and a sequence's length are still an int

    int left, right;
};

__device__ __forceinline__ Window window_of(const AttentionServed &served) {
    const int left = served.serving.window_left;
    const int right = served.launch.params.mask == ATTENTION_CAUSAL ? 0 : served.serving.window_right;
    return {left < 0 ? Window::ALL : min(left, Window::ALL), right < 0 ? Window::ALL : min(right, Window::ALL)};
}

// Keys from `begin` to `end` - 1: none unless `begin` is less. Neither is smaller for a later query.
struct KeyRange {
    int begin, end;
};

// What a query of the sequence sees.
__device__ __forceinline__ KeyRange keys_of_query(const AttentionServed &served, Lengths of, int query) {
    const Window window = window_of(served);
    const int own = query + of.keys - of.queries;
    const KeyRange range = {max(0, own - window.left), max(0, min(of.keys, own + window.right + 1))};
 ATTN_VISIBLE(range.end);
    return range;
}

// BLOCK_M rows, as 16 for each warp, and the keys that some of them see.
struct Item {
    static constexpr int NO_MORE = -1;

    int sequence, head_q, head_kv;
    int row;                   // the first query; those behind the sequence's end do not exist
    int heads_log;             // 2 to this power is the number of heads: neighbouring warps have rows of neighbouring ones
    int first_tile, key_tiles; // tiles of keys that some row sees; key_tiles may be NO_MORE
    Lengths lengths;           // of the sequence
    int q_batch, q_start;      // where the sequence's rows of Q and O start
    int kv_batch, kv_start;    // where those of K and V do, but for pages

    // What stands behind the last one.
    static __device__ __forceinline__ Item end() {
        Item item = {};
        item.key_tiles = NO_MORE;
        return item;
    }

    // The query head and first query of the warp's 16 rows. Neighbouring warps have neighbouring heads, in stage 13 neighbouring rows.
    __device__ __forceinline__ int head_of(int warp) const { return head_q + (warp & ((1 << heads_log) - 1)); }
    __device__ __forceinline__ int row_of(int warp) const { return row + (warp >> heads_log) * 16; }
    // How many rows of the item's highest tile of keys are the sequence's: all, if it is BLOCK_N or more.
    template <class Preset>
    __device__ __forceinline__ int keys_of_highest_tile() const {
        return lengths.keys - (first_tile + key_tiles - 1) * Preset::BLOCK_N;
    }
};
static_assert(std::is_trivially_default_constructible_v<Item>, "Schedule::item_of() makes it");

// Which item it is of those of the level that Schedule::find() was in last: valid until it looks for another.
struct Found {
    static constexpr int NO_MORE = -1;

    int sequence; // may be NO_MORE
    int rank;     // among the sequence's
};
static_assert(std::is_trivially_default_constructible_v<Found>, "Schedule::find() makes it");

// The items of a launch. The heaviest come first: they are in at most LEVELS levels, by how many warpgroups have rows of them times how
// many tiles of keys these see. Within a level it goes sequence by sequence, key head by key head, so that items that read the same keys
// follow one another.
//
// Only the last tile of a sequence's rows may lack rows for some warpgroups. The others that are in one level are neighbours: a later tile
// of rows sees no fewer keys under a mask that ends at the query, until the window's width limits all of them, so that min(keys that end
// before, width) never falls. Where the mask begins at the window alone this is the number of keys that the sequence has, and all have
// one level.
template <class Preset>
struct Schedule {
    static constexpr int LEVELS = 32, BLOCK_M = Preset::BLOCK_M, BLOCK_N = Preset::BLOCK_N, WARPGROUPS = Preset::CONSUMERS;
    static_assert(BLOCK_M == WARPGROUPS * 64, "full_tiles() divides by these");
    static constexpr int MOST_HEADS_LOG = Preset::WARPS % 8 == 0 ? 3 : 2; // of a tile: a power of two that divides its warps

    int heads_log; // a tile has rows of 2 to this power query heads
    int items;     // of the launch
    int width;     // of a level of weights

    // The chunk of 32 sequences, one for each lane, in which the last item was found.
    int most;    // an item weighs in its level; more than `most` - `width`
    int first;   // the chunk's first sequence
    int before;  // items before those of the chunk in the level
    Lengths own; // of the lane's sequence; behind the last it has no items

    // By a whole warp. Levels follow from the lengths that there are: from the longest that the launch allows, most
    // of them could be empty.
    static __device__ __forceinline__ Schedule start(const AttentionServed &served, int lane) {
        const AttentionParams &params = served.launch.params;
        Schedule schedule;
        schedule.heads_log = heads_log_of(params);
        int row_tiles = 0, longest = 0; // of the lane's sequences: all tiles, and the most keys
#pragma unroll 1
        for (int first = (params.batch - 1) / 32 * 32; first >= 0; first -= 32) {
            schedule.enter(served, first, lane); // at last the first chunk
            row_tiles += schedule.tiles_of(schedule.own);
            longest = max(longest, schedule.own.keys);
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            row_tiles += __shfl_xor_sync(0xffffffffu, row_tiles, step);
            longest = max(longest, __shfl_xor_sync(0xffffffffu, longest, step));
        }
        schedule.items = row_tiles * schedule.columns(params);
        const int heaviest = schedule.heaviest_item(served, longest);
        schedule.width = (heaviest + LEVELS - 1) / LEVELS;
        schedule.most = (heaviest + schedule.width - 1) / schedule.width * schedule.width;
        schedule.before = 0;
        return schedule;
    }

    // Where item number `index` is, which is greater than that of the call before. By a whole warp.
    __device__ __forceinline__ Found find(const AttentionServed &served, int index, int lane) {
        const AttentionParams &params = served.launch.params;
        Found found;
        found.sequence = Found::NO_MORE;
        if (index >= items) return found;
#pragma unroll 1
        while (most > 0) {
            const int count = tiles_of_level(served, own).count() * columns(params);
            int sum = count; // of the lanes up to this one
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const int lower = __shfl_sync(0xffffffffu, sum, lane - step);
                if (lane >= step) sum += lower;
            }
            const int all = __shfl_sync(0xffffffffu, sum, 31);
            if (index - before < all) {
                int source = 0; // the lane whose sequence has it: the number of those whose items, with all before, come before it
#pragma unroll
                for (int step = 16; step > 0; step /= 2) {
                    if (__shfl_sync(0xffffffffu, sum, source + step - 1) <= index - before) source += step;
                }
                found.sequence = first + source;
                found.rank = index - before - __shfl_sync(0xffffffffu, sum - count, source);
                return found;
            }
            before += all;
            const bool is_last = first + 32 >= params.batch;
            if (is_last) most -= width;
            if (params.batch > 32) enter(served, is_last ? 0 : first + 32, lane);
        }
        return found; // not reached, unless a length is negative
    }

    // The item that was found, by any of the lanes. A sequence's items in a level are, for each key head, the tiles from the last, and for
    // each of these the heads.
    __device__ __forceinline__ Item item_of(const AttentionServed &served, Found found) const {
        const AttentionParams &params = served.launch.params;
        const AttentionServing &serving = served.serving;
        const Lengths of = lengths_of(served, found.sequence);
        const Tiles tiles = tiles_of_level(served, of);
        const int group = params.heads_q / params.heads_kv, columns = group >> heads_log, of_key_head = columns * tiles.count();
        const int in_key_head = found.rank % of_key_head, queries = BLOCK_M >> heads_log;
        Item item;
        item.sequence = found.sequence;
        item.head_kv = found.rank / of_key_head;
        item.head_q = item.head_kv * group + (in_key_head % columns << heads_log);
        item.row = tiles.at(in_key_head / columns) * queries;
        item.heads_log = heads_log;
        item.lengths = of;
        const int begin = keys_of_query(served, of, item.row).begin;
        const int end = keys_of_query(served, of, min(item.row + queries, of.queries) - 1).end;
        item.first_tile = begin / BLOCK_N;
        item.key_tiles = max(0, (end + BLOCK_N - 1) / BLOCK_N - item.first_tile);
        item.q_batch = serving.q_starts ? 0 : found.sequence;
        item.q_start = serving.q_starts ? serving.q_starts[found.sequence] : 0;
        item.kv_batch = serving.kv_starts ? 0 : found.sequence;
        item.kv_start = serving.kv_starts ? serving.kv_starts[found.sequence] : 0;
        return item;
    }

  private:
    // A chunk, by its first sequence.
    __device__ __forceinline__ void enter(const AttentionServed &served, int chunk, int lane) {
        first = chunk;
        own = {0, 0};
        if (chunk + lane < served.launch.params.batch) own = lengths_of(served, chunk + lane);
    }

    // Tiles of a sequence's rows: those from `begin` to `end` - 1, which have rows for all warpgroups, and, if `partial` is 1, the one
    // behind all of these.
    struct Tiles {
        int begin, end, partial;
        int whole; // of the sequence

        __device__ __forceinline__ int count() const { return end - begin + partial; }
        // From the last.
        __device__ __forceinline__ int at(int index) const { return index < partial ? whole : end - 1 - (index - partial); }
    };

    // How many heads, as a power of two, a tile has rows of: they read the same keys. The more there are, the fewer queries each has: fewer
    // keys are in a tile for the sake of some rows, and fewer rows are missing from a sequence's last.
    static __device__ __forceinline__ int heads_log_of(const AttentionParams &params) {
        const int group = params.heads_q / params.heads_kv;
        int log = 0;
        while (log < MOST_HEADS_LOG && group % (2 << log) == 0) ++log;
        return log;
    }
    // Tiles of rows of all heads, side by side.
    __device__ __forceinline__ int columns(const AttentionParams &params) const { return params.heads_q >> heads_log; }
    // How many tiles these queries fill: by a shift and a constant, since most of a search would be divisions.
    __device__ __forceinline__ int full_tiles(int queries) const { return (queries >> (6 - heads_log)) / WARPGROUPS; }
    // Of a sequence's rows, one after the other.
    __device__ __forceinline__ int tiles_of(Lengths of) const { return full_tiles(of.queries + (BLOCK_M >> heads_log) - 1); }

    // At least as many tiles of keys as the window lets a tile of rows see.
    __device__ __forceinline__ int window_tiles(const AttentionServed &served) const {
        const Window window = window_of(served);
        return (window.left + window.right + (BLOCK_M >> heads_log) + BLOCK_N - 2) / BLOCK_N + 1;
    }
    // At least as much as any item weighs where no sequence has more than these keys, and at least a tile of keys for all warpgroups.
    __device__ __forceinline__ int heaviest_item(const AttentionServed &served, int longest) const {
        const int most_tiles = (longest + BLOCK_N - 1) / BLOCK_N;
        return max(1, min(window_tiles(served), most_tiles)) * WARPGROUPS;
    }

    // How many of the sequence's first `tiles` tiles of rows see at most `most` tiles of keys. Monotone in `most`, so that each tile is in
    // one level.
    __device__ __forceinline__ int tiles_within(const AttentionServed &served, Lengths of, int tiles, int most) const {
        if (most >= window_tiles(served) || of.keys <= most * BLOCK_N) return tiles;
        // Queries before this one see no key behind the last of these tiles.
        const int end = most * BLOCK_N - window_of(served).right - (of.keys - of.queries);
        return end >= of.queries ? tiles : min(tiles, full_tiles(max(0, end)));
    }
    // The most tiles of keys whose items weigh no more than `most`, with rows for so many warpgroups.
    static __device__ __forceinline__ int tiles_of_weight(int most, int warpgroups) {
        int tiles = most;
#pragma unroll
        for (int divisor = 2; divisor <= WARPGROUPS; ++divisor) {
            if (warpgroups == divisor) tiles = most / divisor;
        }
        return tiles;
    }
    // Those of this level. The last has no lower limit, for rows that see no key.
    __device__ __forceinline__ Tiles tiles_of_level(const AttentionServed &served, Lengths of) const {
        const int queries = BLOCK_M >> heads_log, tiles = tiles_of(of);
        const int of_last = of.queries - (tiles - 1) * queries; // queries
        const int warpgroups = (((of_last + 15) / 16 << heads_log) + 3) / 4; // that have rows of the last tile
        const int less = most - width;
        const bool is_last = less <= 0;
        Tiles in;
        in.whole = warpgroups == WARPGROUPS ? tiles : tiles - 1;
        in.begin = is_last ? 0 : tiles_within(served, of, in.whole, less / WARPGROUPS);
        in.end = tiles_within(served, of, in.whole, most / WARPGROUPS);
        in.partial = in.whole < tiles && tiles_within(served, of, tiles, tiles_of_weight(most, warpgroups)) == tiles
                     && (is_last || tiles_within(served, of, tiles, tiles_of_weight(less, warpgroups)) < tiles);
        return in;
    }
};

// The index of this block's item of the round. To and fro: who gets the longest of one round gets the shortest of the next (stage 13).
__device__ __forceinline__ int index_of_round(int round) {
    const int place = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    return round * gridDim.x + place;
}

} // namespace
