// Stage 2: P·V in pairs. A lane reads V four halves at a time and accumulates 8 x 4 outputs instead of 8 x 2, over half of the
// warp's keys: each value of P that is read serves twice the products. Everything else is stage 1.

#include <attn/copy_async.cuh>
#include <attn/mask.cuh>
#include <attn/merge.cuh>
#include <attn/observe.cuh>
#include <attn/shared.cuh>
#include <attn/softmax.cuh>
#include <attn/tile.cuh>
#include <attn/variant.cuh>
#include <attn/wmma_rows.cuh>

namespace {

constexpr int WARP_M = attn::WMMA_M;       // query rows of a warp
constexpr int LANES_PER_ROW = 32 / WARP_M; // in the softmax
// A lane's part of P·V: all 8 rows, and 4 neighbouring columns of every 64. Two half warps alternate in runs of 4 keys.
constexpr int PV_LANES = 16, PV_COLS = 4 * PV_LANES, KEY_PARTS = 32 / PV_LANES;

template <class Element_,  // of Q, K and V
          int HEAD_DIM_,   // columns
          int BLOCK_M_,    // query rows of a block
          int BLOCK_N_,    // keys of a tile
          int KEY_GROUPS_> // warps that share 8 rows and split the keys of a tile
struct Preset {
    using Element = Element_;
    static constexpr int HEAD_DIM = HEAD_DIM_, BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_;
    static constexpr int KEY_GROUPS = KEY_GROUPS_, ROW_GROUPS = BLOCK_M / WARP_M;
    static constexpr int WARP_N = BLOCK_N / KEY_GROUPS; // keys of a warp in a tile
    static constexpr int THREADS = ROW_GROUPS * KEY_GROUPS * 32;
    // At head_dim 128 a lane has twice the columns of O: with 128 registers they spill. So no block of 16 warps.
    static constexpr int REGISTERS = HEAD_DIM == 64 ? 128 : 168;
    static constexpr int MIN_BLOCKS = 65536 / (REGISTERS * THREADS); // holds the compiler to them
    static constexpr int PROBABILITY = ATTENTION_P_F32;

    // Rows end in 16 bytes of padding: 8 rows start in 8 different groups of 4 banks, and no access has a bank conflict.
    static constexpr int PITCH = HEAD_DIM + 8;
    static constexpr int SCORE_PITCH = BLOCK_N + 4;
    using KvRing = attn::AsyncTile<Element, HEAD_DIM, BLOCK_N, PITCH, THREADS>;
    struct Shared {
        alignas(128) half q[BLOCK_M][PITCH]; // [BLOCK_M, HEAD_DIM]
        KvRing k, v; // tiles [BLOCK_N, HEAD_DIM]
        alignas(128) float scores[BLOCK_M][SCORE_PITCH]; // [BLOCK_M, BLOCK_N], then probabilities in place
    };
    // What the key groups merge at the end, in the space of K and V.
    using Partial = attn::PartialOutput<KEY_GROUPS, BLOCK_M, HEAD_DIM, 0>;

