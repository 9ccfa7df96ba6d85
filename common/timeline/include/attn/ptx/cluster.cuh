// As the plain header has it, with notes. Without notes: cluster_rank, no instruction of its own.
#pragma once

#include <attn/ptx/mbarrier_tx.cuh>

#define cluster_arrive plain_cluster_arrive
#define cluster_arrive_relaxed plain_cluster_arrive_relaxed
#define cluster_wait plain_cluster_wait
#define store_async plain_store_async
#define mbarrier_wait_cluster plain_mbarrier_wait_cluster
#include_next <attn/ptx/cluster.cuh>
#undef cluster_arrive
#undef cluster_arrive_relaxed
#undef cluster_wait
#undef store_async
#undef mbarrier_wait_cluster

namespace attn {

static __device__ __forceinline__ void cluster_arrive(int line = __builtin_LINE()) {
    timeline::mark(timeline::CLUSTER_ARRIVE, line);
    plain_cluster_arrive();
}

static __device__ __forceinline__ void cluster_arrive_relaxed(int line = __builtin_LINE()) {
    timeline::mark(timeline::CLUSTER_ARRIVE, line);
    plain_cluster_arrive_relaxed();
}

static __device__ __forceinline__ void cluster_wait(int line = __builtin_LINE()) {
    timeline::begin(timeline::CLUSTER_WAIT, line);
    plain_cluster_wait();
    timeline::finish();
}

static __device__ __forceinline__ void store_async(int rank, uint4 *smem, const uint4 &value, Mbarrier *smem_barrier,
                                                   int line = __builtin_LINE()) {
    timeline::run<timeline::STORE_ASYNC>(line);
    plain_store_async(rank, smem, value, smem_barrier);
}

static __device__ __forceinline__ void mbarrier_wait_cluster(Mbarrier *smem_barrier, int parity, int line = __builtin_LINE()) {
    timeline::begin(timeline::MBARRIER_WAIT, line, shared_address(smem_barrier));
    plain_mbarrier_wait_cluster(smem_barrier, parity);
    timeline::finish();
}

} // namespace attn
