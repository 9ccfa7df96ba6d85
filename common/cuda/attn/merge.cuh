// The end of a block whose warps split the keys: their partial outputs are merged.
#pragma once

#include <attn/element.cuh>
#include <attn/softmax.cuh>
#include <stdint.h>

namespace attn {

// Results of PARTS groups of warps for the same rows, each from its own keys. PADDING: floats behind a row, so that rows that a warp
// writes at once lie in different banks.
template <int PARTS_, int ROWS_, int HEAD_DIM_, int PADDING>
struct PartialOutput {
    static constexpr int PARTS = PARTS_, ROWS = ROWS_, HEAD_DIM = HEAD_DIM_;

    alignas(16) float o[PARTS][ROWS][HEAD_DIM + PADDING]; // not yet divided by the sum
    RowState state[PARTS][ROWS];

    // Of all keys of a row.
    __device__ __forceinline__ RowState total(int row) const {
        RowState total = state[0][row];
#pragma unroll
        for (int part = 1; part < PARTS; ++part) total.merge(state[part][row]);
        return total;
    }
};

// o_gmem[valid_rows, HEAD_DIM] = the merged parts, times `scale`, by THREADS threads, `thread` being the caller. The caller orders
// the writes of the parts before.
template <int THREADS, class Operand = F16, class Partial>
static __device__ __forceinline__ void store_merged(typename Operand::Storage *o_gmem, int64_t row_stride, int valid_rows,
                                                    const Partial &partial, float scale, int thread) {
    constexpr int QUADS_PER_ROW = Partial::HEAD_DIM / 4;
#pragma unroll 1
    for (int quad = thread; quad < Partial::ROWS * QUADS_PER_ROW; quad += THREADS) {
        const int row = quad / QUADS_PER_ROW, col = quad % QUADS_PER_ROW * 4;
        if (row >= valid_rows) break;
        const RowState total = partial.total(row);
        const float inverse = total.inverse_sum() * scale;
        float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int part = 0; part < Partial::PARTS; ++part) {
            const float factor = inverse * total.factor(partial.state[part][row]);
            const float4 part_o = *reinterpret_cast<const float4 *>(&partial.o[part][row][col]);
            o = make_float4(fmaf(part_o.x, factor, o.x), fmaf(part_o.y, factor, o.y), fmaf(part_o.z, factor, o.z),
                            fmaf(part_o.w, factor, o.w));
        }
        *reinterpret_cast<uint2 *>(o_gmem + row * row_stride + col) =
            make_uint2(Operand::pack(o.x, o.y), Operand::pack(o.z, o.w));
    }
}

// The log-sum-exp of a row whose keys are all in `state`, if it is requested and the row exists.
static __device__ __forceinline__ void store_lse(const AttentionParams &params, int batch, int head, int row,
                                                 const RowState &state, float scale_log2) {
    if (params.lse == nullptr || row >= params.seq_q) return;
    params.lse[(static_cast<int64_t>(batch) * params.heads_q + head) * params.seq_q + row] = state.log_sum_exp(scale_log2);
}

// The same of merged parts, whose first row is `first_row`, by THREADS threads.
template <int THREADS, class Partial>
static __device__ __forceinline__ void store_merged_lse(const AttentionParams &params, int batch, int head, int first_row,
                                                        const Partial &partial, float scale_log2, int thread) {
    if (params.lse == nullptr) return;
#pragma unroll 1
    for (int row = thread; row < Partial::ROWS; row += THREADS) {
        store_lse(params, batch, head, first_row + row, partial.total(row), scale_log2);
    }
}

} // namespace attn
