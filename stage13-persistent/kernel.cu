// Stage 13: blocks that stay on their multiprocessor. Each takes one tile of rows after the other; the next tile's Q and first K and V
// are on their way, and the last tile's O is leaving, while the tensor cores work.
// Launched as min(items, multiprocessors) blocks in x: schedule.cuh says which of them takes what.

#include <attn/mapped_halves.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/wgmma_tile.cuh>
#include "epilogue.cuh"
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
    static constexpr int TURN_BARRIER = 1; // and the next: a named barrier for each consumer's turn
    static_assert(Choice::K_SLOTS >= 2 && Choice::V_SLOTS >= 2, "a tile lands while another is read");
    static_assert(Choice::ROW_SLOTS >= 2, "a slot is freed when the next item has begun");
    static_assert(!Choice::PINGPONG || CONSUMERS == 2, "two take turns");
    static_assert(!Choice::PACKED || WARPS == 8, "1, 2, 4 or 8 warps have the rows of one head");
    static_assert(!Choice::Q_IN_REGISTERS || Choice::PINGPONG, "turns order reads of Q before O takes its place");
    static_assert(LOADER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= attn::registers_of_launch(THREADS), "a take would never end");
};

// Consumers: the warpgroup number `consumer`, with rows 64 * consumer to 64 * consumer + 63 of each item.
template <class Preset>
__device__ __forceinline__ void consume(const AttentionLaunch &launch, typename Preset::Shared &smem, int consumer) {
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    using Element = typename Preset::Element;
    const AttentionParams &params = launch.params;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32; // consumers come first
    const float scale = params.softmax_scale * attn::LOG2_E, scale_log2[2] = {scale, scale}; // of the thread's two rows
    float s[BLOCK_N / 2];                        // of [64, BLOCK_N]
    float o_acc[HEAD_DIM / 2];                   // of [64, HEAD_DIM]
    uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4]; // of [64, BLOCK_N]
    uint32_t q_frag[Preset::Q_IN_REGISTERS ? HEAD_DIM / attn::WGMMA_K : 1][4]; // of [64, HEAD_DIM]
    attn::RowState state[2]; // of the thread's two rows
    float rescale[2];        // the factor for the output so far

    // The slots of the item, of K of the current tile, and of V of the previous one.
    auto rows = attn::PipelineState<Preset::ROW_SLOTS>::first();
    auto k = attn::PipelineState<Preset::K_SLOTS>::first();
    auto v = attn::PipelineState<Preset::V_SLOTS>::first();
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
        if constexpr (Preset::Q_IN_REGISTERS) attn::start_qk(s, q_frag, smem.k_tiles[k.slot]);
        else attn::start_qk(s, smem.row_tiles[rows.slot], consumer * attn::WGMMA_M, smem.k_tiles[k.slot]);
    };
    const auto wait_pv = [&] {
        attn::wgmma_wait<0>(o_acc);
        release(smem.v, v.slot);
        v.advance();
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
        start_store<Preset>(launch, smem, rows.slot, warp, lane, o_acc, state, scale);
        stored = rows.slot;
    };

