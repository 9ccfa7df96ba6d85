// Stage 5: XOR-swizzled tiles, read by ldmatrix into mma.sync. What Q·Kᵀ leaves in a lane is what P·V wants there: scores,
// probabilities and output stay in registers. Launched as a grid of ceil(seq_q / BLOCK_M) x heads_q x batch blocks.

#include <attn/layout.cuh>
#include <attn/mask.cuh>
#include <attn/merge.cuh>
#include <attn/mma_rows.cuh>
#include <attn/observe.cuh> // ATTN_PLACES, ATTN_OBSERVE: for `compare explain`, nothing on a GPU
#include <attn/ptx/barrier.cuh>
#include <attn/shared.cuh>
#include <attn/softmax.cuh>
#include <attn/variant.cuh>

namespace {

// Warps form a grid of ROW_GROUPS x KEY_GROUPS. A key group copies its part of K and V and, once Q has landed, waits for no other
// group; groups are merged once, at the end.
template <template <int> class Layout, // of tiles in shared memory
          class Element_,              // of Q, K and V
          int HEAD_DIM_,               // columns
          int ROW_GROUPS_,             // warps of a key group
          int WARP_M_,                 // query rows of a warp
          int KEY_GROUPS_,             // groups of warps that split the keys of a tile
          int WARP_N_,                 // keys of a group in a tile
          int STAGES_,                 // tiles of K and V in the ring
          bool AHEAD_>                 // scores of the next tile before the softmax of this one: the tensor cores have work meanwhile
struct Preset {
    using Element = Element_;
    using Operand = typename Element::Operand;
    static constexpr int HEAD_DIM = HEAD_DIM_;
    static constexpr int ROW_GROUPS = ROW_GROUPS_, WARP_M = WARP_M_, BLOCK_M = ROW_GROUPS * WARP_M;
    static constexpr int KEY_GROUPS = KEY_GROUPS_, WARP_N = WARP_N_, BLOCK_N = KEY_GROUPS * WARP_N;
    static constexpr int GROUP_THREADS = ROW_GROUPS * 32, THREADS = KEY_GROUPS * GROUP_THREADS;
    static constexpr int STAGES = STAGES_;
    static constexpr bool AHEAD = AHEAD_, LSE = true;

    using KvTile = attn::StoredTile<Element, HEAD_DIM, BLOCK_N, Layout>;
    struct Ring {
        KvTile k[STAGES], v[STAGES]; // [BLOCK_N, HEAD_DIM] each
    };
    using Partial = attn::PartialOutput<KEY_GROUPS, BLOCK_M, HEAD_DIM, attn::Fragment<Element>::O_PADDING>;
    struct Shared {
        attn::StoredTile<Element, HEAD_DIM, BLOCK_M, Layout> q; // [BLOCK_M, HEAD_DIM]
        union {
            Ring ring;
            Partial partial; // once every warp has read the ring for the last time
        };
    };

    using Rows = attn::WarpRows<Element, HEAD_DIM, WARP_M, WARP_N>;
    static constexpr int MIN_BLOCKS = THREADS <= 128 ? 2 : 1;
    static constexpr int PROBABILITY = Operand::PROBABILITY; // P is held in FP16 or BF16

    static_assert(STAGES >= 2, "a tile is copied while another is read");
};

template <class Preset>
__device__ __forceinline__ void attention(const AttentionParams &params) {
    using Element = typename Preset::Element;
    using Operand = typename Preset::Operand;
    using Storage = typename Element::Storage;
    using Fragment = attn::Fragment<Element>;
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

    auto &smem = attn::shared<typename Preset::Shared>();
    attn::TileStream<decltype(smem.q), Preset::THREADS, BLOCK_M> q_stream;
    attn::TileStream<typename Preset::KvTile, Preset::GROUP_THREADS, WARP_N> k_stream, v_stream;
    q_stream.start(attn::row_address<Storage>(params.q, batch, head_q, block_row), params.q.row_stride, 0,
                   params.seq_q - block_row);
    k_stream.start(attn::row_address<Storage>(params.k, batch, head_kv, warp_key), params.k.row_stride, warp_key,
                   params.seq_kv - warp_key);
    v_stream.start(attn::row_address<Storage>(params.v, batch, head_kv, warp_key), params.v.row_stride, warp_key,
                   params.seq_kv - warp_key);
    // One group of copies per tile of K and one per tile of V, empty past the last, so that waits can count them.
    const auto copy_k = [&](int tile) {
        if (tile < tiles) k_stream.copy_next(smem.ring.k[tile % STAGES], BLOCK_N);
        attn::cp_async_commit();
    };
    const auto copy_v = [&](int tile) {
        if (tile < tiles) v_stream.copy_next(smem.ring.v[tile % STAGES], BLOCK_N);
        attn::cp_async_commit();
    };
    // What each warp of the key group has waited for has landed for all, and what all have read may be overwritten.
    const auto sync_key_group = [&] {
        if constexpr (Preset::KEY_GROUPS == 1) __syncthreads();
        else attn::named_barrier_sync<Preset::GROUP_THREADS>(1 + key_group);
    };

    // Fill the ring; Q comes with the first tile of K.
    q_stream.copy_next(smem.q, BLOCK_M);
#pragma unroll 1 // in a kernel of 5 µs code size matters
    for (int tile = 0; tile < STAGES; ++tile) {
        copy_k(tile);
        copy_v(tile);
    }
    // Q, which all threads copied, and the first K have landed.
    attn::cp_async_wait_group<2 * STAGES - 1>();
    __syncthreads();

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
        attn::multiply_qk<Rows>(s, q_frag, smem.ring.k[0], warp_key, lane);
        mask_scores(0);
    }
    for (int tile = 0; tile < tiles - 1; ++tile) {
        // K of the next tile and V of this one have landed: this many groups of copies are newer. Tile 0 refills K alone.
        if (tile == 0) attn::cp_async_wait_group<2 * STAGES - 3>();
        else attn::cp_async_wait_group<2 * STAGES - 4>();
        // They have for the whole key group, which has also read K of this tile and V of the previous one: their slots
        // are free for later tiles.
        sync_key_group();
        typename Rows::Scores s_next;
        const auto multiply_next = [&] {
            attn::multiply_qk<Rows>(s_next, q_frag, smem.ring.k[(tile + 1) % STAGES], warp_key, lane);
        };
        if constexpr (Preset::AHEAD) multiply_next();
        softmax(tile);
        copy_k(tile + STAGES);
        if (tile > 0) copy_v(tile - 1 + STAGES);
        attn::multiply_pv<Rows>(o_acc, p_frag, smem.ring.v[tile % STAGES], warp_key, lane);
 ATTN_OBSERVE(OUTPUT, o_at, tile * BLOCK_N, o_acc);
        if constexpr (!Preset::AHEAD) multiply_next();
        s = s_next;
        mask_scores(tile + 1);
    }
    // V of the last tile has landed, for the whole group.
    attn::cp_async_wait_group<0>();
    sync_key_group();
    if (tiles > 0) {
        softmax(tiles - 1);
        attn::multiply_pv<Rows>(o_acc, p_frag, smem.ring.v[(tiles - 1) % STAGES], warp_key, lane);
 ATTN_OBSERVE(OUTPUT, o_at, (tiles - 1) * BLOCK_N, o_acc);
    }

