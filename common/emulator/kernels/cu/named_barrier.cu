// Misuse of named barriers; ptx.cu has their use.
#include "kernel.h"
#include <attn/ptx/barrier.cuh>

// Warp 0 writes a row, warp 1 reads it. n[0]: who skips the barrier between (1: warp 0, 2: warp 1, 3: both; 4: warp 1 only
// arrives).
KERNEL(row_by_named_barrier) {
    int *row = shared<int>();
    if (threadIdx.x < 32) {
        row[threadIdx.x] = threadIdx.x;
        if (!(params->n[0] & 1)) attn::named_barrier_arrive<3, 64>(); // the writer's
    } else {
        if (params->n[0] == 4) {
            attn::named_barrier_arrive<3, 64>(); // does not wait
        } else if (!(params->n[0] & 2)) {
            attn::named_barrier_sync<3, 64>(); // the reader's
        }
        out<int>(params)[threadIdx.x - 32] = row[63 - threadIdx.x];
    }
}

// Three warps at one barrier, with different counts.
KERNEL(named_barrier_of_two_counts) {
    if (threadIdx.x < 32) {
        attn::named_barrier_sync<1, 96>(); // of three warps
    } else {
        attn::named_barrier_sync<1, 64>(); // of two warps
    }
}

// Warp 0 arrives twice without an answer between; warp 1 waits twice, late.
KERNEL(named_barrier_twice) {
    if (threadIdx.x < 32) {
        for (int i = 0; i < 2; ++i) attn::named_barrier_arrive<1, 64>(); // without an answer
    } else {
        if (params->n[0]) attn::named_barrier_sync<2, 32>(); // alone
        for (int i = 0; i < 2; ++i) attn::named_barrier_sync<1, 64>(); // waits for it
    }
}

KERNEL(named_barrier_by_half_a_warp) {
    if (threadIdx.x % 32 < 16) attn::named_barrier_sync<1, 64>(); // half
}

// More threads than the block has.
KERNEL(named_barrier_of_too_many) { attn::named_barrier_sync<1, 1024>(); }

KERNEL(named_barriers_differ) {
    if (threadIdx.x < 5) {
        attn::named_barrier_sync<1, 32>(); // 1
    } else {
        attn::named_barrier_sync<2, 32>(); // 2
    }
}

// n[0] rounds in which pairs of warps meet at their own barrier and line, then all four at one barrier.
KERNEL(named_barriers_of_pairs) {
    int *values = shared<int>();
    const int thread = threadIdx.x, pair = thread / 64;
    int value = thread;
    for (int round = 0; round < params->n[0]; ++round) {
        values[thread] = value;
        if (pair == 0) {
            attn::named_barrier_sync<1, 64>(); // a pair has written
        } else {
            attn::named_barrier_sync<2, 64>(); // the other pair has written
        }
        value += values[thread ^ 32];
        attn::named_barrier_sync<3, 128>(); // all have read
        values[thread] = value;
        attn::named_barrier_sync<4, 128>(); // all have written
        value += values[127 - thread];
        attn::named_barrier_sync<3, 128>(); // all have read once more
    }
    out<int>(params)[thread] = value;
}

// Only 1 to 15 exist.
KERNEL(named_barrier_that_is_not_there) { attn::named_barrier_sync<32>(params->n[0]); }
