// cp.async (sm_80): a copy from global to shared memory that does not pass through registers. PTX ISA, "Data Movement and
// Conversion Instructions: cp.async".
#pragma once

#include <attn/ptx/shared_address.cuh>

namespace attn {

// Starts copying BYTES from global to shared memory; both addresses are multiples of BYTES. 16-byte copies bypass L1
// (.cg), smaller ones have only .ca.
template <int BYTES>
static __device__ __forceinline__ void cp_async(void *smem_dst, const void *gmem_src) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(smem_dst)), "l"(gmem_src) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(smem_dst)), "l"(gmem_src), "n"(BYTES)
                     : "memory");
    }
}

// The same, but only src_bytes (0 to BYTES) are read; the rest of the destination becomes zero. With 0, the source is
// not read and may be any pointer.
template <int BYTES>
static __device__ __forceinline__ void cp_async_zfill(void *smem_dst, const void *gmem_src, int src_bytes) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(smem_dst)), "l"(gmem_src),
                     "r"(src_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(smem_dst)), "l"(gmem_src),
                     "n"(BYTES), "r"(src_bytes)
                     : "memory");
    }
}

// Closes the group of copies that this thread has started since the last commit. Does not block.
static __device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Blocks until at most N of this thread's groups are still in flight. Says nothing about other threads' copies: a
// barrier must follow before they read the data.
template <int N>
static __device__ __forceinline__ void cp_async_wait_group() {
    static_assert(N >= 0, "a count of groups");
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

} // namespace attn
