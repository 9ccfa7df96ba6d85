// Stage 7: products by warpgroup. wgmma reads Q, K and V in shared memory by descriptor, as TMA left them there; scores,
// probabilities and output stay in registers.
// Launched as a grid of ceil(seq_q / BLOCK_M) x heads_q x batch blocks.

#include <attn/mapped_halves.cuh>
#include <attn/mask.cuh>
#include <attn/observe.cuh> // ATTN_PLACES, ATTN_OBSERVE: for `compare explain`, nothing on a GPU
#include <attn/softmax.cuh>
#include <attn/wgmma_rows.cuh>
#include <attn/wgmma_tile.cuh>

namespace {

// Each warpgroup owns 64 query rows and all keys of every tile. Thread 0 starts all copies.
template <class Element_,  // of Q, K and V
          int HEAD_DIM_,   // columns
          int WARPGROUPS_, // of a block
          int BLOCK_N_,    // keys of a tile
          int STAGES_,     // tiles of K and V in the ring
          int MIN_BLOCKS_> // that share an SM
struct Preset {
    using Element = Element_;
    static constexpr int HEAD_DIM = HEAD_DIM_;
    static constexpr int WARPGROUPS = WARPGROUPS_, BLOCK_M = WARPGROUPS * attn::WGMMA_M, THREADS = WARPGROUPS * 128;
    static constexpr int BLOCK_N = BLOCK_N_;
    static constexpr int STAGES = STAGES_;
    static constexpr bool LSE = true;
    static constexpr int MIN_BLOCKS = MIN_BLOCKS_;

    using QTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_M>;
    using KvTile = attn::BoxTile<Element, HEAD_DIM, BLOCK_N>;
    struct Shared {
        QTile q;                     // [BLOCK_M, HEAD_DIM]
        KvTile k[STAGES], v[STAGES]; // [BLOCK_N, HEAD_DIM] each
        attn::Mbarrier q_full, k_full[STAGES], v_full[STAGES]; // a phase ends when the tile has landed
        attn::Mbarrier empty[STAGES];                          // when every warpgroup has read K and V of the slot
    };

    static constexpr int Q_BOX_ROWS = BLOCK_M, K_BOX_ROWS = BLOCK_N, V_BOX_ROWS = BLOCK_N, O_BOX_ROWS = 0;
    static constexpr int PROBABILITY = Element::PROBABILITY;

    static_assert(STAGES >= 2, "a tile lands while another is read");
};

template <class Preset>
__device__ __forceinline__ void attention(const AttentionLaunch &launch) {
    using Element = typename Preset::Element;
    constexpr int BLOCK_M = Preset::BLOCK_M, BLOCK_N = Preset::BLOCK_N, HEAD_DIM = Preset::HEAD_DIM;
    constexpr int STAGES = Preset::STAGES, WARPGROUPS = Preset::WARPGROUPS;
    constexpr int N_TILES = BLOCK_N / 8, D_TILES = HEAD_DIM / 8; // of 8 columns, of which a thread holds 2
    const AttentionParams &params = launch.params;

    // This block's rows and head. Under the causal mask the last rows see the most keys: their blocks start first.
    const int batch = blockIdx.z, head_q = blockIdx.y, head_kv = attn::kv_head(params, head_q);
    const int block_row = (gridDim.x - 1 - blockIdx.x) * BLOCK_M;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warpgroup = __shfl_sync(0xffffffffu, warp / 4, 0); // uniform in a warp, for the compiler
    const int thread_row = block_row + warp * 16 + lane / 4;     // this thread has elements of this row and the 8th after it

    // The tiles that the last row of the block sees.
    const int key_end = attn::visible_keys(params, min(block_row + BLOCK_M, params.seq_q) - 1);
    const int tiles = (key_end + BLOCK_N - 1) / BLOCK_N;

    auto &smem = attn::shared_tiles<typename Preset::Shared>();
    const auto load_tile = [&](int tile, int slot) {
        attn::mbarrier_arrive_expect_tx(&smem.k_full[slot], Preset::KvTile::BYTES);
        smem.k[slot].load(launch.k, &smem.k_full[slot], tile * BLOCK_N, head_kv, batch);
        attn::mbarrier_arrive_expect_tx(&smem.v_full[slot], Preset::KvTile::BYTES);
        smem.v[slot].load(launch.v, &smem.v_full[slot], tile * BLOCK_N, head_kv, batch);
    };
    if (threadIdx.x == 0) {
        attn::mbarrier_init(&smem.q_full, 1);
        for (int slot = 0; slot < STAGES; ++slot) {
            attn::mbarrier_init(&smem.k_full[slot], 1);
            attn::mbarrier_init(&smem.v_full[slot], 1);
            attn::mbarrier_init(&smem.empty[slot], WARPGROUPS);
        }
        attn::fence_mbarrier_init();
        // Fill the ring. Nothing is started that nobody will wait for: a block must not end before its copies.
        if (tiles > 0) {
            attn::mbarrier_arrive_expect_tx(&smem.q_full, Preset::QTile::BYTES);
            smem.q.load(launch.q, &smem.q_full, block_row, head_q, batch);
        }
#pragma unroll 1
        for (int tile = 0; tile < min(tiles, STAGES); ++tile) load_tile(tile, tile);
    }
    // The barriers are initialised.
    __syncthreads();

    if (tiles > 0) attn::mbarrier_wait_tx(&smem.q_full, 0); // TMA has written Q

    int visible[2];          // keys that the thread's two rows see
    attn::RowState state[2]; // of the thread's two rows
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        visible[half] = attn::visible_keys(params, thread_row + half * 8);
        state[half] = attn::RowState::empty();
    }
    const int visible_to_all = attn::visible_keys(params, block_row + warp * 16); // keys that all rows of the warp see
    const float scale_log2 = attn::scale_of_scores(params, batch, head_q, head_kv);

