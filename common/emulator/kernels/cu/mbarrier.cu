// mbarriers; each break is one bit of n[1], so that the whole kernel is the near miss.
#include "kernel.h"
#include <attn/ptx/cp_async.cuh>
#include <attn/ptx/mbarrier.cuh>

enum Break {
    NO_WAIT_FULL = 1,      // consumers read without waiting
    NO_WAIT_EMPTY = 2,     // the producer fills a slot that is in use
    NO_ARRIVE_EMPTY = 4,   // nobody says that a slot is free
    ONE_TOO_MANY = 8,      // full expects an arrival that never comes
    ONE_TOO_FEW = 16,      // full ends before the last copy has arrived
    WRONG_PARITY = 32,     // full is waited for one phase too late
    NO_BARRIER = 64,       // nothing orders init and use
    NO_INIT = 128,         // of empty
    ONE_CONSUMER = 256,    // empty expects one consumer warp, though two read
    PLAIN_ARRIVE = 512,    // the producer arrives at once instead of after its copies
    ONE_WAITS = 1024,      // only one lane of each consumer warp waits
    READ_OBJECT = 2048,    // a barrier object is read as if it were data
    NO_ARRIVE_FULL = 4096, // the producer dies silently
};

// Warp 0 copies n[0] tiles of 32 words into a ring of two, warps 1 and 2 read all words.
KERNEL(ring) {
    auto *full = shared<attn::Mbarrier>();    // [2]
    auto *empty = shared<attn::Mbarrier>(16); // [2]
    float *tiles_smem = shared<float>(32);    // [2][32]
    const int breaks = params->n[1], tiles = params->n[0];
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < 2; ++slot) {
            attn::mbarrier_init(full + slot, 32 + (breaks & ONE_TOO_MANY ? 1 : 0) - (breaks & ONE_TOO_FEW ? 1 : 0)); // full
            if (!(breaks & NO_INIT)) attn::mbarrier_init(empty + slot, breaks & ONE_CONSUMER ? 32 : 64);
        }
    }
    if (!(breaks & NO_BARRIER)) __syncthreads(); // the objects are there
    float sum = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        const int slot = tile % 2, parity = tile / 2 % 2;
        float *slot_smem = tiles_smem + slot * 32;
        if (threadIdx.x < 32) {
            if (!(breaks & NO_WAIT_EMPTY)) attn::mbarrier_wait(empty + slot, parity ^ 1); // the slot is free
            attn::cp_async<4>(slot_smem + lane, in<float>(params) + tile * 32 + lane);
            if (breaks & PLAIN_ARRIVE) {
                attn::mbarrier_arrive(full + slot); // too early
            } else if (!(breaks & NO_ARRIVE_FULL)) {
                attn::mbarrier_arrive_after_cp_async(full + slot); // the tile is there
            }
        } else {
            if (!(breaks & NO_WAIT_FULL) && (!(breaks & ONE_WAITS) || lane == 0))
                attn::mbarrier_wait(full + slot, breaks & WRONG_PARITY ? parity ^ 1 : parity); // for the tile
            for (int i = 0; i < 32; ++i) sum += slot_smem[i];
            if (!(breaks & NO_ARRIVE_EMPTY)) attn::mbarrier_arrive(empty + slot); // the slot has been read
        }
    }
    if (breaks & READ_OBJECT) sum += float(*full);
    if (threadIdx.x >= 32) out<float>(params)[threadIdx.x - 32] = sum;
}

// Without copies: the producer stores, and polls. n[1]: tries after which it traps, 0: never.
KERNEL(ring_by_stores) {
    auto *full = shared<attn::Mbarrier>();    // [2]
    auto *empty = shared<attn::Mbarrier>(16); // [2]
    float *tiles_smem = shared<float>(32);    // [2][32]
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 32) {
        for (int slot = 0; slot < 2; ++slot) {
            attn::mbarrier_init(full + slot, 32);
            attn::mbarrier_init(empty + slot, 32);
        }
    }
    __syncthreads(); // the objects are there
    float sum = 0;
    for (int tile = 0; tile < params->n[0]; ++tile) {
        const int slot = tile % 2, parity = tile / 2 % 2;
        float *slot_smem = tiles_smem + slot * 32;
        if (threadIdx.x < 32) {
            int tries = 0;
            while (!attn::mbarrier_test_wait(empty + slot, parity ^ 1)) { // asks for a free slot
                if (params->n[1] && ++tries == params->n[1]) __trap();
            }
            slot_smem[31 - lane] = in<float>(params)[tile * 32 + lane];
            attn::mbarrier_arrive(full + slot);
        } else {
            attn::mbarrier_wait(full + slot, parity);
            for (int i = 0; i < 32; ++i) sum += slot_smem[i];
            if (!params->n[2] || tile < params->n[2]) attn::mbarrier_arrive(empty + slot); // n[2]: not after that tile
        }
    }
    if (threadIdx.x >= 32) out<float>(params)[threadIdx.x - 32] = sum;
}

// A store between a copy and its arrival, which does not cover the store. n[0]: the thread itself arrives, too.
KERNEL(store_before_copies_arrive) {
    auto *barrier = shared<attn::Mbarrier>();
    float *words = shared<float>(16); // [2][32]
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) attn::mbarrier_init(barrier, params->n[0] ? 64 : 32);
    __syncthreads(); // the object is there
    if (threadIdx.x < 32) {
        attn::cp_async<4>(words + 32 + lane, in<float>(params) + lane);
        words[lane] = 1.0f;
        attn::mbarrier_arrive_after_cp_async(barrier);
        if (params->n[0]) attn::mbarrier_arrive(barrier);
    } else {
        attn::mbarrier_wait(barrier, 0);
        out<float>(params)[lane] = words[31 - lane] + words[63 - lane];
    }
}

// n[0]: byte of the object; n[1]: arrivals; n[2]: parity; n[3]: 1: initialised twice, 2: overwritten, 3: a whole warp
// arrives.
KERNEL(mbarrier_misused) {
    auto *barrier = shared<attn::Mbarrier>(params->n[0]);
    if (threadIdx.x == 0) attn::mbarrier_init(barrier, params->n[1]); // init
    __syncwarp();
    if (params->n[3] == 1 && threadIdx.x == 3) attn::mbarrier_init(barrier, params->n[1]); // once more
    if (params->n[3] == 2) shared<int>(64)[threadIdx.x] = 0;
    __syncwarp();
    if (threadIdx.x == 0 || params->n[3] == 3) attn::mbarrier_arrive(barrier); // arrive
    attn::mbarrier_wait(barrier, params->n[2]); // wait
}

// Warp 0 ends two phases, of which warp 1 sees the first and lets warp 0 go on; warp 2 looks for the first as well, but
// nobody waits for it. n[0]: warp 0 waits for both.
KERNEL(phase_that_a_waiter_misses) {
    auto *data = shared<attn::Mbarrier>();
    auto *seen = shared<attn::Mbarrier>(8);
    if (threadIdx.x == 0) {
        attn::mbarrier_init(data, 32);
        attn::mbarrier_init(seen, params->n[0] ? 64 : 32);
    }
    __syncthreads(); // the objects are there
    if (threadIdx.x < 32) {
        attn::mbarrier_arrive(data);
        attn::mbarrier_wait(seen, 0);
        attn::mbarrier_arrive(data);
    } else {
        attn::mbarrier_wait(data, 0); // the first
        if (threadIdx.x < 64 || params->n[0]) attn::mbarrier_arrive(seen);
        attn::mbarrier_wait(data, 1); // the second
    }
}
