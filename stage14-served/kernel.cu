// Stage 14: stage 13's packed tiles for sequences as they are served, each with its own length, one after the other or in pages, under
// windows, with sinks and capped scores; K and V may be in E4M3. What the host does not know, such as how many items there are, blocks
// read on the device.
// Launched as min(items at most, multiprocessors) blocks in x: the schedule says which of them takes what.

#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/opaque.cuh>
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/served.cuh>
#include <attn/wgmma_tile.cuh>
#include "codes.cuh"
#include "epilogue.cuh"
#include "loader.cuh"
#include "presets.cuh"
#include "rows.cuh"

namespace {

template <class Element_, int HEAD_DIM_, class Choice>
struct Preset : Choice {
    using Element = Element_;
    static constexpr int HEAD_DIM = HEAD_DIM_, CONSUMERS = Choice::CONSUMERS, BLOCK_N = Choice::BLOCK_N;
    static constexpr int ROW_SLOTS = 2; // tiles of rows: Q on its way or in use, O on its way out
    static constexpr int FOUND_SLOTS = 2; // items that the loader will ask for next
    static constexpr int WIDENERS = Choice::WIDENERS; // warpgroups that widen codes of K and V, if these are in E4M3
    static constexpr bool WIDENS = WIDENERS > 0, REDISTRIBUTES = CONSUMERS > 1 || WIDENS; // registers, between warpgroups
    static constexpr int THREADS = (CONSUMERS + 1 + WIDENERS) * 128, WARPS = CONSUMERS * 4, BLOCK_M = WARPS * 16; // WARPS: that compute
    static constexpr int ITEM_READERS = WIDENS ? WIDENERS * 4 : 1; // warps that widen, or the one that clears rows of keys
    static constexpr int TILE_WRITERS = WIDENS ? 4 : 1; // arrivals at a tile of keys: of a warpgroup that widens it, or of a single warp
    using RowTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_M>;
    using KvTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>;
    struct Shared {
        RowTile row_tiles[ROW_SLOTS]; // Q, then O on its way out
        KvTile k_tiles[Choice::K_SLOTS], v_tiles[Choice::V_SLOTS];
        Ring<ROW_SLOTS> rows;
        Ring<Choice::K_SLOTS> k;
        Ring<Choice::V_SLOTS> v;
        // Where tiles of keys are before consumers get them.
        std::conditional_t<WIDENS, Codes<HEAD_DIM, BLOCK_N, Choice::CODE_SLOTS>, Landing<Choice::V_SLOTS>> landing;
        Item items[ROW_SLOTS]; // what the rows are
        Ring<FOUND_SLOTS> found;
        Item found_items[FOUND_SLOTS];
    };
    static constexpr int Q_BOX_ROWS = 16, K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N, O_BOX_ROWS = 16;
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = Element::PROBABILITY;
    static constexpr bool LSE = true;
    static constexpr int TURN_BARRIER = 1; // and the next: a named barrier for each consumer's turn
    static_assert(Choice::K_SLOTS >= 2 && Choice::V_SLOTS >= 2, "a tile lands while another is read");
    static_assert(ROW_SLOTS >= 2, "a slot is freed when the next item has begun");
    static_assert(!Choice::PINGPONG || CONSUMERS == 2, "two take turns");
    static_assert(!REDISTRIBUTES || Choice::LOADER_REGISTERS + CONSUMERS * Choice::CONSUMER_REGISTERS
                                            + WIDENERS * Choice::WIDENER_REGISTERS <= attn::registers_of_launch(THREADS),
                  "a take would never end");
};

// Consumers: the warpgroup number `consumer`, with rows 64 * consumer to 64 * consumer + 63 of each item.
template <class Preset>
__device__ __forceinline__ void consume(const AttentionServed &served, typename Preset::Shared &smem, int consumer) {
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    using Element = typename Preset::Element;
    const AttentionParams &params = served.launch.params;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32; // consumers come first
    const float softcap = served.serving.softcap; // scores are divided by it, if it is not 0, and their tangents multiplied
    float key_scale = 1.0f, value_scale = 1.0f; // of the item's K and V, where these are codes
    const auto score_scale = [&] {
        if constexpr (Preset::WIDENS) return params.softmax_scale * key_scale;
        else return params.softmax_scale;
    };
    float scale = (softcap != 0.0f ? softcap : score_scale()) * attn::LOG2_E;
    float scale_log2[2] = {scale, scale}; // of the thread's two rows
    float s[BLOCK_N / 2];                        // of [64, BLOCK_N]
    float o_acc[HEAD_DIM / 2];                   // of [64, HEAD_DIM]
    uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4]; // of [64, BLOCK_N]
    uint32_t q_frag[Preset::Q_IN_REGISTERS ? HEAD_DIM / attn::WGMMA_K : 1][4]; // of [64, HEAD_DIM]
    attn::RowState state[2]; // of the thread's two rows
    float rescale[2];        // the factor for the output so far

