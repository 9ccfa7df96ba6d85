// Stage 11: exponentials, which bound head_dim 64, spread over an SM's four schedulers: four warpgroups compute where there are
// rows for two, by splitting the keys. FP32 arithmetic, which holds up wgmma, is spread among the exponentials.
// Launched as stage 8 is: a grid of ceil(seq_q / BLOCK_M) x heads_q x batch blocks; with packed rows, of ceil(rows / BLOCK_M) x
// heads_kv x batch. work_of_block() tells a block its rows, and work_of_group() a warpgroup of a zigzag block.

#include <attn/key_parts.cuh>
#include <attn/loading_warpgroup.cuh>
#include <attn/mapped.cuh>
#include <attn/mask.cuh>
#include <attn/observe.cuh> // ATTN_PLACES, ATTN_OBSERVE: for `compare explain`, nothing on a GPU
#include <attn/packed_rows.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/spread_exponentials.cuh>
#include <attn/warpgroup_output.cuh>

namespace {

// The query rows of a block.
enum class Rows {
    NEIGHBOURS, // of one head
    ZIGZAG,     // and 64 by 64 apart: under the causal mask all blocks have the same work
    PACKED,     // of all query heads of a key head, whose keys are read once for them
};

// Each of the first CONSUMERS warpgroups owns 64 query rows and every PARTS-th tile of keys; the last warpgroup loads.
template <class Element_,       // of Q, K and V
          int HEAD_DIM_,        // columns
          int CONSUMERS_,       // warpgroups that compute
          int PARTS_,           // of these that have the same rows and split the keys
          int BLOCK_N_,         // keys of a tile
          int STAGES_,          // tiles of K and V in the ring
          Rows ROWS = Rows::NEIGHBOURS>
struct Preset {
    using Element = Element_;
    using Operand = typename Element::Operand;
    static constexpr int HEAD_DIM = HEAD_DIM_, BLOCK_N = BLOCK_N_;
    static constexpr int CONSUMERS = CONSUMERS_, PARTS = PARTS_, GROUPS = CONSUMERS / PARTS; // of rows
    static constexpr int BLOCK_M = GROUPS * attn::WGMMA_M, THREADS = (CONSUMERS + 1) * 128;
    static constexpr int STAGES = STAGES_;
    static constexpr bool LSE = true, ZIGZAG = ROWS == Rows::ZIGZAG, PACKED = ROWS == Rows::PACKED;
    static constexpr bool CONVERTS = !std::is_same_v<Element, Operand>; // E4M3, to FP16
    // Of a loading and of a computing thread: those of the launch, redistributed.
    static constexpr int LOADER_REGISTERS = CONSUMERS >= 3 ? 32 : CONVERTS ? 40 : 24;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 4 ? 112 : CONSUMERS == 3 ? 160 : CONVERTS ? 232 : 240;
    using QTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_M>;
    using KvTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_N>;
    // As tiles land, before the loading warpgroup converts them.
    using QCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_M>;
    using KvCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>;
    struct Empty {};
    struct Staging {
        std::conditional_t<PACKED, Empty, QCodes> q;
        KvCodes k, v;
        attn::Mbarrier q_full, k_full, v_full;
    };
    struct Shared {
        QTile q;                     // [BLOCK_M, HEAD_DIM], and O on its way out
        KvTile k[STAGES], v[STAGES]; // [BLOCK_N, HEAD_DIM] each
        std::conditional_t<CONVERTS, Staging, Empty> staging;
        std::conditional_t<PARTS == 2, attn::KeyPart<HEAD_DIM / 2>, Empty> second_part[GROUPS];
        attn::Mbarrier q_full, k_full[STAGES], v_full[STAGES];
        attn::Mbarrier k_empty[STAGES], v_empty[STAGES]; // read by every consumer of the tile
    };
    static constexpr int Q_BOX_ROWS = PACKED ? 0 : ZIGZAG ? attn::WGMMA_M : BLOCK_M, O_BOX_ROWS = PACKED ? 0 : 16;
    static constexpr int K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N;
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = Operand::PROBABILITY;
    // Named barriers: one of each consumer, one of the loading warpgroup, and one of the consumers with the same rows.
    static constexpr int CONSUMER_BARRIER = 1, LOADER_BARRIER = CONSUMER_BARRIER + CONSUMERS, MERGE_BARRIER = LOADER_BARRIER + 1;
    static_assert(PARTS == 1 || PARTS == 2, "one other part to merge");
    static_assert(STAGES >= 2 * PARTS, "a tile lands for each part while another is read");
    static_assert(CONSUMERS == 1 || LOADER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= attn::registers_of_launch(THREADS),
                  "a take would never end");
    static_assert(MERGE_BARRIER + GROUPS <= 16, "a block has 16 named barriers");
};

// The computing warpgroup number `consumer`. Those with the same rows alternate over the tiles of keys.
template <class Preset>
__device__ __forceinline__ void compute(const AttentionLaunch &launch, typename Preset::Shared &smem, const attn::Work &work,
                                        int consumer) {
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM, PARTS = Preset::PARTS;
    const AttentionParams &params = launch.params;
    const int group = consumer % Preset::GROUPS, part = consumer / Preset::GROUPS;
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, thread = threadIdx.x % 128;
    const int group_row = group * attn::WGMMA_M, warp_row = group_row + warp * 16; // in the block

    if constexpr (Preset::PACKED) {
        if (work.tiles > 0) {
            attn::load_packed_rows<typename Preset::Element, Preset::CONSUMERS * 128>(smem.q, params, work, threadIdx.x);
            // Each thread makes its part visible to the tensor cores before it arrives for all warpgroups.
            attn::fence_proxy_async();
            attn::mbarrier_arrive(&smem.q_full);
        }
    }
    const auto row_at = [&](int row) { return work.at(work.row + row); }; // of the block
    int visible[2];          // keys that the thread's two rows see
    attn::RowState state[2]; // of the thread's two rows
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        visible[half] = attn::visible_keys(params, row_at(warp_row + lane / 4 + half * 8).query);
        state[half] = attn::RowState::empty();
    }
    // Keys that all rows of the warpgroup see, and those that any of them does.
    const int visible_to_all = attn::visible_keys(params, row_at(group_row).query);
    const int last_row = min(work.row + group_row + attn::WGMMA_M, params.seq_q * work.heads) - 1;
    const int visible_to_any = group < work.groups ? attn::visible_keys(params, last_row / work.heads) : 0;
    float scale_log2[2]; // of the thread's two rows
    scale_log2[0] = scale_log2[1] = attn::scale_of_scores(params, work.batch, work.head_q, work.head_kv);
    if constexpr (Preset::PACKED && Preset::CONVERTS) { // codes of each query head have their own
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int head_q = row_at(warp_row + lane / 4 + half * 8).head;
            scale_log2[half] = attn::scale_of_scores(params, work.batch, head_q, work.head_kv);
        }
    }
    float s[BLOCK_N / 2];                        // of [64, BLOCK_N]
    float o_acc[HEAD_DIM / 2];                   // of [64, HEAD_DIM]
    uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4]; // of [64, BLOCK_N]
    float rescale[2]; // the factor for the output so far
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
 ATTN_PLACES(at, work.batch, row_at(warp_row + lane / 4 + i % 4 / 2 * 8).head, row_at(warp_row + lane / 4 + i % 4 / 2 * 8).query,
             i / 4 * 8 + lane % 4 * 2 + i % 2);
    // The slots of K of the current tile, and of V of the previous one.
    auto current = attn::PipelineState<Preset::STAGES>::first();
    if (part == 1) current.advance();
    auto previous = current;
    const auto advance = [](auto &pipe) {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) pipe.advance();
    };
    const auto wait_k = [&](const auto &pipe) { attn::mbarrier_wait_tx(&smem.k_full[pipe.slot], pipe.parity); };
    const auto wait_v = [&](const auto &pipe) { attn::mbarrier_wait_tx(&smem.v_full[pipe.slot], pipe.parity); };
    // One thread for four warps, as in stage 8.
    const auto release = [&](attn::Mbarrier *empty, const auto &pipe) {
        if (thread == 0) attn::mbarrier_arrive(&empty[pipe.slot]);
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
        wait_v(previous); // it has landed
        // Warps that read K of the previous tile on their own have done so.
        attn::named_barrier_sync<128>(Preset::CONSUMER_BARRIER + consumer);
        attn::start_qk(s, smem.q, group_row, smem.k[current.slot]);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[previous.slot]);
        // Products have read K of the previous tile and, before the barrier, warps on their own.
        release(smem.k_empty, previous);
        attn::wgmma_wait<1>(s); // P·V goes on
        bool in_range = true;   // no exponential is too large
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
        if constexpr (EXACT) mask_and_softmax(tile);
        else in_range = attn::spread_exponentials_of_rows(s, state, scale_log2);
        auto next = current;
        advance(next);
        // It has landed. Waited for here and not in the next step: ptxas moves nothing across the loop of a wait, and would move the
        // exponentials behind the next one.
        if (tile >= PARTS) wait_k(next);
        attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, (tile + PARTS) * BLOCK_N, o_acc);
        release(smem.v_empty, previous);
        if (!in_range) { // the warp computes its scores again, for new maxima
            attn::warp_scores(s, smem.q, warp_row, smem.k[current.slot]);
            attn::softmax_rows(s, state, scale_log2, rescale);
        }
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
        if (EXACT || !in_range) attn::scale_rows(o_acc, rescale);
 ATTN_OBSERVE(RESCALED, at, tile * BLOCK_N, o_acc);
        attn::round_rows<typename Preset::Operand>(p_frag, s);
        previous = current, current = next;
    };

    int tile = work.tiles - 1 - part;
    // Tiles that no row of the warpgroup sees.
