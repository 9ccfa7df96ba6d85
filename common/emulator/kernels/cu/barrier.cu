#include "kernel.h"

// Reverses the block's values through shared memory, `n[0]` times.
KERNEL(reverse) {
    int *values = shared<int>();
    int value = in<int>(params)[global_thread()];
    for (int round = 0; round < params->n[0]; ++round) {
        values[threadIdx.x] = value;
        __syncthreads(); // all have written
        value = values[blockDim.x - 1 - threadIdx.x];
        __syncthreads(); // all have read
    }
    out<int>(params)[global_thread()] = value;
}

// Thread n[0] leaves before the barrier.
KERNEL(barrier_missed_by_one) {
    if (int(threadIdx.x) == params->n[0]) return;
    __syncthreads(); // one is missing
}

KERNEL(barrier_at_two_lines) {
    if (threadIdx.x < 32) {
        __syncthreads(); // warp 0
    } else {
        __syncthreads(); // the others
    }
}

// Lane 5 goes to the block's barrier, its warp to __syncwarp.
KERNEL(warp_waits_for_a_lane_at_the_barrier) {
    if (threadIdx.x != 5) __syncwarp();
    __syncthreads();
}

// The same with a shuffle.
KERNEL(shuffle_waits_for_a_lane_at_the_barrier) {
    int value = threadIdx.x;
    if (threadIdx.x != 5) value = __shfl_xor_sync(0xffffffff, value, 1);
    __syncthreads();
    out<int>(params)[threadIdx.x] = value;
}
