// As the plain header has it, with notes. A run of copies ends with its group.
#pragma once

#include <attn/timeline.cuh>

#define cp_async plain_cp_async
#define cp_async_zfill plain_cp_async_zfill
#define cp_async_commit plain_cp_async_commit
#define cp_async_wait_group plain_cp_async_wait_group
#include_next <attn/ptx/cp_async.cuh>
#undef cp_async
#undef cp_async_zfill
#undef cp_async_commit
#undef cp_async_wait_group

namespace attn {

template <int BYTES>
static __device__ __forceinline__ void cp_async(void *smem_dst, const void *gmem_src, int line = __builtin_LINE()) {
    timeline::run<timeline::CP_ASYNC>(line);
    plain_cp_async<BYTES>(smem_dst, gmem_src);
}

template <int BYTES>
static __device__ __forceinline__ void cp_async_zfill(void *smem_dst, const void *gmem_src, int src_bytes,
                                                      int line = __builtin_LINE()) {
    timeline::run<timeline::CP_ASYNC>(line);
    plain_cp_async_zfill<BYTES>(smem_dst, gmem_src, src_bytes);
}

static __device__ __forceinline__ void cp_async_commit() {
    plain_cp_async_commit();
    timeline::close();
}

template <int N>
static __device__ __forceinline__ void cp_async_wait_group(int line = __builtin_LINE()) {
    timeline::begin(timeline::CP_ASYNC_WAIT, line, N);
    plain_cp_async_wait_group<N>();
    timeline::finish();
}

} // namespace attn
