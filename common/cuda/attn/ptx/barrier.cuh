// Named barriers (bar.sync, bar.arrive): subsets of a block's warps meet without the rest. PTX ISA, "Parallel synchronization
// instructions: barrier, bar". Barrier 0 is __syncthreads.
#pragma once

namespace attn {

// Waits until THREADS threads (whole warps, this one's included) have arrived at barrier ID. Orders memory accesses
// among them.
template <int ID, int THREADS>
static __device__ __forceinline__ void named_barrier_sync() {
    static_assert(ID >= 1 && ID <= 15, "a block has 16 barriers, and 0 is __syncthreads");
    static_assert(THREADS % 32 == 0 && THREADS > 0, "whole warps take part");
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(THREADS) : "memory");
}

// Arrives without waiting: what this thread wrote before is visible to those whose bar.sync completes the barrier.
template <int ID, int THREADS>
static __device__ __forceinline__ void named_barrier_arrive() {
    static_assert(ID >= 1 && ID <= 15, "a block has 16 barriers, and 0 is __syncthreads");
    static_assert(THREADS % 32 == 0 && THREADS > 0, "whole warps take part");
    asm volatile("bar.arrive %0, %1;" ::"n"(ID), "n"(THREADS) : "memory");
}

// As named_barrier_sync, with a barrier that is known when the kernel runs: 1 to 15, the same for the whole warp.
template <int THREADS>
static __device__ __forceinline__ void named_barrier_sync(int id) {
    static_assert(THREADS % 32 == 0 && THREADS > 0, "whole warps take part");
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

} // namespace attn
