// The two products of attention by a warpgroup: S = Q·Kᵀ from shared memory, O += P·V with P in registers.
#pragma once

#include <attn/box_tile.cuh>
#include <attn/ptx/wgmma.cuh>

namespace attn {

// The registers that a launch of so many threads has for one thread of each of its warpgroups, together: what setmaxnreg shares out.
constexpr int registers_of_launch(int threads) { return 65536 / threads / 8 * 8 * (threads / 128); }

// One wgmma: [64, 16] · [16, N].
constexpr int WGMMA_M = 64, WGMMA_K = 16;

// Of what lies `bytes` further on: one addition, where encoding another address takes four instructions.
static __device__ __forceinline__ uint64_t advance_descriptor(uint64_t descriptor, int bytes) {
    return (descriptor & 0xffffffff00000000) | static_cast<uint32_t>(static_cast<uint32_t>(descriptor) + (bytes >> 4));
}

// Descriptor of rows from `row` (a multiple of 8) and columns 16 * step to 16 * step + 15, K-major (the reduction runs along
// memory): Q as the first operand, K as the second.
template <class Operand, int HEAD_DIM, int ROWS>
static __device__ __forceinline__ uint64_t k_major(const BoxTile<Operand, HEAD_DIM, ROWS> &tile, int row, int step) {
    constexpr int STEPS = 128 / (WGMMA_K * 2); // in the 128 bytes of one box
    const uint64_t first = matrix_descriptor<128>(tile.boxes[0] + row * 128, 16, 8 * 128);
    return advance_descriptor(first, step / STEPS * ROWS * 128 + step % STEPS * WGMMA_K * 2);
}

// Descriptor of rows 16 * step to 16 * step + 15 and all columns, MN-major: V as the second operand.
template <class Operand, int HEAD_DIM, int ROWS>
static __device__ __forceinline__ uint64_t mn_major(const BoxTile<Operand, HEAD_DIM, ROWS> &tile, int step) {
    return advance_descriptor(matrix_descriptor<128>(tile.boxes[0], ROWS * 128, 8 * 128), step * WGMMA_K * 128);
}

// Starts s[64, KEYS] = q[64, HEAD_DIM] · k[KEYS, HEAD_DIM]ᵀ, q being rows of the tile from `q_row`.
template <class Operand, int HEAD_DIM, int Q_ROWS, int KEYS>
static __device__ __forceinline__ void start_qk(float (&s)[KEYS / 2], const BoxTile<Operand, HEAD_DIM, Q_ROWS> &q, int q_row,
                                                const BoxTile<Operand, HEAD_DIM, KEYS> &k) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < HEAD_DIM / WGMMA_K; ++step) {
        const uint64_t q_step = k_major(q, q_row, step), k_step = k_major(k, 0, step);
        if constexpr (std::is_same_v<Operand, BF16>) wgmma_bf16<false>(s, q_step, k_step, step != 0);
        else wgmma_f16<false>(s, q_step, k_step, step != 0);
    }
    wgmma_commit();
}

// The same, with q in registers.
template <class Operand, int HEAD_DIM, int KEYS>
static __device__ __forceinline__ void start_qk(float (&s)[KEYS / 2], const uint32_t (&q)[HEAD_DIM / WGMMA_K][4],
                                                const BoxTile<Operand, HEAD_DIM, KEYS> &k) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < HEAD_DIM / WGMMA_K; ++step) {
        const uint64_t k_step = k_major(k, 0, step);
        if constexpr (std::is_same_v<Operand, BF16>) wgmma_bf16<false>(s, q[step], k_step, step != 0);
        else wgmma_f16<false>(s, q[step], k_step, step != 0);
    }
    wgmma_commit();
}

// o[64, HEAD_DIM] += p[64, KEYS] · v[KEYS, HEAD_DIM], of the keys from 16 * FROM to 16 * TO: as part of the next group.
template <int FROM, int TO, class Operand, int HEAD_DIM, int KEYS>
static __device__ __forceinline__ void add_pv(float (&o)[HEAD_DIM / 2], const uint32_t (&p)[KEYS / WGMMA_K][4],
                                              const BoxTile<Operand, HEAD_DIM, KEYS> &v) {
#pragma unroll
    for (int step = FROM; step < TO; ++step) {
        if constexpr (std::is_same_v<Operand, BF16>) wgmma_bf16<true>(o, p[step], mn_major(v, step), true);
        else wgmma_f16<true>(o, p[step], mn_major(v, step), true);
    }
}

// Starts o[64, HEAD_DIM] += p[64, KEYS] · v[KEYS, HEAD_DIM].
template <int HEAD_DIM, int KEYS, class Operand>
static __device__ __forceinline__ void start_pv(float (&o)[HEAD_DIM / 2], const uint32_t (&p)[KEYS / WGMMA_K][4],
                                                const BoxTile<Operand, HEAD_DIM, KEYS> &v) {
    wgmma_fence();
    add_pv<0, KEYS / WGMMA_K>(o, p, v);
    wgmma_commit();
}

} // namespace attn