#pragma unroll 1
    for (; tile >= 0 && tile * BLOCK_N >= visible_to_any; tile -= PARTS, advance(current)) {
        wait_k(current);
        wait_v(current);
        // All warps have seen both phases end: one that came a lap late would wait for ever.
        attn::named_barrier_sync<128>(Preset::CONSUMER_BARRIER + consumer);
        release(smem.k_empty, current);
        release(smem.v_empty, current);
    }
    if (group >= work.groups) return; // it has no rows, or those of the next block
    if (work.tiles > 0) attn::mbarrier_wait_tx(&smem.q_full, 0); // also before O takes its place
    if (tile >= 0) {
        wait_k(current);
        attn::start_qk(s, smem.q, group_row, smem.k[current.slot]);
        attn::wgmma_wait<0>(s);
        mask_and_softmax(tile);
        attn::round_rows<typename Preset::Operand>(p_frag, s);
        previous = current, advance(current);
        if (tile >= PARTS) wait_k(current);
        // Tiles that some rows see only in part, until all rows have seen a key and have a maximum.
#pragma unroll 1
        for (tile -= PARTS; tile >= 0 && (tile + PARTS) * BLOCK_N >= visible_to_all; tile -= PARTS) step(tile, std::true_type{});
#pragma unroll 1
        for (; tile >= 0; tile -= PARTS) step(tile, std::false_type{});
        wait_v(previous);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[previous.slot]);
        attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, (tile + PARTS) * BLOCK_N, o_acc);
    }
    if constexpr (PARTS == 2) {
        auto &second = smem.second_part[group];
        if (part == 1) second.put(o_acc, state, thread);
        // The second part has arrived, and its warpgroup has read Q for the last time.
        attn::named_barrier_sync<256>(Preset::MERGE_BARRIER + group);
        if (part == 1) return;
        second.merge_into(o_acc, state, thread);
    }

    __syncwarp(); // lanes that read Q for their own scores have done so
    attn::store_output<Preset::PACKED>(launch, work, smem.q, warp_row, o_acc, state, lane);
    attn::store_lse_rows<Preset::PACKED>(params, work, work.row + warp_row + lane / 4, state, scale_log2, lane);
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // uniform in a warp, for the compiler
    attn::Work work;
    if constexpr (Preset::ZIGZAG) work = attn::work_of_group<Preset>(launch.params, warpgroup % Preset::GROUPS);
    else work = attn::work_of_block<Preset, Preset::PACKED>(launch.params);
    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    if (threadIdx.x == 0) attn::init_ring<Preset>(smem, Preset::GROUPS);
    // The barriers are initialised.
    __syncthreads();
    if (warpgroup == Preset::CONSUMERS) {
        attn::give_registers_back<Preset::LOADER_REGISTERS>();
        attn::load_ring<Preset>(launch, smem, work);
    } else {
        attn::take_registers<Preset::CONSUMER_REGISTERS>();
        compute<Preset>(launch, smem, work, warpgroup);
    }
}

