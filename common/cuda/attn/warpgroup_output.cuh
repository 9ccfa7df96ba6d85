// A warpgroup's output for 64 query rows, on its way out.
#pragma once

#include <attn/block_work.cuh>
#include <attn/launch.h>
#include <attn/wgmma_rows.cuh>

namespace attn {

// O = O / sum, in `o_acc` and through the warp's rows of `tile`, from `warp_row` on, which nobody reads any more.
template <class Element, int HEAD_DIM, int ROWS>
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
    copy_rows(launch.o, tile, warp_row, work.row + warp_row, work.head_q, work.batch);
}

} // namespace attn
