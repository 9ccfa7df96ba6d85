// The emulated side of <attn/ptx/mbarrier_tx.cuh>: a phase ends once all arrivals and bytes have come. Boxes land when a thread
// looks whose phase nothing else keeps from its end; under one schedule when they are issued.
#pragma once

#include <attn/ptx/mbarrier.cuh>

namespace attn {
EMULATOR_BEGIN

__device__ __forceinline__ void fence_mbarrier_init(EMULATOR_HERE) {
    emulator_fence_mbarrier_init(emulator_current, EMULATOR_SITE);
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier *smem_barrier, int bytes, EMULATOR_HERE) {
    emulator_mbarrier_arrive_expect_tx(emulator_current, smem_barrier, bytes, EMULATOR_SITE);
}

// Says no at times although the phase has ended, as it may.
__device__ __forceinline__ bool mbarrier_try_wait(Mbarrier *smem_barrier, int parity, EMULATOR_HERE) {
    return emulator_mbarrier_try_wait(emulator_current, smem_barrier, parity, EMULATOR_SITE);
}

__device__ __forceinline__ void mbarrier_wait_tx(Mbarrier *smem_barrier, int parity, EMULATOR_HERE) {
    emulator_mbarrier_wait_tx(emulator_current, smem_barrier, parity, EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