    // Every warp has read the ring for the last time, and no copy is in flight: partial outputs may take its space.
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

// Rows x keys of a tile; at head_dim 128, half the keys where the ring would not fit.
template <template <int> class Layout, class Element, int HEAD_DIM>
using Tile32x256K4 = Preset<Layout, Element, HEAD_DIM, 2, 16, 4, 4096 / HEAD_DIM, 2, true>;
template <class Element, int HEAD_DIM> using Linear32x256K4 = Tile32x256K4<attn::LinearLayout, Element, HEAD_DIM>;
template <class Element, int HEAD_DIM> using Padded32x256K4 = Tile32x256K4<attn::PaddedLayout, Element, HEAD_DIM>;
template <class Element, int HEAD_DIM> using Swizzle32x256K4 = Tile32x256K4<attn::SwizzledLayout, Element, HEAD_DIM>;
// The same with half the keys, for GPUs that give a block 99 KB.
template <template <int> class Layout, class Element, int HEAD_DIM>
using Tile32x128K4 = Preset<Layout, Element, HEAD_DIM, 2, 16, 4, 2048 / HEAD_DIM, 2, true>;
template <class Element, int HEAD_DIM> using Linear32x128K4 = Tile32x128K4<attn::LinearLayout, Element, HEAD_DIM>;
template <class Element, int HEAD_DIM> using Padded32x128K4 = Tile32x128K4<attn::PaddedLayout, Element, HEAD_DIM>;
template <class Element, int HEAD_DIM> using Swizzle32x128K4 = Tile32x128K4<attn::SwizzledLayout, Element, HEAD_DIM>;
template <class Element, int HEAD_DIM>
using Swizzle64x128K2 = Preset<attn::SwizzledLayout, Element, HEAD_DIM, 4, 16, 2, 4096 / HEAD_DIM, 3, true>;
template <class Element, int HEAD_DIM>
using Swizzle64x64 = Preset<attn::SwizzledLayout, Element, HEAD_DIM, 4, 16, 1, 64, 3, true>;
// At head_dim 64 twice the rows per warp, half the reads of K and V: for grids that fill the GPU many times over.
template <class Element, int HEAD_DIM>
using Swizzle128x64 = Preset<attn::SwizzledLayout, Element, HEAD_DIM, HEAD_DIM / 16, 2048 / HEAD_DIM, 1, 64, 3, false>;

} // namespace

// Names are of head_dim 64; at 128 a tile has half the keys of 32x256-k4, 32x128-k4 and 64x128-k2.
// Built for bf16, too: presets that are fastest on some problem or the default on some device.
ATTN_VARIANT(mma_linear, mma_linear_32x256_k4, Linear32x256K4)
ATTN_VARIANT(mma_padded, mma_padded_32x256_k4, Padded32x256K4)
ATTN_BF16_VARIANT(swizzle, swizzle_32x256_k4, Swizzle32x256K4)
ATTN_VARIANT(mma_linear, mma_linear_32x128_k4, Linear32x128K4)
ATTN_VARIANT(mma_padded, mma_padded_32x128_k4, Padded32x128K4)
ATTN_BF16_VARIANT(swizzle, swizzle_32x128_k4, Swizzle32x128K4)
ATTN_BF16_VARIANT(swizzle, swizzle_64x128_k2, Swizzle64x128K2)
ATTN_VARIANT(swizzle, swizzle_64x64, Swizzle64x64)
ATTN_BF16_VARIANT(swizzle, swizzle_128x64, Swizzle128x64)
