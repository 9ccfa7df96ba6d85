// Stage 4: warp specialisation. Producer warps copy tiles of K and V into a ring, as far ahead as there is room; consumer warps
// compute as in stage 3. Each slot of the ring has two mbarriers: `full` ends a phase when a tile has landed, `empty` when every
// consumer has read it. After the roles split there is no block barrier: the producers never reach one.

#include <attn/copy_async.cuh>
#include <attn/mask.cuh>
#include <attn/merge.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/mbarrier.cuh>
#include <attn/shared.cuh>
#include <attn/softmax.cuh>
#include <attn/tile.cuh>
#include <attn/variant.cuh>
#include <attn/wmma_rows.cuh>
#include <type_traits>

namespace {

constexpr int WARP_M = attn::WMMA_M;       // query rows of a warp
constexpr int LANES_PER_ROW = 32 / WARP_M; // in the softmax
// A lane's part of O: 4 rows, and 4 neighbouring columns of every 64. Each half warp has 4 of the 8 rows.
constexpr int PV_ROWS = 4, PV_LANES = 16, PV_COLS = 4 * PV_LANES;

template <class Element_,  // of Q, K and V
          int HEAD_DIM_,   // columns
          int BLOCK_M_,    // query rows of a block
          int BLOCK_N_,    // keys of a tile
          int KEY_GROUPS_, // warps that share 8 rows and split the keys of a tile
          int STAGES_>     // tiles of K and V in the ring
struct Preset {
    using Element = Element_;
    static constexpr int HEAD_DIM = HEAD_DIM_, BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_;
    static constexpr int KEY_GROUPS = KEY_GROUPS_, ROW_GROUPS = BLOCK_M / WARP_M;
    static constexpr int WARP_N = BLOCK_N / KEY_GROUPS; // keys of a warp in a tile
    static constexpr int CONSUMERS = ROW_GROUPS * KEY_GROUPS, PRODUCERS = 2; // warps; producers are the first, as copies go by threadIdx.x
    static constexpr int THREADS = (PRODUCERS + CONSUMERS) * 32;
    static constexpr int STAGES = STAGES_;
    // Leaves a thread 168 registers: at head_dim 128, where a lane has twice the columns of O, some instances spill with 128.
    static constexpr int MIN_BLOCKS = THREADS > 192 ? 1 : 2;
    static constexpr int PROBABILITY = ATTENTION_P_F16;

    // Rows end in padding, 16 bytes of FP16 and 32 of floats: 8 rows of a fragment start in 8 different groups of 4 banks, those of
    // an accumulator 8 banks apart. Reads have no bank conflict, stores of an accumulator a two-way one.
    static constexpr int PITCH = HEAD_DIM + 8;
    static constexpr int P_PITCH = BLOCK_N + 8;
    static constexpr int WORK_PITCH = (WARP_N > HEAD_DIM ? WARP_N : HEAD_DIM) + 8;
    struct Slot {
        alignas(128) half k[BLOCK_N][PITCH]; // [BLOCK_N, HEAD_DIM]
        alignas(128) half v[BLOCK_N][PITCH];
    };
    struct Shared {
        alignas(128) half q[BLOCK_M][PITCH]; // [BLOCK_M, HEAD_DIM]
        Slot ring[STAGES];
        alignas(128) float work[CONSUMERS][WARP_M][WORK_PITCH]; // of each consumer: scores [8, WARP_N], then P·V [8, HEAD_DIM]
        alignas(128) half p[BLOCK_M][P_PITCH];                  // [BLOCK_M, BLOCK_N]
        attn::Mbarrier full[STAGES];                            // every producer thread arrives when its part has landed
        attn::Mbarrier empty[STAGES];                           // every consumer warp arrives when it has read the tile
    };
    using Partial = attn::PartialOutput<KEY_GROUPS, BLOCK_M, HEAD_DIM, 0>;

