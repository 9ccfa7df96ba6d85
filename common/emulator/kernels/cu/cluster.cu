// Clusters; each break is one bit, so that the whole kernel is the near miss.
#include "kernel.h"
#include <attn/ptx/cluster.cuh>

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL) // no other architecture has these instructions

enum ExchangeBreak {
    STORE_BEFORE_WAIT = 1,       // stores before it knows that the other block is there
    READ_BEFORE_WAIT = 2,        // reads what was stored without waiting
    THREAD_0_WAITS = 4,          // thread 0 waits for its block
    THEN_MEETS = 8,              // and meets it then
    ARRIVE_TWICE = 16,           // at the barrier of the cluster, without waiting in between
    ONE_ARRIVES_NOT = 32,        // warp 1 of block 1 only waits there
    ONE_STORE_TOO_FEW = 64,      // one store more is expected than comes
    LEAVE_EARLY = 128,           // block 1 ends without waiting for what is stored there
    CLUSTER_DOES_NOT_MEET = 256, // the next round's stores are started while this one's are read
    BEHIND = 512,                // stores behind shared memory
    MISALIGNED = 1024,           // stores to a multiple of 8
    NOBODY = 2048,               // stores to a block that the cluster has not
    RELAXED = 4096,              // arrives relaxed at first
    FENCED = 8192,               // after a fence
    WAIT_OF_BLOCK = 16384,       // waits as for boxes of TMA, at the scope of the block
    OWN = 32768,                 // with WAIT_OF_BLOCK: each block stores to itself: right
};

// Each thread of two blocks of 128 stores 16 bytes of in[0] to the other block, for n[1] rounds. out[0]: what each found in
// its place.
CLUSTER_KERNEL(cluster_exchange, 2) {
    auto *places = shared<uint4>();            // [128]
    auto *full = shared<attn::Mbarrier>(2048);
    const int breaks = params->n[0], rounds = params->n[1];
    const int thread = threadIdx.x, rank = attn::cluster_rank(), other = 1 - rank;
    if (thread == 0) attn::mbarrier_init(full, 1);
    if (breaks & FENCED && thread == 0) attn::fence_mbarrier_init(); // of the barrier
    if (breaks & RELAXED) {
        attn::cluster_arrive_relaxed(); // with the fence, the barrier is there
    } else if (!(breaks & ONE_ARRIVES_NOT && rank == 1 && thread / 32 == 1)) {
        attn::cluster_arrive(); // the barrier is there
    }
    if (breaks & ARRIVE_TWICE) attn::cluster_arrive(); // the second
    if (!(breaks & STORE_BEFORE_WAIT)) attn::cluster_wait(); // before the first store
    for (int round = 0; round < rounds; ++round) {
        const int bytes = (breaks & ONE_STORE_TOO_FEW ? 129 : 128) * 16;
        if (thread == 0) attn::mbarrier_arrive_expect_tx(full, bytes); // what the other block stores
        const uint4 value = in<uint4>(params)[(blockIdx.x * rounds + round) * 128 + thread];
        uint4 *place = places + (thread * 37 + round) % 128;
        if (breaks & BEHIND) place = places + 128 + 8;
        if (breaks & MISALIGNED) place = reinterpret_cast<uint4 *>(reinterpret_cast<char *>(place) + 8);
        const int to = breaks & NOBODY ? 2 : breaks & OWN ? rank : other;
        attn::store_async(to, place, value, full);
        if (breaks & LEAVE_EARLY && rank == 1) return;
        if (breaks & WAIT_OF_BLOCK) {
            attn::mbarrier_wait_tx(full, round % 2); // for the round, of this block
        } else if (!(breaks & (READ_BEFORE_WAIT | THREAD_0_WAITS)) || ((breaks & THREAD_0_WAITS) && thread == 0)) {
            attn::mbarrier_wait_cluster(full, round % 2); // for the round
        }
        if (breaks & THEN_MEETS) __syncthreads(); // thread 0 has waited
        const uint4 found = places[thread];
        out<uint4>(params)[(blockIdx.x * rounds + round) * 128 + thread] = found;
        if (round + 1 < rounds && !(breaks & CLUSTER_DOES_NOT_MEET)) {
            attn::cluster_arrive(); // this block has read
            attn::cluster_wait();   // the other block has read
        }
    }
    if (breaks & STORE_BEFORE_WAIT) attn::cluster_wait(); // at the end
}

// The block is its cluster: each of 128 threads stores 16 bytes of in[0] to block n[0], itself if 0. out[0]: what each found in its place.
CLUSTER_KERNEL(cluster_of_one, 1) {
    auto *places = shared<uint4>(); // [128]
    auto *full = shared<attn::Mbarrier>(2048);
    const int thread = threadIdx.x;
    if (thread == 0) {
        attn::mbarrier_init(full, 1);
        attn::fence_mbarrier_init();
        attn::mbarrier_arrive_expect_tx(full, 128 * 16);
    }
    attn::cluster_arrive_relaxed();
    attn::cluster_wait(); // the barrier is there
    attn::store_async(params->n[0], places + thread * 37 % 128, in<uint4>(params)[thread], full);
    attn::mbarrier_wait_cluster(full, 0);
    out<uint4>(params)[thread] = places[thread];
}

// n[0] = 0: a warp has left and is not waited for; 1: one waits elsewhere.
CLUSTER_KERNEL(cluster_barrier_missed, 2) {
    const int warp = threadIdx.x / 32;
    if (params->n[0] == 0 && blockIdx.x == 0 && warp == 3) return;
    if (params->n[0] == 1 && blockIdx.x == 1 && warp == 3) __syncthreads(); // the others wait for the cluster first
    attn::cluster_arrive();                                                 // all that are there
    attn::cluster_wait();                                                   // for all that are there
    if (params->n[0] == 1 && blockIdx.x == 1 && warp != 3) __syncthreads(); // with the warp that came here first
}

#endif
