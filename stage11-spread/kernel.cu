// Stage 11: exponentials, which bound head_dim 64, spread over an SM's four schedulers. Four warpgroups compute where there are
// rows for two: they split the keys. And FP32 arithmetic is spread among the exponentials, since it holds up wgmma.

#include <attn/key_parts.cuh>
#include <attn/loading_warpgroup.cuh>
#include <attn/mapped.cuh>
#include <attn/mask.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/spread_exponentials.cuh>
#include <attn/warpgroup_output.cuh>

namespace {

// Of the first CONSUMERS warpgroups, PARTS own the same 64 query rows each, and every PARTS-th tile of keys; the last warpgroup
// loads. ZIGZAG: the rows of a block lie apart, 64 by 64, so that under the causal mask all blocks have the same work.
template <class Element_, int HEAD_DIM_, int CONSUMERS_, int PARTS_, int BLOCK_N_, int STAGES_, bool ZIGZAG_ = false>
struct Tile {
    using Element = Element_;
    using Operand = typename Element::Operand;
    static constexpr int HEAD_DIM = HEAD_DIM_, BLOCK_N = BLOCK_N_;
    static constexpr int CONSUMERS = CONSUMERS_, PARTS = PARTS_, GROUPS = CONSUMERS / PARTS; // of rows
    static constexpr int BLOCK_M = GROUPS * attn::WGMMA_M, THREADS = (CONSUMERS + 1) * 128;
    static constexpr int STAGES = STAGES_; // tiles of K and V in the ring
    static constexpr bool LSE = true, ZIGZAG = ZIGZAG_;
    static constexpr bool WIDENS = !std::is_same_v<Element, Operand>;
    // Registers of a loading and of a computing thread: those that the block was launched with, redistributed.
    static constexpr int LOADER_REGISTERS = CONSUMERS >= 3 ? 32 : WIDENS ? 40 : 24;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 4 ? 112 : CONSUMERS == 3 ? 160 : WIDENS ? 232 : 240;
    using QTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_M>;
    using KvTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_N>;
    // Tiles as they land: codes, before the loading warpgroup widens them.
    using QCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_M>;
    using KvCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>;
    struct Landing {
        QCodes q;
        KvCodes k, v;
        attn::Mbarrier q_landed, k_landed, v_landed;
    };
    struct Nothing {};
    struct Shared {
        QTile q; // and O on its way out
        KvTile k[STAGES], v[STAGES];
        std::conditional_t<WIDENS, Landing, Nothing> landing;
        std::conditional_t<PARTS == 2, attn::KeyPart<HEAD_DIM / 2>, Nothing> second_part[GROUPS];
        attn::Mbarrier q_full, k_full[STAGES], v_full[STAGES];
        attn::Mbarrier k_empty[STAGES], v_empty[STAGES]; // read by every consumer of the tile
    };
    static constexpr int Q_BOX_ROWS = ZIGZAG ? attn::WGMMA_M : BLOCK_M;
    static constexpr int K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N, O_BOX_ROWS = 16;
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = Operand::PROBABILITY;
    // Named barriers: those of the consumers, one for the threads that widen, and those of consumers with the same rows.
    static constexpr int FIRST_CONSUMER = 1, WIDENERS = FIRST_CONSUMER + CONSUMERS, FIRST_GROUP = WIDENERS + 1;
    static_assert(PARTS == 1 || PARTS == 2, "one other part to merge");
    static_assert(STAGES >= 2 * PARTS, "a tile lands for each part while another is read");
    static_assert(LOADER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= 512 || CONSUMERS == 1, "a multiprocessor has 64K of them");
    static_assert(FIRST_GROUP + GROUPS <= 16, "a block has 16 named barriers");
};

// A computing warpgroup; `consumer` counts from 0. Consumers with the same rows alternate over the tiles of keys.
template <class Preset>
__device__ __forceinline__ void compute(const AttentionLaunch &launch, typename Preset::Shared &smem, const attn::Work &work,
                                        int consumer) {
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM, PARTS = Preset::PARTS;
    const AttentionParams &params = launch.params;
    const int group = consumer % Preset::GROUPS, part = consumer / Preset::GROUPS;
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, thread = threadIdx.x % 128;
    const int group_row = group * attn::WGMMA_M, warp_row = group_row + warp * 16; // in the block

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
    const int visible_to_any = group < work.groups ? attn::visible_keys(params, last_row) : 0;
    const float scale_log2 = params.softmax_scale * attn::LOG2_E *
                             attn::scale_of(params.q, params.heads_q, work.batch, work.head_q) *
                             attn::scale_of(params.k, params.heads_kv, work.batch, work.head_kv);
    float s[BLOCK_N / 2], o_acc[HEAD_DIM / 2];
    uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4];
    float rescale[2]; // the factor for the output so far
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
    ATTN_PLACES(at, work.batch, work.head_q, work.row + warp_row + lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
    // Where K of the current tile is, and V of the previous one.
    auto place = attn::RingPlace<Preset::STAGES>::first();
    if (part == 1) place.advance();
    auto before = place;
    const auto advance = [](auto &at) {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) at.advance();
    };
    const auto wait_k = [&](const auto &at) { attn::mbarrier_wait_tx(&smem.k_full[at.slot], at.parity); };
    const auto wait_v = [&](const auto &at) { attn::mbarrier_wait_tx(&smem.v_full[at.slot], at.parity); };
    const auto release = [&](attn::Mbarrier *empty, const auto &at) {
        if (thread == 0) attn::mbarrier_arrive(&empty[at.slot]);
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
        attn::start_qk(s, smem.q, group_row, smem.k[place.slot]);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[before.slot]);
        // K of the previous tile has been read: by products waited for, and by warps on their own before they met.
        release(smem.k_empty, before);
        attn::wgmma_wait<1>(s);
        bool counts = true; // whether S now holds exponentials
        ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
        if constexpr (EXACT) mask_and_softmax(tile);
        else counts = attn::spread_exponentials_of_rows(s, state, scale_log2);
        // Here, because the compiler moves nothing across this loop: else it would compute the exponentials after the next wait.
        auto next = place;
        advance(next);
        if (tile >= PARTS) wait_k(next);
        attn::wgmma_wait<0>(o_acc);
        ATTN_OBSERVE(OUTPUT, at, (tile + PARTS) * BLOCK_N, o_acc);
        release(smem.v_empty, before);
        if (!counts) { // the warp recomputes its scores, for new maxima
            attn::warp_scores(s, smem.q, warp_row, smem.k[place.slot]);
            attn::softmax_rows(s, state, scale_log2, rescale);
        }
        ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
        ATTN_OBSERVE(PROBABILITIES, at, tile * BLOCK_N, s);
        if (EXACT || !counts) attn::scale_rows(o_acc, rescale);
        ATTN_OBSERVE(RESCALED, at, tile * BLOCK_N, o_acc);
        attn::round_rows<typename Preset::Operand>(p_frag, s);
        before = place, place = next;
    };

    int tile = work.tiles - 1 - part;
    // Tiles that no row of the warpgroup sees.
