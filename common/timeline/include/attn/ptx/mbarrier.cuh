// As the plain header has it, with notes. Without notes: mbarrier_init, before anybody else knows the barrier, and
// mbarrier_test_wait, which never blocks.
#pragma once

#include <attn/timeline.cuh>

#define mbarrier_arrive plain_mbarrier_arrive
#define mbarrier_arrive_after_cp_async plain_mbarrier_arrive_after_cp_async
#define mbarrier_wait plain_mbarrier_wait
#include_next <attn/ptx/mbarrier.cuh>
#undef mbarrier_arrive
#undef mbarrier_arrive_after_cp_async
#undef mbarrier_wait

namespace attn {

static __device__ __forceinline__ void mbarrier_arrive(Mbarrier *smem_barrier, int line = __builtin_LINE()) {
    timeline::mark(timeline::ARRIVE, line, shared_address(smem_barrier));
    plain_mbarrier_arrive(smem_barrier);
}

static __device__ __forceinline__ void mbarrier_arrive_after_cp_async(Mbarrier *smem_barrier, int line = __builtin_LINE()) {
    timeline::mark(timeline::ARRIVE_AFTER_COPIES, line, shared_address(smem_barrier));
    plain_mbarrier_arrive_after_cp_async(smem_barrier);
}

static __device__ __forceinline__ void mbarrier_wait(Mbarrier *smem_barrier, int parity, int line = __builtin_LINE()) {
    timeline::begin(timeline::MBARRIER_WAIT, line, shared_address(smem_barrier));
    plain_mbarrier_wait(smem_barrier, parity);
    timeline::finish();
}

} // namespace attn
