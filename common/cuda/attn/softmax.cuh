// One step of the online softmax (Milakov and Gimelshein 2018; FlashAttention) for a row whose scores are spread over
// LANES neighbouring lanes. Works in base 2: exp(x) = exp2(x * log2(e)), with log2(e) folded into the scale.
#pragma once

#include <attn/observe.cuh>
#include <attn/ptx/ex2.cuh>
#include <attn/ptx/lg2.cuh>
#include <type_traits>

namespace attn {

constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

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

// A row without a visible key so far has maximum -inf, and -inf - -inf is NaN: any finite shift gives zeros.
static __device__ __forceinline__ float shift_of(float max) { return max == -INFINITY ? 0.0f : max; }

// Whether f32 holds a maximum to no better than 1: the exponential of the largest score under it may then be anything up to 2
// to the power of what it was rounded by, unless the largest is subtracted from scores before they are scaled.
static __device__ __forceinline__ bool is_far(float max) { return fabsf(max) >= 16777216.0f; }

// The running state of one row. No default initialisation: nvcc drops it from arrays of arrays
// (common/docs/nvcc-array-initialisers.md), so that a named function gives every such type its first value.
struct RowState {
    float max; // of score * scale_log2 over the keys seen so far; -inf before the first visible key
    float sum; // of exp2(score * scale_log2 - max) over the keys seen so far

    // Of a row that has seen no key.
    static __device__ __forceinline__ RowState empty() { return {-INFINITY, 0.0f}; }

    // Turns COUNT raw scores of this lane (-inf where masked) into unnormalised probabilities. Returns the factor for sums and
    // outputs so far.
    template <int LANES, int COUNT>
    __device__ __forceinline__ float update(float (&scores)[COUNT], float scale_log2) {
        float rescale, own;
        exponentials<LANES, 1>(this, &scores, &scale_log2, &rescale, &own);
 ATTN_STEP(SUM);
        sum = fmaf(sum, rescale, row_sum<LANES>(own));
        return rescale;
    }

    // The same for several rows at once, but `sum` is only that of this lane's keys until `join` adds up those of the row: two
    // shuffles per row, instead of two per row and tile.
    template <int LANES, int ROWS, int COUNT>
    static __device__ __forceinline__ void update_own(RowState (&rows)[ROWS], float (&scores)[ROWS][COUNT],
                                                      const float (&scale_log2)[ROWS], float (&rescale)[ROWS]) {
        float own[ROWS];
        exponentials<LANES, ROWS>(rows, scores, scale_log2, rescale, own);
 ATTN_STEP(SUM);
#pragma unroll
        for (int row = 0; row < ROWS; ++row) rows[row].sum = fmaf(rows[row].sum, rescale[row], own[row]);
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
        const float shift = shift_of(new_max);
        sum = fmaf(sum, exp2_approx(max - shift), other.sum * exp2_approx(other.max - shift));
        max = new_max;
    }

    // The factor that takes an output accumulated with the state `part` to this one's, which contains it.
    __device__ __forceinline__ float factor(const RowState &part) const {
 ATTN_STEP(MERGE);
        return exp2_approx(part.max - shift_of(max));
    }

    // The factor for the output at the end; 0 for a row that saw no key.
    __device__ __forceinline__ float inverse_sum() const { return sum > 0.0f ? __fdividef(1.0f, sum) : 0.0f; }

    // log(sum of exp(score * scale)) over the row's keys; -inf for a row that saw none. For 2^17 keys off by at most 2e-6, where gate
    // C8 allows 1e-5.
    __device__ __forceinline__ float log_sum_exp() const { return (max + log2_approx(sum)) * LN_2; }

  private:
    // Scores to probabilities under the new maxima. `rescale`: the factors for what was accumulated under the old ones;
    // `own`: the sums of this lane's probabilities.
    template <int LANES, int ROWS, int COUNT>
    static __device__ __forceinline__ void exponentials(RowState *rows, float (*scores)[COUNT], const float *scale_log2,
                                                        float *rescale, float *own) {
        constexpr int CHAINS = COUNT % 2 == 0 ? 2 : 1; // of dependent instructions: a single one would mostly wait
        float largest[ROWS], shift[ROWS];
        bool any_far = false; // one branch for all rows and lanes: each would end what ptxas schedules together
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            float tile_max[CHAINS];
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                tile_max[i % CHAINS] = i < CHAINS ? scores[row][i] : fmaxf(tile_max[i % CHAINS], scores[row][i]);
            }
#pragma unroll
            for (int i = 1; i < CHAINS; ++i) tile_max[0] = fmaxf(tile_max[0], tile_max[i]);
            largest[row] = row_max<LANES>(tile_max[0]);
            const float new_max = fmaxf(rows[row].max, __fmul_rn(largest[row], scale_log2[row]));
            shift[row] = shift_of(new_max);
            rescale[row] = exp2_approx(rows[row].max - shift[row]);
            rows[row].max = new_max;
            any_far |= is_far(shift[row]);
        }
        const auto exponentiate = [&] {
 ATTN_STEP(EXPONENTIAL);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                float tile_sum[CHAINS] = {};
#pragma unroll
                for (int i = 0; i < COUNT; ++i) {
                    scores[row][i] = exp2_approx(fmaf(scores[row][i], scale_log2[row], -shift[row]));
                    tile_sum[i % CHAINS] += scores[row][i];
                }
#pragma unroll
                for (int i = 1; i < CHAINS; ++i) tile_sum[0] += tile_sum[i];
                own[row] = tile_sum[0];
            }
        };
        if (__any_sync(0xffffffffu, any_far)) {
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                const float origin = shift_of(largest[row]);
#pragma unroll
                for (int i = 0; i < COUNT; ++i) scores[row][i] -= origin;
                shift[row] -= __fmul_rn(origin, scale_log2[row]);
            }
            if constexpr (ROWS > 1) return exponentiate(); // a copy: where both ways share one, ptxas spills in stage 7
        }
        exponentiate();
    }
};
static_assert(std::is_trivially_default_constructible_v<RowState>, "empty() says what it starts as");

} // namespace attn