#pragma unroll 1
    for (;; rows.advance()) {
        smem.rows.wait_full(rows);
        const Item item = smem.items[rows.slot];
        if (item.key_tiles == Item::NO_MORE) break;
        const int warp_row = item.row_of(warp);
        int visible[2]; // keys that the thread's two rows see
#pragma unroll
        for (int half = 0; half < 2; ++half) visible[half] = attn::visible_keys(params, max(0, warp_row + lane / 4 + half * 8));
        // Keys that all rows of the warpgroup see, and those that any of them does.
        const int first_row = item.row_of(consumer * 4), last_row = first_row + min(4, 1 << item.warps_log) * 16 - 1;
        const int visible_to_all = attn::visible_keys(params, max(0, first_row));
        const bool has_rows = last_row >= 0 && first_row < params.seq_q;
        const int visible_to_any = has_rows ? attn::visible_keys(params, min(last_row, params.seq_q - 1)) : 0;
 ATTN_PLACES(at, item.batch, item.head_of(warp), warp_row + lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
        const auto mask_and_softmax = [&](int tile) {
            if ((tile + 1) * BLOCK_N > visible_to_all) attn::mask_rows(s, tile * BLOCK_N, visible, lane);
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
            attn::softmax_rows(s, state, scale_log2, rescale);
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
        };

        // Tiles that no row of the warpgroup sees.
        int tile = item.key_tiles - 1;
#pragma unroll 1
        for (; tile >= 0 && tile * BLOCK_N >= visible_to_any; --tile, k.advance(), v.advance()) {
            smem.k.wait_full(k);
            smem.v.wait_full(v);
            release(smem.k, k.slot);
            release(smem.v, v.slot);
            take_turn();
            end_turn();
        }
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
        state[0] = state[1] = attn::RowState::empty();
        if (tile < 0) { // the warpgroup's rows, if there are any, see no key
            store();
            continue;
        }

        // P of the first tile.
        if constexpr (Preset::Q_IN_REGISTERS) {
#pragma unroll
            for (int i = 0; i < HEAD_DIM / attn::WGMMA_K; ++i) {
                attn::ldmatrix_x4(q_frag[i], smem.row_tiles[rows.slot].at(warp * 16 + lane % 16, 2 * i + lane / 16));
            }
        }
        smem.k.wait_full(k);
        take_turn();
        start_scores();
        end_turn();
        release_stored();
        attn::wgmma_wait<0>(s);
        release(smem.k, k.slot);
        mask_and_softmax(tile);
        attn::round_rows<Element>(p_frag, s);
        k.advance();
        if (tile > 0) smem.k.wait_full(k);

        // From P of the previous tile: its P·V, and P of `tile`, whose K has landed.
        const auto step = [&](auto exact) {
            constexpr bool EXACT = decltype(exact)::value;
            smem.v.wait_full(v);
            take_turn();
            start_scores();
            attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v_tiles[v.slot]);
            end_turn();
            attn::wgmma_wait<1>(s); // P·V goes on under the softmax
            bool in_range = true;   // no exponential is too large
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
            if constexpr (EXACT) mask_and_softmax(tile);
            else in_range = attn::exponentials_of_rows(s, state, scale_log2);
            // Here and not at the next product, which may have to wait for its turn: the loader can be a slot or two ahead, no more.
            if (in_range) release(smem.k, k.slot);
            auto next = k;
            next.advance();
            // Here and not in the next step: ptxas moves nothing across the loop of a wait, and would move the exponentials behind the
            // next one.
            if (tile > 0) smem.k.wait_full(next);
            wait_pv();
 ATTN_OBSERVE(OUTPUT, at, (tile + 1) * BLOCK_N, o_acc);
            if (!in_range) { // the warp computes its scores again, for new maxima
                attn::warp_scores(s, smem.row_tiles[rows.slot], warp * 16, smem.k_tiles[k.slot]);
                __syncwarp(); // all lanes have read K, and Q, which O takes the place of
                release(smem.k, k.slot);
                attn::softmax_rows(s, state, scale_log2, rescale);
            }
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
            if (EXACT || !in_range) attn::scale_rows(o_acc, rescale);
 ATTN_OBSERVE(RESCALED, at, tile * BLOCK_N, o_acc);
            attn::round_rows<Element>(p_frag, s);
            k = next;
        };
        // Tiles that some rows see only in part, until all rows have seen a key and have a maximum.
#pragma unroll 1
        for (--tile; tile >= 0 && (tile + 1) * BLOCK_N >= visible_to_all; --tile) step(std::true_type{});
#pragma unroll 1
        for (; tile >= 0; --tile) step(std::false_type{});

        // P·V of the last tile, in no turn (README: started with the next item's scores it lost).
        smem.v.wait_full(v);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v_tiles[v.slot]);
        wait_pv();
        store();
    }
    if (attn::elect_one()) attn::tma_store_wait_read<0>(); // shared memory lives as long as the block
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // uniform in a warp, for the compiler
    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    if (threadIdx.x == 0) {
        smem.rows.init(Preset::WARPS); // each stores its own
        smem.k.init(Preset::WARPS);
        smem.v.init(Preset::WARPS);
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

// Rows x keys of a tile.
template <int HEAD_DIM>
struct Pingpong128x128 : Defaults {
    static constexpr int K_SLOTS = HEAD_DIM == 64 ? 4 : 3, V_SLOTS = HEAD_DIM == 64 ? 4 : 2;
};
template <int HEAD_DIM>
struct Packed128x128 : Pingpong128x128<HEAD_DIM> {
    static constexpr bool PACKED = true;
};
// More warpgroups, with fewer keys each, and no turns. No registers are left for Q.
template <int HEAD_DIM>
struct Wide256x64 : Defaults {
    static constexpr int CONSUMERS = HEAD_DIM == 64 ? 4 : 3, BLOCK_N = 64;
    static constexpr int K_SLOTS = HEAD_DIM == 64 ? 6 : 4, V_SLOTS = K_SLOTS;
    static constexpr bool Q_IN_REGISTERS = false, PINGPONG = false;
};

template <class Element, int HEAD_DIM> using Persistent128x128 = Preset<Element, HEAD_DIM, Pingpong128x128<HEAD_DIM>>;
template <class Element, int HEAD_DIM> using Persistent256x64 = Preset<Element, HEAD_DIM, Wide256x64<HEAD_DIM>>;
template <class Element, int HEAD_DIM> using PackedPersistent = Preset<Element, HEAD_DIM, Packed128x128<HEAD_DIM>>;

} // namespace

ATTN_MAPPED_HALVES_VARIANT(persistent, persistent_256x64, Persistent256x64)
ATTN_MAPPED_HALVES_VARIANT(persistent, persistent_128x128, Persistent128x128)
ATTN_MAPPED_HALVES_VARIANT(packed, packed_128x128, PackedPersistent)
