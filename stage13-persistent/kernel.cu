// Stage 13: blocks that stay on their multiprocessor. Each takes one tile of rows after the other; the next tile's Q and first K and V
// are on their way, and the last tile's O is leaving, while the tensor cores work.
// Launched as min(items, multiprocessors) blocks in x: the schedule below says which of them takes what.

#include <attn/mapped_halves.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/wgmma_rows.cuh>
#include <attn/wgmma_tile.cuh>
#include "loader.cuh"

namespace {

// What presets choose.
struct Defaults {
    static constexpr int CONSUMERS = 2;                  // warpgroups that compute, with 64 rows each; one more loads
    static constexpr int BLOCK_N = 128;                  // keys of a tile
    static constexpr int K_SLOTS = 2, V_SLOTS = 2;       // of the rings
    static constexpr int ROW_SLOTS = 2;                  // tiles of rows: Q on its way or in use, O on its way out
    static constexpr bool Q_IN_REGISTERS = true;         // wgmma then reads K alone from shared memory, while TMA writes there
    static constexpr bool PINGPONG = true;               // warpgroups start products in turns: one multiplies, one has its exponentials
    static constexpr bool PACKED = false;                // PackGQA: rows of several query heads that read the same keys in one tile
};

template <class Element_, int HEAD_DIM_, class Choice>
struct Preset : Choice {
    using Element = Element_;
    static constexpr int HEAD_DIM = HEAD_DIM_, CONSUMERS = Choice::CONSUMERS, BLOCK_N = Choice::BLOCK_N;
    static constexpr int THREADS = (CONSUMERS + 1) * 128, WARPS = CONSUMERS * 4, BLOCK_M = WARPS * 16; // WARPS: that compute
    using RowTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_M>;
    using KvTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>;
    struct Shared {
        RowTile row_tiles[Choice::ROW_SLOTS]; // Q, then O on its way out
        KvTile k_tiles[Choice::K_SLOTS], v_tiles[Choice::V_SLOTS];
        Ring<Choice::ROW_SLOTS> rows;
        Ring<Choice::K_SLOTS> k;
        Ring<Choice::V_SLOTS> v;
        Item items[Choice::ROW_SLOTS]; // what the rows are
    };
    static constexpr int Q_BOX_ROWS = Choice::PACKED ? 16 : BLOCK_M, K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N, O_BOX_ROWS = 16;
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = Element::PROBABILITY;
    static constexpr bool LSE = true;
    // Of a loading and of a computing thread: those of the launch, redistributed.
    static constexpr int LOADER_REGISTERS = CONSUMERS >= 3 ? 32 : 40;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 4 ? 112 : CONSUMERS == 3 ? 160 : 232;
    // Named barriers: one of each consumer, and one for the turn of each.
    static constexpr int CONSUMER_BARRIER = 1, TURN_BARRIER = CONSUMER_BARRIER + CONSUMERS;
    static_assert(Choice::K_SLOTS >= 2 && Choice::V_SLOTS >= 2, "a tile lands while another is read");
    static_assert(Choice::ROW_SLOTS >= 2, "a slot is freed when the next item has begun");
    static_assert(!Choice::PINGPONG || CONSUMERS == 2, "two take turns");
    static_assert(!Choice::PACKED || WARPS == 8, "1, 2, 4 or 8 warps have the rows of one head");
    static_assert(LOADER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= 512, "a multiprocessor has 64K of them");
};

// ---- Consumers: the warpgroup number `consumer`, with rows 64 * consumer to 64 * consumer + 63 of each item ----

template <class Preset>
__device__ __forceinline__ void consume(const AttentionLaunch &launch, typename Preset::Shared &smem, int consumer) {
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    using Element = typename Preset::Element;
    const AttentionParams &params = launch.params;
    const int lane = threadIdx.x % 32, thread = threadIdx.x % 128, warp = consumer * 4 + thread / 32;
    const float scale = params.softmax_scale * attn::LOG2_E, scale_log2[2] = {scale, scale}; // of the thread's two rows

    // The slots of the item, of K of the current and of the previous tile, and of V of the previous one.
    auto rows = attn::PipelineState<Preset::ROW_SLOTS>::first();
    auto current = attn::PipelineState<Preset::K_SLOTS>::first(), previous = current;
    auto v = attn::PipelineState<Preset::V_SLOTS>::first();
    const auto release = [&](auto &ring, const auto &pipe) {
        if (thread == 0) attn::mbarrier_arrive(&ring.empty[pipe.slot]);
    };
    const auto meet = [&] { attn::named_barrier_sync<128>(Preset::CONSUMER_BARRIER + consumer); };
    // The two warpgroups alternate over all tiles of all items, those that they do not see included.
    const auto take_turn = [&] {
        // The other's turn has ended.
        if constexpr (Preset::PINGPONG) attn::named_barrier_sync<256>(Preset::TURN_BARRIER + consumer);
    };
    const auto end_turn = [&] {
        if constexpr (Preset::PINGPONG) {
            if (consumer == 0) attn::named_barrier_arrive<Preset::TURN_BARRIER + 1, 256>();
            else attn::named_barrier_arrive<Preset::TURN_BARRIER, 256>();
        }
    };
    if (consumer == 1) end_turn(); // before its first one: the other begins

#pragma unroll 1
    for (int stored = -1;;) { // the slot from which the item before is leaving
        smem.rows.wait_full(rows);
        const Item item = smem.items[rows.slot];
        if (item.key_tiles == Item::NO_MORE) break;
        auto &tile_of_rows = smem.row_tiles[rows.slot];
        const int head_q = item.head_of(warp), warp_row = item.row_of(warp);
        // Declared here, so that nothing of an item is kept in registers until the next.
        float s[BLOCK_N / 2];                        // of [64, BLOCK_N]
        float o_acc[HEAD_DIM / 2];                   // of [64, HEAD_DIM]
        uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4]; // of [64, BLOCK_N]
        uint32_t q_frag[Preset::Q_IN_REGISTERS ? HEAD_DIM / attn::WGMMA_K : 1][4]; // of [64, HEAD_DIM]
        int visible[2];          // keys that the thread's two rows see
        attn::RowState state[2]; // of these rows
        float rescale[2];        // the factor for the output so far
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            visible[half] = attn::visible_keys(params, max(0, warp_row + lane / 4 + half * 8));
            state[half] = attn::RowState::empty();
        }
        // Keys that all rows of the warpgroup see, and those that any of them does.
        const int first_row = item.row_of(consumer * 4), last_row = first_row + min(4, 1 << item.warps_log) * 16 - 1;
        const int visible_to_all = attn::visible_keys(params, max(0, first_row));
        const bool has_rows = last_row >= 0 && first_row < params.seq_q;
        const int visible_to_any = has_rows ? attn::visible_keys(params, min(last_row, params.seq_q - 1)) : 0;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
 ATTN_PLACES(at, item.batch, head_q, warp_row + lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
        // TMA has read O of the item before: the slot may be filled again.
        const auto release_stored = [&] {
            if (stored >= 0 && attn::elect_one()) {
                attn::tma_store_wait_read<0>();
                attn::mbarrier_arrive(&smem.rows.empty[stored]);
            }
        };
        const auto start_scores = [&] {
            if constexpr (Preset::Q_IN_REGISTERS) attn::start_qk(s, q_frag, smem.k_tiles[current.slot]);
            else attn::start_qk(s, tile_of_rows, consumer * attn::WGMMA_M, smem.k_tiles[current.slot]);
        };
        const auto mask_and_softmax = [&](int tile) {
            if ((tile + 1) * BLOCK_N > visible_to_all) attn::mask_rows(s, tile * BLOCK_N, visible, lane);
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
            attn::softmax_rows(s, state, scale_log2, rescale);
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
        };
        // From P of the previous tile: its P·V, and P of `tile`, whose K has landed.
        const auto step = [&](int tile, auto exact) {
            constexpr bool EXACT = decltype(exact)::value;
            smem.v.wait_full(v);
            // Warps that read K of the previous tile on their own have done so.
            if constexpr (Preset::PINGPONG) take_turn();
            else meet();
            start_scores();
            attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v_tiles[v.slot]);
            end_turn();
            release(smem.k, previous);
            attn::wgmma_wait<1>(s); // P·V goes on
            bool in_range = true;   // no exponential is too large
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
            if constexpr (EXACT) mask_and_softmax(tile);
            else in_range = attn::exponentials_of_rows(s, state, scale_log2);
            // A loop that the compiler moves nothing across: else it would compute the exponentials after the next wait.
            auto next = current;
            next.advance();
            if (tile > 0) smem.k.wait_full(next);
            attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, (tile + 1) * BLOCK_N, o_acc);
            release(smem.v, v);
            if (!in_range) { // the warp computes its scores again, for new maxima
                attn::warp_scores(s, tile_of_rows, warp * 16, smem.k_tiles[current.slot]);
                attn::softmax_rows(s, state, scale_log2, rescale);
            }
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
            if (EXACT || !in_range) attn::scale_rows(o_acc, rescale);
 ATTN_OBSERVE(RESCALED, at, tile * BLOCK_N, o_acc);
            attn::round_rows<Element>(p_frag, s);
            previous = current, current = next;
            v.advance();
        };

        int tile = item.key_tiles - 1;
        // Tiles that no row of the warpgroup sees.
