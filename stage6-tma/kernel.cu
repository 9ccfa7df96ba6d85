// Stage 6: copies by descriptor. One thread of a key group requests a whole tile of K or V by TMA, and an mbarrier counts the
// bytes that arrive. Each key group has rings of its own, and meets only where it refills a slot. Everything else is stage 5.

#include <attn/box_tile.cuh>
#include <attn/mapped.cuh>
#include <attn/mask.cuh>
#include <attn/merge.cuh>
#include <attn/mma_rows.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/softmax.cuh>

namespace {

// Warps form a grid of ROW_GROUPS x KEY_GROUPS. A key group has a ring for its part of K and V and waits for no other group;
// groups are merged once, at the end.
template <class Element_,  // of Q, K and V
          int HEAD_DIM_,   // columns
          int ROW_GROUPS_, // warps of a key group
          int WARP_M_,     // query rows of a warp
          int KEY_GROUPS_, // groups of warps that share the keys of a tile
          int WARP_N_,     // keys of a group in a tile
          int STAGES_,     // tiles of K and V in a ring
          bool AHEAD_>     // scores of the next tile before the softmax of this one: the tensor cores have work meanwhile
struct Preset {
    using Element = Element_;
    using Operand = typename Element::Operand;
    static constexpr int HEAD_DIM = HEAD_DIM_;
    static constexpr int ROW_GROUPS = ROW_GROUPS_, WARP_M = WARP_M_, BLOCK_M = ROW_GROUPS * WARP_M;
    static constexpr int KEY_GROUPS = KEY_GROUPS_, WARP_N = WARP_N_, BLOCK_N = KEY_GROUPS * WARP_N;
    static constexpr int GROUP_THREADS = ROW_GROUPS * 32, THREADS = KEY_GROUPS * GROUP_THREADS;
    static constexpr int STAGES = STAGES_;
    static constexpr bool AHEAD = AHEAD_, LSE = true;

    using QTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_M>;
    using KvTile = attn::BoxTile<Element, HEAD_DIM, WARP_N>;
    static constexpr int Q_BOX_ROWS = BLOCK_M, K_BOX_ROWS = WARP_N, V_BOX_ROWS = WARP_N, O_BOX_ROWS = 0;
    struct Ring {
        KvTile k[STAGES], v[STAGES]; // [WARP_N, HEAD_DIM] each
    };
    struct Full { // a phase of a slot ends when its tile has landed
        attn::Mbarrier k[STAGES], v[STAGES];
    };
    using Partial = attn::PartialOutput<KEY_GROUPS, BLOCK_M, HEAD_DIM, attn::Fragment<Element>::O_PADDING>;
    struct Shared {
        QTile q; // [BLOCK_M, HEAD_DIM]
        union {
            Ring ring[KEY_GROUPS];
            Partial partial; // once every warp has read the rings for the last time
        };
        attn::Mbarrier q_full;
        Full full[KEY_GROUPS];
    };

    using Rows = attn::WarpRows<Element, HEAD_DIM, WARP_M, WARP_N>;
    static constexpr int MIN_BLOCKS = THREADS <= 128 ? 2 : 1;
    static constexpr int PROBABILITY = Operand::PROBABILITY;

    static_assert(STAGES >= 2, "a tile is copied while another is read");
};

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    const AttentionParams &params = launch.params;
    using Operand = typename Preset::Operand;
    using Fragment = attn::Fragment<typename Preset::Element>;
    constexpr int BLOCK_M = Preset::BLOCK_M, BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    constexpr int WARP_M = Preset::WARP_M, WARP_N = Preset::WARP_N, STAGES = Preset::STAGES;
    using Rows = typename Preset::Rows;
    constexpr int M_TILES = Rows::M_TILES, D_TILES = Rows::D_TILES;

    // This block's rows and head. Under the causal mask the last rows see the most keys: their blocks start first.
    const int batch = blockIdx.z, head_q = blockIdx.y, head_kv = attn::kv_head(params, head_q);
    const int block_row = (gridDim.x - 1 - blockIdx.x) * BLOCK_M;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row_group = warp % Preset::ROW_GROUPS, key_group = warp / Preset::ROW_GROUPS;
    const int warp_row = row_group * WARP_M, warp_key = key_group * WARP_N; // in the block and in the tile

