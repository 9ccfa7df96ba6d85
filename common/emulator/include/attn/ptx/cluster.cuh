// The emulated side of <attn/ptx/cluster.cuh>. A store lands when a thread looks at a phase that waits for nothing else;
// under one schedule at issue.
#pragma once

#include <attn/ptx/mbarrier_tx.cuh>

namespace attn {
EMULATOR_BEGIN
namespace emulated {

__forceinline__ void cluster_barrier(const char *name, EmulatorKind kind, EmulatorSite site) {
    EmulatorCollective call{name, nullptr, nullptr, {0, 0}, 0, 0xffffffff, 0, kind, site};
    emulator_collective(emulator_current, &call);
}

} // namespace emulated

__device__ __forceinline__ int cluster_rank() { return emulator_current->cluster_rank; }

__device__ __forceinline__ void cluster_arrive(EMULATOR_HERE) {
    emulated::cluster_barrier("cluster_arrive", EMULATOR_CLUSTER_ARRIVE, EMULATOR_SITE);
}

__device__ __forceinline__ void cluster_arrive_relaxed(EMULATOR_HERE) {
    emulated::cluster_barrier("cluster_arrive_relaxed", EMULATOR_CLUSTER_ARRIVE_RELAXED, EMULATOR_SITE);
}

__device__ __forceinline__ void cluster_wait(EMULATOR_HERE) {
    emulated::cluster_barrier("cluster_wait", EMULATOR_CLUSTER_WAIT, EMULATOR_SITE);
}

__device__ __forceinline__ void store_async(int rank, uint4 *smem, const uint4 &value, Mbarrier *smem_barrier,
                                            EMULATOR_HERE) {
    emulator_store_async(emulator_current, rank, smem, &value, smem_barrier, EMULATOR_SITE);
}

__device__ __forceinline__ void mbarrier_wait_cluster(Mbarrier *smem_barrier, int parity, EMULATOR_HERE) {
    emulator_mbarrier_wait_cluster(emulator_current, smem_barrier, parity, EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
