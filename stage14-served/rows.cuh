// What a problem as served has beside stage 13's: rows that see a range of keys, scores that are capped, and sinks.
#pragma once

#include <attn/observe.cuh>
#include <attn/wgmma_rows.cuh>
#include "schedule.cuh"

namespace {

// -inf for the keys, from `first_key`, that the thread's two rows do not see. `lane`: of the warp.
template <int COUNT>
__device__ __forceinline__ void mask_row_ranges(float (&s)[COUNT], int first_key, const KeyRange (&range)[2], int lane) {
 ATTN_STEP(MASK);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int key = first_key + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (key < range[i % 4 / 2].begin || key >= range[i % 4 / 2].end) s[i] = -INFINITY;
    }
}

// Scores to their hyperbolic tangents, of `scale` times each: from -1 to 1, where softcap is what the softmax then scales by. By an
// exponential and a quotient, whose error is some 2^-22; that of tanh.approx would be 2^-11, of a score that may be 50.
template <int COUNT>
__device__ __forceinline__ void cap_scores(float (&s)[COUNT], float scale) {
    const float scale_log2 = 2 * attn::LOG2_E * scale;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) s[i] = 1.0f - __fdividef(2.0f, 1.0f + attn::exp2_approx(s[i] * scale_log2));
}

// A row of `head` that has seen no key. A sink is one that all rows see, and that adds nothing to the output: one of the lanes that share
// the row has it in its sum. A sink of -inf is none.
__device__ __forceinline__ attn::RowState first_state(const AttentionServed &served, int head, float scale_log2, int lane) {
    if (served.serving.sinks == nullptr) return attn::RowState::empty();
    float max = served.serving.sinks[head] * attn::LOG2_E;
    if (attn::is_far(max)) max = __fdividef(max, attn::far_ratio(scale_log2)); // as RowState has those
    if (max < -FLT_MAX) return attn::RowState::empty();
    return {max, lane % 4 == 0 ? 1.0f : 0.0f};
}

} // namespace