#pragma unroll 1
    for (; tile >= 0 && tile * BLOCK_N >= visible_to_any; tile -= PARTS, advance(place)) {
        wait_k(place);
        wait_v(place);
        // All warps have seen both phases end: one that came a lap late would wait for a phase that never ends.
        attn::named_barrier_sync<128>(Preset::FIRST_CONSUMER + consumer);
        release(smem.k_empty, place);
        release(smem.v_empty, place);
    }
    if (group >= work.groups) return; // it has no rows, or those of the next block
    if (work.tiles > 0) attn::mbarrier_wait_tx(&smem.q_full, 0); // also before O takes its place
    if (tile >= 0) {
        wait_k(place);
        attn::start_qk(s, smem.q, group_row, smem.k[place.slot]);
        attn::wgmma_wait<0>(s);
        mask_and_softmax(tile);
        attn::round_rows<typename Preset::Operand>(p_frag, s);
        before = place, advance(place);
        if (tile >= PARTS) wait_k(place);
        // Tiles that some rows see only in part, until all rows have seen a key and have a maximum.
#pragma unroll 1
        for (tile -= PARTS; tile >= 0 && (tile + PARTS) * BLOCK_N >= visible_to_all; tile -= PARTS) step(tile, std::true_type{});
#pragma unroll 1
        for (; tile >= 0; tile -= PARTS) step(tile, std::false_type{});
        wait_v(before);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[before.slot]);
        attn::wgmma_wait<0>(o_acc);
        ATTN_OBSERVE(OUTPUT, at, (tile + PARTS) * BLOCK_N, o_acc);
    }
    if constexpr (PARTS == 2) {
        auto &second = smem.second_part[group];
        if (part == 1) second.put(o_acc, state, thread);
        // The second part has arrived, and its warpgroup has read Q for the last time.
        attn::named_barrier_sync<256>(Preset::FIRST_GROUP + group);
        if (part == 1) return;
        second.merge_into(o_acc, state, thread);
    }

    __syncwarp(); // lanes that read Q for their own scores have done so
    attn::store_output(launch, work, smem.q, warp_row, o_acc, state, lane);
    attn::store_lse_rows(params, work.batch, work.head_q, work.row + warp_row + lane / 4, state, lane);
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // tells the compiler that it is uniform in a warp
    attn::Work work;
    if constexpr (Preset::ZIGZAG) work = attn::work_of_group<Preset>(launch.params, warpgroup % Preset::GROUPS);
    else work = attn::work_of_block<Preset>(launch.params);
    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    if (threadIdx.x == 0) attn::init_ring<Preset>(smem, Preset::GROUPS);
    // The barriers are initialised.
    __syncthreads();
    constexpr bool SHARES = Preset::CONSUMERS > 1; // two warpgroups start with as many registers as they could use
    if (warpgroup == Preset::CONSUMERS) {
        if constexpr (SHARES) attn::give_registers_back<Preset::LOADER_REGISTERS>();
        attn::load_ring<Preset>(launch, smem, work);
    } else {
        if constexpr (SHARES) attn::take_registers<Preset::CONSUMER_REGISTERS>();
        compute<Preset>(launch, smem, work, warpgroup);
    }
}

