// Stage 9: keys split over a cluster. Two blocks share 64 query rows: each takes every second tile of keys, and they exchange
// halves of their outputs through distributed shared memory.

#include <attn/cluster.cuh>
#include <attn/fp8_scores.cuh>
#include <attn/mask.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/wgmma_rows.cuh>
#include <attn/wgmma_tile.cuh>
#include "convert.cuh"

namespace {

// One warpgroup, 64 query rows; of E4M3 a second one converts V meanwhile. In each round a block takes two tiles of keys, with one
// maximum for both; tiles alternate between the blocks of the cluster. Slots are refilled as soon as they have been read.
template <class Element_, // of Q, K and V
          int HEAD_DIM_,  // columns
          int BLOCK_N_>   // keys of a tile
struct Preset {
    using Element = Element_;
    using Operand = typename Element::Operand;
    static constexpr bool CONVERTS = !std::is_same_v<Element, Operand>; // E4M3
    static constexpr int HEAD_DIM = HEAD_DIM_, CLUSTER = 2, WARPS = 4, THREADS = CONVERTS ? 256 : 128; // WARPS that compute
    static constexpr int ROWS = attn::WGMMA_M, BLOCK_M = ROWS / CLUSTER; // sizes the grid: blocks split columns
    static constexpr int BLOCK_N = BLOCK_N_, PAIR = 2;                   // PAIR: tiles of a round
    static constexpr bool LSE = !CONVERTS; // sums of codes are not exact enough for log-sum-exps
    using QTile = attn::BoxTile<Element, HEAD_DIM, ROWS>;
    using KvTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>; // as it lands
    using VTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_N>;
    struct Staging { KvTile v[PAIR]; attn::Mbarrier v_full[PAIR]; }; // codes of V
    struct Empty {};
    // What a warp sends to the same warp of the other block: two rows' states of every fourth lane, and each lane's accumulators of half
    // of the columns, four at a time.
    static constexpr int HALF = HEAD_DIM / 4; // accumulators
    struct Partial {
        uint4 states[8], o[HALF / 4][32];
        attn::Mbarrier states_full, o_full;
    };
    struct Shared {
        QTile q;        // [ROWS, HEAD_DIM]
        KvTile k[PAIR]; // [BLOCK_N, HEAD_DIM] each
        VTile v[PAIR];  // [BLOCK_N, HEAD_DIM] each
        std::conditional_t<CONVERTS, Staging, Empty> staging;
        Partial partial[WARPS];
        attn::Mbarrier q_full, k_full[PAIR], v_full[PAIR];
    };
    static constexpr int Q_BOX_ROWS = ROWS, K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N, O_BOX_ROWS = 0;
    // Scores from codes are less exact than a P in FP16: C2 and C3 apply the bounds of one in BF16.
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = CONVERTS ? ATTENTION_P_BF16 : Operand::PROBABILITY;
    static constexpr int K_READ = 1, V_READ = 2, CODES_READ = 3; // named barriers of E4M3
    static_assert(CLUSTER == 2 && PAIR == 2, "a block exchanges halves with the one other, rank ^ 1; a round is s[0], s[1]");
};

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM, HALF = Preset::HALF;
    const AttentionParams &params = launch.params;
    using Operand = typename Preset::Operand;
    // By shuffle: uniform in a warp, for the compiler; copies then start without a loop over lanes.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;

