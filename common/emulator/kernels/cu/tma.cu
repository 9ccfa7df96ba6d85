// TMA; each break is one bit, so that the whole kernel is the near miss. in[1]: tensor maps.
#include "kernel.h"
#include <attn/launch.h>
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/tma.cuh>

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL) // no other architecture has these instructions

namespace {

__device__ const AttentionTensorMap &map(const KernelParams *params, int index = 0) {
    return in<AttentionTensorMap>(params, 1)[index];
}

// Published to all, TMA included.
__device__ void make_barrier(attn::Mbarrier *barrier, int arrivals) {
    if (threadIdx.x == 0) {
        attn::mbarrier_init(barrier, arrivals);
        attn::fence_mbarrier_init(); // for TMA
    }
    __syncthreads(); // the object is there
}

} // namespace

// The box of n[0] bytes at the place in in[2], as it lies in shared memory, to out[0].
KERNEL(tma_box) {
    auto *barrier = shared<attn::Mbarrier>();
    char *box_smem = shared<char>(1024);
    make_barrier(barrier, 1);
    const int *at = in<int>(params, 2);
    if (threadIdx.x == 0) {
        attn::tma_prefetch_map(map(params));
        attn::mbarrier_arrive_expect_tx(barrier, params->n[0]); // the box
        attn::tma_load(box_smem, map(params), barrier, at[0], at[1], at[2], at[3]);
    }
    attn::mbarrier_wait_tx(barrier, 0); // for the box
    for (int i = threadIdx.x; i < params->n[0]; i += blockDim.x) out<char>(params)[i] = box_smem[i];
}

// n[0] bytes of in[0] through shared memory to the place in in[2] of out[0].
KERNEL(tma_store_box) {
    char *box_smem = shared<char>(1024);
    for (int i = threadIdx.x; i < params->n[0]; i += blockDim.x) box_smem[i] = in<char>(params)[i];
    attn::fence_proxy_async(); // what this thread wrote
    __syncthreads(); // all have written
    if (threadIdx.x == 0) {
        const int *at = in<int>(params, 2);
        attn::tma_store(map(params), box_smem, at[0], at[1], at[2], at[3]);
        attn::tma_store_commit();
        attn::tma_store_wait_read<0>(); // before shared memory goes
    }
}

enum RingBreak {
    NO_WAIT_FULL = 1,     // consumers read without waiting
    NO_WAIT_EMPTY = 2,    // the producer fills a slot that is in use
    NO_ARRIVE_EMPTY = 4,  // nobody says that a slot is free
    SHORT_EXPECT = 8,     // half of the bytes are expected
    LONG_EXPECT = 16,     // twice as many
    NO_EXPECT = 32,       // the producer only arrives
    WRONG_PARITY = 64,    // full is waited for one phase too late
    NO_FENCE_INIT = 128,  // TMA does not know the barriers
    ONE_WAITS = 256,      // one lane of each consumer warp waits
    THEN_SYNC = 512,      // with ONE_WAITS: and meets the others: right
    UNPRIMED = 1024,      // the first wait for an empty slot is for a phase that has to come
    TWICE = 2048,         // each box is loaded twice at once
    LATE_EXPECT = 4096,   // the producer expects what it has asked for before: right
    TRY = 8192,           // consumers ask again and again: right
    HALVES = 16384,       // each slot is filled by two boxes of half the rows: right
    ONE_FREES = 32768,    // one lane of each consumer warp frees the slot, and the others may still read
    THEN_FREES = 65536,   // with ONE_FREES: after a __syncwarp: right
    NO_BARRIER = 131072,  // nothing orders init and use
    FREES_UNREAD = 262144, // consumers skip the tiles: thread 32 waits and frees the slot, whether warp 2 has waited or not
    THEN_MEET = 524288,    // with FREES_UNREAD: after both warps have: right
};

