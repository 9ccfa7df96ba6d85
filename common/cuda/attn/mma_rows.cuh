// What a warp computes by mma.m16n8k16 for its rows and its keys of a tile, all in registers: what Q·Kᵀ leaves in a lane is what P·V
// wants there. <attn/ptx/mma.cuh> says which elements a lane has; its rows are l / 4 and l / 4 + 8 of each 16, l being the lane.
#pragma once

#include <attn/fragment.cuh>
#include <attn/observe.cuh>
#include <attn/softmax.cuh>

namespace attn {

// One mma: [16][16] · [16][8].
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;

// Registers of a warp with WARP_M rows and WARP_N keys of a tile.
template <class Element_, int HEAD_DIM_, int WARP_M, int WARP_N_>
struct WarpRows {
    using Element = Element_;
    using Operand = typename Element::Operand;
    static constexpr int HEAD_DIM = HEAD_DIM_, WARP_N = WARP_N_;
    static constexpr int M_TILES = WARP_M / MMA_M, N_TILES = WARP_N / MMA_N, D_TILES = HEAD_DIM / MMA_N;
    using QFragments = uint32_t[M_TILES][HEAD_DIM / MMA_K][4]; // of [WARP_M, HEAD_DIM]
    struct Scores {
        float acc[M_TILES][N_TILES][4]; // of [WARP_M, WARP_N]
    };
    using PFragments = uint32_t[M_TILES][WARP_N / MMA_K][4]; // of [WARP_M, WARP_N]
    using Output = float[M_TILES][D_TILES][4];               // of [WARP_M, HEAD_DIM]

    static_assert(WARP_M % MMA_M == 0 && WARP_N % MMA_K == 0 && HEAD_DIM % MMA_K == 0, "whole fragments");
};

// s[WARP_M, WARP_N] = q[WARP_M, HEAD_DIM] · k[WARP_N, HEAD_DIM]ᵀ, k being rows of the tile from `first_key`.
template <class Rows, class KTile>
static __device__ __forceinline__ void multiply_qk(typename Rows::Scores &s, const typename Rows::QFragments &q_frag,
                                                   const KTile &k, int first_key, int lane) {
    s = {};
#pragma unroll
    for (int step = 0; step < Rows::HEAD_DIM / MMA_K; ++step) {
#pragma unroll
        for (int n = 0; n < Rows::N_TILES; n += 2) {
            uint32_t k_frag[4]; // [16][16]: two mma wide
            Fragment<typename Rows::Element>::load_k(k_frag, k, first_key + n * MMA_N, step, lane);
#pragma unroll
            for (int m = 0; m < Rows::M_TILES; ++m) {
                mma<typename Rows::Operand>(s.acc[m][n], q_frag[m][step], k_frag[0], k_frag[1]);
                mma<typename Rows::Operand>(s.acc[m][n + 1], q_frag[m][step], k_frag[2], k_frag[3]);
            }
        }
    }
}

// -inf for the keys, from `first_key`, that a row does not see; nothing to do where every row of the warp sees them all.
template <class Rows>
static __device__ __forceinline__ void mask_scores(typename Rows::Scores &s, int first_key,
                                                   const int (&visible)[Rows::M_TILES][2], int visible_to_all, int lane) {
 ATTN_STEP(MASK);
    if (first_key + Rows::WARP_N <= visible_to_all) return;
#pragma unroll
    for (int m = 0; m < Rows::M_TILES; ++m) {
#pragma unroll
        for (int i = 0; i < Rows::N_TILES * 4; ++i) {
            const int col = first_key + i / 4 * MMA_N + lane % 4 * 2 + i % 2;
            if (col >= visible[m][i % 4 / 2]) s.acc[m][i / 4][i % 4] = -INFINITY;
        }
    }
}

// A warp's rows, from `row` of the head, and keys, from `key` of the tile: for ATTN_PLACES alone.
struct WarpPlace {
    int batch, head, row, key;
};

// P = softmax(S), unnormalised, as the operand of P·V; O = O * rescale. `tile_key`: the first key of the tile.
template <class Rows>
static __device__ __forceinline__ void softmax(typename Rows::PFragments &p_frag, typename Rows::Output &o_acc,
                                               RowState (&state)[Rows::M_TILES][2], const typename Rows::Scores &s,
                                               float scale_log2, const WarpPlace &at, int tile_key, int lane) {
#pragma unroll
    for (int m = 0; m < Rows::M_TILES; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float p[2 * Rows::N_TILES]; // the scores of one row in this lane
#pragma unroll
            for (int i = 0; i < 2 * Rows::N_TILES; ++i) p[i] = s.acc[m][i / 2][2 * half + i % 2];
 ATTN_PLACES(p_at, at.batch, at.head, at.row + m * MMA_M + half * 8 + lane / 4,
             at.key + i / 2 * MMA_N + lane % 4 * 2 + i % 2);
 ATTN_OBSERVE(SCORES, p_at, tile_key, p);
            const float rescale = state[m][half].template update_own<4>(p, scale_log2);
 ATTN_OBSERVE(LANE_STATE, p_at, tile_key, state[m][half]);
 ATTN_OBSERVE(PROBABILITIES, p_at, tile_key, p);
#pragma unroll
            for (int i = 0; i < 2 * Rows::D_TILES; ++i) o_acc[m][i / 2][2 * half + i % 2] *= rescale;
            // The accumulators of keys 0 to 7 and 8 to 15 are the halves of one operand of 16 keys.
#pragma unroll
            for (int n = 0; n < Rows::N_TILES; ++n) {
                p_frag[m][n / 2][n % 2 * 2 + half] = Rows::Operand::pack(p[2 * n], p[2 * n + 1]);
            }
        }
    }
}

// o[WARP_M, HEAD_DIM] += p[WARP_M, WARP_N] · v[WARP_N, HEAD_DIM], v being rows of the tile from `first_key`.
template <class Rows, class VTile>
static __device__ __forceinline__ void multiply_pv(typename Rows::Output &o, const typename Rows::PFragments &p_frag,
                                                   const VTile &v, int first_key, int lane) {
#pragma unroll
    for (int step = 0; step < Rows::WARP_N / MMA_K; ++step) {
#pragma unroll
        for (int d = 0; d < Rows::D_TILES; d += 2) {
            uint32_t v_frag[4]; // [16][16]: two mma wide
            Fragment<typename Rows::Element>::load_v(v_frag, v, first_key + step * MMA_K, d / 2, lane);
#pragma unroll
            for (int m = 0; m < Rows::M_TILES; ++m) {
                mma<typename Rows::Operand>(o[m][d], p_frag[m][step], v_frag[0], v_frag[1]);
                mma<typename Rows::Operand>(o[m][d + 1], p_frag[m][step], v_frag[2], v_frag[3]);
            }
        }
    }
}

} // namespace attn