    // This block's rows and head, and its share of the tiles that the last row sees. Under the causal mask the last rows see
    // the most keys: their blocks start first.
    const int rank = attn::cluster_rank(), batch = blockIdx.z, head_q = blockIdx.y, head_kv = attn::kv_head(params, head_q);
    const int row_tile = (gridDim.x - 1 - blockIdx.x) / Preset::CLUSTER, first_row = row_tile * Preset::ROWS;
    const int key_end = attn::visible_keys(params, min(first_row + Preset::ROWS, params.seq_q) - 1);
    const int tiles_of_all = (key_end + BLOCK_N - 1) / BLOCK_N;
    const int tiles = (tiles_of_all - rank + Preset::CLUSTER - 1) / Preset::CLUSTER;
    const auto first_key = [&](int tile) { return (tile * Preset::CLUSTER + rank) * BLOCK_N; };

    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    auto &staging = [&]() -> auto & { // where TMA brings V
        if constexpr (Preset::CONVERTS) return smem.staging;
        else return smem;
    }();
    // Starts the copies of a round's tiles, if there are any.
    const auto load_round = [&](auto &slots, const AttentionTensorMap &map, auto &full, int first_tile) {
#pragma unroll
        for (int slot = 0; slot < Preset::PAIR; ++slot) {
            if (first_tile + slot >= tiles) continue;
            attn::mbarrier_arrive_expect_tx(&full[slot], Preset::KvTile::BYTES);
            slots[slot].load(map, &full[slot], first_key(first_tile + slot), head_kv, batch);
        }
    };
    // Each barrier of a copy is initialised by the thread that starts it. Q and K are in flight before anything else is done; nothing
    // is started that nobody will wait for: a block must not end before its copies.
    if (warp == 0 && attn::elect_one()) {
        attn::mbarrier_init(&smem.q_full, 1);
        for (auto &full : smem.k_full) attn::mbarrier_init(&full, 1);
        attn::fence_mbarrier_init();
        if (tiles > 0) {
            attn::mbarrier_arrive_expect_tx(&smem.q_full, Preset::QTile::BYTES);
            smem.q.load(launch.q, &smem.q_full, first_row, head_q, batch);
        }
        load_round(smem.k, launch.k, smem.k_full, 0);
        for (auto &full : staging.v_full) attn::mbarrier_init(&full, 1);
        attn::fence_mbarrier_init();
        load_round(staging.v, launch.v, staging.v_full, 0);
    } else if (warp == 1 && attn::elect_one()) { // a warp that is still idle
        for (auto &partial : smem.partial) {
            attn::mbarrier_init(&partial.states_full, 1);
            attn::mbarrier_init(&partial.o_full, 1);
        }
        if constexpr (Preset::CONVERTS) for (auto &full : smem.v_full) attn::mbarrier_init(&full, 1);
        attn::fence_mbarrier_init();
        for (auto &partial : smem.partial) {
            attn::mbarrier_arrive_expect_tx(&partial.states_full, sizeof(partial.states));
            attn::mbarrier_arrive_expect_tx(&partial.o_full, sizeof(partial.o));
        }
    }
    // This block runs and its barriers are initialised: the other block waits for that at the end.
    attn::cluster_arrive_relaxed();
    const int warp_row = first_row + warp * 16, thread_row = warp_row + lane / 4; // and the 8th row after it
    const int visible_to_all = attn::visible_keys(params, warp_row); // keys that all rows of the warp see
    int visible[2];                                                  // and the thread's two rows
    attn::RowState state[2];                                         // of these
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        visible[half] = attn::visible_keys(params, thread_row + half * 8);
        state[half] = attn::RowState::empty();
    }
    const float scale_log2 = attn::scale_of_scores(params, batch, head_q, head_kv);
    // Where the columns of this block begin, in the thread's first row: computed while tiles are in flight, if registers suffice.
    const auto first_column = [&] {
        auto *const o_row = attn::row_address<typename Operand::Storage>(params.o, batch, head_q, thread_row);
        return reinterpret_cast<uint32_t *>(o_row) + rank * (HEAD_DIM / 4) + lane % 4;
    };
    uint32_t *const early_o = Preset::CONVERTS ? nullptr : first_column();
    float o_acc[HEAD_DIM / 2];                      // of [64, HEAD_DIM]
    uint32_t p_frag[2][BLOCK_N / attn::WGMMA_K][4]; // of [64, BLOCK_N] each, read by products that outlive their round
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
    // Of E4M3, whose address of O comes late, ptxas moves the zeros past the wait for Q, and serialises the products (C7515).
    if constexpr (Preset::CONVERTS) attn::fence_operands(o_acc);

    // The barriers are initialised.
    __syncthreads();
    if constexpr (Preset::CONVERTS) {
        if (warp >= Preset::WARPS) {
            convert_values<Preset>(smem, tiles, [&](int tile) { load_round(staging.v, launch.v, staging.v_full, tile); });
            attn::cluster_wait(); // who arrived at the cluster barrier waits there
            return;
        }
    }
    // Of a head whose products are too large for the sums of FP8 tensor cores each warp computes its own scores, exactly, and so it does
    // in a round whose maxima are.
    const bool is_exact = Preset::CONVERTS && fabsf(scale_log2) > attn::LARGEST_SCALE<HEAD_DIM>;
    const auto start_scores = [&](float (&s)[BLOCK_N / 2], int slot, int parity) {
        attn::mbarrier_wait_tx(&smem.k_full[slot], parity);
        if constexpr (Preset::CONVERTS) attn::start_fp8_qk(s, smem.q, 0, smem.k[slot]);
        else attn::start_qk(s, smem.q, 0, smem.k[slot]);
    };
    const auto mask_scores = [&](float (&s)[BLOCK_N / 2], int tile) {
        if (first_key(tile) + BLOCK_N > visible_to_all) attn::mask_rows(s, first_key(tile), visible, lane);
    };
    const auto compute_own_scores = [&](float (&s)[BLOCK_N / 2], int slot, int tile) {
        if constexpr (Preset::CONVERTS) attn::exact_warp_scores(s, smem.q, threadIdx.x / 32 * 16, smem.k[slot]);
        mask_scores(s, tile);
    };
    if (tiles > 0) attn::mbarrier_wait_tx(&smem.q_full, 0);
 ATTN_PLACES(at, batch, head_q, thread_row + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
 ATTN_PLACES(next_at, batch, head_q, thread_row + i % 4 / 2 * 8,
             Preset::CLUSTER * BLOCK_N + i / 4 * 8 + lane % 4 * 2 + i % 2);
    int parity = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; tile += Preset::PAIR, parity ^= 1) {
        const bool is_pair = tile + 1 < tiles;
        float s[2][BLOCK_N / 2]; // of [64, BLOCK_N] each
        start_scores(s[0], 0, parity);
        if (is_pair) {
            start_scores(s[1], 1, parity);
            attn::wgmma_wait<0>(s[0], s[1]);
            mask_scores(s[1], tile + 1);
        } else {
            attn::wgmma_wait<0>(s[0]);
#pragma unroll
            for (int i = 0; i < BLOCK_N / 2; ++i) s[1][i] = -INFINITY;
        }
        mask_scores(s[0], tile);
        // The products of all warps have read K, as one's wait tells (stage 7): its slots are refilled for the next round.
        const bool refills_k = warp == 0 && attn::elect_one();
        if (!Preset::CONVERTS && refills_k) load_round(smem.k, launch.k, smem.k_full, tile + Preset::PAIR);
        const auto largest_of = [&](int half) {
            return attn::row_max<4>(attn::row_max_of(s[1], half, attn::row_max_of(s[0], half, -INFINITY)));
        };
        float largest[2] = {largest_of(0), largest_of(1)};
        if constexpr (Preset::CONVERTS) {
            const bool exceeds = attn::exceed_code_max(largest[0] * scale_log2, largest[1] * scale_log2);
            if (is_exact || __any_sync(0xffffffffu, exceeds)) {
                compute_own_scores(s[0], 0, tile);
                if (is_pair) compute_own_scores(s[1], 1, tile + 1);
                largest[0] = largest_of(0), largest[1] = largest_of(1);
            }
            // Warps that read K on their own have done so.
            attn::named_barrier_sync<Preset::K_READ, 128>();
            if (refills_k) load_round(smem.k, launch.k, smem.k_full, tile + Preset::PAIR);
        }
 ATTN_OBSERVE(SCORES, at, first_key(tile), s[0]);
 ATTN_OBSERVE(SCORES, next_at, first_key(tile), s[1]);
        // The new maxima, and the factors for sums and outputs so far, as in RowState.
        float row_scale[2], rescale[2], sum[2][2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            row_scale[half] = state[half].raise(largest[half], scale_log2, rescale[half]);
 ATTN_STEP(SUM);
            sum[half][0] = state[half].sum * rescale[half];
            sum[half][1] = 0.0f;
        }
        attn::scale_rows(o_acc, rescale);
 ATTN_OBSERVE(RESCALED, at, first_key(tile), o_acc);
        // The output of the first tile is in flight while the exponentials of the second are computed.
        attn::exponentials_of_rows(s[0], row_scale, state, sum);
 ATTN_OBSERVE(PROBABILITIES, at, first_key(tile), s[0]);
        attn::round_rows<Operand>(p_frag[0], s[0]);
        attn::mbarrier_wait_tx(&smem.v_full[0], parity);
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag[0], smem.v[0]);
        if (is_pair) {
            attn::exponentials_of_rows(s[1], row_scale, state, sum);
 ATTN_OBSERVE(PROBABILITIES, next_at, first_key(tile), s[1]);
            attn::round_rows<Operand>(p_frag[1], s[1]);
            attn::mbarrier_wait_tx(&smem.v_full[1], parity);
            attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag[1], smem.v[1]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) state[half].sum = sum[half][0] + sum[half][1];
 ATTN_OBSERVE(LANE_STATE, at, first_key(tile), state);
        if (tile + Preset::PAIR < tiles) { // products have read V, and its slots are refilled
            attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, first_key(tile), o_acc);
            if constexpr (Preset::CONVERTS) attn::named_barrier_arrive<Preset::V_READ, Preset::THREADS>();
            else if (warp == 0 && attn::elect_one()) load_round(smem.v, launch.v, smem.v_full, tile + Preset::PAIR);
        }
    }

    // The rows' states are sent while the last products run. The other block runs, and its barriers are initialised.
    state[0].template join<4>();
    state[1].template join<4>();
    attn::cluster_wait();
    auto &partial = smem.partial[threadIdx.x / 32]; // `warp` would be kept in a register until here
    if (lane % 4 == 0) {
        const uint4 states = make_uint4(__float_as_uint(state[0].max), __float_as_uint(state[0].sum),
                                        __float_as_uint(state[1].max), __float_as_uint(state[1].sum));
        attn::store_async(rank ^ 1, &partial.states[lane / 4], states, &partial.states_full);
    }
    const float scale = attn::scale_of(params.v, params.heads_kv, batch, head_kv);
    // What is sent of the output is divided by the sum: ptxas would send accumulators as they are ahead of the wait, and serialises the
    // products instead (C7514).
    const float normal[2] = {state[0].inverse_sum(), state[1].inverse_sum()};
    attn::wgmma_wait<0>(o_acc);
 if (tiles > 0) ATTN_OBSERVE(OUTPUT, at, first_key((tiles - 1) / Preset::PAIR * Preset::PAIR), o_acc);
    // Each block owns half of the columns, and gets the other's part of them. A branch, since registers cannot be indexed.
    float own[HALF]; // of [64, HEAD_DIM / 2]
    const auto exchange = [&](auto first_own) {
        constexpr int OWN = decltype(first_own)::value, SENT = HALF - OWN;
#pragma unroll
        for (int i = 0; i < HALF / 4; ++i) {
            const auto word = [&](int j) { return __float_as_uint(o_acc[SENT + 4 * i + j] * normal[j / 2]); };
            const uint4 sent = make_uint4(word(0), word(1), word(2), word(3));
            attn::store_async(rank ^ 1, &partial.o[i][lane], sent, &partial.o_full);
        }
#pragma unroll
        for (int i = 0; i < HALF; ++i) own[i] = o_acc[OWN + i];
    };
    if (rank == 0) exchange(std::integral_constant<int, 0>{});
    else exchange(std::integral_constant<int, HALF>{});

    // The other block's part arrives, states first: a block outlives what is stored to it.
    attn::mbarrier_wait_cluster(&partial.states_full, 0);
    const uint4 states = partial.states[lane / 4];
    const attn::RowState others[2] = {{__uint_as_float(states.x), __uint_as_float(states.y)},
                                      {__uint_as_float(states.z), __uint_as_float(states.w)}};
    float other_factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        attn::RowState total = state[half];
        total.merge(others[half]);
        const int row = first_row + threadIdx.x / 32 * 16 + lane / 4 + half * 8; // by `thread_row` it would be kept in 64 bits
        if (Preset::LSE && rank == 0 && lane % 4 == 0) attn::store_lse(params, batch, head_q, row, total, scale_log2);
        const float inverse = total.inverse_sum() * scale, factor = inverse * total.factor(state[half]);
        other_factor[half] = inverse * total.factor(others[half]) * others[half].sum;
