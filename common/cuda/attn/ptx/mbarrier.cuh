// mbarrier (sm_80): a barrier object in shared memory whose phases are counted, for producer and consumer warps. The forms that
// sm_80 has: no expect_tx, no try_wait. PTX ISA, "mbarrier".
#pragma once

#include <attn/ptx/shared_address.cuh>

namespace attn {

// An mbarrier object: 8 bytes of shared memory on an 8-byte boundary.
using Mbarrier = uint64_t;

// Makes phase 0 current and expects `arrivals` arrivals in each phase. One thread, followed by a block barrier before any
// other thread uses the object.
static __device__ __forceinline__ void mbarrier_init(Mbarrier *smem_barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(smem_barrier)), "r"(arrivals) : "memory");
}

// Counts one arrival in the current phase. What this thread wrote before is visible to whoever observes the phase's end.
static __device__ __forceinline__ void mbarrier_arrive(Mbarrier *smem_barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(shared_address(smem_barrier))
                 : "memory");
}

// Arrives once all cp.async that this thread has started so far have landed; does not block. The arrival counts towards
// the `arrivals` of the init (.noinc). It covers those copies, not what the thread itself stored after them.
static __device__ __forceinline__ void mbarrier_arrive_after_cp_async(Mbarrier *smem_barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(smem_barrier)) : "memory");
}

// Whether the phase of the given parity has ended: phase 0 has parity 0. Never blocks.
static __device__ __forceinline__ bool mbarrier_test_wait(Mbarrier *smem_barrier, int parity) {
    int done;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(smem_barrier)), "r"(parity)
                 : "memory");
    return done != 0;
}

// Waits for the end of the phase of the given parity.
static __device__ __forceinline__ void mbarrier_wait(Mbarrier *smem_barrier, int parity) {
    while (!mbarrier_test_wait(smem_barrier, parity)) {
    }
}

} // namespace attn
