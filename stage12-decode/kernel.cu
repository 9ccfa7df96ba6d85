// Stage 12: few queries, many keys. Query heads that read the same keys are rows of one tile, so that keys are read once; the keys
// are split over the warpgroups of a cluster, or over its warps, which merge their outputs through distributed shared memory.

#include <attn/cluster.cuh>
#include <attn/mask.cuh>
#include <attn/merge.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include "parts.cuh"
#include "products.cuh"

namespace {

// Packed rows of one key head: row p is query p / group, query head p % group of the group. Each team of the cluster has all of
// them and every PARTS-th tile of keys, which it loads for itself. A team is a warpgroup, with 64 rows, or a warp, with 16: it has
// them sooner, and converts codes in registers, where mma.sync takes them. wgmma would take halves from shared memory.
template <class Element_,   // of Q, K and V
          int HEAD_DIM_,    // columns
          int CLUSTER_,     // blocks
          int ROWS_,        // 64 or 16; of E4M3 16
          int BLOCK_WARPS_, // of a block
          int STAGES_>      // tiles of K and V in a team's ring
struct Preset {
    using Element = Element_;
    using Operand = typename Element::Operand;
    static constexpr bool CODES = !std::is_same_v<Element, Operand>, LSE = true; // CODES: E4M3
    static constexpr int HEAD_DIM = HEAD_DIM_, CLUSTER = CLUSTER_, THREADS = BLOCK_WARPS_ * 32;
    static constexpr int ROWS = CODES ? 16 : ROWS_, WARPS = ROWS / 16, TEAMS = BLOCK_WARPS_ / WARPS; // WARPS: of a team
    static constexpr int STAGES = STAGES_, PARTS = CLUSTER * TEAMS;           // PARTS: of the keys
    static constexpr int BLOCK_M = ROWS / CLUSTER;                            // sizes the grid: blocks split keys, and columns of O
    static constexpr int BLOCK_N = (WARPS == 1 ? 4096 : 8192) / HEAD_DIM;     // keys of a tile
    using KvTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>;
    struct Ring {
        KvTile k[STAGES], v[STAGES]; // [BLOCK_N, HEAD_DIM] each
    };
    struct Empty {};
    // All parts are sent to the block that merges these columns; the warps of a block are one part, merged before.
    static constexpr int SENT = WARPS == 1 ? CLUSTER : PARTS, OCTETS = HEAD_DIM / 8 / CLUSTER, PAIRS = ROWS / 2;
    struct Partials {
        Parts<SENT, OCTETS, PAIRS> parts;
        attn::Mbarrier full;
    };
    using WarpParts = Parts<TEAMS, HEAD_DIM / 8, PAIRS>;
    struct Shared {
        Ring rings[TEAMS];
        std::conditional_t<WARPS == 1, WarpParts, Empty> warps;
        Partials partials;
        attn::Mbarrier k_full[TEAMS][STAGES], v_full[TEAMS][STAGES];
    };
    static constexpr int Q_BOX_ROWS = 0, K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N, O_BOX_ROWS = 0;
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = Operand::PROBABILITY;
    static_assert(HEAD_DIM / 8 % CLUSTER == 0 && (WARPS > 1 || TEAMS >= CLUSTER), "as many columns a block, or for a warp");
};

// A packed row as query and query head.
struct Row {
    int query, head;

    static __device__ __forceinline__ Row of(const AttentionParams &params, int head_kv, int row) {
        const int group = params.heads_q / params.heads_kv;
        return {row / group, head_kv * group + row % group};
    }
};

// Which two neighbouring columns of Q or O a lane has of octet `i`; of codes, it has four of each 16.
template <class Preset>
__device__ __forceinline__ int pair_of(int i, int lane) {
    return Preset::CODES ? i / 2 * 8 + lane % 4 * 2 + i % 2 : i * 4 + lane % 4;
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    constexpr int HEAD_DIM = Preset::HEAD_DIM, BLOCK_N = Preset::BLOCK_N, STAGES = Preset::STAGES, PARTS = Preset::PARTS;
    using Element = typename Preset::Element;
    using Operand = typename Preset::Operand;
    const AttentionParams &params = launch.params;
    // By shuffle: uniform in a warp, for the compiler.
    const int team = __shfl_sync(0xffffffffu, threadIdx.x / 32 / Preset::WARPS, 0);
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32 % Preset::WARPS, 0), lane = threadIdx.x % 32; // warp: of the team