    static_assert(BLOCK_M % WARP_M == 0, "a warp owns whole groups of 8 rows");
    static_assert(WARP_N % attn::WMMA_N == 0, "a warp's part of a tile is whole fragments");
    static_assert(sizeof(Partial) <= sizeof(Shared::ring), "fits where K and V were");
    static_assert(HEAD_DIM % PV_COLS == 0, "the head is whole patches");
};

// The producers: copy every tile into the ring, each as soon as its slot is free.
template <class Preset>
__device__ __forceinline__ void produce(const AttentionParams &params, typename Preset::Shared &smem,
                                        const typename Preset::Element::Storage *k_gmem,
                                        const typename Preset::Element::Storage *v_gmem, int key_end) {
    using Element = typename Preset::Element;
    constexpr int BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM, THREADS = Preset::PRODUCERS * 32;
    const int64_t k_stride = params.k.row_stride, v_stride = params.v.row_stride;
    using Copy = attn::TileCopy<Element, HEAD_DIM, BLOCK_N, THREADS>;
    Copy k_copy = Copy::from(k_gmem, k_stride), v_copy = Copy::from(v_gmem, v_stride);
    for (int key = 0; key < key_end; key += BLOCK_N) {
        const int index = key / BLOCK_N, slot = index % Preset::STAGES, valid_keys = params.seq_kv - key;
        auto &tile = smem.ring[slot];
        // The consumers have read the slot's previous tile; the first tiles find it empty.
        if (index >= Preset::STAGES) attn::mbarrier_wait(&smem.empty[slot], (index / Preset::STAGES - 1) % 2);
        if constexpr (std::is_same_v<Element, attn::F16>) {
            k_copy.start(tile.k, valid_keys);
            v_copy.start(tile.v, valid_keys);
            // Arrives when the copies that this thread has started have landed; it goes on meanwhile.
            attn::mbarrier_arrive_after_cp_async(&smem.full[slot]);
        } else {
            // Codes are converted on their way, through registers.
            attn::load_tile<Element, HEAD_DIM, THREADS>(tile.k, k_gmem + key * k_stride, k_stride, valid_keys);
            attn::load_tile<Element, HEAD_DIM, THREADS>(tile.v, v_gmem + key * v_stride, v_stride, valid_keys);
            attn::mbarrier_arrive(&smem.full[slot]);
        }
    }
}

template <class Preset>
__device__ __forceinline__ void attention(const AttentionParams &params) {
    using Element = typename Preset::Element;
    using Storage = typename Element::Storage;
    constexpr int BLOCK_M = Preset::BLOCK_M, BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    constexpr int THREADS = Preset::THREADS;
    constexpr int WARP_N = Preset::WARP_N, SCORES_PER_LANE = WARP_N / LANES_PER_ROW;
    constexpr int O_QUADS = HEAD_DIM / PV_COLS;

    // This block's rows and head.
    const int batch = blockIdx.z, head_q = blockIdx.y, head_kv = attn::kv_head(params, head_q);
    const int block_row = blockIdx.x * BLOCK_M;
    const int warp = static_cast<int>(threadIdx.x) / 32 - Preset::PRODUCERS, lane = threadIdx.x % 32; // negative: produces
    const int row_group = warp % Preset::ROW_GROUPS, key_group = warp / Preset::ROW_GROUPS;
    const int warp_row = row_group * WARP_M, warp_key = key_group * WARP_N; // in the block and in the tile

    const Storage *q_gmem = attn::row_address<Storage>(params.q, batch, head_q, block_row); // [BLOCK_M, HEAD_DIM]
    const Storage *k_gmem = attn::row_address<Storage>(params.k, batch, head_kv, 0);        // [seq_kv, HEAD_DIM]
    const Storage *v_gmem = attn::row_address<Storage>(params.v, batch, head_kv, 0);        // [seq_kv, HEAD_DIM]
    // The last row of the block sees the most keys.
    const int key_end = attn::visible_keys(params, min(block_row + BLOCK_M, params.seq_q) - 1);
    const float scale_log2 = attn::scale_of_scores(params, batch, head_q, head_kv);

    auto &smem = attn::shared<typename Preset::Shared>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Preset::STAGES; ++slot) {
            attn::mbarrier_init(&smem.full[slot], Preset::PRODUCERS * 32);
            attn::mbarrier_init(&smem.empty[slot], Preset::CONSUMERS);
        }
    }
    attn::load_tile<Element, HEAD_DIM, THREADS>(smem.q, q_gmem, params.q.row_stride, params.seq_q - block_row);
    // Q was written by all threads and is read by every consumer; the mbarriers are initialised.
    __syncthreads();
    if (warp < 0) {
        produce<Preset>(params, smem, k_gmem, v_gmem, key_end);
        return;
    }

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

    attn::QFragments<HEAD_DIM> q_frag;
    q_frag.load(&smem.q[warp_row]);

 ATTN_PLACES(p_at, batch, head_q, block_row + warp_row + softmax_row,
             warp_key + softmax_col + i / 2 * 2 * LANES_PER_ROW + i % 2);
 ATTN_PLACES(o_at, batch, head_q, block_row + warp_row + pv_row + i / (4 * O_QUADS),
             pv_col + PV_COLS * (i / 4 % O_QUADS) + i % 4);
    for (int key = 0; key < key_end; key += BLOCK_N) {
        const int index = key / BLOCK_N, slot = index % Preset::STAGES;
        const auto &tile = smem.ring[slot];
        // The producers' copies of this tile have landed.
        attn::mbarrier_wait(&smem.full[slot], index / Preset::STAGES % 2);

        // S = Q·Kᵀ.
        attn::scores_by_wmma<WARP_N, Preset::WORK_PITCH>(work, q_frag, &tile.k[warp_key]);
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
        attn::product_by_wmma<WARP_N, HEAD_DIM, Preset::P_PITCH, Preset::WORK_PITCH>(work, p_smem, &tile.v[warp_key]);
        // The lanes that computed a product are not those that read it below. The warp has read the tile.
        __syncwarp();
        if (lane == 0) attn::mbarrier_arrive(&smem.empty[slot]);
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
        // Every lane has read its part of the product: the next tile's scores may overwrite it.
        __syncwarp();
    }

    // Every consumer has read its last tile, and no copy is in flight, as each was waited for: partial outputs may take the ring's
    // space. Producers reach no barrier.
    attn::named_barrier_sync<1, Preset::CONSUMERS * 32>();
    auto &partial = reinterpret_cast<typename Preset::Partial &>(smem.ring);
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
    // All consumers have written their parts.
    attn::named_barrier_sync<1, Preset::CONSUMERS * 32>();
    attn::store_merged<Preset::CONSUMERS * 32>(attn::row_address<half>(params.o, batch, head_q, block_row),
                                               params.o.row_stride, params.seq_q - block_row, partial,
                                               attn::scale_of(params.v, params.heads_kv, batch, head_kv), warp * 32 + lane);
}

// Rows x keys of a tile, key groups, tiles in the ring.
template <class Element, int HEAD_DIM>
using WarpSpec32x64 = Preset<Element, HEAD_DIM, 32, 64, 1, 4>;
template <class Element, int HEAD_DIM>
using WarpSpec64x64 = Preset<Element, HEAD_DIM, 64, 64, 1, 2>;
template <class Element, int HEAD_DIM>
using WarpSpec32x128K2 = Preset<Element, HEAD_DIM, 32, 128, 2, HEAD_DIM == 64 ? 4 : 2>;
template <class Element, int HEAD_DIM>
using WarpSpec32x32 = Preset<Element, HEAD_DIM, 32, 32, 1, 4>;

} // namespace

ATTN_VARIANT(warpspec, warpspec_32x64, WarpSpec32x64)
ATTN_VARIANT(warpspec, warpspec_64x64, WarpSpec64x64)
ATTN_VARIANT(warpspec, warpspec_32x128_k2, WarpSpec32x128K2)
ATTN_VARIANT(warpspec, warpspec_32x32, WarpSpec32x32)