#pragma unroll 1
        for (; tile >= 0 && tile * BLOCK_N >= visible_to_any; --tile, current.advance(), v.advance()) {
            smem.k.wait_full(current);
            smem.v.wait_full(v);
            // All warps have seen both phases end: one that came a lap late would wait for ever.
            meet();
            release(smem.k, current);
            release(smem.v, v);
            take_turn();
            end_turn();
        }
        if (tile >= 0) {
            if constexpr (Preset::Q_IN_REGISTERS) {
#pragma unroll
                for (int i = 0; i < HEAD_DIM / attn::WGMMA_K; ++i) {
                    attn::ldmatrix_x4(q_frag[i], tile_of_rows.at(warp * 16 + lane % 16, 2 * i + lane / 16));
                }
            }
            smem.k.wait_full(current);
            take_turn();
            start_scores();
            end_turn();
            release_stored();
            attn::wgmma_wait<0>(s);
            mask_and_softmax(tile);
            attn::round_rows<Element>(p_frag, s);
            previous = current, current.advance();
            if (tile > 0) smem.k.wait_full(current);
            // Tiles that some rows see only in part, until all rows have seen a key and have a maximum.
#pragma unroll 1
            for (--tile; tile >= 0 && (tile + 1) * BLOCK_N >= visible_to_all; --tile) step(tile, std::true_type{});
#pragma unroll 1
            for (; tile >= 0; --tile) step(tile, std::false_type{});
            smem.v.wait_full(v);
            // Warps that read K of the last tile on their own have done so.
            meet();
            attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v_tiles[v.slot]);
            release(smem.k, previous);
            attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, 0, o_acc);
            release(smem.v, v);
            v.advance();
        } else {
            release_stored();
        }

        // ---- Epilogue: O takes the place of the warp's rows of Q, and leaves by TMA under the next item ----
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            state[half].template join<4>();
            factor[half] = state[half].inverse_sum();
        }
        attn::scale_rows(o_acc, factor);
        __syncwarp(); // lanes that read Q have done so
        attn::store_rows(tile_of_rows, warp * 16, o_acc, lane);
        // Each lane makes what it wrote visible to TMA, before one of them starts the copies.
        attn::fence_proxy_async();
        __syncwarp();
        if (attn::elect_one()) {
#pragma unroll
            for (int box = 0; box < Preset::RowTile::BOXES; ++box) {
                attn::tma_store(launch.o, tile_of_rows.boxes[box] + warp * 16 * 128, box * 64, warp_row, head_q, item.batch);
            }
            attn::tma_store_commit();
        }
        if (warp_row >= 0) attn::store_lse_rows(params, item.batch, head_q, warp_row + lane / 4, state, scale, lane);
        stored = rows.slot;
        rows.advance();
    }
    if (attn::elect_one()) attn::tma_store_wait_read<0>(); // shared memory lives as long as the block
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // uniform in a warp, for the compiler
    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    if (threadIdx.x == 0) {
        smem.rows.init(Preset::WARPS); // each stores its own
        smem.k.init(Preset::CONSUMERS);
        smem.v.init(Preset::CONSUMERS);
        attn::fence_mbarrier_init();
    }
    // The barriers are initialised.
    __syncthreads();
    if (warpgroup == Preset::CONSUMERS) {
        attn::give_registers_back<Preset::LOADER_REGISTERS>();
        if (threadIdx.x % 128 == 0) load<Preset>(launch, smem);
    } else {
        attn::take_registers<Preset::CONSUMER_REGISTERS>();
        consume<Preset>(launch, smem, warpgroup);
    }
}

