// A matrix product of pranjalssh/fast.cu, on a small problem. others.md says how it is compiled and judged.
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda.h>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

using bf16 = __nv_bfloat16;
#define CEIL_DIV(M, N) (((M) + (N) - 1) / (N))

void cudaCheck(cudaError_t error, const char *file, int line) {
    if (error == cudaSuccess) return;
    std::printf("%s:%d: %s\n", file, line, cudaGetErrorString(error));
    std::exit(1);
}
#define cudaCheck(err) (cudaCheck(err, __FILE__, __LINE__))

#include KERNEL

// A matrix with numbers between -1 and 1.
bf16 *matrix(int elements, unsigned seed) {
    std::vector<bf16> values(elements);
    for (bf16 &value : values) {
        seed = seed * 1664525 + 1013904223;
        value = bf16(float(int(seed >> 16) - 32768) / 32768);
    }
    bf16 *device = nullptr;
    cudaCheck(cudaMalloc(&device, elements * sizeof(bf16)));
    cudaCheck(cudaMemcpy(device, values.data(), elements * sizeof(bf16), cudaMemcpyHostToDevice));
    return device;
}

int main() {
    constexpr int ROWS = 2048, COLUMNS = 2048, INNER = 256; // one tile a block
    bf16 *a = matrix(ROWS * INNER, 1), *b = matrix(INNER * COLUMNS, 2), *c = nullptr;
    int *unused = nullptr;
    cudaCheck(cudaMalloc(&c, ROWS * COLUMNS * sizeof(bf16)));
    RUN(ROWS, COLUMNS, INNER, a, b, c, unused);
    return 0;
}
