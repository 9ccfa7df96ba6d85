#include "kernel.h"

// Every shuffle at width n[0] and argument n[1], for int, float, half2, int64 and half.
KERNEL(shuffles) {
    const unsigned all = 0xffffffff;
    int width = params->n[0], argument = params->n[1];
    int value = 100 + threadIdx.x;
    int *row = out<int>(params) + 6 * threadIdx.x;
    row[0] = __shfl_sync(all, value, argument, width);
    row[1] = __shfl_xor_sync(all, value, argument, width);
    row[2] = int(__shfl_sync(all, float(value), argument, width));
    half2 pair = __floats2half2_rn(float(threadIdx.x), 0.0f);
    row[3] = 100 + int(float(__shfl_xor_sync(all, pair, argument, width).x));
    row[4] = int(__shfl_sync(all, (long long)(value) << 32, argument, width) >> 32);
    row[5] = int(__half2float(__shfl_xor_sync(all, __float2half(float(value)), argument, width)));
}

KERNEL(warp_sum) {
    float sum = in<float>(params)[global_thread()];
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
    out<float>(params)[global_thread()] = sum;
}

KERNEL(votes) {
    unsigned lane = threadIdx.x % 32, mask = lane < 16 ? 0x0000ffff : 0xffff0000;
    unsigned *row = out<unsigned>(params) + 4 * threadIdx.x;
    row[0] = __ballot_sync(0xffffffff, lane % 3 == 0);
    row[1] = __any_sync(0xffffffff, lane == 31);
    row[2] = __ballot_sync(mask, lane % 3 == 0);
    row[3] = __any_sync(mask, lane == 31);
}

// Lanes n[0].. exchange words under their own mask, from two places; the others leave.
KERNEL(partial_sync_warp) {
    int lane = threadIdx.x, first = params->n[0];
    unsigned mask = 0xffffffffu << first;
    if (lane < first) return;
    int *values = shared<int>();
    values[lane] = lane;
    if (lane % 2 == 0) {
        __syncwarp(mask);
    } else {
        __syncwarp(mask);
    }
    out<int>(params)[lane] = values[first + 31 - lane];
}

// __syncwarp and votes don't wait for a lane that has left.
KERNEL(sync_warp_after_exit) {
    if (threadIdx.x == 5) return;
    __syncwarp();
    out<unsigned>(params)[threadIdx.x] = __ballot_sync(0xffffffff, 1);
}

// Lane n[0] leaves after the others have arrived.
KERNEL(exit_completes_sync_warp) {
    if (threadIdx.x == unsigned(params->n[0])) return;
    __syncwarp();
    out<int>(params)[threadIdx.x] = 1;
}

KERNEL(shuffle_from_exited_lane) {
    if (threadIdx.x == 5) return;
    out<int>(params)[threadIdx.x] = __shfl_xor_sync(0xffffffff, int(threadIdx.x), 1);
}

KERNEL(shuffle_outside_its_mask) {
    if (threadIdx.x < 16) out<int>(params)[threadIdx.x] = __shfl_sync(0x0000ffff, int(threadIdx.x), 20);
}

KERNEL(shuffle_meets_sync_warp) {
    if (threadIdx.x % 32 == 7) {
        __syncwarp(); // lane 7
    } else {
        out<int>(params)[threadIdx.x] = __shfl_sync(0xffffffff, 1, 0);
    }
}

KERNEL(mask_without_the_caller) { __syncwarp(0x0000ffff); }

KERNEL(masks_that_overlap) { __syncwarp(threadIdx.x < 16 ? 0xffffffff : 0xfffffffe); }

KERNEL(shuffle_of_odd_width) { out<int>(params)[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1, 1, 12); }
