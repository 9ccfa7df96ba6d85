// Stage 0, the control: tiled online softmax. Q·Kᵀ by FMA (`scalar`) or on tensor cores (`wmma_qk`), P·V by FMA. A warp has
// 8 query rows and its part of each tile of keys, from the scores to the output.

#include <attn/mask.cuh>
#include <attn/merge.cuh>
#include <attn/observe.cuh>
#include <attn/shared.cuh>
#include <attn/softmax.cuh>
#include <attn/tile.cuh>
#include <attn/variant.cuh>
#include <attn/wmma_rows.cuh>
#include <type_traits>

namespace {

constexpr int WARP_M = attn::WMMA_M;       // query rows of a warp
constexpr int LANES_PER_ROW = 32 / WARP_M; // in the softmax

template <bool TENSOR_QK_, // Q·Kᵀ on tensor cores, not by FMA
          class Element_,  // of Q, K and V
          int HEAD_DIM_,   // columns
          int BLOCK_M_,    // query rows of a block
          int BLOCK_N_,    // keys of a tile
          int KEY_GROUPS_> // warps that share 8 rows and split the keys of a tile
struct Preset {
    using Element = Element_;
    static constexpr bool TENSOR_QK = TENSOR_QK_;
    static constexpr int HEAD_DIM = HEAD_DIM_, BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_;
    static constexpr int KEY_GROUPS = KEY_GROUPS_, ROW_GROUPS = BLOCK_M / WARP_M;
    static constexpr int WARP_N = BLOCK_N / KEY_GROUPS; // keys of a warp in a tile
    static constexpr int THREADS = ROW_GROUPS * KEY_GROUPS * 32;
    // At head_dim 128 a lane has twice the columns of O: with 128 registers some instances spill.
    static constexpr int REGISTERS = HEAD_DIM == 64 ? 128 : 168;
    static constexpr int MIN_BLOCKS = 65536 / (REGISTERS * THREADS); // holds the compiler to them
    static constexpr int PROBABILITY = ATTENTION_P_F32;

    // Rows end in 16 bytes of padding: 8 rows start in 8 different groups of 4 banks, and no access has a bank conflict.
    static constexpr int PITCH = HEAD_DIM + 8;
    static constexpr int SCORE_PITCH = BLOCK_N + 4;
    struct Shared {
        alignas(128) half q[BLOCK_M][PITCH]; // [BLOCK_M, HEAD_DIM]
        alignas(128) half k[BLOCK_N][PITCH]; // [BLOCK_N, HEAD_DIM]
        alignas(128) half v[BLOCK_N][PITCH];
        alignas(128) float scores[BLOCK_M][SCORE_PITCH]; // [BLOCK_M, BLOCK_N], then probabilities in place
    };
    // What the key groups merge at the end, in the space of K and V.
    using Partial = attn::PartialOutput<KEY_GROUPS, BLOCK_M, HEAD_DIM, 0>;