    // The cluster's rows: those that see the most keys start first. And this team's share of the tiles that any of them sees.
    const int rank = attn::cluster_rank(), head_kv = blockIdx.y, batch = blockIdx.z;
    const int first_row = (gridDim.x - 1 - blockIdx.x) / Preset::CLUSTER * Preset::ROWS;
    const int part = team * Preset::CLUSTER + rank;
    const int last_query = min(Row::of(params, head_kv, first_row + Preset::ROWS - 1).query, params.seq_q - 1);
    const int key_end = attn::visible_keys(params, last_query); // ptxas moves the division of `last_query` behind the mask's branch
    const int tiles = ((key_end + BLOCK_N - 1) / BLOCK_N - part + PARTS - 1) / PARTS;
    const auto first_key = [&](int tile) { return (tile * PARTS + part) * BLOCK_N; };

    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    auto &ring = smem.rings[team];
    auto &k_full = smem.k_full[team], &v_full = smem.v_full[team];
    const auto load = [&](auto &slot, const AttentionTensorMap &map, attn::Mbarrier *full, int tile) {
        attn::mbarrier_arrive_expect_tx(full, Preset::KvTile::BYTES);
        slot.load(map, full, first_key(tile), head_kv, batch);
    };
    // Each barrier is initialised by the thread that starts what it counts. Nothing is started that nobody will wait for: a block
    // must not end before its copies.
    if (warp == 0 && attn::elect_one()) {
        for (auto &full : k_full) attn::mbarrier_init(&full, 1);
        for (auto &full : v_full) attn::mbarrier_init(&full, 1);
        attn::fence_mbarrier_init();
        for (int tile = 0; tile < min(STAGES, tiles); ++tile) {
            load(ring.k[tile], launch.k, &k_full[tile], tile);
            load(ring.v[tile], launch.v, &v_full[tile], tile);
        }
    }
    if (threadIdx.x == 32) { // at 64 rows a warp that starts no copies
        attn::mbarrier_init(&smem.partials.full, 1);
        attn::fence_mbarrier_init();
    }
    // This block runs and its barriers are initialised: the other blocks wait for that at the end.
    attn::cluster_arrive_relaxed();

