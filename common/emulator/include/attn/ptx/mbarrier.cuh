// The emulated side of <attn/ptx/mbarrier.cuh>. The object's 8 bytes hold a mark, so that overwriting them is found; the
// scheduler keeps its phases. Arriving copies land when a thread first observes the end of their phase.
#pragma once

#include <emulator/prelude.h>

namespace attn {
EMULATOR_BEGIN

using Mbarrier = uint64_t;

__device__ __forceinline__ void mbarrier_init(Mbarrier *smem_barrier, int arrivals, EMULATOR_HERE) {
    emulator_mbarrier_init(emulator_current, smem_barrier, arrivals, EMULATOR_SITE);
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier *smem_barrier, EMULATOR_HERE) {
    emulator_mbarrier_arrive(emulator_current, smem_barrier, EMULATOR_SITE);
}

__device__ __forceinline__ void mbarrier_arrive_after_cp_async(Mbarrier *smem_barrier, EMULATOR_HERE) {
    emulator_mbarrier_arrive_after_cp_async(emulator_current, smem_barrier, EMULATOR_SITE);
}

// Before it fails, all other ready threads run.
__device__ __forceinline__ bool mbarrier_test_wait(Mbarrier *smem_barrier, int parity, EMULATOR_HERE) {
    return emulator_mbarrier_test_wait(emulator_current, smem_barrier, parity, EMULATOR_SITE);
}

__device__ __forceinline__ void mbarrier_wait(Mbarrier *smem_barrier, int parity, EMULATOR_HERE) {
    emulator_mbarrier_wait(emulator_current, smem_barrier, parity, EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
