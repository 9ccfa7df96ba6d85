// Stage 10: scores of E4M3 on FP8 tensor cores, twice as fast as those of halves. Q and K are multiplied as they land, and only V
// is widened. Heads whose scores may be too large for the sums of these tensor cores get stage 8's scores, from halves.

#include <attn/block_work.cuh>
#include <attn/fp8_scores.cuh>
#include <attn/mapped_e4m3.cuh>
#include <attn/mask.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/warpgroup_output.cuh>
#include <attn/wgmma_tile.cuh>

namespace {

// Each of the first CONSUMERS warpgroups owns 64 query rows and all keys of every tile; the last warpgroup loads.
template <int HEAD_DIM_, int CONSUMERS_, int BLOCK_N_, int STAGES_>
struct Tile {
    using Element = attn::E4M3;
    using Operand = Element::Operand;
    static constexpr int HEAD_DIM = HEAD_DIM_, BLOCK_N = BLOCK_N_;
    static constexpr int CONSUMERS = CONSUMERS_, BLOCK_M = CONSUMERS * attn::WGMMA_M, THREADS = (CONSUMERS + 1) * 128;
    static constexpr int STAGES = STAGES_; // tiles of K and V in the ring
    static constexpr bool LSE = false;     // sums of codes are not exact enough for log-sum-exps
    // Whether codes of Q stay in registers, if any are left: with tiles of 64 keys tensor cores read as much K as Q.
    static constexpr bool Q_IN_REGISTERS = CONSUMERS < 4;
    // Registers of a loading and of a computing thread: those that the block was launched with, redistributed.
    static constexpr int LOADER_REGISTERS = CONSUMERS >= 3 ? 32 : 40;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 4 ? 112 : CONSUMERS == 3 ? 160 : 232;
    using QTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_M>;
    using KvTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_N>;
    using QCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_M>; // as it lands
    using KvCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>;
    union KTile { KvCodes codes; KvTile halves; };
    struct Shared {
        QTile q; // and O on its way out
        KTile k[STAGES];
        KvTile v[STAGES];
        QCodes q_codes;
        KvCodes landing[2]; // codes before the loading warpgroup widens them
        attn::Mbarrier q_landed, landed[2], q_full, k_full[STAGES], v_full[STAGES];
        attn::Mbarrier k_empty[STAGES], v_empty[STAGES]; // read by every consumer
    };
    static constexpr int Q_BOX_ROWS = BLOCK_M, K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N, O_BOX_ROWS = 16;
    // P is held in halves. Scores from codes are less exact than that, so C2 and C3 apply the bounds of a P in BF16.
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = ATTENTION_P_BF16;
    // Named barriers: those of the consumers, and one for the threads that widen.
    static constexpr int FIRST_CONSUMER = 1, WIDENERS = FIRST_CONSUMER + CONSUMERS;
    static_assert(STAGES >= 2, "a tile lands while another is read");
    static_assert(LOADER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= 512 || CONSUMERS == 1, "a multiprocessor has 64K of them");
    static_assert(WIDENERS < 16, "a block has 16 named barriers");
};

// The loading warpgroup: Q, then K and V of all tiles, the last first, so that those on the diagonal come first. With FP8 codes
// of Q and K are left as they are.
template <class Preset, bool FP8>
__device__ __forceinline__ void load(const AttentionLaunch &launch, typename Preset::Shared &smem, const attn::Work &work) {
    constexpr int BLOCK_N = Preset::BLOCK_N;
    const int thread = threadIdx.x % 128;
    if (work.tiles == 0) return; // nobody will wait for a copy
    auto place = attn::RingPlace<Preset::STAGES>::first();
    // Every consumer has read the slot's previous tile; in the first lap there is none, and nobody waits.
    const auto wait_empty = [&](attn::Mbarrier *empty) { attn::mbarrier_wait_tx(&empty[place.slot], place.parity ^ 1); };
    const auto copy_kv = [&](auto &tile, const AttentionTensorMap &map, attn::Mbarrier *full, int number) {
        attn::mbarrier_arrive_expect_tx(full, Preset::KvCodes::BYTES);
        tile.load(map, full, number * BLOCK_N, work.head_kv, work.batch);
    };
    const auto land = [&](int slot, const AttentionTensorMap &map, int number) {
        copy_kv(smem.landing[slot], map, &smem.landed[slot], number);
    };
    // All threads widen codes that have landed; each makes its part visible to the tensor cores before it arrives for the
    // consumers. When all have met, the codes have been read, and others may land in their place.
    const auto widen = [&](auto &halves, auto &codes, attn::Mbarrier *full) {
        attn::widen_tile<128>(halves, codes, thread);
        attn::fence_proxy_async();
        attn::mbarrier_arrive(full);
        attn::named_barrier_sync<Preset::WIDENERS, 128>();
    };
    // Tiles of V alternate between the places, or those of K land in the first and those of V in the second.
    auto landing = attn::RingPlace<FP8 ? 2 : 1>::first();
    const int last = work.tiles - 1;
    if (thread == 0) {
        attn::mbarrier_arrive_expect_tx(&smem.q_landed, Preset::QCodes::BYTES);
        smem.q_codes.load(launch.q, &smem.q_landed, work.row, work.head_q, work.batch);
        land(0, FP8 ? launch.v : launch.k, last);
        if (!FP8 || last > 0) land(1, launch.v, FP8 ? last - 1 : last);
    }
    if constexpr (!FP8) {
        attn::mbarrier_wait_tx(&smem.q_landed, 0);
        widen(smem.q, smem.q_codes, &smem.q_full);
    }
#pragma unroll 1
    for (int tile = last; tile >= 0; --tile, place.advance(), landing.advance()) {
        if (!FP8 || thread == 0) wait_empty(smem.k_empty);
        if constexpr (FP8) {
            if (thread == 0) copy_kv(smem.k[place.slot].codes, launch.k, &smem.k_full[place.slot], tile);
        } else {
            attn::mbarrier_wait_tx(&smem.landed[0], landing.parity);
            widen(smem.k[place.slot].halves, smem.landing[0], &smem.k_full[place.slot]);
            if (thread == 0 && tile > 0) land(0, launch.k, tile - 1);
        }
        const int slot = FP8 ? landing.slot : 1, next = FP8 ? tile - 2 : tile - 1;
        wait_empty(smem.v_empty);
        attn::mbarrier_wait_tx(&smem.landed[slot], landing.parity);
        widen(smem.v[place.slot], smem.landing[slot], &smem.v_full[place.slot]);
        if (thread == 0 && next >= 0) land(slot, launch.v, next);
    }
}

// A computing warpgroup; `consumer` counts from 0. `scale_log2`: scale of scores, as exponents to base 2.
template <class Preset, bool FP8>
__device__ __forceinline__ void compute(const AttentionLaunch &launch, typename Preset::Shared &smem, const attn::Work &work,
                                        int consumer, float scale_log2) {
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    constexpr bool Q_IN_REGISTERS = FP8 && Preset::Q_IN_REGISTERS;
    const AttentionParams &params = launch.params;
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, thread = threadIdx.x % 128;
    const int group_row = consumer * attn::WGMMA_M, warp_row = group_row + warp * 16; // in the block

    // This thread holds elements of two rows: keys that they see, and their softmax so far.
    int visible[2];
    attn::RowState state[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        visible[half] = attn::visible_keys(params, work.row + warp_row + lane / 4 + half * 8);
        state[half] = attn::RowState::empty();
    }
    // Keys that all rows of the warpgroup see, and keys that any of them sees.
    const int visible_to_all = attn::visible_keys(params, work.row + group_row);
    const int last_row = min(work.row + group_row + attn::WGMMA_M, params.seq_q) - 1;
    const int visible_to_any = consumer < work.groups ? attn::visible_keys(params, last_row) : 0;
    float s[BLOCK_N / 2], o_acc[HEAD_DIM / 2];
    uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4];
    uint32_t q_frag[Q_IN_REGISTERS ? HEAD_DIM / attn::FP8_K : 1][4];
    float rescale[2]; // the factor for the output so far
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
    ATTN_PLACES(at, work.batch, work.head_q, work.row + warp_row + lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
    // Where K of the current tile is, and V of the previous one.
    auto place = attn::RingPlace<Preset::STAGES>::first(), before = place;
    const auto wait_k = [&](const auto &at) { attn::mbarrier_wait_tx(&smem.k_full[at.slot], at.parity); };
    const auto wait_v = [&](const auto &at) { attn::mbarrier_wait_tx(&smem.v_full[at.slot], at.parity); };
    const auto release = [&](attn::Mbarrier *empty, const auto &at) {
        if (thread == 0) attn::mbarrier_arrive(&empty[at.slot]);
    };
    const auto start_scores = [&] {
        auto &k = smem.k[place.slot];
        if constexpr (Q_IN_REGISTERS) attn::start_fp8_qk<HEAD_DIM, BLOCK_N>(s, q_frag, k.codes);
        else if constexpr (FP8) attn::start_fp8_qk(s, smem.q_codes, group_row, k.codes);
        else attn::start_qk(s, smem.q, group_row, k.halves);
    };
    // The warp's own scores, computed by itself and exact.
    const auto warp_scores = [&] {
        if constexpr (FP8) attn::exact_warp_scores(s, smem.q_codes, warp_row, smem.k[place.slot].codes);
        else attn::warp_scores(s, smem.q, warp_row, smem.k[place.slot].halves);
    };
    const auto mask_and_softmax = [&](int tile) {
        if ((tile + 1) * BLOCK_N > visible_to_all) attn::mask_rows(s, tile * BLOCK_N, visible, lane);
        ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
        attn::softmax_rows(s, state, scale_log2, rescale);
        ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
        ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
    };

    // Given P of the previous tile: its output and the scores of `tile`, whose K has landed; then P of `tile`.
    const auto step = [&](int tile, auto exact) {
        constexpr bool EXACT = decltype(exact)::value;
        wait_v(before);
        // The warps of the warpgroup meet: those that read K of the previous tile on their own have done so.
        attn::named_barrier_sync<128>(Preset::FIRST_CONSUMER + consumer);
        start_scores();
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[before.slot]);
        // K of the previous tile has been read: by products waited for, and by warps on their own before they met.
        release(smem.k_empty, before);
        attn::wgmma_wait<1>(s);
        bool counts = true; // whether S now holds exponentials
        ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
        if constexpr (EXACT) mask_and_softmax(tile);
        else counts = attn::exponentials_of_rows(s, state, scale_log2);
        // Here, because the compiler moves nothing across this loop: else it would compute the exponentials after the next wait.
        auto next = place;
        next.advance();
        if (tile > 0) wait_k(next);
        attn::wgmma_wait<0>(o_acc);
        ATTN_OBSERVE(OUTPUT, at, (tile + 1) * BLOCK_N, o_acc);
        release(smem.v_empty, before);
        if (!counts) { // the warp recomputes its scores, for new maxima
            warp_scores();
            attn::softmax_rows(s, state, scale_log2, rescale);
        }
        ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
        ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
        if (EXACT || !counts) attn::scale_rows(o_acc, rescale);
        ATTN_OBSERVE(RESCALED, at, tile * BLOCK_N, o_acc);
        attn::round_rows<typename Preset::Operand>(p_frag, s);
        before = place, place = next;
    };

