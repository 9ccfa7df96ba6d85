// Epilogue: O of one warp's rows, on its way out.
#pragma once

#include <attn/observe.cuh>
#include <attn/wgmma_rows.cuh>
#include "rows.cuh"

namespace {

// The log-sum-exps of the thread's two rows, `row` and the 8th after it, where they exist, if they are requested.
__device__ __forceinline__ void store_lse(const AttentionServed &served, const Item &item, int head, int row,
                                          const attn::RowState (&state)[2], float scale_log2, int lane) {
    const AttentionParams &params = served.launch.params;
    if (params.lse == nullptr || lane % 4 != 0) return;
    const int64_t first = served.serving.q_starts
                              ? static_cast<int64_t>(head) * served.serving.total_q + item.q_start
                              : (static_cast<int64_t>(item.sequence) * params.heads_q + head) * params.seq_q;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (row + half * 8 < item.lengths.queries) params.lse[first + row + half * 8] = state[half].log_sum_exp(scale_log2);
    }
}

// O of an item, from the products of all its tiles, in the place of the warp's rows of Q, which nobody reads any more; and the copy from
// there to global memory, which goes on while the warp does. Of rows that are followed by another sequence's only the sequence's own are
// copied, by the warp itself. `value_scale`: of V, if it is in E4M3.
template <class Preset>
__device__ __forceinline__ void start_store(const AttentionServed &served, typename Preset::Shared &smem, int slot, int warp, int lane,
                                            float (&o_acc)[Preset::HEAD_DIM / 2], attn::RowState (&state)[2], float scale_log2,
                                            float value_scale) {
    using Element = typename Preset::Element;
    const AttentionLaunch &launch = served.launch;
    const Item item = smem.items[slot];
    const int head = item.head_of(warp), row = item.row_of(warp), o_row = item.q_start + row;
    const int valid = item.lengths.queries - row; // of the 16 rows: those that exist
 ATTN_PLACES(at, item.sequence, head, row + lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
 ATTN_OBSERVE(OUTPUT, at, 0, o_acc);
    const attn::RowState sink = state_of_sink(served, head, scale_log2);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        state[half].template join<4>();
        const attn::RowState keys = state[half];
        state[half].merge(sink);
        // Under a sink far above all scores the weight of the keys is subnormal, which exp2_approx flushes to 0, and bf16 holds
        // outputs down to 2^-133: two roots are normal.
        const float root = attn::exp2_approx(0.5f * (keys.max - state[half].max));
        factor[half] = (Preset::WIDENS ? root * value_scale : root) * state[half].inverse_sum() * root;
    }
    attn::scale_rows(o_acc, factor);
    auto &tile = smem.row_tiles[slot];
    attn::store_rows(tile, warp * 16, o_acc, lane);
    // Each lane makes what it wrote visible to TMA, before one of them starts the copies.
    attn::fence_proxy_async();
    __syncwarp();
    if (valid >= 16 || (valid > 0 && served.serving.q_starts == nullptr)) { // the tensor ends where the sequence does, or behind these rows
        if (attn::elect_one()) {
#pragma unroll
            for (int box = 0; box < Preset::RowTile::BOXES; ++box) {
                attn::tma_store(launch.o, tile.boxes[box] + warp * 16 * 128, box * 64, o_row, head, item.q_batch);
            }
            attn::tma_store_commit();
        }
    } else {
        const int chunks = served.serving.head_dim / 8; // of a row
#pragma unroll 1
        for (int chunk = lane; chunk < valid * chunks; chunk += 32) {
            auto *const o = attn::row_address<typename Element::Storage>(launch.params.o, item.q_batch, head, o_row + chunk / chunks);
            reinterpret_cast<uint4 *>(o)[chunk % chunks] =
                *reinterpret_cast<const uint4 *>(tile.at(warp * 16 + chunk / chunks, chunk % chunks));
        }
        __syncwarp(); // all lanes have read the slot, before one of them frees it
    }
    store_lse(served, item, head, row + lane / 4, state, scale_log2, lane);
}

} // namespace