// Rows x keys of a tile. What is left of shared memory takes rows further ahead.
template <int HEAD_DIM>
struct Pingpong128x128 : Defaults {
    static constexpr int K_SLOTS = HEAD_DIM == 64 ? 4 : 2, V_SLOTS = K_SLOTS, ROW_SLOTS = 3;
};
// Or another tile of K.
template <int HEAD_DIM>
struct Ahead128x128 : Defaults {
    static constexpr int K_SLOTS = HEAD_DIM == 64 ? 5 : 3, V_SLOTS = HEAD_DIM == 64 ? 4 : 2;
};
// Without turns.
template <int HEAD_DIM>
struct Free128x128 : Pingpong128x128<HEAD_DIM> {
    static constexpr bool PINGPONG = false;
};
// With Q in shared memory, whose registers longer tiles take.
template <int HEAD_DIM>
struct Pingpong128x160 : Defaults {
    static constexpr int BLOCK_N = 160;
    static constexpr bool Q_IN_REGISTERS = false;
};
// More warpgroups, with less of the keys each.
template <int HEAD_DIM>
struct Wide256x64 : Defaults {
    static constexpr int CONSUMERS = HEAD_DIM == 64 ? 4 : 3, BLOCK_N = 64;
    static constexpr int K_SLOTS = HEAD_DIM == 64 ? 6 : 4, V_SLOTS = K_SLOTS;
    static constexpr bool Q_IN_REGISTERS = false, PINGPONG = false;
};
template <int HEAD_DIM>
struct Packed128x128 : Pingpong128x128<HEAD_DIM> {
    static constexpr bool PACKED = true;
};

