// Misuse and near misses of wgmma, stmatrix and setmaxnreg.
#include "kernel.h"
#include <attn/launch.h>
#include <attn/ptx/mbarrier.cuh>
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/ptx/stmatrix.cuh>
#include <attn/ptx/tma.cuh>
#include <attn/ptx/wgmma.cuh>

namespace {

constexpr int TILE = 64 * 128; // 64 rows of 64 f16

// One of `threads` threads writes its part of a tile, without the last `missing` rows.
__device__ void write_tile(unsigned char *tile_smem, int thread, int threads, int missing = 0) {
    for (int i = thread; i < (64 - missing) * 8; i += threads) {
        const int row = i / 8, chunk = i % 8 ^ row % 8;
        *reinterpret_cast<uint4 *>(tile_smem + row * 128 + chunk * 16) = make_uint4(0x3c003c00, 0x40003c00, 0, 0x3c000000);
    }
}

__device__ float sum(const float (&x)[32]) {
    float sum = 0;
    for (int i = 0; i < 32; ++i) sum += x[i];
    return sum;
}

__device__ uint64_t along_k(const unsigned char *tile_smem, int step) {
    return attn::matrix_descriptor<128>(tile_smem + step * 32, 16, 1024);
}
__device__ uint64_t along_n(const unsigned char *tile_smem, int step) {
    return attn::matrix_descriptor<128>(tile_smem + step * 2048, 8192, 1024);
}

} // namespace

// Bits of n[0].
enum AttentionBreak {
    NO_FENCE = 1,
    NO_COMMIT = 2,
    LAX_WAIT = 4,
    NO_WAIT = 8,
    READ_IN_FLIGHT = 16,
    WRITE_IN_FLIGHT = 32,
    REWRITE_P = 64,
    OVERWRITE_SLOT = 128,
    NO_PROXY_FENCE = 256,
    LATE_PROXY_FENCE = 512,
    MISSING_ROW = 1024,
    NO_BARRIER = 2048,
    NOT_NAMED = 4096,
    FENCE_OF_ONE = 8192,
};

// Attention over n[1] tiles of 64 keys, K and V the same: Q K^T of a tile runs concurrently with P V of the tile before,
// whose P is in registers; O is scaled after its wait. Each thread refills its part of a slot behind its own wait, which
// speaks for all four warps.
KERNEL(wgmma_attention) {
    const int breaks = params->n[0], tiles = params->n[1], thread = threadIdx.x;
    unsigned char *q_smem = shared<unsigned char>(), *ring_smem = q_smem + TILE;
    const auto slot = [&](int tile) { return ring_smem + tile % 2 * TILE; };
    const auto publish = [&](int tile) {
        const bool fences = !(breaks & (NO_PROXY_FENCE | LATE_PROXY_FENCE)) && (!(breaks & FENCE_OF_ONE) || thread == 0);
        write_tile(slot(tile), thread, 128, breaks & MISSING_ROW ? 1 : 0);
        if (fences) attn::fence_proxy_async();                             // by who has written
        if (!(breaks & NO_BARRIER)) __syncthreads();                       // the tile is there
        if (breaks & LATE_PROXY_FENCE) attn::fence_proxy_async();          // too late
    };
    write_tile(q_smem, thread, 128);
    publish(0);

    float s[32], o[32];
    uint32_t p[4][4];
    for (float &x : o) x = 0;
    const auto start_pv = [&](int tile) {
        for (int step = 0; step < 4; ++step) attn::wgmma_f16<true>(o, p[step], along_n(slot(tile), step), true); // P V
    };
    for (int tile = 0; tile < tiles; ++tile) {
        if (!(breaks & NO_FENCE)) attn::wgmma_fence(); // s was read, o and p were written
        for (int step = 0; step < 4; ++step)
            attn::wgmma_f16<false>(s, along_k(q_smem, step), along_k(slot(tile), step), step > 0); // Q K^T
        attn::wgmma_commit(); // the scores
        if (tile > 0) start_pv(tile - 1);
        if (tile > 0 && !(breaks & NO_COMMIT)) attn::wgmma_commit(); // the values
        if (tile > 0) {
            attn::wgmma_wait<1>(s); // the scores alone
        } else {
            attn::wgmma_wait<0>(s); // the first scores
        }
        const float scale = s[0] > 1000.0f ? 0.5f : 1.0f; // while P V runs
        if (tile > 0) {
            if (breaks & READ_IN_FLIGHT && o[5] > 1000.0f) s[1] = 0;
            if (breaks & WRITE_IN_FLIGHT) o[7] = scale;
            if (breaks & REWRITE_P) p[1][2] = uint32_t(scale);
            if (breaks & OVERWRITE_SLOT) write_tile(slot(tile + 1), thread, 128);
            if (breaks & LAX_WAIT) {
                attn::wgmma_wait<1>(o); // too lax
            } else if (breaks & NOT_NAMED) {
                attn::wgmma_wait<0>(); // names nothing
            } else if (!(breaks & NO_WAIT)) {
                attn::wgmma_wait<0>(o); // the values, too
            }
        }
        for (float &x : o) x *= scale;
        for (int step = 0; step < 4; ++step)
            for (int i = 0; i < 4; ++i) p[step][i] = 0x3c003c00 + (s[8 * step + 2 * i] > 1000.0f);
        if (tile + 1 < tiles) publish(tile + 1);
    }
    attn::wgmma_fence(); // o and p were written
    start_pv(tiles - 1);
    attn::wgmma_commit();  // the last values
    attn::wgmma_wait<0>(o); // the last
    out<float>(params)[thread] = sum(o);
}