    const int rows = min(Preset::ROWS, params.seq_q * (params.heads_q / params.heads_kv) - first_row); // that exist
    // This thread has elements of two rows.
    const int pair = warp * 8 + lane / 4, thread_row = warp * 16 + lane / 4; // of the tile
    Row row[2];
    bool exists[2];
    int visible[2];
    float scale_log2[2];
    uint32_t q_frag[1][HEAD_DIM / attn::WGMMA_K][4]; // of [ROWS, HEAD_DIM]
    uint32_t *first_o[2];
    attn::RowState state[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        row[half] = Row::of(params, head_kv, first_row + thread_row + half * 8);
        exists[half] = thread_row + half * 8 < rows;
        const auto *q = attn::row_address<const typename Element::Storage>(params.q, batch, row[half].head, row[half].query);
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i) {
            uint32_t &word = q_frag[0][i / 2][i % 2 * 2 + half];
            const auto *two = q + (Preset::CODES ? i / 2 * 16 + lane % 4 * 4 + i % 2 * 2 : i * 8 + lane % 4 * 2);
            if constexpr (Preset::CODES) word = exists[half] ? attn::E4M3::low(*reinterpret_cast<const uint16_t *>(two)) : 0;
            else word = exists[half] ? *reinterpret_cast<const uint32_t *>(two) : 0;
        }
        auto *o = attn::row_address<typename Operand::Storage>(params.o, batch, row[half].head, row[half].query);
        first_o[half] = reinterpret_cast<uint32_t *>(o) + pair_of<Preset>(rank * Preset::OCTETS, lane); // of this block's columns
        visible[half] = attn::visible_keys(params, row[half].query);
        state[half] = attn::RowState::empty();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        scale_log2[half] = attn::scale_of_scores(params, batch, row[half].head, head_kv);
    }
    const int visible_to_all = attn::visible_keys(params, Row::of(params, head_kv, first_row + warp * 16).query); // of the warp
    float o_acc[HEAD_DIM / 2]; // of [ROWS, HEAD_DIM]
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;

    // The barriers are initialised.
    __syncthreads();
    // What lanes that have a row send to this block. Some of it may have come: the phase waits for this arrival.
    const int pairs = rows / 16 * 8 + min(rows % 16, 8);
    if (threadIdx.x == 32) {
        attn::mbarrier_arrive_expect_tx(&smem.partials.full, Preset::SENT * pairs * (4 * Preset::OCTETS + 1) * 16);
    }
    const auto refill = [&](auto &slot, const AttentionTensorMap &map, attn::Mbarrier *full, int tile) {
        if constexpr (Preset::WARPS == 1) __syncwarp(); // all lanes have read the slot
        if (tile < tiles && warp == 0 && attn::elect_one()) load(slot, map, full, tile);
    };
 ATTN_PLACES(at, batch, row[i % 4 / 2].head, row[i % 4 / 2].query, i / 4 * 8 + lane % 4 * 2 + i % 2);
 ATTN_PLACES(o_at, batch, row[i % 4 / 2].head, row[i % 4 / 2].query,
             attn::Fragment<Element>::o_column(i / 4, i % 2, lane));
    uint32_t p_frag[1][BLOCK_N / attn::WGMMA_K][4]; // of [ROWS, BLOCK_N]
    using Rows = attn::WarpRows<Element, HEAD_DIM, 16, BLOCK_N>;
    auto current = attn::PipelineState<STAGES>::first();
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, current.advance()) {
        float s[BLOCK_N / 2]; // of [ROWS, BLOCK_N]
        auto &k = ring.k[current.slot], &v = ring.v[current.slot];
        attn::mbarrier_wait_tx(&k_full[current.slot], current.parity);
        if constexpr (Preset::WARPS == 1) {
            attn::multiply_qk<Rows>(reinterpret_cast<typename Rows::Scores &>(s), q_frag, k, 0, lane);
        } else {
            attn::start_qk(s, q_frag[0], k);
            attn::wgmma_wait<0>(s);
        }
        refill(k, launch.k, &k_full[current.slot], tile + STAGES);
        if (first_key(tile) + BLOCK_N > visible_to_all) attn::mask_rows(s, first_key(tile), visible, lane);
 ATTN_OBSERVE(SCORES, at, first_key(tile), s);
        float rescale[2];
        attn::softmax_rows(s, state, scale_log2, rescale);
 ATTN_OBSERVE(LANE_STATE, at, first_key(tile), state);
 ATTN_OBSERVE(PROBABILITIES, at, first_key(tile), s);
        if (Preset::WARPS > 1 || __any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f)) attn::scale_rows(o_acc, rescale);
 ATTN_OBSERVE(RESCALED, o_at, first_key(tile), o_acc);
        attn::round_rows<Operand>(p_frag[0], s);
        attn::mbarrier_wait_tx(&v_full[current.slot], current.parity);
        if constexpr (Preset::CODES) {
            multiply_pv(reinterpret_cast<float (&)[HEAD_DIM / 8][4]>(o_acc), p_frag[0], v, lane);
        } else if constexpr (Preset::WARPS == 1) {
            attn::multiply_pv<Rows>(reinterpret_cast<typename Rows::Output &>(o_acc), p_frag, v, 0, lane);
        } else {
            attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag[0], v);
            attn::wgmma_wait<0>(o_acc);
        }
 ATTN_OBSERVE(OUTPUT, o_at, first_key(tile), o_acc);
        refill(v, launch.v, &v_full[current.slot], tile + STAGES);
    }

    // The other blocks run, and their barriers are initialised: each gets its columns of this part.
    state[0].template join<4>();
    state[1].template join<4>();
    const auto states = [&] { return bits(state[0].max, state[0].sum, state[1].max, state[1].sum); };
    auto &sent = smem.partials.parts;
    const auto send_states = [&](int owner, int sender) {
        if (lane % 4 == 0) attn::store_async(owner, &sent.states[sender][pair], states(), &smem.partials.full);
    };
    const auto send = [&](int owner, int sender, int octet, const float *o) {
        attn::store_async(owner, &sent.o[sender][octet][pair][lane % 4], bits(o[0], o[1], o[2], o[3]), &smem.partials.full);
    };
    if constexpr (Preset::WARPS == 1) { // the block's warps are one part
        auto &parts = smem.warps;
        if (lane % 4 == 0) parts.states[team][pair] = states();
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i) { // of codes neighbouring columns are in two accumulators
            constexpr int NEXT = Preset::CODES ? 4 : 1;
            const float *o = &o_acc[Preset::CODES ? i / 2 * 8 + i % 2 : i * 4];
            parts.o[team][i][pair][lane % 4] = bits(o[0], o[NEXT], o[2], o[2 + NEXT]);
        }
        // All warps have written what they have.
        __syncthreads();
        float factor[Preset::TEAMS][2];
        state[0] = parts.total(factor, pair, 0);
        state[1] = parts.total(factor, pair, 1);
        attn::cluster_wait();
        if (pair < pairs) {
            if (team < Preset::CLUSTER) send_states(team, rank);
            for (int octet = team; octet < HEAD_DIM / 8; octet += Preset::TEAMS) {
                float o[4];
                parts.merge(o, factor, octet, pair, lane);
                send(octet / Preset::OCTETS, rank, octet % Preset::OCTETS, o);
            }
        }
    } else {
        attn::cluster_wait();
        if (pair < pairs) {
#pragma unroll
            for (int owner = 0; owner < Preset::CLUSTER; ++owner) {
                send_states(owner, part);
                const float *o = &o_acc[owner * Preset::OCTETS * 4];
#pragma unroll
                for (int octet = 0; octet < Preset::OCTETS; ++octet) send(owner, part, octet, o + octet * 4);
            }
        }
    }
    if (pair >= pairs) return;

    // All parts of this block's columns arrive: a block outlives what is stored to it. They are merged in their order, by the
    // threads that have the rows.
    attn::mbarrier_wait_cluster(&smem.partials.full, 0);
    const float scale = attn::scale_of(params.v, params.heads_kv, batch, head_kv);
    float factor[Preset::SENT][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const attn::RowState total = sent.total(factor, pair, half);
        const float inverse = total.inverse_sum() * scale;
#pragma unroll
        for (int i = 0; i < Preset::SENT; ++i) factor[i][half] *= inverse;
        if (rank == 0 && team == 0 && lane % 4 == 0 && exists[half]) {
            attn::store_lse(params, batch, row[half].head, row[half].query, total, scale_log2[half]);
        }
    }
