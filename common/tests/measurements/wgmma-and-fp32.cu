// What FP32 arithmetic and ex2 in some warpgroups cost the wgmma of others, in clock cycles; common/docs/wgmma-and-fp32.md has the table.
//
//   nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -I common/cuda -o wgmma-and-fp32 common/tests/measurements/wgmma-and-fp32.cu && ./wgmma-and-fp32
#include <attn/ptx/tma.cuh>
#include <attn/ptx/wgmma.cuh>
#include <cstdio>
#include <cstdlib>

enum Products { NONE, SS_N64, RS_N64, RS_N128 };
enum Arithmetic { IDLE, FFMA, FADD, FFMA_EX2, FADD_EX2, EX2, SOFTMAX, FMNMX, HFMA2, F2FP };

struct Result {
    long long product_cycles, other_cycles, instructions; // of one block; per warp
};

constexpr int TILES = 96 << 10; // bytes of shared memory
extern __shared__ __align__(1024) unsigned char tiles[];

template <Products PRODUCTS>
__device__ void multiply(int groups, float *sink) {
    constexpr int N = PRODUCTS == RS_N128 ? 128 : 64;
    float d[N / 2];
    for (int i = 0; i < N / 2; ++i) d[i] = 0.0f;
    uint32_t a[4][4];
    for (int i = 0; i < 16; ++i) a[i / 4][i % 4] = 0x3c003c00u + threadIdx.x * 77u + i;
    const uint64_t q = attn::matrix_descriptor<128>(tiles, 16, 1024), k = attn::matrix_descriptor<128>(tiles + 32768, 16, 1024);
    const uint64_t v = attn::matrix_descriptor<128>(tiles + 65536, N == 128 ? 64 * 128 : 1024, 1024);
#pragma unroll 1
    for (int i = 0; i < groups; ++i) {
        attn::wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            if constexpr (PRODUCTS == SS_N64) attn::wgmma_f16<false>(d, q + step * 2, k + step * 2, true);
            else attn::wgmma_f16<true>(d, a[step], v + step * 128, true);
        }
        attn::wgmma_commit();
        attn::wgmma_wait<0>(d);
    }
    float sum = 0.0f;
    for (int i = 0; i < N / 2; ++i) sum += d[i];
    sink[threadIdx.x] = sum;
}

// Runs until the products are done, or for `rounds` of 128 instructions.
template <Arithmetic ARITHMETIC>
__device__ int compute(volatile int *done, int rounds, float *sink) {
    float x[16], sum[4] = {};
    uint32_t h[16];
    for (int i = 0; i < 16; ++i) x[i] = threadIdx.x * 0.001f + i, h[i] = threadIdx.x + i;
    const float b = sink[0], c = sink[1];
    const uint32_t bits = __float_as_uint(sink[2]);
    int round = 0;
    for (; round < rounds && !*done; ++round) {
#pragma unroll
        for (int i = 0; i < 128; ++i) {
            float &f = x[i % 16];
            uint32_t &u = h[i % 16];
            constexpr bool MIXED = ARITHMETIC == FFMA_EX2 || ARITHMETIC == FADD_EX2;
            if (ARITHMETIC == FFMA || (ARITHMETIC == FFMA_EX2 && i % 2 == 0) || ARITHMETIC == SOFTMAX)
                asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(f) : "f"(b), "f"(c));
            if (ARITHMETIC == FADD || (ARITHMETIC == FADD_EX2 && i % 2 == 0)) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(f) : "f"(b));
            if (ARITHMETIC == EX2 || (MIXED && i % 2 == 1) || ARITHMETIC == SOFTMAX) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(f));
            if (ARITHMETIC == SOFTMAX) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(sum[i % 4]) : "f"(x[(i + 12) % 16]));
            if (ARITHMETIC == FMNMX) asm volatile("max.f32 %0, %0, %1;" : "+f"(f) : "f"(x[(i + 5) % 16]));
            if (ARITHMETIC == HFMA2) asm volatile("fma.rn.f16x2 %0, %0, %1, %1;" : "+r"(u) : "r"(bits));
            if (ARITHMETIC == F2FP) asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "+r"(u) : "f"(__uint_as_float(u)), "f"(f));
        }
    }
    float all = 0.0f;
    for (int i = 0; i < 16; ++i) all += x[i] + h[i] + sum[i % 4];
    sink[threadIdx.x] = all;
    return round;
}