    int tile = work.tiles - 1;
    // Tiles that no row of the warpgroup sees.
#pragma unroll 1
    for (; tile >= 0 && tile * BLOCK_N >= visible_to_any; --tile, place.advance()) {
        wait_k(place);
        wait_v(place);
        // All warps have seen both phases end: one that came a lap late would wait for a phase that never ends.
        attn::named_barrier_sync<128>(Preset::FIRST_CONSUMER + consumer);
        release(smem.k_empty, place);
        release(smem.v_empty, place);
    }
    if (consumer >= work.groups) return; // it has no rows, or those of the next block
    if (work.tiles > 0) attn::mbarrier_wait_tx(FP8 ? &smem.q_landed : &smem.q_full, 0); // also before O takes its place
    if (tile >= 0) {
        if constexpr (Q_IN_REGISTERS) {
#pragma unroll
            for (int i = 0; i < HEAD_DIM / attn::FP8_K; ++i) {
                attn::ldmatrix_x4(q_frag[i], smem.q_codes.at(warp_row + lane % 16, 2 * i + lane / 16));
            }
        }
        wait_k(place);
        start_scores();
        attn::wgmma_wait<0>(s);
        mask_and_softmax(tile);
        attn::round_rows<typename Preset::Operand>(p_frag, s);
        before = place, place.advance();
        if (tile > 0) wait_k(place);
        // Tiles that some rows see only in part, until all rows have seen a key and have a maximum.
#pragma unroll 1
        for (--tile; tile >= 0 && (tile + 1) * BLOCK_N >= visible_to_all; --tile) step(tile, std::true_type{});
#pragma unroll 1
        for (; tile >= 0; --tile) step(tile, std::false_type{});
        wait_v(before);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[before.slot]);
        attn::wgmma_wait<0>(o_acc);
        ATTN_OBSERVE(OUTPUT, at, 0, o_acc);
    }

    __syncwarp(); // lanes that read Q for their own scores have done so
    attn::store_output(launch, work, smem.q, warp_row, o_acc, state, lane);
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    const AttentionParams &params = launch.params;
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // tells the compiler that it is uniform in a warp
    const attn::Work work = attn::work_of_block<Preset>(params);
    const float scale_log2 = params.softmax_scale * attn::LOG2_E *
                             attn::scale_of(params.q, params.heads_q, work.batch, work.head_q) *
                             attn::scale_of(params.k, params.heads_kv, work.batch, work.head_kv);
    const bool fp8 = fabsf(scale_log2) <= attn::LARGEST_SCALE<Preset::HEAD_DIM>;
    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    if (threadIdx.x == 0) {
        attn::mbarrier_init(&smem.q_landed, 1);
        attn::mbarrier_init(&smem.q_full, 128); // all threads that widen
        for (auto &landed : smem.landed) attn::mbarrier_init(&landed, 1);
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
template <int HEAD_DIM> using Tile256x64 = Tile<HEAD_DIM, HEAD_DIM == 64 ? 4 : 3, 64, HEAD_DIM == 64 ? 6 : 4>;
// For grids that fill the GPU about once, and for those that do not.
template <int HEAD_DIM> using Tile128x128 = Tile<HEAD_DIM, 2, 128, HEAD_DIM == 64 ? 4 : 2>;
template <int HEAD_DIM> using Tile64x128 = Tile<HEAD_DIM, 1, 128, HEAD_DIM == 64 ? 4 : 2>;

} // namespace

ATTN_MAPPED_E4M3_VARIANT(fp8_scores, fp8_scores_256x64, Tile256x64)
ATTN_MAPPED_E4M3_VARIANT(fp8_scores, fp8_scores_128x128, Tile128x128)
ATTN_MAPPED_E4M3_VARIANT(fp8_scores, fp8_scores_64x128, Tile64x128)
