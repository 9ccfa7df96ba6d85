// What a problem as served has beside stage 13's: rows that see a range of keys, scores that are capped, and sinks.
#pragma once

#include <attn/observe.cuh>
#include <attn/wgmma_rows.cuh>
#include "schedule.cuh"

namespace {

// Of the rows of a consumer, of four warps: the first query, and the last one that exists.
struct Queries {
    int first, last;
};
__device__ __forceinline__ Queries queries_of(const Item &item, int consumer) {
    const int first = item.row_of(consumer * 4), rows = max(16, 64 >> item.heads_log);
    return {first, min(first + rows, item.lengths.queries) - 1};
}
// Keys that any of them sees: none, if no row exists.
__device__ __forceinline__ KeyRange keys_of_any_row(const AttentionServed &served, const Item &item, int consumer) {
    const Queries queries = queries_of(item, consumer);
    if (queries.first > queries.last) return {0, 0};
    return {keys_of_query(served, item.lengths, queries.first).begin, keys_of_query(served, item.lengths, queries.last).end};
}
// Keys that all of them see. There is a row.
__device__ __forceinline__ KeyRange keys_of_all_rows(const AttentionServed &served, const Item &item, int consumer) {
    const Queries queries = queries_of(item, consumer);
    return {keys_of_query(served, item.lengths, queries.last).begin, keys_of_query(served, item.lengths, queries.first).end};
}

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

// Products with zeros take less power. Of a warp's 16 rows, `rows` of which exist, these make zeros of the others' queries, and give the
// thread's two rows their first state, in which the others' probabilities are zeros, too: their scores are zeros, and their maximum is not.
__device__ __forceinline__ void clear_queries(uint32_t (&q_frag)[4], int rows, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (lane / 4 + i % 2 * 8 >= rows) q_frag[i] = 0;
    }
}
__device__ __forceinline__ void clear_states(attn::RowState (&state)[2], int rows, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        state[half] = attn::RowState::empty();
        if (lane / 4 + half * 8 >= rows) state[half].max = 65536.0f;
    }
}

// As attn::exponentials_of_rows(). Where only the first 8 of the warp's 16 rows exist, as in decoding, half of the exponentials are left.
template <int COUNT>
__device__ __forceinline__ bool probabilities_of_rows(float (&s)[COUNT], attn::RowState (&state)[2], const float (&scale_log2)[2],
                                                      int rows) {
    if (rows > 8) return attn::exponentials_of_rows(s, state, scale_log2);
    constexpr float LIMIT = 32768.0f; // as there
 ATTN_STEP(EXPONENTIAL);
    float sum[2] = {}; // two chains
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (i % 4 < 2) {
            s[i] = attn::exp2_approx(fmaf(s[i], scale_log2[0], -state[0].max));
            sum[i % 2] += s[i];
        } else {
            s[i] = 0.0f;
        }
    }
    const float row_sum = sum[0] + sum[1];
    if (__any_sync(0xffffffffu, row_sum > LIMIT || attn::is_far(state[0].max))) return false;
    state[0].sum += row_sum;
    return true;
}

// Scores to their hyperbolic tangents, of `scale` times each: from -1 to 1, where softcap is what the softmax then scales by. By an
// exponential and a quotient, whose error is some 2^-22; that of tanh.approx would be 2^-11, of a score that may be 50.
template <int COUNT>
__device__ __forceinline__ void cap_scores(float (&s)[COUNT], float scale) {
    const float scale_log2 = 2 * attn::LOG2_E * scale;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) s[i] = 1.0f - __fdividef(2.0f, 1.0f + attn::exp2_approx(s[i] * scale_log2));
}

// The state of a row that has seen nothing but its head's sink: a key that all rows see, and that adds nothing to the output. `state` is
// merged with it when a row's keys are summed up. As the first maximum of the loop it would make small numbers of the probabilities, and
// those of a half lose bits: under a sink 40 above the scores they would be zeros.
__device__ __forceinline__ attn::RowState state_of_sink(const AttentionServed &served, int head, float scale_log2) {
    if (served.serving.sinks == nullptr) return attn::RowState::empty();
    float max = served.serving.sinks[head] * attn::LOG2_E;
    if (attn::is_far(max)) max = __fdividef(max, scale_log2) * attn::far_scale(scale_log2); // as RowState has those
    if (max < -FLT_MAX) return attn::RowState::empty(); // -inf is none
    return {max, 1.0f};
}

} // namespace