template <class Element, int HEAD_DIM> using Persistent128x128 = Preset<Element, HEAD_DIM, Pingpong128x128<HEAD_DIM>>;
template <class Element, int HEAD_DIM> using PersistentAhead = Preset<Element, HEAD_DIM, Ahead128x128<HEAD_DIM>>;
template <class Element, int HEAD_DIM> using PersistentFree = Preset<Element, HEAD_DIM, Free128x128<HEAD_DIM>>;
template <class Element, int HEAD_DIM> using Persistent128x160 = Preset<Element, HEAD_DIM, Pingpong128x160<HEAD_DIM>>;
template <class Element, int HEAD_DIM> using Persistent256x64 = Preset<Element, HEAD_DIM, Wide256x64<HEAD_DIM>>;
template <class Element, int HEAD_DIM> using PackedPersistent = Preset<Element, HEAD_DIM, Packed128x128<HEAD_DIM>>;

} // namespace

ATTN_MAPPED_HALVES_VARIANT(persistent, persistent_128x128, Persistent128x128)
ATTN_MAPPED_HALVES_VARIANT(persistent, persistent_128x128_ahead, PersistentAhead)
ATTN_MAPPED_HALVES_VARIANT(persistent, persistent_128x128_free, PersistentFree)
ATTN_MAPPED_HALVES_VARIANT(persistent, persistent_128x160, Persistent128x160)
ATTN_MAPPED_HALVES_VARIANT(persistent, persistent_256x64, Persistent256x64)
ATTN_MAPPED_HALVES_VARIANT(packed, packed_128x128, PackedPersistent)
