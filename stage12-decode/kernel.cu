// Stage 12: few queries, many keys. Query heads that read the same keys are rows of one tile, so that keys are read once; the keys
// are split over the warpgroups of a cluster, which merge their outputs through distributed shared memory.

#include <attn/cluster.cuh>
#include <attn/mask.cuh>
#include <attn/merge.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/wgmma_rows.cuh>
#include <attn/wgmma_tile.cuh>

namespace {

// 64 packed rows of one key head: row p is query p / group, query head p % group of the group. Each warpgroup of the cluster has
// all of them and every PARTS-th tile of keys, which it loads for itself.
template <class Element_,  // of Q, K and V
          int HEAD_DIM_,   // columns
          int CLUSTER_,    // blocks
          int WARPGROUPS_, // of a block
          int STAGES_>     // tiles of K and V in a warpgroup's ring
struct Tile {
    using Element = Element_;
    using Operand = typename Element::Operand;
    static constexpr int HEAD_DIM = HEAD_DIM_, CLUSTER = CLUSTER_, WARPGROUPS = WARPGROUPS_, THREADS = WARPGROUPS * 128;
    static constexpr int STAGES = STAGES_, PARTS = CLUSTER * WARPGROUPS; // PARTS: of the keys
    static constexpr int ROWS = attn::WGMMA_M, BLOCK_M = ROWS / CLUSTER; // a block's share of the cluster's rows
    static constexpr int BLOCK_N = 8192 / HEAD_DIM;                      // keys of a tile
    static constexpr bool CONVERTS = !std::is_same_v<Element, Operand>, LSE = true; // CONVERTS: E4M3, to halves
    using KvTile = attn::BoxTile<Operand, HEAD_DIM, BLOCK_N>;
    using KvCodes = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>; // as it lands
    struct Ring {
        KvCodes k[STAGES], v[STAGES]; // [BLOCK_N, HEAD_DIM] each
    };
    struct Empty {};
    struct Halves { // of each warpgroup's current tile
        KvTile k[WARPGROUPS], v[WARPGROUPS];
    };
    // What all parts send to the block that merges these columns: of each pair of rows, 8 apart, four lanes' parts of 8 columns.
    static constexpr int OCTETS = HEAD_DIM / 8 / CLUSTER, PAIRS = ROWS / 2;
    struct Partials {
        uint4 states[PARTS][PAIRS], o[PARTS][OCTETS][PAIRS][4];
        attn::Mbarrier full;
    };
    struct Shared {
        Ring rings[WARPGROUPS];
        std::conditional_t<CONVERTS, Halves, Empty> halves;
        Partials partials;
        attn::Mbarrier k_full[WARPGROUPS][STAGES], v_full[WARPGROUPS][STAGES];
    };
    static constexpr int Q_BOX_ROWS = 0, K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N, O_BOX_ROWS = 0;
    static constexpr int MIN_BLOCKS = 1, PROBABILITY = Operand::PROBABILITY;
    static constexpr int WARPGROUP_BARRIER = 1; // named: one per warpgroup
    static_assert(HEAD_DIM / 8 % CLUSTER == 0, "each block merges as many columns");
};

// A packed row as query and query head.
struct Row {
    int query, head;

