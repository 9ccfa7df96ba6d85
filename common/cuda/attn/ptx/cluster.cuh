// Clusters (sm_90): blocks that run at the same time and reach each other's shared memory. PTX ISA, "barrier.cluster", "mapa",
// "st.async".
#pragma once

#include <attn/ptx/mbarrier_tx.cuh>

namespace attn {

// This block's number in its cluster.
static __device__ __forceinline__ int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Arrives at the barrier of the cluster, without waiting; all warps do so, each as a whole. What this thread wrote before,
// barriers that it initialised too, is visible to those who wait.
static __device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

// The same without waiting for what this thread has in flight, which takes a thousand cycles while TMA brings tiles: only the
// barriers that it initialised before fence_mbarrier_init() become visible.
static __device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Waits until all threads of the cluster that have not exited have arrived: their blocks then run, and have done what they
// did before. Once for each cluster_arrive().
static __device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Starts a store of 16 bytes to the place in block `rank` that `smem`, on a boundary of 16 bytes, is here. The phase of the
// barrier there that `smem_barrier` is here counts them. That block must have initialised it and must not have ended: the
// caller has waited for the cluster, and the block waits for the bytes.
static __device__ __forceinline__ void store_async(int rank, uint4 *smem, const uint4 &value, Mbarrier *smem_barrier) {
    asm volatile("{\n.reg .b32 there, barrier;\n"
                 "mapa.shared::cluster.u32 there, %0, %6;\n"
                 "mapa.shared::cluster.u32 barrier, %5, %6;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [there], {%1, %2, %3, %4}, [barrier];\n}" ::"r"(
                     shared_address(smem)),
                 "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(shared_address(smem_barrier)), "r"(rank)
                 : "memory");
}

// Waits for the end of the phase of the given parity, in which other blocks of the cluster have stored here.
static __device__ __forceinline__ void mbarrier_wait_cluster(Mbarrier *smem_barrier, int parity) {
    int done = 0;
    while (!done) {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "selp.b32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(shared_address(smem_barrier)), "r"(parity)
                     : "memory");
    }
}

} // namespace attn
