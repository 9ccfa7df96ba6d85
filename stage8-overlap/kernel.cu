// Stage 8: copies, products and exponentials at the same time. A load-only warpgroup gives its registers to those that compute;
// P·V of one tile is in flight while the exponentials of the next are computed.
// Launched as a grid of ceil(seq_q / BLOCK_M) x heads_q x batch blocks; work_of_block() tells a block its rows.

#include <attn/loading_warpgroup.cuh>
#include <attn/mapped_halves.cuh>
#include <attn/mask.cuh>
#include <attn/observe.cuh> // ATTN_PLACES, ATTN_OBSERVE: for `compare explain`, nothing on a GPU
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/warpgroup_output.cuh>

namespace {

// Each of the first CONSUMERS warpgroups owns 64 query rows and all keys of every tile; the last warpgroup loads.
template <class Element_, // of Q, K and V
          int HEAD_DIM_,  // columns
          int CONSUMERS_, // warpgroups that compute
          int BLOCK_N_,   // keys of a tile
          int STAGES_,    // tiles of K and of V in the ring
          bool LAZY_>     // exponentials under the row maxima of earlier tiles: no tile waits for its own
struct Preset {
    using Element = Element_;
    static constexpr int HEAD_DIM = HEAD_DIM_, BLOCK_N = BLOCK_N_;
    static constexpr int CONSUMERS = CONSUMERS_, THREADS = (CONSUMERS + 1) * 128;
    static constexpr int BLOCK_M = CONSUMERS * attn::WGMMA_M, STAGES = STAGES_;
    static constexpr bool LSE = true, LAZY = LAZY_;
    // Of a loading and of a computing thread: those of the launch, redistributed. One consumer has 255 without that.
    static constexpr int LOADER_REGISTERS = CONSUMERS >= 3 ? 32 : 24;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 4 ? 112 : CONSUMERS == 3 ? 160 : 240;
    using QTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_M>;
    using KvTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>;
    struct Shared {
        QTile q;                     // [BLOCK_M, HEAD_DIM], and O on its way out
        KvTile k[STAGES], v[STAGES]; // [BLOCK_N, HEAD_DIM] each
        attn::Mbarrier q_full, k_full[STAGES], v_full[STAGES];
        attn::Mbarrier k_empty[STAGES], v_empty[STAGES]; // read by every consumer
    };
    static constexpr int Q_BOX_ROWS = BLOCK_M, O_BOX_ROWS = 16, K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N;
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = Element::PROBABILITY;
    static constexpr int CONSUMER_BARRIER = 1; // named barriers: from it on one of each consumer
    static_assert(STAGES >= 2, "a tile lands while another is read");
    static_assert(CONSUMERS == 1 || LOADER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= attn::registers_of_launch(THREADS),
                  "a take would never end");
};

// The computing warpgroup number `consumer`, for its 64 rows.
template <class Preset>
__device__ __forceinline__ void compute(const AttentionLaunch &launch, typename Preset::Shared &smem, const attn::Work &work,
                                        int consumer) {
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    const AttentionParams &params = launch.params;
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, thread = threadIdx.x % 128;
    const int group_row = consumer * attn::WGMMA_M, warp_row = group_row + warp * 16; // in the block

    int visible[2];          // keys that the thread's two rows see
    attn::RowState state[2]; // of the thread's two rows
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        visible[half] = attn::visible_keys(params, work.row + warp_row + lane / 4 + half * 8);
        state[half] = attn::RowState::empty();
    }
    // Keys that all rows of the warpgroup see, and those that any of them does.
    const int visible_to_all = attn::visible_keys(params, work.row + group_row);
    const int last_row = min(work.row + group_row + attn::WGMMA_M, params.seq_q) - 1;
    const int visible_to_any = consumer < work.groups ? attn::visible_keys(params, last_row) : 0;
    const float scale_log2 = attn::scale_of_scores(params, work.batch, work.head_q, work.head_kv);
    float s[BLOCK_N / 2];                        // of [64, BLOCK_N]
    float o_acc[HEAD_DIM / 2];                   // of [64, HEAD_DIM]
    uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4]; // of [64, BLOCK_N]
    float rescale[2];                            // the factor for the output so far
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
 ATTN_PLACES(at, work.batch, work.head_q, work.row + warp_row + lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
    // The slots of the current tile, whose K is read, and of the previous one, whose V is.
    auto current = attn::PipelineState<Preset::STAGES>::first(), previous = current;
    const auto wait_k = [&](const auto &pipe) { attn::mbarrier_wait_tx(&smem.k_full[pipe.slot], pipe.parity); };
    const auto wait_v = [&](const auto &pipe) { attn::mbarrier_wait_tx(&smem.v_full[pipe.slot], pipe.parity); };
    // One thread may free a slot for four warps: a wgmma belongs to all four, and a wait for it ends when the whole of it has (see
    // stage 7). Reads by single warps need a barrier of the warpgroup before.
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
        if constexpr (Preset::LAZY) attn::named_barrier_sync<128>(Preset::CONSUMER_BARRIER + consumer);
        attn::start_qk(s, smem.q, group_row, smem.k[current.slot]);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[previous.slot]);
        // Products have read K of the previous tile and, before the barrier, warps on their own.
        release(smem.k_empty, previous);
        attn::wgmma_wait<1>(s); // P·V goes on
        bool in_range = true;   // no exponential is too large
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
        if constexpr (EXACT) mask_and_softmax(tile);
        else in_range = attn::exponentials_of_rows(s, state, {scale_log2, scale_log2});
        auto next = current;
        next.advance();
        // It has landed. Waited for here and not in the next step: ptxas moves nothing across the loop of a wait, and would move the
        // exponentials behind the next one.
        if (tile > 0) wait_k(next);
        attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, (tile + 1) * BLOCK_N, o_acc);
        release(smem.v_empty, previous);
        if (!in_range) { // the warp computes its scores again, for new maxima
            attn::warp_scores(s, smem.q, warp_row, smem.k[current.slot]);
            attn::softmax_rows(s, state, scale_log2, rescale);
        }
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
        if (EXACT || !in_range) attn::scale_rows(o_acc, rescale);
 ATTN_OBSERVE(RESCALED, at, tile * BLOCK_N, o_acc);
        attn::round_rows<typename Preset::Element>(p_frag, s);
        previous = current, current = next;
    };

    int tile = work.tiles - 1;
    // Tiles that no row of the warpgroup sees.
