// How a warp gets the scores of its rows and keys by mma.sync, as <attn/mma_rows.cuh> lays them out: from FP16, or those of E4M3
// from the codes themselves. `Rows` is a WarpRows.
#pragma once

#include <attn/fp8_sums.cuh>
#include <attn/mma_rows.cuh>

namespace attn {

// Whether the GPU has the instruction (sm_89). Else all heads get exact scores.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
constexpr bool MULTIPLIES_CODES = true;
#else
constexpr bool MULTIPLIES_CODES = false;
#endif

// From FP16, to which codes are converted in registers: exact products, 16 columns at a time.
template <class Rows>
struct HalfScores {
    using QFragments = typename Rows::QFragments; // of [WARP_M, HEAD_DIM]

    // Rows [row, row + 16) of Q.
    template <class Tile>
    static __device__ __forceinline__ void load_q(uint32_t (&reg)[Rows::HEAD_DIM / MMA_K][4], const Tile &q, int row, int lane) {
#pragma unroll
        for (int step = 0; step < Rows::HEAD_DIM / MMA_K; ++step) {
            Fragment<typename Rows::Element>::load_q(reg[step], q, row, step, lane);
        }
    }

    template <class KTile>
    static __device__ __forceinline__ void multiply(typename Rows::Scores &s, const QFragments &q_frag, const KTile &k,
                                                    int first_key, int lane) {
        multiply_qk<Rows>(s, q_frag, k, first_key, lane);
    }
};

// From codes, 32 columns at a time (sm_89): half the products, and no conversion of Q and K. A register has four codes where it
// would have two FP16 values, so that ldmatrix brings them as it brings those. For heads within LARGEST_SCALE.
template <class Rows>
struct CodeScores {
    using QFragments = uint32_t[Rows::M_TILES][Rows::HEAD_DIM / FP8_K][4]; // of [WARP_M, HEAD_DIM]

    template <class Tile>
    static __device__ __forceinline__ void load_q(uint32_t (&reg)[Rows::HEAD_DIM / FP8_K][4], const Tile &q, int row, int lane) {
#pragma unroll
        for (int step = 0; step < Rows::HEAD_DIM / FP8_K; ++step) Fragment<F16>::load_q(reg[step], q, row, step, lane);
    }

    // s[WARP_M, WARP_N] = q[WARP_M, HEAD_DIM] · k[WARP_N, HEAD_DIM]ᵀ, k being rows of the tile from `first_key`.
    template <class KTile>
    static __device__ __forceinline__ void multiply(typename Rows::Scores &s, const QFragments &q_frag, const KTile &k,
                                                    int first_key, int lane) {
        s = {};
#pragma unroll
        for (int step = 0; step < Rows::HEAD_DIM / FP8_K; ++step) {
#pragma unroll
            for (int n = 0; n < Rows::N_TILES; n += 2) {
                uint32_t k_frag[4]; // [32][16]: two mma wide
                Fragment<F16>::load_k(k_frag, k, first_key + n * MMA_N, step, lane);
                const uint32_t low[2] = {k_frag[0], k_frag[1]}, high[2] = {k_frag[2], k_frag[3]}; // keys 0 to 7, 8 to 15
#pragma unroll
                for (int m = 0; m < Rows::M_TILES; ++m) {
                    mma_m16n8k32_e4m3_f32(s.acc[m][n], q_frag[m][step], low);
                    mma_m16n8k32_e4m3_f32(s.acc[m][n + 1], q_frag[m][step], high);
                }
            }
        }
    }
};

} // namespace attn
