// The schedule of stage 14, without its kernel, by a warp for each block: (sequences, query heads, key heads, left window), causal. in[0]
// has the starts of the queries, in[1] those of the keys. out[0] has what each block computes, in products of 64 rows and a tile of keys,
// then how often each row of each head, packed one after the other, was taken.
#include "kernel.h"

#include "../../../../stage14-served/schedule.cuh"

namespace {

// What a schedule asks of a preset: 128 rows of two warpgroups, 128 keys.
struct Tiles {
    static constexpr int CONSUMERS = 2, WARPS = 8, BLOCK_M = 128, BLOCK_N = 128;
};

} // namespace

KERNEL(served_schedule) {
    AttentionServed problem = {};
    AttentionParams &of = problem.launch.params;
    AttentionServing &serving = problem.serving;
    of.batch = params->n[0];
    of.heads_q = params->n[1];
    of.heads_kv = params->n[2];
    of.mask = ATTENTION_CAUSAL;
    serving.window_left = params->n[3];
    serving.window_right = -1;
    serving.q_starts = in<int32_t>(params);
    serving.kv_starts = in<int32_t>(params, 1);
    for (int sequence = 0; sequence < of.batch; ++sequence) {
        of.seq_q = max(of.seq_q, lengths_of(problem, sequence).queries);
        of.seq_kv = max(of.seq_kv, lengths_of(problem, sequence).keys);
    }
    const int total = serving.q_starts[of.batch], lane = threadIdx.x;
    auto *const products = out<int32_t>(params), *const taken = products + gridDim.x;
    auto schedule = Schedule<Tiles>::start(problem, lane);
    for (int round = 0;; ++round) {
        const Found found = schedule.find(problem, index_of_round(round), lane);
        if (found.sequence == Found::NO_MORE) break;
        if (lane != 0) continue;
        const Item item = schedule.item_of(problem, found);
        int warps = 0; // up to the last that has a row
        for (int warp = 0; warp < Tiles::WARPS; ++warp) {
            for (int row = item.row_of(warp); row < min(item.row_of(warp) + 16, item.lengths.queries); ++row) {
                warps = warp + 1;
                ++taken[item.head_of(warp) * total + item.q_start + row];
            }
        }
        products[blockIdx.x] += (warps + 3) / 4 * item.key_tiles;
    }
}