// Rows x keys of a tile; at head_dim 128, where the output takes more registers, three warpgroups for four, and a ring of 5 tiles of
// FP16 or BF16 or, since codes land beside it, of 4.
template <class Element, int HEAD_DIM, Rows ROWS = Rows::NEIGHBOURS>
using Tile256x64 =
    Preset<Element, HEAD_DIM, HEAD_DIM == 64 ? 4 : 3, 1, 64, HEAD_DIM == 64 ? 6 : 3 + sizeof(typename Element::Storage), ROWS>;
// For grids that fill the GPU about once; four warpgroups of head_dim 128 that split keys would have too few registers, so that two
// split nothing there.
template <class Element, int HEAD_DIM, Rows ROWS = Rows::NEIGHBOURS>
using Tile128x64K2 = Preset<Element, HEAD_DIM, HEAD_DIM == 64 ? 4 : 2, HEAD_DIM == 64 ? 2 : 1, 64, HEAD_DIM == 64 ? 8 : 5, ROWS>;
// For those that do not.
template <class Element, int HEAD_DIM, Rows ROWS = Rows::NEIGHBOURS>
using Tile64x128K2 = Preset<Element, HEAD_DIM, 2, 2, HEAD_DIM == 64 ? 128 : 64, 4, ROWS>;

template <class Element, int HEAD_DIM> using Zigzag256x64 = Tile256x64<Element, HEAD_DIM, Rows::ZIGZAG>;
template <class Element, int HEAD_DIM> using Zigzag128x64K2 = Tile128x64K2<Element, HEAD_DIM, Rows::ZIGZAG>;
template <class Element, int HEAD_DIM> using Packed128x64K2 = Tile128x64K2<Element, HEAD_DIM, Rows::PACKED>;

} // namespace

ATTN_MAPPED_VARIANT(spread, spread_256x64, Tile256x64)
ATTN_MAPPED_VARIANT(spread, spread_128x64_k2, Tile128x64K2)
ATTN_MAPPED_VARIANT(spread, spread_64x128_k2, Tile64x128K2)
ATTN_MAPPED_VARIANT(zigzag, zigzag_128x64_k2, Zigzag128x64K2)
ATTN_MAPPED_VARIANT(zigzag, zigzag_256x64, Zigzag256x64)
ATTN_MAPPED_VARIANT(packed, packed_128x64_k2, Packed128x64K2)
