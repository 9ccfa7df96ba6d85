// One step of the online softmax (Milakov and Gimelshein 2018; FlashAttention) for a row whose scores are spread over
// LANES neighbouring lanes. Works in base 2: exp(x) = exp2(x * log2(e)), with log2(e) folded into the scale.
#pragma once

#include <attn/element.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/ex2.cuh>
#include <attn/ptx/lg2.cuh>
#include <float.h>
#include <type_traits>

namespace attn {

constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// What the scores of a head are multiplied by, in base 2.
static __device__ __forceinline__ float scale_of_scores(const AttentionParams &params, int batch, int head_q, int head_kv) {
    return params.softmax_scale * LOG2_E * scale_of(params.q, params.heads_q, batch, head_q) *
           scale_of(params.k, params.heads_kv, batch, head_kv);
}

// Largest and sum over the LANES lanes that share a row, for each of them.
template <int LANES>
static __device__ __forceinline__ float row_max(float value) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    return value;
}
template <int LANES>
static __device__ __forceinline__ float row_sum(float value) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// From 2^28 on f32 holds a scaled score to no better than 32: the exponential of a row's largest score, under a maximum that is rounded
// so, may be anything from 2^-16 to 2^16, and a half overflows. Scores that differ then differ by at least 16.
static __device__ __forceinline__ bool is_far(float max) { return fabsf(max) >= 268435456.0f; }

// What scores are scaled by instead in a row whose maximum is far: the power of two from `scale_log2` up. Products with it are exact,
// so that the largest exponential is 1; all others are 2^-16 at most under either.
static __device__ __forceinline__ float far_scale(float scale_log2) {
    return __uint_as_float((__float_as_uint(scale_log2) + 0x007fffffu) & 0xff800000u);
}

// scale_log2 / far_scale(scale_log2), exact: exponents subtract.
static __device__ __forceinline__ float far_ratio(float scale_log2) {
    return __uint_as_float(__float_as_uint(scale_log2) - __float_as_uint(far_scale(scale_log2)) + 0x3f800000u);
}

// The running state of one row. No default initialisation: nvcc drops it from arrays of arrays
// (common/docs/nvcc-array-initialisers.md), so that a named function gives every such type its first value.
struct RowState {
    float max; // of score * scale_log2 over the keys seen so far, or of score * far_scale(scale_log2) if it is far; finite
    float sum; // of exp2(score * scale - max) over the keys seen so far, `scale` being that of `max`

    // Of a row that has seen no key. Finite: -inf - -inf would be NaN.
    static __device__ __forceinline__ RowState empty() { return {-FLT_MAX, 0.0f}; }

    // Raises the maximum to `largest`, a tile's largest score, not yet scaled. Returns what the tile's scores are scaled by under it;
    // `rescale`: the factor for sums and outputs so far. `largest` alone decides whether the tile is far: nothing else is on the way
    // from it to the exponentials. Where only one of it and the maximum so far is, the smaller weighs at most 2^-16 under either scale.
    __device__ __forceinline__ float raise(float largest, float scale_log2, float &rescale) {
        const float old_max = max, near = largest * scale_log2, far = largest * far_scale(scale_log2);
        max = fmaxf(max, is_far(near) ? far : near);
        rescale = exp2_approx(old_max - max);
        return is_far(near) ? far_scale(scale_log2) : scale_log2;
    }

    // Turns COUNT raw scores of this lane (-inf where masked) into unnormalised probabilities. Returns the factor for sums and
    // outputs so far.
    template <int LANES, int COUNT>
    __device__ __forceinline__ float update(float (&scores)[COUNT], float scale_log2) {
        const float2 step = exponentials<LANES>(scores, scale_log2);
 ATTN_STEP(SUM);
        sum = fmaf(sum, step.x, row_sum<LANES>(step.y));
        return step.x;
    }

    // The same, but `sum` is only that of this lane's keys until `join` adds up those of the row: two shuffles per row, not per tile.
    template <int LANES, int COUNT>
    __device__ __forceinline__ float update_own(float (&scores)[COUNT], float scale_log2) {
        const float2 step = exponentials<LANES>(scores, scale_log2);
 ATTN_STEP(SUM);
        sum = fmaf(sum, step.x, step.y);
        return step.x;
    }
    template <int LANES>
    __device__ __forceinline__ void join() {
 ATTN_STEP(JOIN);
        sum = row_sum<LANES>(sum);
    }

    // Merges the state of the same row over other keys; `factor` then says what each output is multiplied by.
    __device__ __forceinline__ void merge(const RowState &other) {
 ATTN_STEP(MERGE);
        const float new_max = fmaxf(max, other.max);
        sum = fmaf(sum, exp2_approx(max - new_max), other.sum * exp2_approx(other.max - new_max));
        max = new_max;
    }

    // The factor that takes an output accumulated with the state `part` to this one's, which contains it.
    __device__ __forceinline__ float factor(const RowState &part) const {
 ATTN_STEP(MERGE);
        return exp2_approx(part.max - max);
    }

    // The factor for the output at the end; 0 for a row that saw no key.
    __device__ __forceinline__ float inverse_sum() const { return sum > 0.0f ? __fdividef(1.0f, sum) : 0.0f; }

    // log(sum of exp(score * scale)) over the row's keys; -inf for a row that saw none. For 2^17 keys off by at most 2e-6, where gate
    // C8 allows 1e-5.
    __device__ __forceinline__ float log_sum_exp(float scale_log2) const {
        const float scaled_max = is_far(max) ? max * far_ratio(scale_log2) : max;
        return (scaled_max + log2_approx(sum)) * LN_2;
    }

  private:
    // Scores to probabilities under the new maximum. Returns the factor for what was accumulated under the old one (x)
    // and the sum of this lane's probabilities (y).
    template <int LANES, int COUNT>
    __device__ __forceinline__ float2 exponentials(float (&scores)[COUNT], float scale_log2) {
        constexpr int CHAINS = COUNT % 2 == 0 ? 2 : 1; // of dependent instructions: a single one would mostly wait
        float tile_max[CHAINS];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            tile_max[i % CHAINS] = i < CHAINS ? scores[i] : fmaxf(tile_max[i % CHAINS], scores[i]);
        }
#pragma unroll
        for (int i = 1; i < CHAINS; ++i) tile_max[0] = fmaxf(tile_max[0], tile_max[i]);
        float rescale;
        const float scale = raise(row_max<LANES>(tile_max[0]), scale_log2, rescale);
 ATTN_STEP(EXPONENTIAL);
        float tile_sum[CHAINS] = {};
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            scores[i] = exp2_approx(fmaf(scores[i], scale, -max));
            tile_sum[i % CHAINS] += scores[i];
        }
#pragma unroll
        for (int i = 1; i < CHAINS; ++i) tile_sum[0] += tile_sum[i];
        return make_float2(rescale, tile_sum[0]);
    }
};
static_assert(std::is_trivially_default_constructible_v<RowState>, "empty() says what it starts as");

} // namespace attn
