// Shared by the test kernels: parameters, the shared-memory buffer, and the declaration of an entry.
#pragma once

#include <stdint.h>
#include <cuda_fp16.h>

struct KernelParams {
    const void *in[3];
    void *out[2];
    int32_t n[4];
};

extern "C" {
extern __shared__ __align__(128) unsigned char attn_shared[];
}

// Both builds are linked into one program. On a GPU the params lie in global memory.
#ifdef EMULATOR_TRACED
#define KERNEL(name) extern "C" __global__ void traced_##name([[maybe_unused]] const KernelParams *params)
#else
#define KERNEL(name) extern "C" __global__ void name([[maybe_unused]] const KernelParams *params)
#endif

// For kernels whose number of threads, and so of registers, ptxas must know.
#ifdef EMULATOR_BUILD
#define BOUNDED_KERNEL(name, threads) KERNEL(name)
#else
#define BOUNDED_KERNEL(name, threads) \
    extern "C" __global__ void __launch_bounds__(threads, 1) name([[maybe_unused]] const KernelParams *params)
#endif

#ifdef EMULATOR_BUILD
#define CLUSTER_KERNEL(name, blocks) KERNEL(name)
#else
#define CLUSTER_KERNEL(name, blocks) \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1) name([[maybe_unused]] const KernelParams *params)
#endif

// Not for the linker, which would merge the builds' code.
namespace {

template <class T> __device__ const T *in(const KernelParams *params, int index = 0) {
    return static_cast<const T *>(params->in[index]);
}
template <class T> __device__ T *out(const KernelParams *params, int index = 0) {
    return static_cast<T *>(params->out[index]);
}
#ifdef EMULATOR_BUILD
template <class T> T *shared(int byte = 0) { return reinterpret_cast<T *>(emulator_current->shared + byte); }
#else
template <class T> __device__ T *shared(int byte = 0) { return reinterpret_cast<T *>(attn_shared + byte); }
#endif

// In a one-dimensional launch.
[[maybe_unused]] __device__ inline int global_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

} // namespace
