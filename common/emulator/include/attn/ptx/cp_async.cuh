// The emulated side of <attn/ptx/cp_async.cuh>. The destination holds poison from the issue until the issuing thread's
// wait_group that covers it.
#pragma once

#include <emulator/prelude.h>

namespace attn {
EMULATOR_BEGIN

template <int BYTES> __device__ __forceinline__ void cp_async(void *smem_dst, const void *gmem_src, EMULATOR_HERE) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    emulator_cp_async(emulator_current, smem_dst, gmem_src, BYTES, BYTES, EMULATOR_SITE);
}

// Zero-fills the destination behind the first src_bytes (0 to BYTES). With 0 nothing is read.
template <int BYTES>
__device__ __forceinline__ void cp_async_zfill(void *smem_dst, const void *gmem_src, int src_bytes, EMULATOR_HERE) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    emulator_cp_async(emulator_current, smem_dst, gmem_src, BYTES, src_bytes, EMULATOR_SITE);
}

__device__ __forceinline__ void cp_async_commit(EMULATOR_HERE) {
    emulator_cp_async_commit(emulator_current, EMULATOR_SITE);
}

template <int N> __device__ __forceinline__ void cp_async_wait_group(EMULATOR_HERE) {
    static_assert(N >= 0);
    emulator_cp_async_wait(emulator_current, N, EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
