// One step of the online softmax (Milakov and Gimelshein 2018; FlashAttention) for a row whose scores are spread over
// LANES neighbouring lanes. Works in base 2: exp(x) = exp2(x * log2(e)), with log2(e) folded into the scale.
#pragma once

namespace attn {

constexpr float LOG2_E = 1.4426950408889634f;

// Largest and sum over the LANES lanes that share a row; every one of them gets the result.
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

// The running state of one row, the same in each of its lanes.
struct RowState {
    float max = -INFINITY; // of score * scale_log2 over the keys seen so far; -inf before the first visible key
    float sum = 0.0f;      // of exp2(score * scale_log2 - max) over the keys seen so far

    // Takes COUNT raw scores of this lane (-inf where masked) and turns them into unnormalised probabilities. Returns
    // the factor by which sums and outputs accumulated so far must be multiplied.
    template <int LANES, int COUNT>
    __device__ __forceinline__ float update(float (&scores)[COUNT], float scale_log2) {
        float tile_max = scores[0];
#pragma unroll
        for (int i = 1; i < COUNT; ++i) tile_max = fmaxf(tile_max, scores[i]);
        const float new_max = fmaxf(max, row_max<LANES>(tile_max) * scale_log2);
        // A row without a visible key so far has max -inf, and -inf - -inf is NaN: any finite shift gives zeros.
        const float shift = new_max == -INFINITY ? 0.0f : new_max;
        const float rescale = exp2f(max - shift);
        float tile_sum = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            scores[i] = exp2f(fmaf(scores[i], scale_log2, -shift));
            tile_sum += scores[i];
        }
        sum = fmaf(sum, rescale, row_sum<LANES>(tile_sum));
        max = new_max;
        return rescale;
    }

    // Takes in the state of the same row over other keys. Returns the factors by which the outputs accumulated so far,
    // the own (x) and the other (y), must be multiplied before they are added.
    __device__ __forceinline__ float2 merge(const RowState &other) {
        const float new_max = fmaxf(max, other.max);
        const float shift = new_max == -INFINITY ? 0.0f : new_max;
        const float2 factors = make_float2(exp2f(max - shift), exp2f(other.max - shift));
        sum = fmaf(sum, factors.x, other.sum * factors.y);
        max = new_max;
        return factors;
    }

    // What the accumulated output is multiplied by at the end; 0 for a row that saw no key, whose output is exactly 0.
    __device__ __forceinline__ float inverse_sum() const { return sum > 0.0f ? 1.0f / sum : 0.0f; }
};

} // namespace attn