#pragma unroll
        for (int i = 0; i < HALF / 2; ++i) own[i / 2 * 4 + 2 * half + i % 2] *= factor;
    }
    attn::mbarrier_wait_cluster(&partial.o_full, 0);
#pragma unroll
    for (int i = 0; i < HALF / 4; ++i) {
        const uint4 other = partial.o[i][lane];
        const float four[4] = {__uint_as_float(other.x), __uint_as_float(other.y), __uint_as_float(other.z), __uint_as_float(other.w)};
#pragma unroll
        for (int j = 0; j < 4; ++j) own[4 * i + j] = fmaf(four[j], other_factor[j / 2], own[4 * i + j]);
    }
    uint32_t *const first_o = Preset::CONVERTS ? first_column() : early_o;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (thread_row + half * 8 >= params.seq_q) continue;
        uint32_t *o = first_o + half * 4 * params.o.row_stride; // two halves per word
#pragma unroll
        for (int d = 0; d < HALF / 4; ++d) o[d * 4] = Operand::pack(own[4 * d + 2 * half], own[4 * d + 2 * half + 1]);
    }
}

// Rows of a cluster x keys per round of one block; at head_dim 128 half of them.
template <class Element, int HEAD_DIM> using Cluster64x256 = Preset<Element, HEAD_DIM, 8192 / HEAD_DIM>;

} // namespace

ATTN_CLUSTER_VARIANT(cluster, cluster_64x256, Cluster64x256)