#pragma unroll
    for (int octet = team; octet < Preset::OCTETS; octet += Preset::TEAMS) {
        float o[4];
        sent.merge(o, factor, octet, pair, lane);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (exists[half]) first_o[half][pair_of<Preset>(octet, 0)] = Operand::pack(o[2 * half], o[2 * half + 1]);
        }
    }
}

// Keys split over the warps of two blocks, where tiles are half as many as multiprocessors, and of eight: as warpgroups with 64 rows, and
// as single warps with 16, each with one tile of K and V on its way. Names count rows x keys at head_dim 128. E4M3 is by single warps in
// all: there 64x256 is 16x512, and 64x1024 is 16x2048, with two tiles on their way.
template <class Element, int HEAD_DIM> using Two64x256 = Preset<Element, HEAD_DIM, 2, 64, 8, 2>;
template <class Element, int HEAD_DIM> using Eight64x1024 = Preset<Element, HEAD_DIM, 8, 64, 8, 2>;
template <class Element, int HEAD_DIM> using Two16x256 = Preset<Element, HEAD_DIM, 2, 16, 4, 1>;
template <class Element, int HEAD_DIM> using Eight16x2048 = Preset<Element, HEAD_DIM, 8, 16, 8, 1>;

} // namespace

ATTN_CLUSTER_VARIANT(decode, decode_64x256, Two64x256)
ATTN_CLUSTER_VARIANT(decode, decode_64x1024, Eight64x1024)
ATTN_CLUSTER_VARIANT(decode, decode_16x256, Two16x256)
ATTN_CLUSTER_VARIANT(decode, decode_16x2048, Eight16x2048)