    float o_acc[HEAD_DIM / 2]; // of [64, HEAD_DIM]
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o_acc[i] = 0.0f;
 ATTN_PLACES(at, batch, head_q, thread_row + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
    auto current = attn::PipelineState<STAGES>::first(), refill = current;
    const auto wait_full = [&](attn::Mbarrier *full) { attn::mbarrier_wait_tx(&full[current.slot], current.parity); };
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        wait_full(smem.k_full); // K has landed
        float s[BLOCK_N / 2]; // of [64, BLOCK_N]
        attn::start_qk(s, smem.q, warpgroup * attn::WGMMA_M, smem.k[current.slot]);
        // Meanwhile the previous tile's slot is refilled. Its warpgroup waits here for the slowest: that is what a loading warpgroup
        // (stage 8) is for.
        if (threadIdx.x == 0 && tile > 0) {
            if (tile - 1 + STAGES < tiles) {
                attn::mbarrier_wait_tx(&smem.empty[refill.slot], refill.parity); // all warpgroups have read it
                load_tile(tile - 1 + STAGES, refill.slot);
            }
            refill.advance();
        }
        attn::wgmma_wait<0>(s);

        if ((tile + 1) * BLOCK_N > visible_to_all) attn::mask_rows(s, tile * BLOCK_N, visible, lane);
 ATTN_OBSERVE(SCORES, at, tile * BLOCK_N, s);
        // P = softmax(S), unnormalised, as the first operand of P·V; O = O * rescale. A row is spread over 4 lanes. One row after
        // the other, where stage 8 takes both: else two blocks per SM leave too few registers at head_dim 64.
        uint32_t p_frag[BLOCK_N / attn::WGMMA_K][4]; // of [64, BLOCK_N]
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float p[2 * N_TILES]; // the scores of one row in this thread
#pragma unroll
            for (int i = 0; i < 2 * N_TILES; ++i) p[i] = s[i / 2 * 4 + 2 * half + i % 2];
            const float rescale = state[half].template update_own<4>(p, scale_log2);
 ATTN_PLACES(p_at, batch, head_q, thread_row + half * 8, i / 2 * 8 + lane % 4 * 2 + i % 2);
 ATTN_OBSERVE(PROBABILITIES, p_at, tile * BLOCK_N, p);
#pragma unroll
            for (int i = 0; i < 2 * D_TILES; ++i) o_acc[i / 2 * 4 + 2 * half + i % 2] *= rescale;
            // The accumulators of keys 0 to 7 and 8 to 15 are the halves of one operand of 16 keys.
#pragma unroll
            for (int n = 0; n < N_TILES; ++n) p_frag[n / 2][n % 2 * 2 + half] = Element::pack(p[2 * n], p[2 * n + 1]);
        }
 ATTN_OBSERVE(LANE_STATE, at, tile * BLOCK_N, state);
 ATTN_OBSERVE(RESCALED, at, tile * BLOCK_N, o_acc);

        wait_full(smem.v_full); // V has landed
        attn::start_pv<HEAD_DIM, BLOCK_N>(o_acc, p_frag, smem.v[current.slot]);
        attn::wgmma_wait<0>(o_acc);
 ATTN_OBSERVE(OUTPUT, at, tile * BLOCK_N, o_acc);
        // The warpgroup has read K and V of the slot. One thread may free it for four warps: a wgmma belongs to all four, and the
        // wait above ends when the whole of it has, as CUTLASS takes it, too (PipelineTmaAsync counts one arrival of each consumer
        // warpgroup). Nobody reads the slot by other instructions.
        if (threadIdx.x % 128 == 0) attn::mbarrier_arrive(&smem.empty[current.slot]);
        current.advance();
    }

    const float scale = attn::scale_of(params.v, params.heads_kv, batch, head_kv);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = thread_row + half * 8;
        state[half].template join<4>();
        if (row >= params.seq_q) continue;
        const float inverse = state[half].inverse_sum() * scale;
        auto *o_row = attn::row_address<typename Element::Storage>(params.o, batch, head_q, row);
        auto *o = reinterpret_cast<uint32_t *>(o_row) + lane % 4;
#pragma unroll
        for (int d = 0; d < D_TILES; ++d) {
            o[d * 4] = Element::pack(o_acc[4 * d + 2 * half] * inverse, o_acc[4 * d + 2 * half + 1] * inverse);
        }
    }
    attn::store_lse_rows(params, batch, head_q, thread_row, state, scale_log2, lane);
}

// Rows x keys of a tile. Few rows for grids that hardly fill the GPU; at head_dim 64 three such blocks share an SM.
template <class Element, int HEAD_DIM> using Wgmma64x128 = Preset<Element, HEAD_DIM, 1, 128, 2, HEAD_DIM == 64 ? 3 : 1>;
// At head_dim 64, two blocks of two warpgroups.
template <class Element, int HEAD_DIM> using Wgmma128x128 = Preset<Element, HEAD_DIM, 2, 128, 2, HEAD_DIM == 64 ? 2 : 1>;
// At head_dim 128 an SM has registers for three warpgroups: while one computes exponentials, others multiply.
template <class Element, int HEAD_DIM> using Wgmma192x128 = Preset<Element, HEAD_DIM, 3, 128, 2, 1>;

} // namespace

ATTN_MAPPED_HALVES_VARIANT(wgmma, wgmma_64x128, Wgmma64x128)
ATTN_MAPPED_HALVES_VARIANT(wgmma, wgmma_128x128, Wgmma128x128)
ATTN_MAPPED_HALVES_VARIANT(wgmma, wgmma_192x128, Wgmma192x128)
