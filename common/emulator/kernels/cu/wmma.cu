#include "kernel.h"
#include <mma.h>

using namespace nvcuda;

// D = A B + 2 C from shared memory, each operand in its layout.
template <int M, int N, int K, class LayoutA, class LayoutB, class T>
static __device__ void multiply(const KernelParams *params, wmma::layout_t layout_c) {
    constexpr bool A_ROW = std::is_same<LayoutA, wmma::row_major>::value;
    constexpr bool B_ROW = std::is_same<LayoutB, wmma::row_major>::value;
    constexpr int LDA = (A_ROW ? K : M) + 8, LDB = (B_ROW ? N : K) + 8;
    const int ldc = (layout_c == wmma::mem_row_major ? N : M) + 8;
    half *a_smem = shared<half>(), *b_smem = shared<half>(4096);
    T *c_smem = shared<T>(8192);
    for (int i = threadIdx.x; i < M * K; i += 32) {
        int row = i / K, col = i % K;
        a_smem[A_ROW ? row * LDA + col : col * LDA + row] = in<half>(params, 0)[i];
    }
    for (int i = threadIdx.x; i < K * N; i += 32) {
        int row = i / N, col = i % N;
        b_smem[B_ROW ? row * LDB + col : col * LDB + row] = in<half>(params, 1)[i];
    }
    auto at = [&](int i) { return layout_c == wmma::mem_row_major ? i / N * ldc + i % N : i % N * ldc + i / N; };
    for (int i = threadIdx.x; i < M * N; i += 32) c_smem[at(i)] = T(in<float>(params, 2)[i]);
    __syncwarp(); // the tiles are written; every lane's part of them is read next

    wmma::fragment<wmma::matrix_a, M, N, K, half, LayoutA> a;
    wmma::fragment<wmma::matrix_b, M, N, K, half, LayoutB> b;
    wmma::fragment<wmma::accumulator, M, N, K, T> c, d;
    wmma::load_matrix_sync(a, a_smem, LDA);
    wmma::load_matrix_sync(b, b_smem, LDB);
    wmma::load_matrix_sync(c, c_smem, ldc, layout_c);
    wmma::fill_fragment(d, 0.0f);
    wmma::mma_sync(d, a, b, d);
    for (int i = 0; i < c.num_elements; ++i) d.x[i] = T(float(d.x[i]) + 2.0f * float(c.x[i])); // the same for all elements
    __syncwarp(); // the old elements have been read
    wmma::store_matrix_sync(c_smem, d, ldc, layout_c);
    __syncwarp(); // the new ones are written
    for (int i = threadIdx.x; i < M * N; i += 32) out<float>(params)[i] = float(c_smem[at(i)]);
}

#define MULTIPLY(name, M, N, K, layout_a, layout_b, T, layout_c)                                                       \
    KERNEL(name) { multiply<M, N, K, wmma::layout_a, wmma::layout_b, T>(params, wmma::layout_c); }

MULTIPLY(wmma_row_row, 16, 16, 16, row_major, row_major, float, mem_row_major)
MULTIPLY(wmma_row_col, 16, 16, 16, row_major, col_major, float, mem_col_major)
MULTIPLY(wmma_col_row, 16, 16, 16, col_major, row_major, float, mem_row_major)
MULTIPLY(wmma_col_col, 16, 16, 16, col_major, col_major, float, mem_col_major)
MULTIPLY(wmma_half_accumulator, 16, 16, 16, row_major, row_major, half, mem_row_major)
MULTIPLY(wmma_32x8_row_col, 32, 8, 16, row_major, col_major, float, mem_row_major)
MULTIPLY(wmma_8x32_col_row, 8, 32, 16, col_major, row_major, float, mem_col_major)

// The registers as they lie, on which CUDA says no kernel may rely.
KERNEL(wmma_registers) {
    half *a_smem = shared<half>();
    for (int i = threadIdx.x; i < 256; i += 32) a_smem[i] = half(i);
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::load_matrix_sync(a, a_smem, 16);
    for (int i = 0; i < a.num_elements; ++i) out<float>(params)[threadIdx.x * a.num_elements + i] = float(a.x[i]);
}

template <int M, int N, class T> static __device__ void store_zeros(int ld, bool row_major) {
    wmma::fragment<wmma::accumulator, M, N, 16, T> zeros;
    wmma::fill_fragment(zeros, T(0.0f));
    wmma::store_matrix_sync(shared<T>(), zeros, ld, row_major ? wmma::mem_row_major : wmma::mem_col_major);
}

// n[0]: stride in elements; n[1]: which fragment; n[2]: row-major.
KERNEL(wmma_stores) {
    const int ld = params->n[0], which = params->n[1];
    const bool row_major = params->n[2];
    switch (which) {
    case 0: return store_zeros<16, 16, float>(ld, row_major);
    case 1: return store_zeros<32, 8, float>(ld, row_major);
    case 2: return store_zeros<8, 32, float>(ld, row_major);
    case 3: return store_zeros<16, 16, half>(ld, row_major);
    case 4: return store_zeros<8, 32, half>(ld, row_major);
    }
}

// n[0]: offset of the pointer in bytes; n[1]: stride in elements.
KERNEL(wmma_misaligned) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::load_matrix_sync(a, shared<half>(params->n[0]), params->n[1]);
}

KERNEL(wmma_pointers_differ) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::load_matrix_sync(a, shared<half>(threadIdx.x == 3 ? 1024 : 0), 16);
}

KERNEL(wmma_after_exit) {
    if (threadIdx.x == 3) return;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::load_matrix_sync(a, shared<half>(), 16);
}