// A producer warp fills a ring of two slots for a warpgroup, of which one thread frees each slot after its own wait. n[0]:
// before; n[1]: tiles.
KERNEL(wgmma_ring) {
    const int tiles = params->n[1], thread = threadIdx.x;
    unsigned char *q_smem = shared<unsigned char>(), *ring_smem = q_smem + TILE;
    auto *full = shared<attn::Mbarrier>(3 * TILE), *empty = full + 2;
    if (thread < 2) {
        attn::mbarrier_init(full + thread, 32);
        attn::mbarrier_init(empty + thread, 1);
    }
    if (thread < 128) write_tile(q_smem, thread, 128);
    attn::fence_proxy_async(); // the queries
    __syncthreads();           // the queries and the objects are there
    if (thread >= 128) {
        for (int tile = 0; tile < tiles; ++tile) {
            attn::mbarrier_wait(empty + tile % 2, tile / 2 % 2 ^ 1); // the slot is free
            write_tile(ring_smem + tile % 2 * TILE, thread - 128, 32);
            attn::fence_proxy_async(); // what the producer has written
            attn::mbarrier_arrive(full + tile % 2); // the slot is full
        }
        return;
    }
    float s[32];
    for (float &x : s) x = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        attn::mbarrier_wait(full + tile % 2, tile / 2 % 2); // the slot is filled
        attn::wgmma_fence(); // s was touched
        for (int step = 0; step < 4; ++step)
            attn::wgmma_f16<false>(s, along_k(q_smem, step), along_k(ring_smem + tile % 2 * TILE, step), true);
        attn::wgmma_commit(); // of the slot's products
        if (params->n[0] && thread == 0) attn::mbarrier_arrive(empty + tile % 2); // too early
        attn::wgmma_wait<0>(s); // for the slot
        if (!params->n[0] && thread == 0) attn::mbarrier_arrive(empty + tile % 2); // in time
    }
    out<float>(params)[thread] = sum(s);
}

// Bits of n[1].
enum BoxBreak {
    NOBODY_WAITS = 1,
    ONE_WAITS = 2,
    REFILL_AT_ONCE = 4,
    REFILL_OWN = 8,
};

// Warpgroups read tiles of a ring of two that TMA fills: no proxy fence. Thread 0 refills a slot when one thread of each
// warpgroup has freed it after its own wait. n[0]: tiles.
KERNEL(wgmma_of_boxes) {
    const int tiles = params->n[0], breaks = params->n[1], thread = threadIdx.x, warpgroups = blockDim.x / 128;
    const auto &map = in<AttentionTensorMap>(params, 1)[0];
    unsigned char *ring_smem = shared<unsigned char>();
    auto *full = shared<attn::Mbarrier>(2 * TILE), *empty = full + 2;
    const auto load = [&](int tile) {
        attn::mbarrier_arrive_expect_tx(full + tile % 2, TILE);
        attn::tma_load(ring_smem + tile % 2 * TILE, map, full + tile % 2, 0, tile % 2 * 64, 0, 0);
    };
    if (thread == 0) {
        for (int slot = 0; slot < 2; ++slot) {
            attn::mbarrier_init(full + slot, 1);
            attn::mbarrier_init(empty + slot, warpgroups);
        }
        attn::fence_mbarrier_init(); // for TMA
        for (int tile = 0; tile < 2; ++tile) load(tile);
    }
    __syncthreads(); // the objects are there
    float s[32];
    for (float &x : s) x = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        const unsigned char *tile_smem = ring_smem + tile % 2 * TILE;
        if (!(breaks & NOBODY_WAITS) && (!(breaks & ONE_WAITS) || thread % 128 == 0))
            attn::mbarrier_wait_tx(full + tile % 2, tile / 2 % 2); // the tile is there
        attn::wgmma_fence(); // s was touched
        for (int step = 0; step < 4; ++step)
            attn::wgmma_f16<false>(s, along_k(tile_smem, step), along_k(tile_smem, step), true);
        attn::wgmma_commit(); // of the box's products
        const bool refills = thread == 0 && tile + 2 < tiles;
        if (breaks & REFILL_AT_ONCE && refills) load(tile + 2);
        attn::wgmma_wait<0>(s); // for the box
        if (breaks & REFILL_OWN && refills) load(tile + 2);
        if (breaks & (REFILL_AT_ONCE | REFILL_OWN)) continue;
        if (thread % 128 == 0) attn::mbarrier_arrive(empty + tile % 2); // the warpgroup has read it
        if (refills) {
            attn::mbarrier_wait(empty + tile % 2, tile / 2 % 2); // all have read it
            load(tile + 2);
        }
    }
    out<float>(params)[thread] = sum(s);
}

