// mbarrier (sm_90): phases that also count bytes, for TMA. PTX ISA, "mbarrier".
#pragma once

#include <attn/ptx/mbarrier.cuh>

namespace attn {

// Releases this thread's mbarrier.init to the cluster and the async proxy, before TMA or another block counts on the
// barriers: then this thread may start TMA at once, any other behind a barrier of the block or the cluster.
static __device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Counts one arrival, and expects `bytes` more bytes in the current phase: it ends once all arrivals and bytes have come.
static __device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier *smem_barrier, int bytes) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(
                     shared_address(smem_barrier)),
                 "r"(bytes)
                 : "memory");
}

// Whether the phase of the given parity has ended; the thread may sleep for a while until it does.
static __device__ __forceinline__ bool mbarrier_try_wait(Mbarrier *smem_barrier, int parity) {
    int done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(smem_barrier)), "r"(parity)
                 : "memory");
    return done != 0;
}

// Waits for the end of the phase of the given parity, asleep where it takes long. What TMA wrote in that phase is then
// there for this thread, for plain loads and for wgmma.
static __device__ __forceinline__ void mbarrier_wait_tx(Mbarrier *smem_barrier, int parity) {
    while (!mbarrier_try_wait(smem_barrier, parity)) {
    }
}

} // namespace attn
