// The emulated side of <attn/ptx/tma.cuh>. A map holds what emulator::TensorMap encodes. The destination of a load is poison
// until its phase ends, and the source of a store is read when the thread waits for that; under one schedule both happen at
// issue.
#pragma once

#include <emulator/prelude.h>

#include <attn/ptx/mbarrier_tx.cuh>

struct AttentionTensorMap; // of <attn/launch.h>, which only kernels with maps include

namespace attn {
EMULATOR_BEGIN
namespace emulated {

struct ElectOperand {
    bool elected;
};

EMULATOR_UNTRACED inline const char *elect(void *const *operands, uint32_t, uint32_t *) {
    static_cast<ElectOperand *>(operands[emulator_current->layouts->leader])->elected = true;
    return nullptr;
}

} // namespace emulated

__device__ __forceinline__ const uint64_t *map_address(const AttentionTensorMap &map) {
    return reinterpret_cast<const uint64_t *>(&map);
}

__device__ __forceinline__ void tma_prefetch_map(const AttentionTensorMap &map, EMULATOR_HERE) {
    emulator_tma_prefetch_map(emulator_current, map_address(map), EMULATOR_SITE);
}

__device__ __forceinline__ void tma_load(void *smem_box, const AttentionTensorMap &map, Mbarrier *smem_barrier, int col, int row,
                                         int head, int batch, EMULATOR_HERE) {
    const int32_t at[4] = {col, row, head, batch};
    emulator_tma_load(emulator_current, smem_box, map_address(map), smem_barrier, at, EMULATOR_SITE);
}

__device__ __forceinline__ void tma_store(const AttentionTensorMap &map, const void *smem_box, int col, int row, int head,
                                          int batch, EMULATOR_HERE) {
    const int32_t at[4] = {col, row, head, batch};
    emulator_tma_store(emulator_current, map_address(map), smem_box, at, EMULATOR_SITE);
}

__device__ __forceinline__ void tma_store_commit(EMULATOR_HERE) { emulator_tma_store_commit(emulator_current, EMULATOR_SITE); }

template <int PENDING> __device__ __forceinline__ void tma_store_wait_read(EMULATOR_HERE) {
    static_assert(PENDING >= 0);
    emulator_tma_store_wait_read(emulator_current, PENDING, EMULATOR_SITE);
}

__device__ __forceinline__ void fence_proxy_async(EMULATOR_HERE) { emulator_fence_proxy_async(emulator_current, EMULATOR_SITE); }

// Lane 0 or 31, as the schedule says.
__device__ __forceinline__ bool elect_one(EMULATOR_HERE) {
    emulated::ElectOperand operand{false};
    emulator::collective("elect_one", emulated::elect, operand, 0xffffffff, 0, 0, 0, 0, EMULATOR_VOTE, EMULATOR_SITE);
    return operand.elected;
}

EMULATOR_END
} // namespace attn