// Two steps; n[0]: the mistake (15: none, continued behind a wait that names something else; 17: none, each
// warpgroup has a call of its own); n[1]: the first warp that takes part.
KERNEL(wgmma_misused) {
    const int how = params->n[0], thread = threadIdx.x - 32 * params->n[1], warp = thread / 32;
    unsigned char *a_smem = shared<unsigned char>(), *b_smem = a_smem + TILE;
    write_tile(a_smem, threadIdx.x, blockDim.x);
    write_tile(b_smem, threadIdx.x, blockDim.x);
    write_tile(b_smem + TILE, threadIdx.x, blockDim.x);
    attn::fence_proxy_async(); // what this thread has written
    __syncthreads();           // the tiles are there
    if (thread < 0 || (how == 1 && thread == 37) || (how == 2 && warp == 3)) return;
    float d[32], e[48], other[32];
    for (float &x : d) x = 1.0f;
    uint64_t a = along_k(a_smem, 0), b = along_k(b_smem, 0);
    if (how == 3) b = along_k(b_smem + TILE + 1024, 0);
    if (how == 4) b = along_k(b_smem + 128, 0);
    if (how == 5) b = attn::matrix_descriptor<128>(b_smem, 16, 512);
    if (how == 6 && warp == 2) b = along_k(b_smem, 1);
    if (how == 7 && thread == 37) b = along_k(b_smem, 1);
    attn::wgmma_fence(); // d was written
    const auto multiply = [&](bool accumulate) { attn::wgmma_f16<false>(d, a, b, accumulate); }; // the product
    if ((how == 16 && warp == 1) || (how == 17 && warp >= 4)) multiply(false);
    else multiply(how == 8 && warp == 1);
    if (how == 9) attn::wgmma_f16<false>(reinterpret_cast<float(&)[48]>(d), a, b, true);
    if (how == 10 && warp == 1) attn::wgmma_commit(); // of one warp
    attn::wgmma_f16<false>(d, along_k(a_smem, 1), along_k(b_smem, 1), true);
    if (how == 11) return;
    attn::wgmma_commit(); // the group
    if (how == 12) return;
    if (how == 13 || how == 15) {
        attn::wgmma_wait<0>(how == 15 || warp == 0 ? other : d); // one names what nobody touches
        attn::wgmma_fence();
        attn::wgmma_f16<false>(d, a, b, true);
        attn::wgmma_commit();
    }
    attn::wgmma_wait<0>(d); // the wait
    if (how == 14) {
        attn::wgmma_f16<true>(e, a, attn::matrix_descriptor<128>(b_smem, 1024, 1024), false);
        attn::wgmma_commit();
        attn::wgmma_wait<0>(e);
        d[0] += e[0];
    }
    out<float>(params)[thread] = sum(d);
}

// Lanes pass rows, others read them. n[0]: the __syncwarp between; n[1]: bytes from row to row; n[2]: offset in bytes.
KERNEL(stmatrix_then_lanes) {
    const int lane = threadIdx.x, pitch = params->n[1];
    const uint32_t reg[4] = {uint32_t(lane), 1, 2, 3};
    attn::stmatrix_x4(shared<char>(lane * pitch + params->n[2]), reg);
    if (params->n[0]) __syncwarp(); // they are stored
    out<uint32_t>(params)[lane] = *shared<uint32_t>((31 - lane) * pitch + params->n[2]);
}

// Three warpgroups, 168 registers of each thread at entry. n[0]: the mistake.
BOUNDED_KERNEL(registers_misused, 384) {
    const int how = params->n[0], warp = threadIdx.x / 32;
    if (warp < 8) {
        if (how == 1) {
            attn::take_registers<248>(); // too many for ever
        } else if (how == 2) {
            attn::take_registers<160>(); // fewer than before
        } else if (how == 5) {
            attn::take_registers<216>(); // what three warps give
        } else {
            attn::take_registers<240>(); // waits for the producer
        }
    } else if (how == 3) {
        attn::give_registers_back<176>(); // more than before
    } else if (how == 4 && warp == 9) {
        attn::give_registers_back<32>(); // another number
    } else if (how != 5 || warp != 11) {
        attn::give_registers_back<24>(); // of the producer
    }
}