#pragma unroll 1
    for (; tile >= 0 && tile * BLOCK_N >= visible_to_any; --tile, current.advance(), previous = current) {
        wait_k(current);
        wait_v(current);
        // All warps have seen both phases end: one that came a lap late would wait for ever.
        attn::named_barrier_sync<128>(Preset::CONSUMER_BARRIER + consumer);
        release(smem.k_empty, current);
        release(smem.v_empty, current);
    }
    if (consumer >= work.groups) return; // it has no rows, or those of the next block
    if (work.tiles > 0) attn::mbarrier_wait_tx(&smem.q_full, 0); // also before O takes its place
    if (tile >= 0) {
        wait_k(current);
        attn::start_qk(s, smem.q, group_row, smem.k[current.slot]);
        attn::wgmma_wait<0>(s);
        mask_and_softmax(tile);
        attn::round_rows<typename Preset::Element>(p_frag, s);
        previous = current, current.advance();
        if (tile > 0) wait_k(current);
        // Exact while some row sees a tile in part, or may not have seen a key yet: then it has no maximum (hence >=).
#pragma unroll 1
        for (--tile; tile >= 0 && (tile + 1) * BLOCK_N >= visible_to_all; --tile) step(tile, std::true_type{});
#pragma unroll 1
        for (; tile >= 0; --tile) step(tile, std::bool_constant<!Preset::LAZY>{});
        wait_v(previous);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[previous.slot]);
        attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, 0, o_acc);
    }

    if constexpr (Preset::LAZY) __syncwarp(); // lanes that read Q for their own scores have done so
    attn::store_output(launch, work, smem.q, warp_row, o_acc, state, lane);
    attn::store_lse_rows<false>(params, work, work.row + warp_row + lane / 4, state, {scale_log2, scale_log2}, lane);
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // uniform in a warp, for the compiler
    const attn::Work work = attn::work_of_block<Preset>(launch.params);
    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    if (threadIdx.x == 0) attn::init_ring<Preset>(smem, Preset::CONSUMERS);
    // The barriers are initialised.
    __syncthreads();
    constexpr bool REDISTRIBUTES = Preset::CONSUMERS > 1; // of registers: see Preset
    if (warpgroup == Preset::CONSUMERS) {
        if constexpr (REDISTRIBUTES) attn::give_registers_back<Preset::LOADER_REGISTERS>();
        attn::load_ring<Preset>(launch, smem, work);
    } else {
        if constexpr (REDISTRIBUTES) attn::take_registers<Preset::CONSUMER_REGISTERS>();
        compute<Preset>(launch, smem, work, warpgroup);
    }
}

// Rows x keys of a tile; 256 rows are 192 at head_dim 128, where the output takes more registers: three warpgroups for four.
template <class Element, int HEAD_DIM, bool LAZY>
using Tile256x64 = Preset<Element, HEAD_DIM, HEAD_DIM == 64 ? 4 : 3, 64, HEAD_DIM == 64 ? 6 : 5, LAZY>;
template <class Element, int HEAD_DIM> using Exact256x64 = Tile256x64<Element, HEAD_DIM, false>;
template <class Element, int HEAD_DIM> using Lazy256x64 = Tile256x64<Element, HEAD_DIM, true>;
template <int HEAD_DIM> constexpr int RING = HEAD_DIM == 64 ? 4 : 3; // tiles of 128 keys
// For grids that fill the GPU about once, and for those that do not.
template <class Element, int HEAD_DIM> using Lazy128x128 = Preset<Element, HEAD_DIM, 2, 128, RING<HEAD_DIM>, true>;
template <class Element, int HEAD_DIM> using Lazy64x128 = Preset<Element, HEAD_DIM, 1, 128, RING<HEAD_DIM>, true>;

} // namespace

ATTN_MAPPED_HALVES_VARIANT(overlap, overlap_256x64, Exact256x64)
ATTN_MAPPED_HALVES_VARIANT(overlap_lazy, overlap_lazy_256x64, Lazy256x64)
ATTN_MAPPED_HALVES_VARIANT(overlap_lazy, overlap_lazy_128x128, Lazy128x128)
ATTN_MAPPED_HALVES_VARIANT(overlap_lazy, overlap_lazy_64x128, Lazy64x128)