    // The tiles with keys of this group that the last row of the block sees.
    const int key_end = attn::visible_keys(params, min(block_row + BLOCK_M, params.seq_q) - 1);
    const int tiles = max(0, key_end - warp_key + BLOCK_N - 1) / BLOCK_N;

    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    auto &ring = smem.ring[key_group];
    auto &full = smem.full[key_group];
    // One thread requests Q, and one of each key group its tiles.
    const bool leader = threadIdx.x % Preset::GROUP_THREADS == 0;
    const auto load_k = [&](int tile) {
        if (!leader || tile >= tiles) return;
        const int slot = tile % STAGES;
        attn::mbarrier_arrive_expect_tx(&full.k[slot], Preset::KvTile::BYTES);
        ring.k[slot].load(launch.k, &full.k[slot], tile * BLOCK_N + warp_key, head_kv, batch);
    };
    const auto load_v = [&](int tile) {
        if (!leader || tile >= tiles) return;
        const int slot = tile % STAGES;
        attn::mbarrier_arrive_expect_tx(&full.v[slot], Preset::KvTile::BYTES);
        ring.v[slot].load(launch.v, &full.v[slot], tile * BLOCK_N + warp_key, head_kv, batch);
    };
    // What all warps of the key group have read may be overwritten.
    const auto sync_key_group = [&] {
        if constexpr (Preset::KEY_GROUPS == 1) __syncthreads();
        else attn::named_barrier_sync<Preset::GROUP_THREADS>(1 + key_group);
    };

    if (threadIdx.x == 0) {
        attn::mbarrier_init(&smem.q_full, 1);
        for (int group = 0; group < Preset::KEY_GROUPS; ++group) {
            for (int slot = 0; slot < STAGES; ++slot) {
                attn::mbarrier_init(&smem.full[group].k[slot], 1);
                attn::mbarrier_init(&smem.full[group].v[slot], 1);
            }
        }
        attn::fence_mbarrier_init();
    }
    // The barriers are initialised.
    __syncthreads();
    if (threadIdx.x == 0) {
        attn::mbarrier_arrive_expect_tx(&smem.q_full, Preset::QTile::BYTES);
        smem.q.load(launch.q, &smem.q_full, block_row, head_q, batch);
    }
#pragma unroll 1 // in a kernel of 5 µs code size matters
    for (int tile = 0; tile < STAGES; ++tile) {
        load_k(tile);
        load_v(tile);
    }
    // Q has landed.
    attn::mbarrier_wait_tx(&smem.q_full, 0);