    static __device__ __forceinline__ Row of(const AttentionParams &params, int head_kv, int row) {
        const int group = params.heads_q / params.heads_kv;
        return {row / group, head_kv * group + row % group};
    }
};

// Two neighbouring elements of Q as the operand of a product.
template <class Element>
__device__ __forceinline__ uint32_t operand_pair(const typename Element::Storage *q) {
    if constexpr (std::is_same_v<Element, attn::E4M3>) return attn::E4M3::low(*reinterpret_cast<const uint16_t *>(q));
    else return *reinterpret_cast<const uint32_t *>(q);
}

// Starts s[64, KEYS] = q[64, HEAD_DIM] · k[KEYS, HEAD_DIM]ᵀ, with q in registers.
template <class Operand, int HEAD_DIM, int KEYS>
__device__ __forceinline__ void start_qk(float (&s)[KEYS / 2], const uint32_t (&q)[HEAD_DIM / attn::WGMMA_K][4],
                                         const attn::BoxTile<Operand, HEAD_DIM, KEYS> &k) {
    attn::wgmma_fence();
#pragma unroll
    for (int step = 0; step < HEAD_DIM / attn::WGMMA_K; ++step) {
        const uint64_t k_step = attn::k_major(k, 0, step);
        if constexpr (std::is_same_v<Operand, attn::BF16>) attn::wgmma_bf16<false>(s, q[step], k_step, step != 0);
        else attn::wgmma_f16<false>(s, q[step], k_step, step != 0);
    }
    attn::wgmma_commit();
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    constexpr int HEAD_DIM = Preset::HEAD_DIM, BLOCK_N = Preset::BLOCK_N, STAGES = Preset::STAGES, PARTS = Preset::PARTS;
    using Element = typename Preset::Element;
    using Operand = typename Preset::Operand;
    const AttentionParams &params = launch.params;
    // By shuffle: uniform in a warp, for the compiler.
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0), lane = threadIdx.x % 32;

