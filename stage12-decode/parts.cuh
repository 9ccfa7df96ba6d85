// Results of several parts of the keys for the same rows, as they lie in shared memory, and how they are merged.
#pragma once

#include <attn/softmax.cuh>
#include <stdint.h>

namespace {

__device__ __forceinline__ uint4 bits(float a, float b, float c, float d) {
    return make_uint4(__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d));
}

// What COUNT parts of the keys have for the same rows: of each pair of rows, 8 apart, maxima and sums, and of each octet of columns
// what four lanes have, two of each row.
template <int COUNT, int OCTETS, int PAIRS>
struct Parts {
    uint4 states[COUNT][PAIRS], o[COUNT][OCTETS][PAIRS][4];

    // The state of one of a pair of rows over all parts, and the factors for their outputs.
    __device__ __forceinline__ attn::RowState total(float (&factor)[COUNT][2], int pair, int half) const {
        attn::RowState total = attn::RowState::empty(), other[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const uint4 sent = states[i][pair];
            other[i] = {__uint_as_float(half == 0 ? sent.x : sent.z), __uint_as_float(half == 0 ? sent.y : sent.w)};
            total.max = fmaxf(total.max, other[i].max);
        }
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            factor[i][half] = total.factor(other[i]);
            total.sum = fmaf(other[i].sum, factor[i][half], total.sum);
        }
        return total;
    }

    // The outputs in the order of the parts, each times its factor.
    __device__ __forceinline__ void merge(float (&merged)[4], const float (&factor)[COUNT][2], int octet, int pair, int lane) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const uint4 sent = o[i][octet][pair][lane % 4];
            const uint32_t words[4] = {sent.x, sent.y, sent.z, sent.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) merged[j] = fmaf(__uint_as_float(words[j]), factor[i][j / 2], i == 0 ? 0.0f : merged[j]);
        }
    }
};

} // namespace