    static_assert(BLOCK_M % WARP_M == 0, "a warp owns whole groups of 8 rows");
    static_assert(WARP_N % attn::WMMA_N == 0, "a warp's part of a tile is whole fragments");
    static_assert(sizeof(Partial) <= sizeof(Shared::k) + sizeof(Shared::v), "fits where K and V were");
};

// scores[8, WARP_N] = q[8, HEAD_DIM] · k[WARP_N, HEAD_DIM]ᵀ by FMA: lane l computes columns l, l + 32, ...
template <class Preset>
__device__ __forceinline__ void scores_by_fma(float *scores, const half *q, const half *k, int lane) {
    constexpr int COLS = Preset::WARP_N / 32;
    float acc[WARP_M][COLS] = {}; // of [8, WARP_N]
#pragma unroll 2
    for (int d = 0; d < Preset::HEAD_DIM; d += 8) {
        float k_reg[COLS][8]; // 16 bytes of each of this lane's keys
#pragma unroll
        for (int col = 0; col < COLS; ++col) attn::load_8(k_reg[col], k + (lane + 32 * col) * Preset::PITCH + d);
#pragma unroll
        for (int row = 0; row < WARP_M; ++row) {
            float q_reg[8];
            attn::load_8(q_reg, q + row * Preset::PITCH + d); // the same address in every lane: a broadcast
#pragma unroll
            for (int col = 0; col < COLS; ++col) {
#pragma unroll
                for (int i = 0; i < 8; ++i) acc[row][col] = fmaf(q_reg[i], k_reg[col][i], acc[row][col]);
            }
        }
    }
#pragma unroll
    for (int row = 0; row < WARP_M; ++row) {
#pragma unroll
        for (int col = 0; col < COLS; ++col) scores[row * Preset::SCORE_PITCH + lane + 32 * col] = acc[row][col];
    }
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionParams &params) {
    using Element = typename Preset::Element;
    using Storage = typename Element::Storage;
    constexpr int BLOCK_M = Preset::BLOCK_M, BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    constexpr int THREADS = Preset::THREADS;
    constexpr int WARP_N = Preset::WARP_N, SCORES_PER_LANE = WARP_N / LANES_PER_ROW;
    constexpr int O_COLS = HEAD_DIM / 32;
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
    // In P·V lane l accumulates columns l, l + 32, ... of all 8 rows of the warp.
    float o_acc[WARP_M][O_COLS] = {}; // of [8, HEAD_DIM]

    attn::load_tile<Element, HEAD_DIM, THREADS>(smem.q, q_gmem, params.q.row_stride, params.seq_q - block_row);
    // Q was written by all threads and is read by every warp.
    __syncthreads();
    // Fragments, read once, or the rows in shared memory.
    std::conditional_t<Preset::TENSOR_QK, attn::QFragments<HEAD_DIM>, const half *> q_operand;
    if constexpr (Preset::TENSOR_QK) {
        q_operand.load(&smem.q[warp_row]);
    } else {
        q_operand = smem.q[warp_row];
    }

    // The last row of the block sees the most keys.
    const int key_end = attn::visible_keys(params, min(block_row + BLOCK_M, params.seq_q) - 1);
 ATTN_PLACES(p_at, batch, head_q, block_row + warp_row + softmax_row, warp_key + softmax_col + i * LANES_PER_ROW);
 ATTN_PLACES(o_at, batch, head_q, block_row + warp_row + i / O_COLS, lane + 32 * (i % O_COLS));
    for (int key = 0; key < key_end; key += BLOCK_N) {
        // Every warp has finished P·V on the previous tile: K and V may be overwritten.
        __syncthreads();
        const int valid_keys = params.seq_kv - key;
        const int64_t k_stride = params.k.row_stride, v_stride = params.v.row_stride;
        attn::load_tile<Element, HEAD_DIM, THREADS>(smem.k, k_gmem + key * k_stride, k_stride, valid_keys);
        attn::load_tile<Element, HEAD_DIM, THREADS>(smem.v, v_gmem + key * v_stride, v_stride, valid_keys);
        // K and V were written by all threads and are read by every warp.
        __syncthreads();

        // S = Q·Kᵀ.
        if constexpr (Preset::TENSOR_QK) {
            attn::scores_by_wmma<WARP_N, Preset::SCORE_PITCH>(scores, q_operand, &smem.k[warp_key]);
        } else {
            scores_by_fma<Preset>(scores, q_operand, smem.k[warp_key], lane);
        }
        // The lanes that computed a score are not those that read it below.
        __syncwarp();

        // P = softmax(S), unnormalised, one exponential per score.
        float p_reg[SCORES_PER_LANE]; // of [8, WARP_N]
        float *row_scores = scores + softmax_row * Preset::SCORE_PITCH + softmax_col;
#pragma unroll
        for (int i = 0; i < SCORES_PER_LANE; ++i) p_reg[i] = row_scores[i * LANES_PER_ROW];
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
            for (int col = 0; col < O_COLS; ++col) o_acc[row][col] *= row_rescale;
        }
 ATTN_OBSERVE(RESCALED, o_at, key, o_acc);
#pragma unroll PV_UNROLL
        for (int j = 0; j < WARP_N; ++j) {
            float v_reg[O_COLS];
#pragma unroll
            for (int col = 0; col < O_COLS; ++col) v_reg[col] = __half2float(smem.v[warp_key + j][lane + 32 * col]);
#pragma unroll
            for (int row = 0; row < WARP_M; ++row) {
                const float p = scores[row * Preset::SCORE_PITCH + j]; // the same address in every lane: a broadcast
#pragma unroll
                for (int col = 0; col < O_COLS; ++col) o_acc[row][col] = fmaf(p, v_reg[col], o_acc[row][col]);
            }
        }
 ATTN_OBSERVE(OUTPUT, o_at, key, o_acc);
    }

    if constexpr (Preset::KEY_GROUPS > 1) {
        // Every warp has read its last K and V: partial outputs may take their space.
        __syncthreads();
        auto &partial = reinterpret_cast<typename Preset::Partial &>(smem.k);
#pragma unroll
        for (int row = 0; row < WARP_M; ++row) {
#pragma unroll
            for (int col = 0; col < O_COLS; ++col) partial.o[key_group][warp_row + row][lane + 32 * col] = o_acc[row][col];
        }
        if (softmax_col == 0) partial.state[key_group][warp_row + softmax_row] = state;
        // All warps have written their parts.
        __syncthreads();
        attn::store_merged<THREADS>(attn::row_address<half>(params.o, batch, head_q, block_row), params.o.row_stride,
                                    params.seq_q - block_row, partial,
                                    attn::scale_of(params.v, params.heads_kv, batch, head_kv), threadIdx.x);
        return;
    }

    // O = O / sum, scaled back; 64 bytes per row and store.
    const float inverse = state.inverse_sum() * attn::scale_of(params.v, params.heads_kv, batch, head_kv);
#pragma unroll
    for (int row = 0; row < WARP_M; ++row) {
        const float factor = __shfl_sync(0xffffffffu, inverse, row * LANES_PER_ROW);
        const int o_row = block_row + warp_row + row;
        if (o_row >= params.seq_q) continue;
        half *o_gmem = attn::row_address<half>(params.o, batch, head_q, o_row);
#pragma unroll
        for (int col = 0; col < O_COLS; ++col) o_gmem[lane + 32 * col] = __float2half(o_acc[row][col] * factor);
    }
}

template <class Element, int HEAD_DIM>
using Scalar32x64 = Preset<false, Element, HEAD_DIM, 32, 64, 1>;
template <class Element, int HEAD_DIM>
using Scalar32x128K2 = Preset<false, Element, HEAD_DIM, 32, 128, 2>;
template <class Element, int HEAD_DIM>
using WmmaQk32x64 = Preset<true, Element, HEAD_DIM, 32, 64, 1>;
template <class Element, int HEAD_DIM>
using WmmaQk32x128K2 = Preset<true, Element, HEAD_DIM, 32, 128, 2>;

} // namespace

ATTN_VARIANT(scalar, scalar_32x64, Scalar32x64)
ATTN_VARIANT(scalar, scalar_32x128_k2, Scalar32x128K2)
ATTN_VARIANT(wmma_qk, wmma_qk_32x64, WmmaQk32x64)
ATTN_VARIANT(wmma_qk, wmma_qk_32x128_k2, WmmaQk32x128K2)
