// TMA (sm_90): boxes of tensors between global and shared memory, by one thread. PTX ISA, "cp.async.bulk.tensor", "Async proxy".
#pragma once

#include <attn/launch.h>
#include <attn/ptx/mbarrier_tx.cuh>

namespace attn {

// The generic address of a map, as the instructions take it.
static __device__ __forceinline__ uint64_t map_address(const AttentionTensorMap &map) {
    return reinterpret_cast<uint64_t>(&map);
}

// Fetches the map itself, which takes as long as a load from global memory.
static __device__ __forceinline__ void tma_prefetch_map(const AttentionTensorMap &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map_address(map)) : "memory");
}

// Starts the copy of one box to `smem_box`, on a boundary of 8 of its rows. The phase of `smem_barrier` counts all
// bytes of the box, those outside of the tensor as well, which become zero. Does not wait.
static __device__ __forceinline__ void tma_load(void *smem_box, const AttentionTensorMap &map, Mbarrier *smem_barrier, int col,
                                                int row, int head, int batch) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
                 "%5}], [%6];" ::"r"(shared_address(smem_box)),
                 "l"(map_address(map)), "r"(col), "r"(row), "r"(head), "r"(batch), "r"(shared_address(smem_barrier))
                 : "memory");
}

// Starts the copy of one box from `smem_box` to global memory, as part of this thread's next group; what lies outside of
// the tensor is not written. The writers of the box have since called fence_proxy_async() and met this thread.
static __device__ __forceinline__ void tma_store(const AttentionTensorMap &map, const void *smem_box, int col, int row, int head,
                                                 int batch) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
                     map_address(map)),
                 "r"(col), "r"(row), "r"(head), "r"(batch), "r"(shared_address(smem_box))
                 : "memory");
}

// Ends this thread's group of stores.
static __device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's groups have still to read shared memory.
template <int PENDING>
static __device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Makes what this thread wrote to shared memory so far visible to the async proxy: to wgmma and TMA. The writer calls it,
// before the barrier at which it meets who starts them.
static __device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// True in one lane of the warp, always the same one. All 32 lanes take part.
static __device__ __forceinline__ bool elect_one() {
    int elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected != 0;
}

} // namespace attn
