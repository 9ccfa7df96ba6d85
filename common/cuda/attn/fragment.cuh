// Operands of mma.m16n8k16 from tiles in shared memory, read by ldmatrix: Q and K for S = Q·Kᵀ, V for O += P·V.
//
// Of E4M3 ldmatrix brings two codes where it would bring one half, and they are converted in registers. A product may sum in any
// order that both operands agree on, so codes stay in the order they come in. `o_column` says which columns of O a lane has.
#pragma once

#include <attn/layout.cuh>
#include <attn/ptx/ldmatrix.cuh>
#include <attn/ptx/mma.cuh>
#include <attn/softmax.cuh>
#include <type_traits>

namespace attn {

// acc[16][8] += a[16][16] · b[16][8], b given as the two registers of a longer fragment.
template <class Operand>
static __device__ __forceinline__ void mma(float (&acc)[4], const uint32_t (&a)[4], uint32_t b_low, uint32_t b_high) {
    const uint32_t b[2] = {b_low, b_high};
    if constexpr (std::is_same_v<Operand, BF16>) mma_m16n8k16_bf16_f32(acc, a, b);
    else mma_m16n8k16_f16_f32(acc, a, b);
}

// F16 and BF16.
template <class Element>
struct Fragment {
    // Rows [row, row + 16) of Q, columns [16 * step, +16).
    template <class Tile>
    static __device__ __forceinline__ void load_q(uint32_t (&reg)[4], const Tile &q, int row, int step, int lane) {
        ldmatrix_x4(reg, q.at(row + lane % 16, 2 * step + lane / 16));
    }

    // Keys [key, key + 16), columns [16 * step, +16) of K: registers 0, 1 are Kᵀ for keys 0 to 7, 2 and 3 for 8 to 15.
    template <class Tile>
    static __device__ __forceinline__ void load_k(uint32_t (&reg)[4], const Tile &k, int key, int step, int lane) {
        ldmatrix_x4(reg, k.at(key + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
    }

    // Keys [key, key + 16) of V, 16 columns: registers 0, 1 for accumulator 2 * pair, 2 and 3 for 2 * pair + 1.
    template <class Tile>
    static __device__ __forceinline__ void load_v(uint32_t (&reg)[4], const Tile &v, int key, int pair, int lane) {
        ldmatrix_x4_trans(reg, v.at(key + lane % 16, 2 * pair + lane / 16));
    }

    // The column of O that a lane has in accumulator d, as the first (i = 0) or second of the two of a row.
    static __device__ __forceinline__ int o_column(int d, int i, int lane) { return 8 * d + lane % 4 * 2 + i; }

    // Stores what a lane has of `o_row` in accumulators 2 * pair (even) and 2 * pair + 1 (odd). O_PADDING: floats behind a row; 4
    // rows of 8 then lie in 32 different banks.
    static constexpr int O_PADDING = 8;
    static __device__ __forceinline__ void store_o(float *o_row, int pair, float2 even, float2 odd, int lane) {
        *reinterpret_cast<float2 *>(o_row + o_column(2 * pair, 0, lane)) = even;
        *reinterpret_cast<float2 *>(o_row + o_column(2 * pair + 1, 0, lane)) = odd;
    }
};

template <>
struct Fragment<E4M3> {
    // Lane l gets the four codes from column 4 * (l % 4): the first two as what mma calls columns 2 * (l % 4) and + 1,
    // the others as those 8 further on.
    template <class Tile>
    static __device__ __forceinline__ void load_q(uint32_t (&reg)[4], const Tile &q, int row, int step, int lane) {
        uint32_t codes[2]; // of rows 0 to 7 and 8 to 15
        ldmatrix_x2(codes, q.at(row + lane % 16, step));
        reg[0] = E4M3::low(codes[0]), reg[2] = E4M3::high(codes[0]);
        reg[1] = E4M3::low(codes[1]), reg[3] = E4M3::high(codes[1]);
    }

    // The same order of columns as load_q.
    template <class Tile>
    static __device__ __forceinline__ void load_k(uint32_t (&reg)[4], const Tile &k, int key, int step, int lane) {
        uint32_t codes[2]; // of keys 0 to 7 and 8 to 15
        ldmatrix_x2(codes, k.at(key + lane % 16, step));
        reg[0] = E4M3::low(codes[0]), reg[1] = E4M3::high(codes[0]);
        reg[2] = E4M3::low(codes[1]), reg[3] = E4M3::high(codes[1]);
    }

    // Transposed in pairs of codes: lane l gets columns 2 * (l / 4) and + 1 of keys 2 * (l % 4) and + 1. The even
    // columns go to accumulator 2 * pair, the odd ones to 2 * pair + 1.
    template <class Tile>
    static __device__ __forceinline__ void load_v(uint32_t (&reg)[4], const Tile &v, int key, int pair, int lane) {
        uint32_t codes[2]; // of keys 0 to 7 and 8 to 15
        ldmatrix_x2_trans(codes, v.at(key + lane % 16, pair));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t even = (codes[i] & 0xff) | (codes[i] >> 8 & 0xff00);
            const uint32_t odd = (codes[i] >> 8 & 0xff) | (codes[i] >> 16 & 0xff00);
            reg[i] = E4M3::low(even), reg[2 + i] = E4M3::low(odd);
        }
    }

    // As above; the two accumulators of a pair interleave.
    static __device__ __forceinline__ int o_column(int d, int i, int lane) {
        return d / 2 * 16 + lane % 4 * 4 + 2 * i + d % 2;
    }

    // 2 rows of 16 floats lie in 32 different banks.
    static constexpr int O_PADDING = 16;
    static __device__ __forceinline__ void store_o(float *o_row, int pair, float2 even, float2 odd, int lane) {
        float4 *quad = reinterpret_cast<float4 *>(o_row + o_column(2 * pair, 0, lane));
        *quad = make_float4(even.x, odd.x, even.y, odd.y);
    }
};

// Stores a warp's results for its rows, from `first_row` of the block, as part `part`: outputs, as mma leaves them, and states, whose
// sums cover only a lane's keys.
template <class Fragment, class Partial, int M_TILES, int D_TILES>
static __device__ __forceinline__ void store_part(Partial &partial, int part, int first_row,
                                                  const float (&o)[M_TILES][D_TILES][4], RowState (&state)[M_TILES][2],
                                                  int lane) {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + m * 16 + half * 8 + lane / 4;
#pragma unroll
            for (int d = 0; d < D_TILES; d += 2) {
                const float2 even = make_float2(o[m][d][2 * half], o[m][d][2 * half + 1]);
                const float2 odd = make_float2(o[m][d + 1][2 * half], o[m][d + 1][2 * half + 1]);
                Fragment::store_o(partial.o[part][row], d / 2, even, odd, lane);
            }
            state[m][half].template join<4>();
            if (lane % 4 == 0) partial.state[part][row] = state[m][half];
        }
    }
}

} // namespace attn
