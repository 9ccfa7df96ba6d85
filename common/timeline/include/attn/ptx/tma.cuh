// As the plain header has it, with notes. Without notes: map_address, tma_prefetch_map, tma_store_commit, fence_proxy_async and
// elect_one, which wait for nobody and move no tile.
#pragma once

#include <attn/ptx/mbarrier_tx.cuh>

#define tma_load plain_tma_load
#define tma_store plain_tma_store
#define tma_store_wait_read plain_tma_store_wait_read
#include_next <attn/ptx/tma.cuh>
#undef tma_load
#undef tma_store
#undef tma_store_wait_read

namespace attn {

static __device__ __forceinline__ void tma_load(void *smem_box, const AttentionTensorMap &map, Mbarrier *smem_barrier, int col,
                                                int row, int head, int batch, int line = __builtin_LINE()) {
    timeline::begin(timeline::TMA_LOAD, line, shared_address(smem_barrier));
    plain_tma_load(smem_box, map, smem_barrier, col, row, head, batch);
    timeline::finish();
}

static __device__ __forceinline__ void tma_store(const AttentionTensorMap &map, const void *smem_box, int col, int row, int head,
                                                 int batch, int line = __builtin_LINE()) {
    timeline::begin(timeline::TMA_STORE, line);
    plain_tma_store(map, smem_box, col, row, head, batch);
    timeline::finish();
}

template <int PENDING>
static __device__ __forceinline__ void tma_store_wait_read(int line = __builtin_LINE()) {
    timeline::begin(timeline::STORE_WAIT, line, PENDING);
    plain_tma_store_wait_read<PENDING>();
    timeline::finish();
}

} // namespace attn
