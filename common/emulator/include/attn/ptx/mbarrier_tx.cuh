// The emulated side of <attn/ptx/mbarrier_tx.cuh>. Boxes land when a thread looks at a phase that waits for nothing else;
// under one schedule at issue.
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

// May fail although the phase has ended, as PTX allows.
__device__ __forceinline__ bool mbarrier_try_wait(Mbarrier *smem_barrier, int parity, EMULATOR_HERE) {
    return emulator_mbarrier_try_wait(emulator_current, smem_barrier, parity, EMULATOR_SITE);
}

__device__ __forceinline__ void mbarrier_wait_tx(Mbarrier *smem_barrier, int parity, EMULATOR_HERE) {
    emulator_mbarrier_wait_tx(emulator_current, smem_barrier, parity, EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