// Warp 0 brings n[0] tiles of 8 x 32 floats into a ring of two slots of 2 KiB, warps 1 and 2 read all words.
KERNEL(tma_ring) {
    auto *full = shared<attn::Mbarrier>();    // [2]
    auto *empty = shared<attn::Mbarrier>(16); // [2]
    const int breaks = params->n[1], tiles = params->n[0];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < 2; ++slot) {
            attn::mbarrier_init(full + slot, 1); // full
            attn::mbarrier_init(empty + slot, breaks & FREES_UNREAD ? 1 : breaks & ONE_FREES ? 2 : 64);
        }
        if (!(breaks & NO_FENCE_INIT)) attn::fence_mbarrier_init(); // for the ring
    }
    if (!(breaks & NO_BARRIER)) __syncthreads(); // the ring is there
    if (warp == 0) {
        const bool is_leader = attn::elect_one();
        for (int tile = 0; is_leader && tile < tiles; ++tile) {
            const int slot = tile % 2, parity = tile / 2 % 2;
            float *slot_smem = shared<float>(1024 + slot * 2048);
            if (!(breaks & NO_WAIT_EMPTY)) attn::mbarrier_wait_tx(empty + slot, breaks & UNPRIMED ? parity : parity ^ 1); // free
            const int bytes = breaks & SHORT_EXPECT ? 512 : breaks & (LONG_EXPECT | TWICE) ? 2048 : 1024;
            if (breaks & NO_EXPECT) {
                attn::mbarrier_arrive(full + slot);
            } else if (!(breaks & LATE_EXPECT)) {
                attn::mbarrier_arrive_expect_tx(full + slot, bytes); // of a tile
            }
            if (breaks & HALVES) {
                attn::tma_load(slot_smem, map(params, 1), full + slot, 0, tile * 8, 0, 0);
                attn::tma_load(slot_smem + 256, map(params, 1), full + slot, 0, tile * 8 + 4, 0, 0);
            } else {
                attn::tma_load(slot_smem, map(params), full + slot, 0, tile * 8, 0, 0);
            }
            if (breaks & TWICE) attn::tma_load(slot_smem, map(params), full + slot, 0, tile * 8, 0, 0);
            if (breaks & LATE_EXPECT) attn::mbarrier_arrive_expect_tx(full + slot, bytes); // of what is on its way
        }
    } else {
        float sum = 0;
        for (int tile = 0; tile < tiles; ++tile) {
            const int slot = tile % 2, parity = breaks & WRONG_PARITY ? tile / 2 % 2 ^ 1 : tile / 2 % 2;
            const float *slot_smem = shared<float>(1024 + slot * 2048);
            if (breaks & TRY) {
                while (!attn::mbarrier_try_wait(full + slot, parity)) { // asks for a tile
                }
            } else if (!(breaks & NO_WAIT_FULL) && (!(breaks & ONE_WAITS) || lane == 0)) {
                attn::mbarrier_wait_tx(full + slot, parity); // for a tile
            }
            if (breaks & FREES_UNREAD) {
                if (breaks & THEN_MEET) attn::named_barrier_sync<64>(1); // both warps have seen the phase
                if (threadIdx.x == 32) attn::mbarrier_arrive(empty + slot); // unread
                continue;
            }
            if (breaks & THEN_SYNC) __syncwarp(); // with who has waited
            for (int i = 0; i < 256; ++i) sum += slot_smem[breaks & HALVES && i >= 128 ? i + 128 : i];
            if (breaks & THEN_FREES) __syncwarp(); // all lanes have read
            if (!(breaks & NO_ARRIVE_EMPTY) && (!(breaks & ONE_FREES) || lane == 0)) attn::mbarrier_arrive(empty + slot); // read
        }
        out<float>(params)[threadIdx.x - 32] = sum;
    }
}

enum RefillBreak {
    NO_SYNC = 1,      // lanes may still read when thread 0 fills the slot again
    WRITE_FIRST = 2,  // a store to the slot that nothing orders before the load
    WRITE_LATER = 4,  // a store to the slot while it is filled
    LAST_UNSEEN = 8,  // nobody waits for the last box
    NO_WAIT = 16,     // thread 0 alone waits, and a __syncthreads stands for the rest: right
    ONLY_SYNC = 32,   // nobody waits, and a __syncthreads stands for it
    CLEARED = 64,     // all lanes clear the slot and meet before the first load: the async proxy may not know of it
    CLEARED_FENCED = 128, // with CLEARED: each lane fences what it has cleared: right
    ISSUER_FENCES = 256, // with CLEARED: lane 0 fences for all
};

// One warp refills its one slot n[0] times when all lanes have read it.
KERNEL(tma_refill) {
    auto *full = shared<attn::Mbarrier>();
    float *tile_smem = shared<float>(1024);
    const int breaks = params->n[1], tiles = params->n[0], lane = threadIdx.x;
    make_barrier(full, 1);
    float sum = 0;
    if (breaks & WRITE_FIRST && lane == 5) tile_smem[0] = 1;
    if (breaks & CLEARED) {
        for (int i = lane; i < 256; i += 32) tile_smem[i] = 0;
        if (breaks & CLEARED_FENCED || (breaks & ISSUER_FENCES && lane == 0)) attn::fence_proxy_async(); // what this lane cleared
        __syncthreads(); // the slot is clear
    }
    for (int tile = 0; tile < tiles; ++tile) {
        if (lane == 0) {
            attn::mbarrier_arrive_expect_tx(full, 1024); // of the slot
            attn::tma_load(tile_smem, map(params), full, 0, tile * 8, 0, 0);
        }
        if (breaks & WRITE_LATER && lane == 0) tile_smem[0] = 1;
        if (breaks & LAST_UNSEEN && tile == tiles - 1) break;
        if (!(breaks & (NO_WAIT | ONLY_SYNC)) || (breaks & NO_WAIT && lane == 0)) attn::mbarrier_wait_tx(full, tile % 2); // slot
        if (breaks & (NO_WAIT | ONLY_SYNC)) __syncthreads(); // with who has waited for the slot
        for (int i = 0; i < 256; ++i) sum += tile_smem[i];
        if (!(breaks & NO_SYNC)) __syncwarp(); // the slot has been read
    }
    out<float>(params)[lane] = sum;
}