    // The slots of the item, of K of the current tile, and of V of the tile before: behind K in a ring as deep, else in a place of its own.
    auto rows = Place<Preset::ROW_SLOTS>::first();
    auto k = Place<Preset::K_SLOTS>::first();
    auto own_v = Place<Preset::V_SLOTS>::first();
    const auto v = [&] {
        if constexpr (Preset::K_SLOTS == Preset::V_SLOTS) return k.previous();
        else return own_v;
    };
    int stored = -1; // the slot that O may still be leaving
    // Each warp frees what it has read.
    const auto release = [&](auto &ring, int slot) {
        if (attn::elect_one()) attn::mbarrier_arrive(&ring.empty[slot]);
    };
    // Two warpgroups alternate over all tiles of all items, those that they do not see included: the other's turn has ended.
    const auto take_turn = [&] {
        if constexpr (Preset::PINGPONG) attn::named_barrier_sync<256>(Preset::TURN_BARRIER + consumer);
    };
    const auto end_turn = [&] {
        if constexpr (Preset::PINGPONG) {
            if (consumer == 0) attn::named_barrier_arrive<Preset::TURN_BARRIER + 1, 256>();
            else attn::named_barrier_arrive<Preset::TURN_BARRIER, 256>();
        }
    };
    if (consumer == 1) end_turn(); // before its first one: the other begins
    const auto start_scores = [&] {
        if constexpr (Preset::Q_IN_REGISTERS) {
            attn::start_qk(s, q_frag, smem.k_tiles[k.slot()]);
        } else {
            const int slot = attn::opaque(rows.slot()); // else the loop keeps eight registers of Q's descriptors
            attn::start_qk(s, smem.row_tiles[slot], consumer * attn::WGMMA_M, smem.k_tiles[k.slot()]);
        }
    };
    const auto wait_pv = [&] {
        attn::wgmma_wait<0>(o_acc);
        release(smem.v, v().slot());
        own_v.advance();
    };
    // TMA has read O: its slot may be filled again.
    const auto release_stored = [&] {
        if (stored >= 0 && attn::elect_one()) {
            attn::tma_store_wait_read<0>();
            attn::mbarrier_arrive(&smem.rows.empty[stored]);
        }
        stored = -1;
    };
    const auto store = [&] {
        release_stored();
        start_store<Preset>(served, smem, rows.slot(), warp, lane, o_acc, state, scale, value_scale);
        stored = rows.slot();
    };
    // Tiles, from this one down to `first`, that no row of the warpgroup sees.
    const auto skip = [&](int tile, int first) {
#pragma unroll 1
        for (; tile >= first; --tile, own_v.advance()) {
            smem.k.wait_full(k);
            release(smem.k, k.slot());
            k.advance();
            smem.v.wait_full(v());
            release(smem.v, v().slot());
            take_turn();
            end_turn();
        }
    };

#pragma unroll 1
    for (;; rows.advance()) {
        smem.rows.wait_full(rows);
        const Item &item = smem.items[rows.slot()];
        if (item.key_tiles == Item::NO_MORE) break;
        if constexpr (Preset::WIDENS) {
            key_scale = attn::scale_of(params.k, params.heads_kv, item.sequence, item.head_kv);
            value_scale = attn::scale_of(params.v, params.heads_kv, item.sequence, item.head_kv);
            scale = (softcap != 0.0f ? softcap : score_scale()) * attn::LOG2_E;
            scale_log2[0] = scale_log2[1] = scale;
        }
        const int warp_rows = Preset::SKIPS_ROWS ? item.lengths.queries - item.row_of(warp) : 16; // that exist: the others cost less
        const KeyRange to_any = keys_of_any_row(served, item, consumer);
 ATTN_PLACES(at, item.sequence, item.head_of(warp), item.row_of(warp) + lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
        const auto mask_and_softmax = [&](int tile) {
            if (softcap != 0.0f) cap_scores(s, score_scale() / softcap);
            // Computed again for each exact tile: kept over the loop it would take registers that three warpgroups do not have.
            const KeyRange to_all = keys_of_all_rows(served, item, consumer);
            if (tile * BLOCK_N < to_all.begin || (tile + 1) * BLOCK_N > to_all.end) {
                KeyRange range[2]; // what the thread's two rows see; those that do not exist see what the last one does
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int query = min(item.row_of(warp) + lane / 4 + half * 8, item.lengths.queries - 1);
                    range[half] = keys_of_query(served, item.lengths, query);
                }
                mask_row_ranges(s, tile * BLOCK_N, range, lane);
            }
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
            attn::softmax_rows(s, state, scale_log2, rescale);
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
        };

        // The warpgroup's own tiles, of the item's. The other's turns, and the rings, go on over all of them.
        const int item_tile = item.first_tile + item.key_tiles - 1;
        const int lowest_tile = max(item.first_tile, to_any.begin / BLOCK_N);
        int tile = max(item.first_tile - 1, min(item_tile, (to_any.end + BLOCK_N - 1) / BLOCK_N - 1));
        skip(item_tile, tile + 1);
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
        clear_states(state, warp_rows, lane);
        if (tile < lowest_tile) { // the warpgroup's rows, if there are any, see no key
            skip(tile, item.first_tile);
            store();
            continue;
        }

        // P of the first tile.
        if constexpr (Preset::Q_IN_REGISTERS) {
#pragma unroll
            for (int i = 0; i < HEAD_DIM / attn::WGMMA_K; ++i) {
                attn::ldmatrix_x4(q_frag[i], smem.row_tiles[rows.slot()].at(warp * 16 + lane % 16, 2 * i + lane / 16));
                clear_queries(q_frag[i], warp_rows, lane);
            }
            // All lanes have read Q, which O takes the place of; where there are turns, their barrier orders it.
            if constexpr (!Preset::PINGPONG) __syncwarp();
        }
        smem.k.wait_full(k);
        take_turn();
        start_scores();
        end_turn();
        release_stored();
        attn::wgmma_wait<0>(s);
        release(smem.k, k.slot());
        mask_and_softmax(tile);
        attn::round_rows<Element>(p_frag, s);
        k.advance();
        if (tile > lowest_tile) smem.k.wait_full(k);

        // From P of the previous tile: its P·V, and P of `tile`, whose K has landed.
        const auto step = [&](auto exact) {
            constexpr bool EXACT = decltype(exact)::value, PV_OVERLAPS = !EXACT || Preset::EXACT_OVERLAPS; // P·V goes on under the softmax
            smem.v.wait_full(v());
            take_turn();
            start_scores();
            attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v_tiles[v().slot()]);
            end_turn();
            attn::wgmma_wait<1>(s); // of the scores
            bool in_range = true;   // no exponential is too large
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
            if constexpr (!PV_OVERLAPS) wait_pv();
            if constexpr (EXACT) mask_and_softmax(tile);
            else in_range = probabilities_of_rows(s, state, scale_log2, warp_rows);
            // Here and not at the next product, which may have to wait for its turn: the loader can be a slot or two ahead, no more.
            if (in_range) release(smem.k, k.slot());
            auto next = k;
            next.advance();
            // Here and not in the next step: ptxas moves nothing across the loop of a wait, and would move the exponentials behind the
            // next one.
            if (tile > lowest_tile) smem.k.wait_full(next);
            if constexpr (PV_OVERLAPS) wait_pv();
 ATTN_OBSERVE(OUTPUT, at, (tile + 1) * BLOCK_N, o_acc);
            if (!in_range) { // the warp computes its scores again, for new maxima
                attn::warp_scores(s, smem.row_tiles[rows.slot()], warp * 16, smem.k_tiles[k.slot()]);
                __syncwarp(); // all lanes have read K, and Q, which O takes the place of
                release(smem.k, k.slot());
                attn::softmax_rows(s, state, scale_log2, rescale);
            }
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
            if (EXACT || !in_range) attn::scale_rows(o_acc, rescale);
 ATTN_OBSERVE(RESCALED, at, tile * BLOCK_N, o_acc);
            attn::round_rows<Element>(p_frag, s);
            k = next;
        };
        // Lazy: tiles that all rows see in full, once all have seen a key and have a maximum. Exact: all others, and all capped ones.
        const KeyRange to_all = keys_of_all_rows(served, item, consumer);
        const int lazy_end = (to_all.end - 1) / BLOCK_N;
        const int lazy_begin = softcap != 0.0f ? lazy_end : max(lowest_tile, (to_all.begin + BLOCK_N - 1) / BLOCK_N);
        int exact_until = max(lowest_tile, lazy_end);
        --tile;
#pragma unroll 1
        for (;;) {
#pragma unroll 1
            for (; tile >= exact_until; --tile) step(std::true_type{});
            if (tile < lowest_tile) break;
#pragma unroll 1
            for (; tile >= lazy_begin; --tile) step(std::false_type{});
            exact_until = lowest_tile;
        }