    // The cluster's rows: those that see the most keys start first. And this warpgroup's share of the tiles that any of them sees.
    const int rank = attn::cluster_rank(), head_kv = blockIdx.y, batch = blockIdx.z;
    const int first_row = (gridDim.x - 1 - blockIdx.x) / Preset::CLUSTER * Preset::ROWS;
    const int part = warpgroup * Preset::CLUSTER + rank;
    const int last_query = min(Row::of(params, head_kv, first_row + Preset::ROWS - 1).query, params.seq_q - 1);
    const int key_end = attn::visible_keys(params, last_query); // the copies need no division under the full mask
    const int tiles = ((key_end + BLOCK_N - 1) / BLOCK_N - part + PARTS - 1) / PARTS;
    const auto first_key = [&](int tile) { return (tile * PARTS + part) * BLOCK_N; };

    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    auto &ring = smem.rings[warpgroup];
    auto &k_full = smem.k_full[warpgroup], &v_full = smem.v_full[warpgroup];
    const auto load = [&](auto &codes, const AttentionTensorMap &map, attn::Mbarrier *full, int tile) {
        attn::mbarrier_arrive_expect_tx(full, Preset::KvCodes::BYTES);
        codes.load(map, full, first_key(tile), head_kv, batch);
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
    if (threadIdx.x == 32) { // of a warp that is still idle
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
    uint32_t q_frag[HEAD_DIM / attn::WGMMA_K][4]; // of [64, HEAD_DIM]
    uint32_t *first_o[2];
    attn::RowState state[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        row[half] = Row::of(params, head_kv, first_row + thread_row + half * 8);
        exists[half] = thread_row + half * 8 < rows;
        const auto *q = attn::row_address<const typename Element::Storage>(params.q, batch, row[half].head, row[half].query);
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i) {
            q_frag[i / 2][i % 2 * 2 + half] = exists[half] ? operand_pair<Element>(q + i * 8 + lane % 4 * 2) : 0;
        }
        auto *o = attn::row_address<typename Operand::Storage>(params.o, batch, row[half].head, row[half].query);
        first_o[half] = reinterpret_cast<uint32_t *>(o) + rank * Preset::OCTETS * 4 + lane % 4; // of this block's columns
        visible[half] = attn::visible_keys(params, row[half].query);
        state[half] = attn::RowState::empty();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        scale_log2[half] = params.softmax_scale * attn::LOG2_E *
                           attn::scale_of(params.q, params.heads_q, batch, row[half].head) *
                           attn::scale_of(params.k, params.heads_kv, batch, head_kv);
    }
    const int visible_to_all = attn::visible_keys(params, Row::of(params, head_kv, first_row + warp * 16).query); // of the warp
    float o_acc[HEAD_DIM / 2]; // of [64, HEAD_DIM]
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;

    // The barriers are initialised.
    __syncthreads();
    // What lanes that have a row send to this block. Some of it may have come: the phase waits for this arrival.
    const int pairs = rows / 16 * 8 + min(rows % 16, 8);
    if (threadIdx.x == 32) {
        attn::mbarrier_arrive_expect_tx(&smem.partials.full, PARTS * pairs * (4 * Preset::OCTETS + 1) * 16);
    }
    const auto refill = [&](auto &codes, const AttentionTensorMap &map, attn::Mbarrier *full, int tile) {
        if (tile < tiles && warp == 0 && attn::elect_one()) load(codes, map, full, tile);
    };
    // The tile has landed. E4M3 is converted by the warpgroup's threads, which have waited for the products with the previous tile:
    // each makes its part visible to the tensor cores, and behind the barrier the tile is complete, and the codes have been read.
    const auto wait_for = [&](auto &tile, auto &codes, const AttentionTensorMap &map, attn::Mbarrier *full, int parity, int next) {
        attn::mbarrier_wait_tx(full, parity);
        if constexpr (Preset::CONVERTS) {
            attn::convert_tile<128>(tile, codes, threadIdx.x % 128);
            attn::fence_proxy_async();
            attn::named_barrier_sync<128>(Preset::WARPGROUP_BARRIER + warpgroup);
            refill(codes, map, full, next);
        }
    };
 ATTN_PLACES(at, batch, row[i % 4 / 2].head, row[i % 4 / 2].query, i / 4 * 8 + lane % 4 * 2 + i % 2);
    uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4]; // of [64, BLOCK_N]
    auto current = attn::PipelineState<STAGES>::first();
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, current.advance()) {
        float s[BLOCK_N / 2]; // of [64, BLOCK_N]
        auto &k_codes = ring.k[current.slot];
        auto &v_codes = ring.v[current.slot];
        auto &k = [&]() -> auto & {
            if constexpr (Preset::CONVERTS) return smem.halves.k[warpgroup];
            else return k_codes;
        }();
        auto &v = [&]() -> auto & {
            if constexpr (Preset::CONVERTS) return smem.halves.v[warpgroup];
            else return v_codes;
        }();
        const int next = tile + STAGES;
        const auto wait_for_v = [&] { wait_for(v, v_codes, launch.v, &v_full[current.slot], current.parity, next); };
        wait_for(k, k_codes, launch.k, &k_full[current.slot], current.parity, next);
        // Tensor cores are at work while a tile is converted: at the last output while K is, and at these scores while V is.
        if constexpr (Preset::CONVERTS) {
            attn::wgmma_wait<0>(o_acc);
 if (tile > 0) ATTN_OBSERVE(OUTPUT, at, first_key(tile - 1), o_acc);
        }
        start_qk(s, q_frag, k);
        if constexpr (Preset::CONVERTS) wait_for_v();
        attn::wgmma_wait<0>(s);
        if constexpr (!Preset::CONVERTS) refill(k_codes, launch.k, &k_full[current.slot], next);
        if (first_key(tile) + BLOCK_N > visible_to_all) attn::mask_rows(s, first_key(tile), visible, lane);
 ATTN_OBSERVE(SCORES, at, first_key(tile), s);
        float rescale[2];
        attn::softmax_rows(s, state, scale_log2, rescale);
 ATTN_OBSERVE(LANE_STATE, at, first_key(tile), state);
 ATTN_OBSERVE(PROBABILITIES, at, first_key(tile), s);
        attn::scale_rows(o_acc, rescale);
 ATTN_OBSERVE(RESCALED, at, first_key(tile), o_acc);
        attn::round_rows<Operand>(p_frag, s);
        if constexpr (!Preset::CONVERTS) wait_for_v();
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, v);
        if constexpr (!Preset::CONVERTS) {
            attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, first_key(tile), o_acc);
            refill(v_codes, launch.v, &v_full[current.slot], next);
        }
    }
    if constexpr (Preset::CONVERTS) {
        attn::wgmma_wait<0>(o_acc);
 if (tiles > 0) ATTN_OBSERVE(OUTPUT, at, first_key(tiles - 1), o_acc);
    }

    // The other blocks run, and their barriers are initialised: each gets its columns of this part.
    state[0].template join<4>();
    state[1].template join<4>();
    attn::cluster_wait();
    auto &partials = smem.partials;
    if (pair < pairs) {
        const uint4 states = make_uint4(__float_as_uint(state[0].max), __float_as_uint(state[0].sum),
                                        __float_as_uint(state[1].max), __float_as_uint(state[1].sum));
#pragma unroll
        for (int owner = 0; owner < Preset::CLUSTER; ++owner) {
            if (lane % 4 == 0) attn::store_async(owner, &partials.states[part][pair], states, &partials.full);
#pragma unroll
            for (int octet = 0; octet < Preset::OCTETS; ++octet) {
                const float *o = &o_acc[4 * (owner * Preset::OCTETS + octet)];
                const uint4 quad = make_uint4(__float_as_uint(o[0]), __float_as_uint(o[1]), __float_as_uint(o[2]),
                                              __float_as_uint(o[3]));
                attn::store_async(owner, &partials.o[part][octet][pair][lane % 4], quad, &partials.full);
            }
        }
    }
    if (pair >= pairs) return;

    // All parts of this block's columns arrive: a block outlives what is stored to it. They are merged in their order, by the
    // threads that have the rows.
    attn::mbarrier_wait_cluster(&partials.full, 0);
    const float scale = attn::scale_of(params.v, params.heads_kv, batch, head_kv);
    float factor[PARTS][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        attn::RowState total = attn::RowState::empty(), other[PARTS];
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
            const uint4 states = partials.states[i][pair];
            other[i] = {__uint_as_float(half == 0 ? states.x : states.z), __uint_as_float(half == 0 ? states.y : states.w)};
            total.max = fmaxf(total.max, other[i].max);
        }
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
            factor[i][half] = total.factor(other[i]);
            total.sum = fmaf(other[i].sum, factor[i][half], total.sum);
        }
        const float inverse = total.inverse_sum() * scale;
