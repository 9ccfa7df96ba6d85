// Epilogue: O of one warp's rows, on its way out.
#pragma once

#include <attn/launch.h>
#include <attn/observe.cuh>
#include <attn/wgmma_rows.cuh>
#include "schedule.cuh"

namespace {

// O of an item, from the products of all its tiles, in the place of the warp's rows of Q, which nobody reads any more; and the copy from
// there to global memory, which goes on while the warp does.
template <class Preset>
__device__ __forceinline__ void start_store(const AttentionLaunch &launch, typename Preset::Shared &smem, int slot, int warp, int lane,
                                            float (&o_acc)[Preset::HEAD_DIM / 2], attn::RowState (&state)[2], float scale_log2) {
    const int batch = smem.items[slot].batch, head_q = smem.items[slot].head_of(warp), row = smem.items[slot].row_of(warp);
 ATTN_PLACES(at, batch, head_q, row + lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
 ATTN_OBSERVE(OUTPUT, at, 0, o_acc);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        state[half].template join<4>();
        factor[half] = state[half].inverse_sum();
    }
    attn::scale_rows(o_acc, factor);
    auto &tile = smem.row_tiles[slot];
    attn::store_rows(tile, warp * 16, o_acc, lane);
    // Each lane makes what it wrote visible to TMA, before one of them starts the copies.
    attn::fence_proxy_async();
    __syncwarp();
    if (attn::elect_one() && row >= 0) { // else they are before the sequence's start, and a store must not begin there
#pragma unroll
        for (int box = 0; box < Preset::RowTile::BOXES; ++box) {
            attn::tma_store(launch.o, tile.boxes[box] + warp * 16 * 128, box * 64, row, head_q, batch);
        }
        attn::tma_store_commit();
    }
    if (row >= 0) attn::store_lse_rows(launch.params, batch, head_q, row + lane / 4, state, scale_log2, lane);
}

} // namespace
