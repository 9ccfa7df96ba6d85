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

// What PARTS groups of warps have of the same rows, each from its own keys. Rows are PADDING floats longer than the head,
// so that those which a warp writes at a time lie in different banks.
template <int PARTS_, int ROWS_, int HEAD_DIM_, int PADDING>
struct PartialOutput {
    static constexpr int PARTS = PARTS_, ROWS = ROWS_, HEAD_DIM = HEAD_DIM_;

    alignas(16) float o[PARTS][ROWS][HEAD_DIM + PADDING]; // not yet divided by the sum
    RowState state[PARTS][ROWS];
};

// o_gmem[valid_rows][HEAD_DIM] = the merged parts, times `scale`. Each of THREADS threads, `thread` being the caller, takes 4
// neighbouring elements at a time; the caller orders the writes of the parts before.
template <int THREADS, class Partial>
static __device__ __forceinline__ void store_merged(half *o_gmem, int64_t row_stride, int valid_rows, const Partial &partial,
                                                    float scale, int thread) {
    constexpr int QUADS_PER_ROW = Partial::HEAD_DIM / 4;
#pragma unroll 1
    for (int quad = thread; quad < Partial::ROWS * QUADS_PER_ROW; quad += THREADS) {
        const int row = quad / QUADS_PER_ROW, col = quad % QUADS_PER_ROW * 4;
        if (row >= valid_rows) break;
        RowState total = partial.state[0][row];
#pragma unroll
        for (int part = 1; part < Partial::PARTS; ++part) total.merge(partial.state[part][row]);
        const float inverse = total.inverse_sum() * scale;
        float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int part = 0; part < Partial::PARTS; ++part) {
            const float factor = inverse * total.factor(partial.state[part][row]);
            const float4 part_o = *reinterpret_cast<const float4 *>(&partial.o[part][row][col]);
            o = make_float4(fmaf(part_o.x, factor, o.x), fmaf(part_o.y, factor, o.y), fmaf(part_o.z, factor, o.z),
                            fmaf(part_o.w, factor, o.w));
        }
        *reinterpret_cast<uint2 *>(o_gmem + row * row_stride + col) = make_uint2(pack_halves(o.x, o.y), pack_halves(o.z, o.w));
    }
}

} // namespace attn
