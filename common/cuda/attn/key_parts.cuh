// Keys split over warpgroups that have the same query rows: their outputs are merged.
#pragma once

#include <attn/softmax.cuh>

namespace attn {

// A warpgroup's results from its part of the keys, as they lie in its threads' registers: COUNT elements of O, not yet divided by
// the sum, and the states of two rows. The same thread of another warpgroup merges them; the caller orders the two.
template <int COUNT>
struct KeyPart {
    float o[COUNT][128]; // neighbouring threads in neighbouring banks
    RowState state[2][128];

    __device__ __forceinline__ void put(const float (&o_acc)[COUNT], const RowState (&own)[2], int thread) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) o[i][thread] = o_acc[i];
#pragma unroll
        for (int half = 0; half < 2; ++half) state[half][thread] = own[half];
    }

    // Adds this part to `o_acc` and `own`, which are of other keys.
    __device__ __forceinline__ void merge_into(float (&o_acc)[COUNT], RowState (&own)[2], int thread) const {
        float own_factor[2], factor[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const RowState part = state[half][thread];
            RowState total = own[half];
            total.merge(part);
            own_factor[half] = total.factor(own[half]);
            factor[half] = total.factor(part);
            own[half] = total;
        }
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int half = i % 4 / 2; // as wgmma leaves them
            o_acc[i] = fmaf(o_acc[i], own_factor[half], o[i][thread] * factor[half]);
        }
    }
};

} // namespace attn
