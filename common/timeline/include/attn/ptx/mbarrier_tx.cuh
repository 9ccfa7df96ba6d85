// As the plain header has it, with notes. Without notes: fence_mbarrier_init, and mbarrier_try_wait, which never blocks for long.
#pragma once

#include <attn/ptx/mbarrier.cuh>

#define mbarrier_arrive_expect_tx plain_mbarrier_arrive_expect_tx
#define mbarrier_wait_tx plain_mbarrier_wait_tx
#include_next <attn/ptx/mbarrier_tx.cuh>
#undef mbarrier_arrive_expect_tx
#undef mbarrier_wait_tx

namespace attn {

static __device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier *smem_barrier, int bytes, int line = __builtin_LINE()) {
    timeline::mark(timeline::ARRIVE_EXPECT_TX, line, shared_address(smem_barrier));
    plain_mbarrier_arrive_expect_tx(smem_barrier, bytes);
}

static __device__ __forceinline__ void mbarrier_wait_tx(Mbarrier *smem_barrier, int parity, int line = __builtin_LINE()) {
    timeline::begin(timeline::MBARRIER_WAIT, line, shared_address(smem_barrier));
    plain_mbarrier_wait_tx(smem_barrier, parity);
    timeline::finish();
}

} // namespace attn
