// Both products of a warp with 8 query rows by WMMA: operands and results in shared memory, 32-byte aligned, pitches in elements.
// No barrier: a caller orders the stores of a result before other lanes read it.
#pragma once

#include <mma.h>
#include <type_traits>

namespace attn {

// One fragment, m8n32k16: with 8 rows a warp, all 32 lanes have work in every phase.
constexpr int WMMA_M = 8, WMMA_N = 32, WMMA_K = 16;

template <class Use, class Layout>
using WmmaOperand = nvcuda::wmma::fragment<Use, WMMA_M, WMMA_N, WMMA_K, half, Layout>;
using WmmaAccumulator = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, WMMA_M, WMMA_N, WMMA_K, float>; // [8, 32]

// The warp's 8 query rows as operands of the tensor cores.
template <int HEAD_DIM>
struct QFragments {
    static constexpr int COUNT = HEAD_DIM / WMMA_K;
    static_assert(HEAD_DIM % WMMA_K == 0, "the head is whole fragments");
    WmmaOperand<nvcuda::wmma::matrix_a, nvcuda::wmma::row_major> frag[COUNT]; // [8, 16] each

    template <int PITCH>
    __device__ __forceinline__ void load(const half (*q)[PITCH]) {
        static_assert(std::is_trivially_default_constructible_v<QFragments>, "load() says what it starts as");
#pragma unroll
        for (int i = 0; i < COUNT; ++i) nvcuda::wmma::load_matrix_sync(frag[i], q[0] + i * WMMA_K, PITCH);
    }
};

// scores[8, KEYS] = q[8, HEAD_DIM] · k[KEYS, HEAD_DIM]ᵀ. K as stored is Kᵀ in column-major order: no transpose.
template <int KEYS, int SCORE_PITCH, int HEAD_DIM, int K_PITCH>
static __device__ __forceinline__ void scores_by_wmma(float *scores, const QFragments<HEAD_DIM> &q, const half (*k)[K_PITCH]) {
    static_assert(KEYS % WMMA_N == 0, "the keys are whole fragments");
#pragma unroll
    for (int n = 0; n < KEYS; n += WMMA_N) {
        WmmaAccumulator s_frag;
        nvcuda::wmma::fill_fragment(s_frag, 0.0f);
#pragma unroll
        for (int d = 0; d < HEAD_DIM; d += WMMA_K) {
            WmmaOperand<nvcuda::wmma::matrix_b, nvcuda::wmma::col_major> k_frag; // [16, 32]
            nvcuda::wmma::load_matrix_sync(k_frag, k[0] + n * K_PITCH + d, K_PITCH);
            nvcuda::wmma::mma_sync(s_frag, q.frag[d / WMMA_K], k_frag, s_frag);
        }
        nvcuda::wmma::store_matrix_sync(scores + n, s_frag, SCORE_PITCH, nvcuda::wmma::mem_row_major);
    }
}

// product[8, HEAD_DIM] = p[8, KEYS] · v[KEYS, HEAD_DIM].
template <int KEYS, int HEAD_DIM, int P_PITCH, int PRODUCT_PITCH, int V_PITCH>
static __device__ __forceinline__ void product_by_wmma(float *product, const half *p, const half (*v)[V_PITCH]) {
    constexpr int COUNT = HEAD_DIM / WMMA_N;
    static_assert(HEAD_DIM % WMMA_N == 0 && KEYS % WMMA_K == 0, "head and keys are whole fragments");
    WmmaAccumulator o_frag[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) nvcuda::wmma::fill_fragment(o_frag[i], 0.0f);
#pragma unroll
    for (int key = 0; key < KEYS; key += WMMA_K) {
        WmmaOperand<nvcuda::wmma::matrix_a, nvcuda::wmma::row_major> p_frag; // [8, 16]
        nvcuda::wmma::load_matrix_sync(p_frag, p + key, P_PITCH);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            WmmaOperand<nvcuda::wmma::matrix_b, nvcuda::wmma::row_major> v_frag; // [16, 32]
            nvcuda::wmma::load_matrix_sync(v_frag, v[0] + key * V_PITCH + i * WMMA_N, V_PITCH);
            nvcuda::wmma::mma_sync(o_frag[i], p_frag, v_frag, o_frag[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        nvcuda::wmma::store_matrix_sync(product + i * WMMA_N, o_frag[i], PRODUCT_PITCH, nvcuda::wmma::mem_row_major);
    }
}

} // namespace attn