        // P·V of the last tile.
        smem.v.wait_full(v());
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v_tiles[v().slot()]);
        wait_pv();
        skip(lowest_tile - 1, item.first_tile);
        store();
    }
    if (attn::elect_one()) attn::tma_store_wait_read<0>(); // shared memory lives as long as the block
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionServed &served) {
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // uniform in a warp, for the compiler
    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    if (threadIdx.x == 0) {
        smem.rows.init(Preset::WARPS + Preset::ITEM_READERS); // each of the former stores its own
        smem.k.init(Preset::WARPS, Preset::TILE_WRITERS);
        smem.v.init(Preset::WARPS, Preset::TILE_WRITERS);
        smem.found.init(1);
        smem.landing.init(Preset::TILE_WRITERS);
        attn::fence_mbarrier_init();
    }
    // The barriers are initialised.
    __syncthreads();
    if constexpr (Preset::WIDENS) {
        if (warpgroup > Preset::CONSUMERS) return widen<Preset>(smem, threadIdx.x - (Preset::CONSUMERS + 1) * 128);
    }
    if (warpgroup == Preset::CONSUMERS) {
        if constexpr (Preset::REDISTRIBUTES) attn::give_registers_back<Preset::LOADER_REGISTERS>();
        const int warp = __shfl_sync(0xffffffffu, threadIdx.x % 128 / 32, 0);
        if (warp == 0) load<Preset>(served, smem);
        if constexpr (!Preset::WIDENS) {
            if (warp == 1) mend<Preset>(smem);
        }
        if (warp == 2) find_items<Preset>(served, smem);
    } else {
        if constexpr (Preset::REDISTRIBUTES) attn::take_registers<Preset::CONSUMER_REGISTERS>();
        consume<Preset>(served, smem, warpgroup);
    }
}

