// Scores and output of a warpgroup as wgmma leaves them: of D[64, N], thread t has elements of row 16 * (t / 32) + t % 32 / 4 and of
// the 8th after it, two of every 8 columns; element i of its array is of row i % 4 / 2 of these two.
#pragma once

#include <attn/box_tile.cuh>
#include <attn/fragment.cuh>
#include <attn/merge.cuh>
#include <attn/observe.cuh>
#include <attn/ptx/stmatrix.cuh>

namespace attn {

// -inf for the keys, from `first_key`, that the thread's rows do not see. `lane`: of the warp.
template <int COUNT>
static __device__ __forceinline__ void mask_rows(float (&s)[COUNT], int first_key, const int (&visible)[2], int lane) {
 ATTN_STEP(MASK);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int key = first_key + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (key >= visible[i % 4 / 2]) s[i] = -INFINITY;
    }
}

// Scores to exponentials under the new maxima of their rows. `rescale`: the factors for outputs so far.
template <int COUNT>
static __device__ __forceinline__ void softmax_rows(float (&s)[COUNT], RowState (&state)[2], const float (&scale_log2)[2],
                                                    float (&rescale)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float p[COUNT / 2]; // of one row
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) p[i] = s[i / 2 * 4 + 2 * half + i % 2];
        rescale[half] = state[half].update_own<4>(p, scale_log2[half]);
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) s[i / 2 * 4 + 2 * half + i % 2] = p[i];
    }
}
template <int COUNT>
static __device__ __forceinline__ void softmax_rows(float (&s)[COUNT], RowState (&state)[2], float scale_log2,
                                                    float (&rescale)[2]) {
    softmax_rows(s, state, {scale_log2, scale_log2}, rescale);
}

// The same under the maxima that the rows had before: nothing waits for new ones, and outputs stay as they are. False, with the sums
// as they were and the scores lost, if in some row of the warp the maximum is far or an exponential may be too large for a half: a thread's part of a
// row's sum bounds each of its terms. Likewise if a lane says that its scores are not exact enough.
template <int COUNT>
static __device__ __forceinline__ bool exponentials_of_rows(float (&s)[COUNT], RowState (&state)[2],
                                                            const float (&scale_log2)[2], bool is_inexact = false) {
    constexpr float LIMIT = 32768.0f;
 ATTN_STEP(EXPONENTIAL);
    float sum[2][2] = {}; // two chains per row
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        s[i] = exp2_approx(fmaf(s[i], scale_log2[i % 4 / 2], -state[i % 4 / 2].max));
        sum[i % 4 / 2][i % 2] += s[i];
    }
    const float row_sum[2] = {sum[0][0] + sum[0][1], sum[1][0] + sum[1][1]};
    const bool is_large = fmaxf(row_sum[0], row_sum[1]) > LIMIT;
    if (__any_sync(0xffffffffu, is_large || is_inexact || is_far(state[0].max) || is_far(state[1].max))) return false;
    state[0].sum += row_sum[0];
    state[1].sum += row_sum[1];
    return true;
}

// The larger of `largest` and the scores of one of the thread's two rows.
template <int COUNT>
static __device__ __forceinline__ float row_max_of(const float (&s)[COUNT], int half, float largest) {
    float chain[2] = {largest, largest}; // of dependent instructions: a single one would mostly wait
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) chain[i % 2] = fmaxf(chain[i % 2], s[i / 2 * 4 + 2 * half + i % 2]);
    return fmaxf(chain[0], chain[1]);
}

// Scores to exponentials under the rows' maxima, at the scale of each row. They are added to `sum`, two chains per row.
template <int COUNT>
static __device__ __forceinline__ void exponentials_of_rows(float (&s)[COUNT], const float (&scale)[2], const RowState (&state)[2],
                                                            float (&sum)[2][2]) {
 ATTN_STEP(EXPONENTIAL);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        s[i] = exp2_approx(fmaf(s[i], scale[i % 4 / 2], -state[i % 4 / 2].max));
        sum[i % 4 / 2][i % 2] += s[i];
    }
}

