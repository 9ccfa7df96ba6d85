// Stage 3: P·V on tensor cores, P as half. The product of a tile goes through shared memory to the lanes that keep O, where each
// row has its own factor: which lane of a WMMA fragment holds which row is unspecified. So a lane has neighbouring scores in pairs, a half
// warp four of the warp's rows instead of half of its keys, and rows another padding. Everything else is stage 2.

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
// A lane's part of O: 4 rows, and 4 neighbouring columns of every 64. Each half warp has 4 of the 8 rows.
constexpr int PV_ROWS = 4, PV_LANES = 16, PV_COLS = 4 * PV_LANES;

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
    // At head_dim 128 a lane has twice the columns of O, in addition to the fragments of its product. More than 256 threads have 168 at
    // most, whatever they need.
    static constexpr int REGISTERS = HEAD_DIM == 128 ? 255 : THREADS > 256 ? 168 : 128;
    static constexpr int MIN_BLOCKS = THREADS > 256 ? 1 : 65536 / (REGISTERS * THREADS); // holds the compiler to them
    static constexpr int PROBABILITY = ATTENTION_P_F16;

    // Rows end in padding, 16 bytes of FP16 and 32 of floats: 8 rows of a fragment start in 8 different groups of 4 banks, those of
    // an accumulator 8 banks apart. Reads have no bank conflict, stores of an accumulator a two-way one.
    static constexpr int PITCH = HEAD_DIM + 8;
    static constexpr int P_PITCH = BLOCK_N + 8;
    static constexpr int WORK_PITCH = (WARP_N > HEAD_DIM ? WARP_N : HEAD_DIM) + 8;
    using KvRing = attn::AsyncTile<Element, HEAD_DIM, BLOCK_N, PITCH, THREADS>;
    struct Shared {
        alignas(128) half q[BLOCK_M][PITCH]; // [BLOCK_M, HEAD_DIM]
        KvRing k, v; // tiles [BLOCK_N, HEAD_DIM]
        alignas(128) float work[THREADS / 32][WARP_M][WORK_PITCH]; // of each warp: scores [8, WARP_N], then P·V [8, HEAD_DIM]
        alignas(128) half p[BLOCK_M][P_PITCH];                     // [BLOCK_M, BLOCK_N]
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
    float *work = smem.work[warp][0];           // this warp's own: [8, WARP_N], then [8, HEAD_DIM]
    half *p_smem = &smem.p[warp_row][warp_key]; // this warp's own: [8, WARP_N]

    // In the softmax lane l has row l / 4 of the warp, and two neighbouring scores of every eight.
    const int softmax_row = lane / LANES_PER_ROW, softmax_col = lane % LANES_PER_ROW * 2;
    const int visible = attn::visible_keys(params, block_row + warp_row + softmax_row); // keys that the lane's row sees
    const int visible_to_all = attn::visible_keys(params, block_row + warp_row);        // that all rows of the warp see
    attn::RowState state = attn::RowState::empty();
    // Lane l keeps 4 rows of O from 4 (l / 16) and 4 columns from 4 (l % 16), from 64 + 4 (l % 16), ...
    const int pv_row = lane / PV_LANES * PV_ROWS, pv_col = 4 * (lane % PV_LANES);
    float2 o_acc[PV_ROWS][O_QUADS][2] = {}; // of [8, HEAD_DIM]

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

 ATTN_PLACES(p_at, batch, head_q, block_row + warp_row + softmax_row,
             warp_key + softmax_col + i / 2 * 2 * LANES_PER_ROW + i % 2);
 ATTN_PLACES(o_at, batch, head_q, block_row + warp_row + pv_row + i / (4 * O_QUADS),
             pv_col + PV_COLS * (i / 4 % O_QUADS) + i % 4);
    for (int key = 0; key < key_end; key += BLOCK_N) {
        // This thread's chunks of the tile have arrived: no others were started since.
        attn::cp_async_wait_group<0>();
        // All threads' chunks have arrived, and every warp has finished P·V on the previous tile: its slot is free, and its lanes have
        // read the product in `work`, which scores overwrite.
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
        attn::scores_by_wmma<WARP_N, Preset::WORK_PITCH>(work, q_frag, &k_tile[warp_key]);
        // The lanes that computed a score are not those that read it below.
        __syncwarp();

        // P = softmax(S), unnormalised, one exponential per score.
        float p_reg[SCORES_PER_LANE]; // of [8, WARP_N]
        const float *row_scores = work + softmax_row * Preset::WORK_PITCH + softmax_col;
#pragma unroll
        for (int i = 0; i < SCORES_PER_LANE; i += 2) {
            const float2 pair = *reinterpret_cast<const float2 *>(row_scores + i * LANES_PER_ROW);
            p_reg[i] = pair.x;
            p_reg[i + 1] = pair.y;
        }
        // The slot is free since the barrier above; only now, so that the score loads do not queue behind the copies.
        if (key + BLOCK_N < key_end) start_copy(key + BLOCK_N);
 ATTN_STEP(MASK);
        if (key + warp_key + WARP_N > visible_to_all) {
#pragma unroll
            for (int i = 0; i < SCORES_PER_LANE; ++i) {
                const int col = key + warp_key + softmax_col + i / 2 * 2 * LANES_PER_ROW + i % 2;
                if (col >= visible) p_reg[i] = -INFINITY;
            }
        }
 ATTN_OBSERVE(SCORES, p_at, key, p_reg);
        const float rescale = state.update<LANES_PER_ROW>(p_reg, scale_log2);
 ATTN_OBSERVE(STATE, p_at, key, state);
 ATTN_OBSERVE(PROBABILITIES, p_at, key, p_reg);
        half *row_p = p_smem + softmax_row * Preset::P_PITCH + softmax_col;
#pragma unroll
        for (int i = 0; i < SCORES_PER_LANE; i += 2) {
            *reinterpret_cast<half2 *>(row_p + i * LANES_PER_ROW) = __floats2half2_rn(p_reg[i], p_reg[i + 1]);
        }
        // The warp reads the probabilities of all 8 rows, and overwrites their scores.
        __syncwarp();

        // O = O * rescale + P·V.
        attn::product_by_wmma<WARP_N, HEAD_DIM, Preset::P_PITCH, Preset::WORK_PITCH>(work, p_smem, &v_tile[warp_key]);
        // The lanes that computed a product are not those that read it below.
        __syncwarp();
#pragma unroll
        for (int row = 0; row < PV_ROWS; ++row) {
            const float row_rescale = __shfl_sync(0xffffffffu, rescale, (pv_row + row) * LANES_PER_ROW);
            const float *row_product = work + (pv_row + row) * Preset::WORK_PITCH + pv_col;
#pragma unroll
            for (int quad = 0; quad < O_QUADS; ++quad) {
                const float4 product = *reinterpret_cast<const float4 *>(row_product + PV_COLS * quad);
                float2(&o)[2] = o_acc[row][quad];
                o[0] = make_float2(fmaf(o[0].x, row_rescale, product.x), fmaf(o[0].y, row_rescale, product.y));
                o[1] = make_float2(fmaf(o[1].x, row_rescale, product.z), fmaf(o[1].y, row_rescale, product.w));
            }
        }
 ATTN_OBSERVE(OUTPUT, o_at, key, o_acc);
    }

    if constexpr (Preset::KEY_GROUPS > 1) {
        // Every warp has read its last K and V: partial outputs may take their space.
        __syncthreads();
        auto &partial = reinterpret_cast<typename Preset::Partial &>(smem.k);
#pragma unroll
        for (int row = 0; row < PV_ROWS; ++row) {
#pragma unroll
            for (int quad = 0; quad < O_QUADS; ++quad) {
                const float2(&o)[2] = o_acc[row][quad];
                *reinterpret_cast<float4 *>(&partial.o[key_group][warp_row + pv_row + row][pv_col + PV_COLS * quad]) =
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
    for (int row = 0; row < PV_ROWS; ++row) {
        const float factor = __shfl_sync(0xffffffffu, inverse, (pv_row + row) * LANES_PER_ROW);
        const int o_row = block_row + warp_row + pv_row + row;
        if (o_row >= params.seq_q) continue;
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
using WmmaPv32x64 = Preset<Element, HEAD_DIM, 32, 64, 1>;
template <class Element, int HEAD_DIM>
using WmmaPv32x128K2 = Preset<Element, HEAD_DIM, 32, 128, 2>;
template <class Element, int HEAD_DIM>
using WmmaPv64x96 = Preset<Element, HEAD_DIM, 64, 96, 1>;

} // namespace

ATTN_VARIANT(wmma_pv, wmma_pv_32x64, WmmaPv32x64)
ATTN_VARIANT(wmma_pv, wmma_pv_32x128_k2, WmmaPv32x128K2)
ATTN_VARIANT(wmma_pv, wmma_pv_64x96, WmmaPv64x96)