// Rows x keys of a tile; served-128x128 has 192 rows at head_dim 64. Those that are cached take codes.
template <class Element, int HEAD_DIM>
using Served128x128 = Preset<Element, HEAD_DIM, std::conditional_t<HEAD_DIM == 64, Wide192, Pingpong128x128>>;
template <class Element, int HEAD_DIM>
using Served192x64 = Preset<Element, HEAD_DIM, std::conditional_t<HEAD_DIM == 64, Narrow192x64, Wide192x64>>;
template <class Element, int HEAD_DIM> using Served64x128 = Preset<Element, HEAD_DIM, Decode64x128<HEAD_DIM>>;
template <class Element, int HEAD_DIM> using Cached128x128 = Preset<Element, HEAD_DIM, Widened128x128>;
template <class Element, int HEAD_DIM> using Cached64x128 = Preset<Element, HEAD_DIM, WidenedDecode64x128>;

} // namespace

ATTN_SERVED_VARIANT(served, served_128x128, Served128x128)
ATTN_SERVED_VARIANT(served, served_64x128, Served64x128)
ATTN_SERVED_VARIANT(served, served_192x64, Served192x64)
ATTN_SERVED_VARIANT(cached, cached_64x128, Cached64x128)
ATTN_SERVED_VARIANT(cached, cached_128x128, Cached128x128)