    static_assert(BLOCK_M % WARP_M == 0, "a warp owns whole groups of 8 rows");
    static_assert(WARP_N % attn::WMMA_N == 0, "a warp's part of a tile is whole fragments");
    static_assert(KEY_GROUPS == 1 || sizeof(Partial) <= sizeof(Shared::k) + sizeof(Shared::v), "fits where K and V were");
    static_assert(HEAD_DIM % PV_COLS == 0, "the head is whole patches");
};

template <class Preset>
__device__ __forceinline__ void attention(const AttentionParams &params) {
    using Element = typename Preset::Element;
    using Storage = typename Element::Storage;
    constexpr int BLOCK_M = Preset::BLOCK_M, BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    constexpr int THREADS = Preset::THREADS;
    constexpr int WARP_N = Preset::WARP_N, SCORES_PER_LANE = WARP_N / LANES_PER_ROW;
    constexpr int O_QUADS = HEAD_DIM / PV_COLS;
    using KvRing = typename Preset::KvRing;
    // Keys of P·V in flight, which hide the latency of shared memory.
    constexpr int PV_UNROLL = HEAD_DIM == 64 ? 16 : 8;

    // This block's rows and head.
    const int batch = blockIdx.z, head_q = blockIdx.y, head_kv = attn::kv_head(params, head_q);
    const int block_row = blockIdx.x * BLOCK_M;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row_group = warp % Preset::ROW_GROUPS, key_group = warp / Preset::ROW_GROUPS;
    const int warp_row = row_group * WARP_M, warp_key = key_group * WARP_N; // in the block and in the tile

    const Storage *q_gmem = attn::row_address<Storage>(params.q, batch, head_q, block_row); // [BLOCK_M, HEAD_DIM]
    const Storage *k_gmem = attn::row_address<Storage>(params.k, batch, head_kv, 0);        // [seq_kv, HEAD_DIM]
    const Storage *v_gmem = attn::row_address<Storage>(params.v, batch, head_kv, 0);        // [seq_kv, HEAD_DIM]
    const float scale_log2 = attn::scale_of_scores(params, batch, head_q, head_kv);

    auto &smem = attn::shared<typename Preset::Shared>();
    float *scores = &smem.scores[warp_row][warp_key]; // [8, WARP_N], this warp's own

    // In the softmax lane l has row l / 4 of the warp, and every fourth score from l % 4.
    const int softmax_row = lane / LANES_PER_ROW, softmax_col = lane % LANES_PER_ROW;
    const int visible = attn::visible_keys(params, block_row + warp_row + softmax_row); // keys that the lane's row sees
    const int visible_to_all = attn::visible_keys(params, block_row + warp_row);        // that all rows of the warp see
    attn::RowState state = attn::RowState::empty();
    // In P·V lane l accumulates 8 rows and 4 columns from 4 (l % 16), from 64 + 4 (l % 16), ..., over the keys of its half.
    const int pv_half = lane / PV_LANES, pv_col = 4 * (lane % PV_LANES);
    // Both halves have all of O at the end; each stores every second row.
    const auto stores_row = [&](int row) { return row % KEY_PARTS == pv_half; };
    float2 o_acc[WARP_M][O_QUADS][2] = {}; // of [8, HEAD_DIM]

    // The last row of the block sees the most keys.
    const int key_end = attn::visible_keys(params, min(block_row + BLOCK_M, params.seq_q) - 1);
    using Copy = attn::TileCopy<Element, HEAD_DIM, BLOCK_N, THREADS>;
    Copy k_copy = Copy::from(k_gmem, params.k.row_stride), v_copy = Copy::from(v_gmem, params.v.row_stride);
    const auto start_copy = [&](int key) {
        k_copy.start(smem.k.arriving(key / BLOCK_N), params.seq_kv - key);
        v_copy.start(smem.v.arriving(key / BLOCK_N), params.seq_kv - key);
        attn::cp_async_commit();
    };
    if (key_end > 0) start_copy(0);

    attn::load_tile<Element, HEAD_DIM, THREADS>(smem.q, q_gmem, params.q.row_stride, params.seq_q - block_row);
    // Q was written by all threads and is read by every warp.
    __syncthreads();
    attn::QFragments<HEAD_DIM> q_frag;
    q_frag.load(&smem.q[warp_row]);

 ATTN_PLACES(p_at, batch, head_q, block_row + warp_row + softmax_row, warp_key + softmax_col + i * LANES_PER_ROW);
 ATTN_PLACES(o_at, batch, head_q, block_row + warp_row + i / (4 * O_QUADS),
             pv_col + PV_COLS * (i / 4 % O_QUADS) + i % 4);
    for (int key = 0; key < key_end; key += BLOCK_N) {
        // This thread's chunks of the tile have arrived: no others were started since.
        attn::cp_async_wait_group<0>();
        // All threads' chunks have arrived, and every warp has finished P·V on the previous tile: its slot is free.
        __syncthreads();
        if constexpr (KvRing::CONVERTS) {
            smem.k.convert();
            smem.v.convert();
            // K and V were converted by all threads and are read by every warp.
            __syncthreads();
        }
        const auto &k_tile = smem.k.tile(key / BLOCK_N); // [BLOCK_N, HEAD_DIM]
        const auto &v_tile = smem.v.tile(key / BLOCK_N);

        // S = Q·Kᵀ.
        attn::scores_by_wmma<WARP_N, Preset::SCORE_PITCH>(scores, q_frag, &k_tile[warp_key]);
        // The lanes that computed a score are not those that read it below.
        __syncwarp();

        // P = softmax(S), unnormalised, one exponential per score.
        float p_reg[SCORES_PER_LANE]; // of [8, WARP_N]
        float *row_scores = scores + softmax_row * Preset::SCORE_PITCH + softmax_col;
#pragma unroll
        for (int i = 0; i < SCORES_PER_LANE; ++i) p_reg[i] = row_scores[i * LANES_PER_ROW];
        // The slot is free since the barrier above; only now, so that the score loads do not queue behind the copies.
        if (key + BLOCK_N < key_end) start_copy(key + BLOCK_N);
 ATTN_STEP(MASK);
        if (key + warp_key + WARP_N > visible_to_all) {
#pragma unroll
            for (int i = 0; i < SCORES_PER_LANE; ++i) {
                const int col = key + warp_key + softmax_col + i * LANES_PER_ROW;
                if (col >= visible) p_reg[i] = -INFINITY;
            }
        }
 ATTN_OBSERVE(SCORES, p_at, key, p_reg);
        const float rescale = state.update<LANES_PER_ROW>(p_reg, scale_log2);
 ATTN_OBSERVE(STATE, p_at, key, state);
 ATTN_OBSERVE(PROBABILITIES, p_at, key, p_reg);
#pragma unroll
        for (int i = 0; i < SCORES_PER_LANE; ++i) row_scores[i * LANES_PER_ROW] = p_reg[i];
        // Each lane reads the probabilities of all 8 rows below, which other lanes wrote.
        __syncwarp();

        // O = O * rescale + P·V.
#pragma unroll
        for (int row = 0; row < WARP_M; ++row) {
            const float row_rescale = __shfl_sync(0xffffffffu, rescale, row * LANES_PER_ROW);
#pragma unroll
            for (int quad = 0; quad < O_QUADS; ++quad) {
#pragma unroll
                for (float2 &o : o_acc[row][quad]) o = make_float2(o.x * row_rescale, o.y * row_rescale);
            }
        }
 ATTN_OBSERVE(RESCALED, o_at, key, o_acc);
#pragma unroll PV_UNROLL
        for (int j = 0; j < WARP_N / KEY_PARTS; ++j) {
            const int key_j = j / 4 * 8 + pv_half * 4 + j % 4; // 4 values of P are one load; those of the halves are adjacent
            float2 v_reg[O_QUADS][2];
#pragma unroll
            for (int quad = 0; quad < O_QUADS; ++quad) {
                attn::load_4(v_reg[quad], &v_tile[warp_key + key_j][pv_col + PV_COLS * quad]);
            }
#pragma unroll
            for (int row = 0; row < WARP_M; ++row) {
                const float p = scores[row * Preset::SCORE_PITCH + key_j]; // two addresses per warp: a broadcast
#pragma unroll
                for (int quad = 0; quad < O_QUADS; ++quad) {
#pragma unroll
                    for (int pair = 0; pair < 2; ++pair) {
                        float2 &o = o_acc[row][quad][pair];
                        const float2 v = v_reg[quad][pair];
                        o = make_float2(fmaf(p, v.x, o.x), fmaf(p, v.y, o.y));
                    }
                }
            }
        }
 ATTN_OBSERVE(OUTPUT, o_at, key, o_acc);
    }

    // O is the sum of the halves.
#pragma unroll
    for (int row = 0; row < WARP_M; ++row) {
#pragma unroll
        for (int quad = 0; quad < O_QUADS; ++quad) {
#pragma unroll
            for (float2 &o : o_acc[row][quad]) {
                o.x += __shfl_xor_sync(0xffffffffu, o.x, PV_LANES);
                o.y += __shfl_xor_sync(0xffffffffu, o.y, PV_LANES);
            }
        }
    }

    if constexpr (Preset::KEY_GROUPS > 1) {
        // Every warp has read its last K and V: partial outputs may take their space.
        __syncthreads();
        auto &partial = reinterpret_cast<typename Preset::Partial &>(smem.k);
#pragma unroll
        for (int row = 0; row < WARP_M; ++row) {
            if (!stores_row(row)) continue;
#pragma unroll
            for (int quad = 0; quad < O_QUADS; ++quad) {
                const float2(&o)[2] = o_acc[row][quad];
                *reinterpret_cast<float4 *>(&partial.o[key_group][warp_row + row][pv_col + PV_COLS * quad]) =
                    make_float4(o[0].x, o[0].y, o[1].x, o[1].y);
            }
        }
        if (softmax_col == 0) partial.state[key_group][warp_row + softmax_row] = state;
        // All warps have written their parts.
        __syncthreads();
        attn::store_merged<THREADS>(attn::row_address<half>(params.o, batch, head_q, block_row), params.o.row_stride,
                                    params.seq_q - block_row, partial,
                                    attn::scale_of(params.v, params.heads_kv, batch, head_kv), threadIdx.x);
        return;
    }

    // O = O / sum, scaled back; 128 bytes per row and store.
    const float inverse = state.inverse_sum() * attn::scale_of(params.v, params.heads_kv, batch, head_kv);
#pragma unroll
    for (int row = 0; row < WARP_M; ++row) {
        const float factor = __shfl_sync(0xffffffffu, inverse, row * LANES_PER_ROW);
        const int o_row = block_row + warp_row + row;
        if (!stores_row(row) || o_row >= params.seq_q) continue;
        half *o_gmem = attn::row_address<half>(params.o, batch, head_q, o_row);
#pragma unroll
        for (int quad = 0; quad < O_QUADS; ++quad) {
#pragma unroll
            for (float2 &o : o_acc[row][quad]) o = make_float2(o.x * factor, o.y * factor);
            attn::store_4(o_gmem + pv_col + PV_COLS * quad, o_acc[row][quad]);
        }
    }
}

template <class Element, int HEAD_DIM>
using SimdPv32x64 = Preset<Element, HEAD_DIM, 32, 64, 1>;
template <class Element, int HEAD_DIM> // at head_dim 128, half the keys: the ring would not fit
using SimdPv32x256K2 = Preset<Element, HEAD_DIM, 32, 16384 / HEAD_DIM, 2>;

} // namespace

ATTN_VARIANT(simd_pv, simd_pv_32x64, SimdPv32x64)
ATTN_VARIANT(simd_pv, simd_pv_32x256_k2, SimdPv32x256K2)
