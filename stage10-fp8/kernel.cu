// Stage 10: scores of E4M3 on FP8 tensor cores. Q and K are multiplied as they land, and only V is converted. Heads whose scores
// may be too large for the sums of these tensor cores get stage 8's scores, from FP16.
// Launched as a grid of ceil(seq_q / BLOCK_M) x heads_q x batch blocks. work_of_block() tells a block its rows.

#include <attn/block_work.cuh>
#include <attn/fp8_scores.cuh>
#include <attn/mapped_e4m3.cuh>
#include <attn/mask.cuh>
#include <attn/observe.cuh> // ATTN_PLACES, ATTN_OBSERVE: for `compare explain`, nothing on a GPU
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/warpgroup_output.cuh>
#include <attn/wgmma_tile.cuh>

namespace {

// Each of the first CONSUMERS warpgroups owns 64 query rows and all keys of every tile; the last warpgroup loads.
template <int HEAD_DIM_,  // columns
          int CONSUMERS_, // warpgroups that compute
          int BLOCK_N_,   // keys of a tile
          int STAGES_>    // tiles of K and V in the ring
struct Preset {
    using Element = attn::E4M3;
    using Operand = Element::Operand;
    static constexpr int HEAD_DIM = HEAD_DIM_, BLOCK_N = BLOCK_N_;
    static constexpr int CONSUMERS = CONSUMERS_, BLOCK_M = CONSUMERS * attn::WGMMA_M, THREADS = (CONSUMERS + 1) * 128;
    static constexpr int STAGES = STAGES_;
    static constexpr bool LSE = false;                    // sums of codes are not exact enough for log-sum-exps
    static constexpr bool Q_IN_REGISTERS = CONSUMERS < 4; // where some are left: tensor cores then read only K
    // Of a loading and of a computing thread: those of the launch, redistributed.
    static constexpr int LOADER_REGISTERS = CONSUMERS >= 3 ? 32 : 40;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 4 ? 112 : CONSUMERS == 3 ? 160 : 232;
    using QTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_M>;
    using KvTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_N>;
    using QCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_M>; // as it lands
    using KvCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>;
    union KTile { KvCodes codes; KvTile halves; };
    struct Shared {
        QTile q;          // [BLOCK_M, HEAD_DIM], and O on its way out
        KTile k[STAGES];  // [BLOCK_N, HEAD_DIM] each
        KvTile v[STAGES]; // [BLOCK_N, HEAD_DIM] each
        QCodes q_codes;
        KvCodes staging[2]; // before the loading warpgroup converts them
        attn::Mbarrier q_codes_full, staging_full[2], q_full, k_full[STAGES], v_full[STAGES];
        attn::Mbarrier k_empty[STAGES], v_empty[STAGES]; // read by every consumer
    };
    static constexpr int Q_BOX_ROWS = BLOCK_M, K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N, O_BOX_ROWS = 16;
    // P is held in FP16. Scores from codes are less exact than that, so C2 and C3 apply the bounds of a P in BF16.
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = ATTENTION_P_BF16;
    // Named barriers: one of each consumer, and one of the loading warpgroup.
    static constexpr int CONSUMER_BARRIER = 1, LOADER_BARRIER = CONSUMER_BARRIER + CONSUMERS;
    static_assert(STAGES >= 2, "a tile lands while another is read");
    static_assert(CONSUMERS == 1 || LOADER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= attn::registers_of_launch(THREADS),
                  "a take would never end");
    static_assert(LOADER_BARRIER < 16, "a block has 16 named barriers");
};

// The loading warpgroup: Q, then K and V of all tiles, from the last. FP8: codes of Q and K are left as they are.
template <class Preset, bool FP8>
__device__ __forceinline__ void load(const AttentionLaunch &launch, typename Preset::Shared &smem, const attn::Work &work) {
    constexpr int BLOCK_N = Preset::BLOCK_N;
    const int thread = threadIdx.x % 128;
    if (work.tiles == 0) return; // nobody will wait for a copy
    auto current = attn::PipelineState<Preset::STAGES>::first();
    // Every consumer has read the slot's previous tile; in the first lap nobody waits.
    const auto wait_empty = [&](attn::Mbarrier *empty) { attn::mbarrier_wait_tx(&empty[current.slot], current.parity ^ 1); };
    const auto copy_kv = [&](auto &tile, const AttentionTensorMap &map, attn::Mbarrier *full, int index) {
        attn::mbarrier_arrive_expect_tx(full, Preset::KvCodes::BYTES);
        tile.load(map, full, index * BLOCK_N, work.head_kv, work.batch);
    };
    const auto copy_codes = [&](int slot, const AttentionTensorMap &map, int index) {
        copy_kv(smem.staging[slot], map, &smem.staging_full[slot], index);
    };
    // All threads convert codes that have landed; each makes its part visible to the tensor cores before it arrives for the
    // consumers. Behind the barrier the codes have been read, and others may land in their place.
    const auto convert = [&](auto &halves, auto &codes, attn::Mbarrier *full) {
        attn::convert_tile<128>(halves, codes, thread);
        attn::fence_proxy_async();
        attn::mbarrier_arrive(full);
        attn::named_barrier_sync<Preset::LOADER_BARRIER, 128>();
    };
    // FP8: tiles of V alternate between both. Else those of K land in the first and those of V in the second.
    auto staging = attn::PipelineState<FP8 ? 2 : 1>::first();
    const int last = work.tiles - 1;
    if (thread == 0) {
        attn::mbarrier_arrive_expect_tx(&smem.q_codes_full, Preset::QCodes::BYTES);
        smem.q_codes.load(launch.q, &smem.q_codes_full, work.row, work.head_q, work.batch);
        copy_codes(0, FP8 ? launch.v : launch.k, last);
        if (!FP8 || last > 0) copy_codes(1, launch.v, FP8 ? last - 1 : last);
    }
    if constexpr (!FP8) {
        attn::mbarrier_wait_tx(&smem.q_codes_full, 0);
        convert(smem.q, smem.q_codes, &smem.q_full);
    }
#pragma unroll 1
    for (int tile = last; tile >= 0; --tile, current.advance(), staging.advance()) {
        if (!FP8 || thread == 0) wait_empty(smem.k_empty);
        if constexpr (FP8) {
            if (thread == 0) copy_kv(smem.k[current.slot].codes, launch.k, &smem.k_full[current.slot], tile);
        } else {
            attn::mbarrier_wait_tx(&smem.staging_full[0], staging.parity);
            convert(smem.k[current.slot].halves, smem.staging[0], &smem.k_full[current.slot]);
            if (thread == 0 && tile > 0) copy_codes(0, launch.k, tile - 1);
        }
        const int slot = FP8 ? staging.slot : 1, next = FP8 ? tile - 2 : tile - 1;
        wait_empty(smem.v_empty);
        attn::mbarrier_wait_tx(&smem.staging_full[slot], staging.parity);
        convert(smem.v[current.slot], smem.staging[slot], &smem.v_full[current.slot]);
        if (thread == 0 && next >= 0) copy_codes(slot, launch.v, next);
    }
}

// The computing warpgroup number `consumer`.
template <class Preset, bool FP8>
__device__ __forceinline__ void compute(const AttentionLaunch &launch, typename Preset::Shared &smem, const attn::Work &work,
                                        int consumer, float scale_log2) {
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    constexpr bool Q_IN_REGISTERS = FP8 && Preset::Q_IN_REGISTERS;
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
    const int visible_to_all = attn::visible_keys(params, work.row + group_row); // keys that all rows of the warpgroup see
    const int last_row = min(work.row + group_row + attn::WGMMA_M, params.seq_q) - 1;
    const int visible_to_any = consumer < work.groups ? attn::visible_keys(params, last_row) : 0;
    float s[BLOCK_N / 2];                        // of [64, BLOCK_N]
    float o_acc[HEAD_DIM / 2];                   // of [64, HEAD_DIM]
    uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4]; // of [64, BLOCK_N]
    uint32_t q_frag[Q_IN_REGISTERS ? HEAD_DIM / attn::FP8_K : 1][4];
    float rescale[2]; // the factor for the output so far
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
 ATTN_PLACES(at, work.batch, work.head_q, work.row + warp_row + lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
    // The slots of K of the current tile, and of V of the previous one.
    auto current = attn::PipelineState<Preset::STAGES>::first(), previous = current;
    const auto wait_k = [&](const auto &pipe) { attn::mbarrier_wait_tx(&smem.k_full[pipe.slot], pipe.parity); };
    const auto wait_v = [&](const auto &pipe) { attn::mbarrier_wait_tx(&smem.v_full[pipe.slot], pipe.parity); };
    // One thread for four warps, as in stage 8.
    const auto release = [&](attn::Mbarrier *empty, const auto &pipe) {
        if (thread == 0) attn::mbarrier_arrive(&empty[pipe.slot]);
    };
    const auto start_scores = [&] {
        auto &k = smem.k[current.slot];
        if constexpr (Q_IN_REGISTERS) attn::start_fp8_qk<HEAD_DIM, BLOCK_N>(s, q_frag, k.codes);
        else if constexpr (FP8) attn::start_fp8_qk(s, smem.q_codes, group_row, k.codes);
        else attn::start_qk(s, smem.q, group_row, k.halves);
    };
    // The warp's own scores, computed by itself and exact.
    const auto warp_scores = [&] {
        if constexpr (FP8) attn::exact_warp_scores(s, smem.q_codes, warp_row, smem.k[current.slot].codes);
        else attn::warp_scores(s, smem.q, warp_row, smem.k[current.slot].halves);
    };
    // Whether the thread's maxima are too large for sums of codes: the warp then computes its own scores.
    const auto exceed_sums = [&] { return FP8 && attn::exceed_code_max(state[0].max, state[1].max); };
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
        start_scores();
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[previous.slot]);
        // Products have read K of the previous tile and, before the barrier, warps on their own.
        release(smem.k_empty, previous);
        attn::wgmma_wait<1>(s); // P·V goes on
        bool in_range = true;   // no exponential is too large, and no sum of codes
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
        if constexpr (EXACT) {
            const attn::RowState before[2] = {state[0], state[1]};
            mask_and_softmax(tile);
            if constexpr (FP8) in_range = !__any_sync(0xffffffffu, exceed_sums());
            if (!in_range) state[0] = before[0], state[1] = before[1];
        } else {
            in_range = attn::exponentials_of_rows(s, state, {scale_log2, scale_log2}, exceed_sums());
        }
        // A loop that the compiler moves nothing across: else it would compute the exponentials after the next wait.
        auto next = current;
        next.advance();
        if (tile > 0) wait_k(next); // it has landed
        attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, (tile + 1) * BLOCK_N, o_acc);
        release(smem.v_empty, previous);
        if (!in_range) { // the warp computes its scores itself, for new maxima or exact sums
            warp_scores();
            if constexpr (EXACT) mask_and_softmax(tile);
            else attn::softmax_rows(s, state, scale_log2, rescale);
        }
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
        if (EXACT || !in_range) attn::scale_rows(o_acc, rescale);
 ATTN_OBSERVE(RESCALED, at, tile * BLOCK_N, o_acc);
        attn::round_rows<typename Preset::Operand>(p_frag, s);
        previous = current, current = next;
    };

    int tile = work.tiles - 1;
    // Tiles that no row of the warpgroup sees.
