// Mistakes of earlier kernels with roles.
#include "kernel.h"
#include <attn/ptx/cp_async.cuh>

// One warp calls a copy loop written for the whole block. n[0]: it steps by 32 threads, not by the block's.
KERNEL(tile_copied_by_one_warp) {
    float *tile = shared<float>(); // [blockDim.x][4]
    const int chunks = blockDim.x, step = params->n[0] ? 32 : blockDim.x;
    if (threadIdx.x < 32) {
        for (int chunk = threadIdx.x; chunk < chunks; chunk += step)
            attn::cp_async<16>(tile + chunk * 4, in<float>(params) + chunk * 4);
        attn::cp_async_commit();
        attn::cp_async_wait_group<0>();
    }
    __syncthreads(); // the tile is there
    out<float>(params)[threadIdx.x] = tile[(blockDim.x - 1 - threadIdx.x) * 4];
}

// The consumers have one barrier more. n[0]: the producer has it, too.
KERNEL(roles_with_unequal_barriers) {
    float *tile = shared<float>();
    const bool is_producer = threadIdx.x < 32;
    for (int round = 0; round < 3; ++round) {
        if (is_producer) tile[threadIdx.x] = in<float>(params)[round * 32 + threadIdx.x];
        __syncthreads(); // it is filled
        if (!is_producer) out<float>(params)[threadIdx.x] = tile[threadIdx.x % 32];
        if (!is_producer || params->n[0]) __syncthreads(); // it is drained
    }
}

// Flags in shared memory order nothing. n[0]: nobody sets the flag.
KERNEL(roles_with_flags) {
    volatile int *flag = shared<int>();
    float *tile = shared<float>(16);
    if (threadIdx.x == 0) *flag = 0;
    __syncthreads(); // the flag is there
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = in<float>(params)[threadIdx.x];
        __syncwarp();
        if (threadIdx.x == 0 && !params->n[0]) *flag = 1;
    } else {
        while (*flag == 0) {
        }
        out<float>(params)[threadIdx.x] = tile[threadIdx.x % 32];
    }
}

// Reads two constant words n[0] times, which looks like spinning.
KERNEL(words_read_again_and_again) {
    float *words = shared<float>();
    if (threadIdx.x < 2) words[threadIdx.x] = in<float>(params)[threadIdx.x];
    __syncthreads(); // the words are there
    float sum = 0;
    for (int i = 0; i < params->n[0]; ++i) sum += words[i % 2] * float(i);
    out<float>(params)[threadIdx.x] = sum;
}