    typename Rows::QFragments q_frag; // of [WARP_M, HEAD_DIM]
    int visible[M_TILES][2]; // keys that a row sees; lane l has rows l / 4 and l / 4 + 8 of each 16
    attn::RowState state[M_TILES][2];
    typename Rows::Output o_acc = {}; // of [WARP_M, HEAD_DIM]
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
        for (int step = 0; step < HEAD_DIM / attn::MMA_K; ++step) {
            Fragment::load_q(q_frag[m][step], smem.q, warp_row + m * attn::MMA_M, step, lane);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            visible[m][half] = attn::visible_keys(params, block_row + warp_row + m * attn::MMA_M + half * 8 + lane / 4);
            state[m][half] = attn::RowState::empty();
        }
    }
    const int visible_to_all = attn::visible_keys(params, block_row + warp_row); // keys that all rows of the warp see

    typename Rows::Scores s;          // of [WARP_M, WARP_N]
    typename Rows::PFragments p_frag; // of [WARP_M, WARP_N]
    const float scale_log2 = attn::scale_of_scores(params, batch, head_q, head_kv);

    const auto mask_scores = [&](int tile) {
        attn::mask_scores<Rows>(s, tile * BLOCK_N + warp_key, visible, visible_to_all, lane);
    };
 ATTN_PLACES(o_at, batch, head_q, block_row + warp_row + i / (4 * D_TILES) * attn::MMA_M + i % 4 / 2 * 8 + lane / 4,
             Fragment::o_column(i / 4 % D_TILES, i % 2, lane));
    const attn::WarpPlace at = {batch, head_q, block_row + warp_row, warp_key};
    const auto softmax = [&](int tile) {
        attn::softmax<Rows>(p_frag, o_acc, state, s, scale_log2, at, tile * BLOCK_N, lane);
    };
    if (tiles > 0) {
        attn::mbarrier_wait_tx(&full.k[0], 0); // it has landed
        attn::multiply_qk<Rows>(s, q_frag, ring.k[0], 0, lane);
        mask_scores(0);
    }
    for (int tile = 0; tile < tiles - 1; ++tile) {
        const int slot = tile % STAGES, next_slot = (tile + 1) % STAGES;
        // The whole key group has read K of this tile and V of the previous one: their slots are free for later tiles.
        const bool refills = tile - (tile > 0) + STAGES < tiles;
        if (refills) sync_key_group();
        // K of the next tile has landed.
        attn::mbarrier_wait_tx(&full.k[next_slot], (tile + 1) / STAGES % 2);
        typename Rows::Scores s_next;
        const auto multiply_next = [&] { attn::multiply_qk<Rows>(s_next, q_frag, ring.k[next_slot], 0, lane); };
        if constexpr (Preset::AHEAD) multiply_next();
        softmax(tile);
        if (refills) {
            load_k(tile + STAGES);
            if (tile > 0) load_v(tile - 1 + STAGES);
        }
        // V of this tile has landed.
        attn::mbarrier_wait_tx(&full.v[slot], tile / STAGES % 2);
        attn::multiply_pv<Rows>(o_acc, p_frag, ring.v[slot], 0, lane);
 ATTN_OBSERVE(OUTPUT, o_at, tile * BLOCK_N, o_acc);
        if constexpr (!Preset::AHEAD) multiply_next();
        s = s_next;
        mask_scores(tile + 1);
    }
    if (tiles > 0) {
        const int last = tiles - 1;
        attn::mbarrier_wait_tx(&full.v[last % STAGES], last / STAGES % 2); // it has landed
        softmax(last);
        attn::multiply_pv<Rows>(o_acc, p_frag, ring.v[last % STAGES], 0, lane);
 ATTN_OBSERVE(OUTPUT, o_at, last * BLOCK_N, o_acc);
    }

    // Every warp has read the rings for the last time, and no copy is in flight: partial outputs may take their space.
    __syncthreads();
    auto &partial = smem.partial;
    attn::store_part<Fragment>(partial, key_group, warp_row, o_acc, state, lane);
    // All warps have written their parts.
    __syncthreads();
    attn::store_merged<Preset::THREADS, Operand>(
        attn::row_address<typename Operand::Storage>(params.o, batch, head_q, block_row), params.o.row_stride,
        params.seq_q - block_row, partial, attn::scale_of(params.v, params.heads_kv, batch, head_kv), threadIdx.x);
    attn::store_merged_lse<Preset::THREADS>(params, batch, head_q, block_row, partial, scale_log2, threadIdx.x);
}

// Rows x keys of a tile; at head_dim 128, half the keys where the rings would not fit.
template <class Element, int HEAD_DIM> using Tma32x256K4 = Preset<Element, HEAD_DIM, 2, 16, 4, 4096 / HEAD_DIM, 2, true>;
// At head_dim 64 twice the rows per warp, half the reads of K and V: for grids that fill the GPU many times over.
template <class Element, int HEAD_DIM>
using Tma128x64 = Preset<Element, HEAD_DIM, HEAD_DIM / 16, 2048 / HEAD_DIM, 1, 64, 3, false>;

} // namespace

ATTN_MAPPED_VARIANT(tma, tma_32x256_k4, Tma32x256K4)
ATTN_MAPPED_VARIANT(tma, tma_128x64, Tma128x64)