// In each block the first `multiplying` warpgroups multiply, the others compute.
template <Products PRODUCTS, Arithmetic ARITHMETIC>
__global__ void __launch_bounds__(512, 1) run(int multiplying, int groups, int rounds, float *sink, Result *result) {
    __shared__ int done;
    for (int i = threadIdx.x; i < TILES / 4; i += blockDim.x) reinterpret_cast<uint32_t *>(tiles)[i] = 0x2c002c00u + i * 2654435761u % 1024u;
    if (threadIdx.x == 0) done = 0;
    attn::fence_proxy_async();
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const long long start = clock64();
    if (warpgroup < multiplying) {
        if constexpr (PRODUCTS != NONE) multiply<PRODUCTS>(groups, sink);
        asm volatile("bar.sync 1, %0;" ::"r"(multiplying * 128));
        if (threadIdx.x == 0) done = 1;
        if (threadIdx.x == 0 && blockIdx.x == 0) result->product_cycles = clock64() - start;
    } else if (ARITHMETIC != IDLE) {
        const int count = compute<ARITHMETIC>(&done, rounds, sink);
        if (threadIdx.x % 128 == 0 && blockIdx.x == 0 && warpgroup == multiplying) {
            result->instructions = count * 128ll, result->other_cycles = clock64() - start;
        }
    }
}

#define CHECK(call)                                                                                                    \
    if (cudaError_t error = (call)) {                                                                                  \
        printf("%s: %s\n", #call, cudaGetErrorString(error));                                                          \
        exit(1);                                                                                                       \
    }

template <Products PRODUCTS, Arithmetic ARITHMETIC>
Result measure(int computing) {
    const int multiplying = PRODUCTS == NONE ? 0 : 2;
    auto kernel = run<PRODUCTS, ARITHMETIC>;
    float *sink;
    Result *result;
    CHECK(cudaMalloc(&sink, 4096));
    CHECK(cudaMemset(sink, 0x3d, 4096));
    CHECK(cudaMallocManaged(&result, sizeof(Result)));
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, TILES));
    for (int warm = 0; warm < 2; ++warm) {
        kernel<<<132, 128 * (multiplying + computing), TILES>>>(multiplying, 4000, PRODUCTS == NONE ? 200 : 1 << 30, sink, result);
        CHECK(cudaDeviceSynchronize());
    }
    const Result copy = *result;
    CHECK(cudaFree(sink));
    CHECK(cudaFree(result));
    return copy;
}

// What an instruction costs the products that another warpgroup has in flight, and how often one warpgroup of `computing` issues.
template <Products PRODUCTS, Arithmetic ARITHMETIC>
void line(const char *name, int computing) {
    const Result with = measure<PRODUCTS, ARITHMETIC>(computing);
    printf("  %-22s %7.2f cycles apart", name, double(with.other_cycles) / with.instructions);
    if constexpr (PRODUCTS != NONE) {
        const Result without = measure<PRODUCTS, IDLE>(computing);
        printf(", each costs wgmma %5.2f", double(with.product_cycles - without.product_cycles) / (with.instructions * computing));
    }
    printf("\n");
}

template <Products PRODUCTS>
void table(const char *name) {
    printf("%s\n", name);
    line<PRODUCTS, FFMA>("FFMA", 1);
    line<PRODUCTS, FADD>("FADD", 1);
    line<PRODUCTS, FFMA_EX2>("FFMA, ex2 alternating", 1);
    line<PRODUCTS, FADD_EX2>("FADD, ex2 alternating", 1);
    line<PRODUCTS, FMNMX>("FMNMX", 1);
    line<PRODUCTS, HFMA2>("HFMA2", 1);
    line<PRODUCTS, F2FP>("F2FP", 1);
    line<PRODUCTS, EX2>("ex2", 1);
    line<PRODUCTS, EX2>("ex2, 2 warpgroups", 2);
    line<PRODUCTS, SOFTMAX>("FFMA ex2 FADD", 1);
    line<PRODUCTS, SOFTMAX>("the same, 2 warpgroups", 2);
}

int main() {
    table<NONE>("no products");
    table<SS_N64>("wgmma m64n64k16, both operands in shared memory");
    table<RS_N64>("wgmma m64n64k16, the first operand in registers");
    table<RS_N128>("wgmma m64n128k16, the first operand in registers");
}
