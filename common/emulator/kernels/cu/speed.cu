#include "kernel.h"

// n[0] barriers and nothing else.
KERNEL(barriers_only) {
    for (int i = 0; i < params->n[0]; ++i) __syncthreads();
}

// n[0] shuffles and nothing else.
KERNEL(shuffles_only) {
    int value = threadIdx.x;
    for (int i = 0; i < params->n[0]; ++i) value = __shfl_xor_sync(0xffffffff, value, 1);
    if (value < 0) out<int>(params)[0] = value;
}

// n[0] dependent chains of 64 fused multiply-adds per thread, as a scalar attention kernel has them.
KERNEL(fma_only) {
    float sums[8] = {};
    float x = float(threadIdx.x);
    for (int i = 0; i < params->n[0]; ++i)
        for (int j = 0; j < 64; ++j) sums[j % 8] = fmaf(x, float(j), sums[j % 8]);
    float sum = 0;
    for (float part : sums) sum += part;
    if (sum == 0.5f) out<float>(params)[0] = sum;
}

// n[0] WMMA multiply-accumulates, with both loads.
KERNEL(wmma_only) {
    using namespace nvcuda;
    for (int i = threadIdx.x; i < 512; i += 32) shared<half>()[i] = half(1.0f);
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    for (int i = 0; i < params->n[0]; ++i) {
        wmma::load_matrix_sync(a, shared<half>(), 16);
        wmma::load_matrix_sync(b, shared<half>(512), 16);
        wmma::mma_sync(c, a, b, c);
    }
    if (c.x[0] == 0.5f) out<float>(params)[0] = c.x[0];
}
