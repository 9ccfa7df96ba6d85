// One rung of the ladder with its launch, for people who do not read Rust: stage 5, whose tiles are swizzled in shared memory.
// Checks its output against plain loops, then times it.
//
//     nvcc -std=c++17 -O3 -arch=native -I common/cuda examples/standalone.cu -o standalone && ./standalone
//
// Another stage up to the fifth goes the same way: include its kernel.cu, and name one of its presets. From stage 6 on, kernels
// take tensor maps as well (common/cuda/attn/launch.h), which are encoded by cuTensorMapEncodeTiled.
#define ATTN_STAGE standalone
#include "../stage5-swizzle/kernel.cu"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int BATCH = 1, HEADS = 8, ROWS = 512, HEAD_DIM = 64; // `mission`
using Chosen = Swizzle32x256K4<attn::F16, HEAD_DIM>;

// Stops at the first call that fails.
void check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}

// A dense tensor [BATCH, HEADS, ROWS, HEAD_DIM] in memory that host and GPU share; elements between -1 and 1.
AttentionTensor tensor(uint32_t seed) {
    constexpr int COUNT = BATCH * HEADS * ROWS * HEAD_DIM;
    __half *data = nullptr;
    check(cudaMallocManaged(&data, COUNT * sizeof(__half)), "cudaMallocManaged");
    for (int i = 0; i < COUNT; ++i) {
        seed = seed * 1664525 + 1013904223;
        data[i] = __float2half(float(seed >> 8) / (1 << 23) - 1);
    }
    return {data, nullptr, int64_t(HEADS) * ROWS * HEAD_DIM, int64_t(ROWS) * HEAD_DIM, HEAD_DIM};
}

float at(const AttentionTensor &x, int head, int row, int d) {
    return __half2float(static_cast<const __half *>(x.data)[head * x.head_stride + row * x.row_stride + d]);
}

// The largest error of O against FP64, over all heads of the first batch and every 37th row, under the full mask.
double largest_error(const AttentionParams &p) {
    double largest = 0;
    for (int head = 0; head < HEADS; ++head) {
        for (int row = 0; row < ROWS; row += 37) {
            std::vector<double> weights(ROWS);
            double sum = 0;
            for (int key = 0; key < ROWS; ++key) {
                double score = 0;
                for (int d = 0; d < HEAD_DIM; ++d) score += double(at(p.q, head, row, d)) * at(p.k, head, key, d);
                sum += weights[key] = std::exp(score * p.softmax_scale);
            }
            for (int d = 0; d < HEAD_DIM; ++d) {
                double exact = 0;
                for (int key = 0; key < ROWS; ++key) exact += weights[key] / sum * at(p.v, head, key, d);
                const double error = std::abs(at(p.o, head, row, d) - exact);
                if (!(error <= largest)) largest = error; // NaN is the largest
            }
        }
    }
    return largest;
}

int main() {
    AttentionParams params{tensor(1), tensor(2), tensor(3), tensor(4)};
    params.batch = BATCH, params.heads_q = params.heads_kv = HEADS, params.seq_q = params.seq_kv = ROWS;
    params.mask = ATTENTION_FULL, params.softmax_scale = 1 / std::sqrt(float(HEAD_DIM));

    // A block for each tile of rows, head and batch; K and V pass through dynamic shared memory.
    auto *const kernel = standalone_swizzle_32x256_k4_f16_d64;
    constexpr int SHARED = sizeof(Chosen::Shared);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED), "shared memory");
    const dim3 grid((ROWS + Chosen::BLOCK_M - 1) / Chosen::BLOCK_M, HEADS, BATCH);
    kernel<<<grid, Chosen::THREADS, SHARED>>>(params);
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "kernel");
    const double error = largest_error(params);

    cudaEvent_t start, end;
    check(cudaEventCreate(&start), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    constexpr int LAUNCHES = 1000;
    for (int launch = -LAUNCHES; launch < LAUNCHES; ++launch) { // the first half warms up
        if (launch == 0) cudaEventRecord(start);
        kernel<<<grid, Chosen::THREADS, SHARED>>>(params);
    }
    cudaEventRecord(end);
    check(cudaEventSynchronize(end), "launches");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, end), "cudaEventElapsedTime");
    std::printf("largest error %.1e, %.2f us a launch\n", error, ms * 1e3 / LAUNCHES);
    return error < 2e-3 ? 0 : 1;
}