#pragma unroll 1
    for (; tile >= 0 && tile * BLOCK_N >= visible_to_any; --tile, current.advance()) {
        wait_k(current);
        wait_v(current);
        // All warps have seen both phases end: one that came a lap late would wait for ever.
        attn::named_barrier_sync<128>(Preset::CONSUMER_BARRIER + consumer);
        release(smem.k_empty, current);
        release(smem.v_empty, current);
    }
    if (consumer >= work.groups) return; // it has no rows, or those of the next block
    if (work.tiles > 0) attn::mbarrier_wait_tx(FP8 ? &smem.q_codes_full : &smem.q_full, 0); // also before O takes its place
    if (tile >= 0) {
        if constexpr (Q_IN_REGISTERS) {
#pragma unroll
            for (int i = 0; i < HEAD_DIM / attn::FP8_K; ++i) {
                attn::ldmatrix_x4(q_frag[i], smem.q_codes.at(warp_row + lane % 16, 2 * i + lane / 16));
            }
        }
        wait_k(current);
        start_scores();
        attn::wgmma_wait<0>(s);
        mask_and_softmax(tile);
        if (FP8 && __any_sync(0xffffffffu, exceed_sums())) {
            state[0] = state[1] = attn::RowState::empty();
            warp_scores();
            mask_and_softmax(tile);
        }
        attn::round_rows<typename Preset::Operand>(p_frag, s);
        previous = current, current.advance();
        if (tile > 0) wait_k(current);
        // Tiles that some rows see only in part, until all rows have seen a key and have a maximum.
#pragma unroll 1
        for (--tile; tile >= 0 && (tile + 1) * BLOCK_N >= visible_to_all; --tile) step(tile, std::true_type{});
#pragma unroll 1
        for (; tile >= 0; --tile) step(tile, std::false_type{});
        wait_v(previous);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[previous.slot]);
        attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, 0, o_acc);
    }

    __syncwarp(); // lanes that read Q for their own scores have done so
    attn::store_output(launch, work, smem.q, warp_row, o_acc, state, lane);
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    const AttentionParams &params = launch.params;
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // uniform in a warp, for the compiler
    const attn::Work work = attn::work_of_block<Preset>(params);
    const float scale_log2 = attn::scale_of_scores(params, work.batch, work.head_q, work.head_kv);
    const bool fp8 = fabsf(scale_log2) <= attn::LARGEST_SCALE<Preset::HEAD_DIM>;
    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    if (threadIdx.x == 0) {
        attn::mbarrier_init(&smem.q_codes_full, 1);
        attn::mbarrier_init(&smem.q_full, 128); // all threads that convert
        for (auto &staging_full : smem.staging_full) attn::mbarrier_init(&staging_full, 1);
        for (int slot = 0; slot < Preset::STAGES; ++slot) {
            attn::mbarrier_init(&smem.k_full[slot], fp8 ? 1 : 128);
            attn::mbarrier_init(&smem.v_full[slot], 128);
            attn::mbarrier_init(&smem.k_empty[slot], Preset::CONSUMERS);
            attn::mbarrier_init(&smem.v_empty[slot], Preset::CONSUMERS);
        }
        attn::fence_mbarrier_init();
    }
    // The barriers are initialised.
    __syncthreads();
    // Two warpgroups start with as many registers as they could use.
    if (warpgroup == Preset::CONSUMERS) {
        if constexpr (Preset::CONSUMERS > 1) attn::give_registers_back<Preset::LOADER_REGISTERS>();
        if (fp8) load<Preset, true>(launch, smem, work);
        else load<Preset, false>(launch, smem, work);
    } else {
        if constexpr (Preset::CONSUMERS > 1) attn::take_registers<Preset::CONSUMER_REGISTERS>();
        if (fp8) compute<Preset, true>(launch, smem, work, warpgroup, scale_log2);
        else compute<Preset, false>(launch, smem, work, warpgroup, scale_log2);
    }
}

// Rows x keys of a tile; at head_dim 128, where the output takes more registers, three warpgroups of 64 rows for four.
template <int HEAD_DIM> using Tile256x64 = Preset<HEAD_DIM, HEAD_DIM == 64 ? 4 : 3, 64, HEAD_DIM == 64 ? 6 : 4>;
// For grids that fill the GPU about once, and for those that do not.
template <int HEAD_DIM> using Tile128x128 = Preset<HEAD_DIM, 2, 128, HEAD_DIM == 64 ? 4 : 2>;
template <int HEAD_DIM> using Tile64x128 = Preset<HEAD_DIM, 1, 128, HEAD_DIM == 64 ? 4 : 2>;

} // namespace

ATTN_MAPPED_E4M3_VARIANT(fp8_scores, fp8_scores_256x64, Tile256x64)
ATTN_MAPPED_E4M3_VARIANT(fp8_scores, fp8_scores_128x128, Tile128x128)
ATTN_MAPPED_E4M3_VARIANT(fp8_scores, fp8_scores_64x128, Tile64x128)
