// The end of a block whose warps split the keys: their partial outputs become one.
#pragma once

#include <attn/softmax.cuh>
#include <cuda_fp16.h>
#include <stdint.h>

namespace attn {

// Two floats as two halves, the first in the low half.
static __device__ __forceinline__ uint32_t pack_halves(float low, float high) {
    const __half2_raw pair = __floats2half2_rn(low, high);
    return static_cast<uint32_t>(pair.x) | static_cast<uint32_t>(pair.y) << 16;
}

// What PARTS groups of warps have of the same rows, each from its own keys.
template <int PARTS_, int ROWS_, int HEAD_DIM_>
struct PartialOutput {
    static constexpr int PARTS = PARTS_, ROWS = ROWS_, HEAD_DIM = HEAD_DIM_;

    alignas(16) float o[PARTS][ROWS][HEAD_DIM + 8]; // not yet divided by the sum; 8 floats more: rows in different banks
    RowState state[PARTS][ROWS];
};

// o_gmem[valid_rows][HEAD_DIM] = the merged parts, times `scale`. Each of THREADS threads takes 8 neighbouring elements at
// a time; the caller orders the writes of the parts before.
template <int THREADS, class Partial>
static __device__ __forceinline__ void store_merged(half *o_gmem, int64_t row_stride, int valid_rows, const Partial &partial,
                                                    float scale) {
    constexpr int CHUNKS_PER_ROW = Partial::HEAD_DIM / 8;
#pragma unroll 1
    for (int chunk = threadIdx.x; chunk < Partial::ROWS * CHUNKS_PER_ROW; chunk += THREADS) {
        const int row = chunk / CHUNKS_PER_ROW, col = chunk % CHUNKS_PER_ROW * 8;
        if (row >= valid_rows) break;
        RowState total = partial.state[0][row];
#pragma unroll
        for (int part = 1; part < Partial::PARTS; ++part) total.merge(partial.state[part][row]);
        const float inverse = total.inverse_sum() * scale;
        float o[8] = {};
#pragma unroll
        for (int part = 0; part < Partial::PARTS; ++part) {
            const float factor = inverse * total.factor(partial.state[part][row]);
            const float4 *src = reinterpret_cast<const float4 *>(&partial.o[part][row][col]);
            const float4 low = src[0], high = src[1];
            const float part_o[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int i = 0; i < 8; ++i) o[i] = fmaf(part_o[i], factor, o[i]);
        }
        *reinterpret_cast<uint4 *>(o_gmem + row * row_stride + col) =
            make_uint4(pack_halves(o[0], o[1]), pack_halves(o[2], o[3]), pack_halves(o[4], o[5]), pack_halves(o[6], o[7]));
    }
}

} // namespace attn