// Rows x keys of a tile; at head_dim 128, where the output takes more registers, three warpgroups for four.
template <class Element, int HEAD_DIM, bool ZIGZAG = false>
using Tile256x64 =
    Tile<Element, HEAD_DIM, HEAD_DIM == 64 ? 4 : 3, 1, 64, HEAD_DIM == 64 ? 6 : 3 + sizeof(typename Element::Storage), ZIGZAG>;
// For grids that fill the GPU about once; four warpgroups of head_dim 128 that split keys would have too few registers.
template <class Element, int HEAD_DIM, bool ZIGZAG = false>
using Tile128x64K2 = Tile<Element, HEAD_DIM, HEAD_DIM == 64 ? 4 : 2, HEAD_DIM == 64 ? 2 : 1, 64, HEAD_DIM == 64 ? 8 : 5, ZIGZAG>;
// For those that do not.
template <class Element, int HEAD_DIM> using Tile64x128K2 = Tile<Element, HEAD_DIM, 2, 2, HEAD_DIM == 64 ? 128 : 64, 4>;

template <class Element, int HEAD_DIM> using Zigzag256x64 = Tile256x64<Element, HEAD_DIM, true>;
template <class Element, int HEAD_DIM> using Zigzag128x64K2 = Tile128x64K2<Element, HEAD_DIM, true>;

} // namespace

ATTN_MAPPED_VARIANT(spread, spread_256x64, Tile256x64)
ATTN_MAPPED_VARIANT(spread, spread_128x64_k2, Tile128x64K2)
ATTN_MAPPED_VARIANT(spread, spread_64x128_k2, Tile64x128K2)
ATTN_MAPPED_VARIANT(zigzag, zigzag_128x64_k2, Zigzag128x64K2)
ATTN_MAPPED_VARIANT(zigzag, zigzag_256x64, Zigzag256x64)
