// A warpgroup's output for 64 query rows, on its way out.
#pragma once

#include <attn/block_work.cuh>
#include <attn/launch.h>
#include <attn/packed_rows.cuh>
#include <attn/wgmma_rows.cuh>

namespace attn {

// O = O / sum, in `o_acc` and through the warp's rows of `tile`, from `warp_row` on, which nobody reads any more.
template <bool PACKED = false, class Element, int HEAD_DIM, int ROWS>
static __device__ __forceinline__ void store_output(const AttentionLaunch &launch, const Work &work,
                                                    BoxTile<Element, HEAD_DIM, ROWS> &tile, int warp_row,
                                                    float (&o_acc)[HEAD_DIM / 2], RowState (&state)[2], int lane) {
    const float scale = scale_of(launch.params.v, launch.params.heads_kv, work.batch, work.head_kv);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        state[half].template join<4>();
        factor[half] = state[half].inverse_sum() * scale;
    }
    scale_rows(o_acc, factor);
    store_rows(tile, warp_row, o_acc, lane);
    if constexpr (PACKED) copy_packed_rows(launch.params, work, tile, warp_row, lane);
    else copy_rows(launch.o, tile, warp_row, work.row + warp_row, work.head_q, work.batch);
}

// The log-sum-exps of a thread's two rows, `row` and the 8th after it, if they are requested. Called last, so that no output waits
// for a logarithm.
template <bool PACKED>
static __device__ __forceinline__ void store_lse_rows(const AttentionParams &params, const Work &work, int row,
                                                      const RowState (&state)[2], const float (&scale_log2)[2], int lane) {
    // By shuffle, so that queries and heads, which take divisions, are found again rather than kept in registers all along.
    if constexpr (PACKED) row = __shfl_sync(0xffffffffu, row, lane);
    if (lane % 4 != 0) return;
    const Row first = work.at(row);
    store_lse(params, work.batch, first.head, first.query, state[0], scale_log2[0]);
    const Row second = work.at(row + 8);
    store_lse(params, work.batch, second.head, second.query, state[1], scale_log2[1]);
}

} // namespace attn
