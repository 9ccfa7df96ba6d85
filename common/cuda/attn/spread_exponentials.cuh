// Exponentials whose FP32 arithmetic leaves room for wgmma. On an H200 an FFMA or FADD that issues right after another takes a
// cycle from the tensor cores, and ptxas tends to place them so; between exponentials they mostly cost less
// (common/docs/wgmma-and-fp32.md).
#pragma once

#include <attn/softmax.cuh>
#include <stdint.h>

namespace attn {

// As exponentials_of_rows() of <attn/wgmma_rows.cuh>, but 8 scores at a time: the arithmetic of the next 8 waits for the last
// exponential of these.
template <int COUNT>
static __device__ __forceinline__ bool spread_exponentials_of_rows(float (&s)[COUNT], RowState (&state)[2],
                                                                  const float (&scale_log2)[2]) {
    constexpr float LIMIT = 32768.0f;
    constexpr int AT_A_TIME = 8;
 ATTN_STEP(EXPONENTIAL);
    float sum[2][2] = {}; // two chains per row
    float scale[2] = {scale_log2[0], scale_log2[1]};
    const uint32_t zero = threadIdx.y; // blocks are one-dimensional, which ptxas does not know
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        // The same scales again, but known only after the exponential before.
        for (int half = 0; half < 2 && i % AT_A_TIME == 0 && i > 0; ++half) {
            scale[half] = __uint_as_float(__float_as_uint(scale_log2[half]) | (__float_as_uint(s[i - 1]) & zero));
        }
        s[i] = exp2_approx(fmaf(s[i], scale[i % 4 / 2], -state[i % 4 / 2].max));
        sum[i % 4 / 2][i % 2] += s[i];
    }
    const float row_sum[2] = {sum[0][0] + sum[0][1], sum[1][0] + sum[1][1]};
    const bool is_large = fmaxf(row_sum[0], row_sum[1]) > LIMIT;
    if (__any_sync(0xffffffffu, is_large || is_far(state[0].max) || is_far(state[1].max))) return false;
    state[0].sum += row_sum[0];
    state[1].sum += row_sum[1];
    return true;
}

} // namespace attn