template <int COUNT>
static __device__ __forceinline__ void scale_rows(float (&o)[COUNT], const float (&factor)[2]) {
 ATTN_STEP(RESCALE);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) o[i] *= factor[i % 4 / 2];
}

// D, rounded, as the first operand of the next product: the columns 0 to 7 and 8 to 15 are the halves of one of 16.
template <class Operand, int COUNT>
static __device__ __forceinline__ void round_rows(uint32_t (&p)[COUNT / 8][4], const float (&s)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) p[i / 4][i % 4] = Operand::pack(s[2 * i], s[2 * i + 1]);
}

// Writes the warp's 16 rows, from `row` of the tile on, rounded.
template <class Operand, int HEAD_DIM, int ROWS>
static __device__ __forceinline__ void store_rows(BoxTile<Operand, HEAD_DIM, ROWS> &tile, int row,
                                                  const float (&o)[HEAD_DIM / 2], int lane) {
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 8; d += 2) {
        uint32_t pairs[4]; // rows 0 to 7 and 8 to 15 of 8 columns, and of the next 8
#pragma unroll
        for (int i = 0; i < 4; ++i) pairs[i] = Operand::pack(o[4 * d + 2 * i], o[4 * d + 2 * i + 1]);
        stmatrix_x4(tile.at(row + lane % 16, d + lane / 16), pairs);
    }
}

// Copies what the warp has just written, 16 rows from `row` of the tile on, by TMA to rows of O from `o_row` on.
template <class Element, int HEAD_DIM, int ROWS>
static __device__ __forceinline__ void copy_rows(const AttentionTensorMap &o, BoxTile<Element, HEAD_DIM, ROWS> &tile, int row,
                                                 int o_row, int head, int batch) {
    // Each lane makes what it wrote visible to TMA, before one of them starts the copies.
    fence_proxy_async();
    __syncwarp();
    if (elect_one()) {
#pragma unroll
        for (int box = 0; box < BoxTile<Element, HEAD_DIM, ROWS>::BOXES; ++box) {
            tma_store(o, tile.boxes[box] + row * 128, box * 64, o_row, head, batch);
        }
        tma_store_commit();
        tma_store_wait_read<0>(); // shared memory lives as long as the block
    }
}

// s = q · kᵀ for the 16 rows from `row` by one warp alone, with mma.sync; wgmma would take all four.
template <class Operand, int HEAD_DIM, int Q_ROWS, int KEYS>
static __device__ __forceinline__ void warp_scores(float (&s)[KEYS / 2], BoxTile<Operand, HEAD_DIM, Q_ROWS> &q, int row,
                                                   BoxTile<Operand, HEAD_DIM, KEYS> &k) {
    // By shuffle, so that addresses are not hoisted out of a surrounding loop.
    const int lane = __shfl_sync(0xffffffffu, threadIdx.x % 32, threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) s[i] = 0.0f;
#pragma unroll 1 // registers are short where this is needed
    for (int step = 0; step < HEAD_DIM / 16; ++step) {
        uint32_t q_frag[4];
        ldmatrix_x4(q_frag, q.at(row + lane % 16, 2 * step + lane / 16));
#pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) {
            uint32_t k_frag[4]; // [16][16]: two mma wide
            ldmatrix_x4(k_frag, k.at(n * 8 + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float d[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) d[j] = s[4 * (n + i) + j];
                mma<Operand>(d, q_frag, k_frag[2 * i], k_frag[2 * i + 1]);
#pragma unroll
                for (int j = 0; j < 4; ++j) s[4 * (n + i) + j] = d[j];
            }
        }
    }
}

// The log-sum-exps of a thread's two rows, `row` and the 8th after it, if they are requested. Called last, so that no output waits
// for a logarithm.
static __device__ __forceinline__ void store_lse_rows(const AttentionParams &params, int batch, int head, int row,
                                                      const RowState (&state)[2], float scale_log2, int lane) {
    if (lane % 4 != 0) return;
    store_lse(params, batch, head, row, state[0], scale_log2);
    store_lse(params, batch, head, row + 8, state[1], scale_log2);
}

} // namespace attn
