// Scores of E4M3 on FP8 tensor cores: wgmma multiplies codes of Q and K as they land, 32 columns at a time.
#pragma once

#include <attn/box_tile.cuh>
#include <attn/fp8_sums.cuh>
#include <attn/fragment.cuh>
#include <attn/ptx/wgmma.cuh>
#include <attn/wgmma_tile.cuh>

namespace attn {

// Descriptor of rows from `row` (a multiple of 8) and columns 32 * step to 32 * step + 31, K-major.
template <int HEAD_DIM, int ROWS>
static __device__ __forceinline__ uint64_t k_major(const BoxTile<E4M3, HEAD_DIM, ROWS> &tile, int row, int step) {
    constexpr int WIDTH = BoxTile<E4M3, HEAD_DIM, ROWS>::BOX_BYTES;
    return advance_descriptor(matrix_descriptor<WIDTH>(tile.boxes[0] + row * WIDTH, 16, 8 * WIDTH), step * FP8_K);
}

// Starts s[64, KEYS] = q[64, HEAD_DIM] · k[KEYS, HEAD_DIM]ᵀ, q being rows of the tile from `q_row`.
template <int HEAD_DIM, int Q_ROWS, int KEYS>
static __device__ __forceinline__ void start_fp8_qk(float (&s)[KEYS / 2], const BoxTile<E4M3, HEAD_DIM, Q_ROWS> &q, int q_row,
                                                    const BoxTile<E4M3, HEAD_DIM, KEYS> &k) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < HEAD_DIM / FP8_K; ++step) {
        wgmma_e4m3(s, k_major(q, q_row, step), k_major(k, 0, step), step != 0);
    }
    wgmma_commit();
}

// The same with q[64, HEAD_DIM] in registers: the tensor cores then read only K.
template <int HEAD_DIM, int KEYS>
static __device__ __forceinline__ void start_fp8_qk(float (&s)[KEYS / 2], const uint32_t (&q)[HEAD_DIM / FP8_K][4],
                                                    const BoxTile<E4M3, HEAD_DIM, KEYS> &k) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < HEAD_DIM / FP8_K; ++step) wgmma_e4m3(s, q[step], k_major(k, 0, step), step != 0);
    wgmma_commit();
}

// The largest maximum of a row, in base 2, under which scores are taken as tensor cores summed them. Of a sum that many products have made
// large, they keep 13 bits whatever the scale of the head is: keys that all score 100 differ by what is lost. N(0, 1) stays below 9.
constexpr float LARGEST_CODE_MAX = 16.0f;

// Whether the maximum of one of a lane's two rows is larger, of either sign. -FLT_MAX or less: the row has seen no key.
static __device__ __forceinline__ bool exceed_code_max(float first, float second) {
    const auto exceeds = [](float max) { return fabsf(max) > LARGEST_CODE_MAX && max > -FLT_MAX; };
    return exceeds(first) || exceeds(second);
}

// s = q · kᵀ for the 16 rows from `row` by one warp alone, from codes converted to FP16: exact products, summed in f32. Of
// each 32 columns one mma takes the first two of every four and another the last two, of Q and K alike.
template <int HEAD_DIM, int Q_ROWS, int KEYS>
static __device__ __forceinline__ void exact_warp_scores(float (&s)[KEYS / 2], BoxTile<E4M3, HEAD_DIM, Q_ROWS> &q, int row,
                                                         BoxTile<E4M3, HEAD_DIM, KEYS> &k) {
    // By shuffle, so that addresses are not hoisted out of a surrounding loop.
    const int lane = __shfl_sync(0xffffffffu, threadIdx.x % 32, threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) s[i] = 0.0f;
#pragma unroll 1 // registers are short where this is needed
    for (int half = 0; half < 2 * HEAD_DIM / FP8_K; ++half) {
        const auto convert = [&](uint32_t word) { return E4M3::low(half % 2 == 0 ? word : word >> 16); };
        const int step = half / 2;
        uint32_t q_frag[4];
        ldmatrix_x4(q_frag, q.at(row + lane % 16, 2 * step + lane / 16));
#pragma unroll
        for (int i = 0; i < 4; ++i) q_frag[i] = convert(q_frag[i]);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) {
            uint32_t k_frag[4]; // of 16 keys: two mma wide
            ldmatrix_x4(k_frag, k.at(n * 8 + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float d[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) d[j] = s[4 * (n + i) + j];
                mma<F16>(d, q_frag, convert(k_frag[2 * i]), convert(k_frag[2 * i + 1]));
#pragma unroll
                for (int j = 0; j < 4; ++j) s[4 * (n + i) + j] = d[j];
            }
        }
    }
}

} // namespace attn
