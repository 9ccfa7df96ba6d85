#include "kernel.h"
#include <attn/ptx/ldmatrix.cuh>
#include <attn/ptx/mma.cuh>
#include <attn/ptx/tma.cuh>
#include <attn/ptx/wgmma.cuh>

KERNEL(barriers_only) {
    for (int i = 0; i < params->n[0]; ++i) __syncthreads();
}

KERNEL(shuffles_only) {
    int value = threadIdx.x;
    for (int i = 0; i < params->n[0]; ++i) value = __shfl_xor_sync(0xffffffff, value, 1);
    if (value < 0) out<int>(params)[0] = value;
}

// n[0] times 64 fused multiply-adds in 8 dependent chains per thread.
KERNEL(fma_only) {
    float sums[8] = {};
    float x = float(threadIdx.x);
    for (int i = 0; i < params->n[0]; ++i)
        for (int j = 0; j < 64; ++j) sums[j % 8] = fmaf(x, float(j), sums[j % 8]);
    float sum = 0;
    for (float part : sums) sum += part;
    if (sum == 0.5f) out<float>(params)[0] = sum;
}

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

// n[0] times one ldmatrix and two mma, as a kernel with its scores in registers.
KERNEL(mma_only) {
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) shared<half>()[i] = half(1.0f);
    __syncthreads();
    float d[2][4] = {};
    uint32_t a[4], b[4];
    attn::ldmatrix_x4(a, shared<char>(threadIdx.x % 32 * 16));
    for (int i = 0; i < params->n[0]; ++i) {
        attn::ldmatrix_x4(b, shared<char>(512 + threadIdx.x % 32 * 16));
        attn::mma_m16n8k16_f16_f32(d[0], a, {b[0], b[1]});
        attn::mma_m16n8k16_f16_f32(d[1], a, {b[2], b[3]});
    }
    if (d[0][0] + d[1][3] == 0.5f) out<float>(params)[0] = d[0][0];
}

// n[0] tiles of 128 keys at head_dim 64, as a warpgroup of attention: four products of 64x128x16 from shared memory, and
// eight of 64x64x16 with A in registers.
KERNEL(wgmma_only) {
    unsigned char *q_smem = shared<unsigned char>(), *k_smem = q_smem + 64 * 128; // [64][64] and [128][64] halves
    for (int i = threadIdx.x; i < 192 * 64; i += blockDim.x) shared<half>()[i] = half(1.0f);
    attn::fence_proxy_async();
    __syncthreads();
    float s[64], o[32];
    uint32_t p[8][4] = {};
    for (float &x : o) x = 0;
    for (int i = 0; i < params->n[0]; ++i) {
        attn::wgmma_fence();
        for (int step = 0; step < 4; ++step)
            attn::wgmma_f16<false>(s, attn::matrix_descriptor<128>(q_smem + step * 32, 16, 1024),
                                   attn::matrix_descriptor<128>(k_smem + step * 32, 16, 1024), step > 0);
        for (int step = 0; step < 8; ++step)
            attn::wgmma_f16<true>(o, p[step], attn::matrix_descriptor<128>(k_smem + step * 2048, 16384, 1024), true);
        attn::wgmma_commit();
        attn::wgmma_wait<0>(s, o);
    }
    if (s[0] + o[0] == 0.5f) out<float>(params)[0] = s[0];
}

// n[0] rounds of a write and a read of shared memory and a read of global memory per thread.
KERNEL(accesses_only) {
    float *words = shared<float>();
    float value = float(threadIdx.x);
    for (int i = 0; i < params->n[0]; ++i) {
        words[threadIdx.x] = value;
        __syncthreads(); // all have written
        value += words[threadIdx.x ^ 1] * in<float>(params)[threadIdx.x];
        __syncthreads(); // all have read
    }
    if (value == 0.5f) out<float>(params)[0] = value;
}
