// Producer and consumer warps that got it wrong, as kernels with roles did before.
#include "kernel.h"
#include <attn/ptx/cp_async.cuh>

// A tile is copied by a helper that was written for the whole block, and called by one warp: n[0] says whether it steps by
// the threads that copy (32) or by all of the block.
KERNEL(tile_copied_by_one_warp) {
    float *tile = shared<float>(); // [blockDim.x][4]
    const int chunks = blockDim.x, step = params->n[0] ? 32 : blockDim.x;
    if (threadIdx.x < 32) {
        for (int chunk = threadIdx.x; chunk < chunks; chunk += step)
            attn::cp_async<16>(tile + chunk * 4, in<float>(params) + chunk * 4); // a chunk
        attn::cp_async_commit();
        attn::cp_async_wait_group<0>();
    }
    __syncthreads(); // the tile is there
    out<float>(params)[threadIdx.x] = tile[(blockDim.x - 1 - threadIdx.x) * 4]; // consumes a chunk
}

// The roles meet at block barriers, of which the consumers have one more. n[0]: the producer has it too.
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

// The roles signal by flags in shared memory, which order nothing. n[0]: who sets the flag: 0: the producer; 1: nobody.
KERNEL(roles_with_flags) {
    volatile int *flag = shared<int>();
    float *tile = shared<float>(16);
    if (threadIdx.x == 0) *flag = 0;
    __syncthreads(); // the flag is there
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = in<float>(params)[threadIdx.x]; // fills the tile
        __syncwarp();
        if (threadIdx.x == 0 && !params->n[0]) *flag = 1; // raises the flag
    } else {
        while (*flag == 0) { // watches the flag
        }
        out<float>(params)[threadIdx.x] = tile[threadIdx.x % 32]; // drains the tile
    }
}

// Each thread reads the same two words n[0] times, which looks like watching a flag, but is none: they never change.
KERNEL(words_read_again_and_again) {
    float *words = shared<float>();
    if (threadIdx.x < 2) words[threadIdx.x] = in<float>(params)[threadIdx.x];
    __syncthreads(); // the words are there
    float sum = 0;
    for (int i = 0; i < params->n[0]; ++i) sum += words[i % 2] * float(i);
    out<float>(params)[threadIdx.x] = sum;
}