#pragma unroll
        for (int i = 0; i < PARTS; ++i) factor[i][half] *= inverse;
        if (rank == 0 && warpgroup == 0 && lane % 4 == 0 && exists[half]) {
            attn::store_lse(params, batch, row[half].head, row[half].query, total);
        }
    }
#pragma unroll
    for (int octet = warpgroup; octet < Preset::OCTETS; octet += Preset::WARPGROUPS) {
        float o[4] = {};
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
            const uint4 sent = partials.o[i][octet][pair][lane % 4];
            const uint32_t words[4] = {sent.x, sent.y, sent.z, sent.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) o[j] = fmaf(__uint_as_float(words[j]), factor[i][j / 2], o[j]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (exists[half]) first_o[half][octet * 4] = Operand::pack(o[2 * half], o[2 * half + 1]);
        }
    }
}

// Keys split over two warpgroups in each of two blocks, where tiles are half as many as multiprocessors; and of each of eight.
// A tile of codes is half as large.
template <class Element, int HEAD_DIM>
using Two64x256 = Tile<Element, HEAD_DIM, 2, 2, sizeof(typename Element::Storage) == 1 ? 3 : 2>;
template <class Element, int HEAD_DIM> using Eight64x1024 = Tile<Element, HEAD_DIM, 8, 2, 2>;

} // namespace

ATTN_CLUSTER_VARIANT(decode, decode_64x256, Two64x256)
ATTN_CLUSTER_VARIANT(decode, decode_64x1024, Eight64x1024)