enum StoreBreak {
    NO_FENCE = 1,        // of who has written
    FENCE_OF_ISSUER = 2, // only thread 0 fences
    FENCE_LATE = 4,      // all fence, but after the barrier
    NO_MEETING = 8,      // nothing orders the writes and the store
    REWRITE_EARLY = 16,  // the tile is written again before it has been read
    NO_COMMIT = 32,      // the store is in no group
    NO_STORE_WAIT = 64,  // nobody waits
    OTHER_WAITS = 128,   // another thread waits
    NEWEST = 256,        // the wait leaves the last store
    SAME_TILE = 512,     // every block stores the same tile
    FETCHED = 1024,      // TMA has brought the tile, so nobody needs to fence: right
    READ_BACK = 2048,    // what is stored is read from global memory
};

// Each block stores n[0] tiles of 8 x 32 floats from one place.
KERNEL(tma_store_tiles) {
    auto *full = shared<attn::Mbarrier>();
    float *tile_smem = shared<float>(1024);
    const int breaks = params->n[1], tiles = params->n[0];
    if (breaks & FETCHED) make_barrier(full, 1);
    for (int tile = 0; tile < tiles; ++tile) {
        if (breaks & FETCHED) {
            if (threadIdx.x == 0) {
                attn::mbarrier_arrive_expect_tx(full, 1024); // of what is stored
                attn::tma_load(tile_smem, map(params, 0), full, 0, tile * 8, 0, 0);
            }
            attn::mbarrier_wait_tx(full, tile % 2); // for what is stored
        } else {
            for (int i = threadIdx.x; i < 256; i += blockDim.x) tile_smem[i] = in<float>(params)[tile * 256 + i];
            if (!(breaks & (NO_FENCE | FENCE_OF_ISSUER | FENCE_LATE))) attn::fence_proxy_async(); // of the tile
            if (!(breaks & NO_MEETING)) __syncthreads(); // the tile is written
            if (breaks & FENCE_LATE || (breaks & FENCE_OF_ISSUER && threadIdx.x == 0)) attn::fence_proxy_async(); // too late
        }
        const int block = breaks & SAME_TILE ? 0 : blockIdx.x;
        if (threadIdx.x == 0) {
            attn::tma_store(map(params, 1), tile_smem, 0, tile * 8, block, 0);
            if (!(breaks & NO_COMMIT)) attn::tma_store_commit(); // a group of one
        }
        if (threadIdx.x == (breaks & OTHER_WAITS ? 32 : 0)) {
            if (breaks & NEWEST) {
                attn::tma_store_wait_read<1>(); // but for the last
            } else if (!(breaks & NO_STORE_WAIT)) {
                attn::tma_store_wait_read<0>(); // the tile has been read
            }
        }
        if (!(breaks & REWRITE_EARLY)) __syncthreads(); // who waited has met the others
        if (breaks & READ_BACK) tile_smem[512 + threadIdx.x] = out<float>(params)[blockIdx.x * 512 + threadIdx.x];
    }
}

// n[0]: byte of the box; n[1]: index of the map, -1: null; n[2]: first row; n[3]: twice the first column, plus 1 for a
// store.
KERNEL(tma_misused) {
    auto *barrier = shared<attn::Mbarrier>();
    make_barrier(barrier, 1);
    const AttentionTensorMap *tensor = params->n[1] < 0 ? nullptr : in<AttentionTensorMap>(params, 1) + params->n[1];
    char *box_smem = shared<char>(params->n[0]);
    if (threadIdx.x == 0) {
        const int col = params->n[3] >> 1;
        if (params->n[3] & 1) {
            // Something to store, where the box exists.
            for (int i = 0; i < 256 && params->n[0] >= 0 && params->n[0] <= 3072; ++i) reinterpret_cast<float *>(box_smem)[i] = 1;
            attn::fence_proxy_async(); // for the misused store
            attn::tma_store(*tensor, box_smem, col, params->n[2], 0, 0);
            attn::tma_store_commit(); // a group of the misused
            attn::tma_store_wait_read<0>(); // the misused has been read
        } else {
            attn::mbarrier_arrive_expect_tx(barrier, 1024); // of the misused load
            attn::tma_load(box_smem, *tensor, barrier, col, params->n[2], 0, 0);
            attn::mbarrier_wait_tx(barrier, 0); // for the misused
        }
    }
}

// n[1] times expects n[0] bytes.
KERNEL(tma_expects) {
    auto *barrier = shared<attn::Mbarrier>();
    make_barrier(barrier, params->n[1] + 1);
    if (threadIdx.x == 0) {
        for (int i = 0; i < params->n[1]; ++i) attn::mbarrier_arrive_expect_tx(barrier, params->n[0]); // expects
    }
}

// Whether each lane was elected; n[0]: lanes that take part.
KERNEL(elect_one) {
    int elected = 0;
    if (int(threadIdx.x % 32) < params->n[0]) elected = attn::elect_one(); // elects
    out<int>(params)[threadIdx.x] = elected;
}

#endif
