// A load-only warpgroup, for those that compute: Q, and tiles of K and V through a ring. Preset::Shared has the tiles q, k[STAGES]
// and v[STAGES], their full and empty barriers, and, where Preset::CONVERTS, `staging`, where codes land.
#pragma once

#include <attn/block_work.cuh>
#include <attn/box_tile.cuh>
#include <attn/launch.h>
#include <attn/ptx/barrier.cuh>
#include <attn/wgmma_tile.cuh>

namespace attn {

// By one thread, before any other uses the barriers. `readers`: warpgroups that read a tile.
template <class Preset>
static __device__ __forceinline__ void init_ring(typename Preset::Shared &smem, int readers) {
    constexpr int LOADERS = Preset::CONVERTS ? 128 : 1; // threads that arrive for a tile
    mbarrier_init(&smem.q_full, LOADERS);
    for (int slot = 0; slot < Preset::STAGES; ++slot) {
        mbarrier_init(&smem.k_full[slot], LOADERS);
        mbarrier_init(&smem.v_full[slot], LOADERS);
        mbarrier_init(&smem.k_empty[slot], readers);
        mbarrier_init(&smem.v_empty[slot], readers);
    }
    if constexpr (Preset::CONVERTS) {
        mbarrier_init(&smem.staging.q_full, 1);
        mbarrier_init(&smem.staging.k_full, 1);
        mbarrier_init(&smem.staging.v_full, 1);
    }
    fence_mbarrier_init();
}

// The warpgroup's work: Q, then K and V of all tiles, from the last, so that those on the diagonal come first.
template <class Preset>
static __device__ __forceinline__ void load_ring(const AttentionLaunch &launch, typename Preset::Shared &smem, const Work &work) {
    constexpr int BLOCK_N = Preset::BLOCK_N;
    const int thread = threadIdx.x % 128;
    if (work.tiles == 0) return; // nobody will wait for a copy
    auto current = PipelineState<Preset::STAGES>::first();
    // Every consumer has read the slot's previous tile; in the first lap nobody waits.
    const auto wait_empty = [&](Mbarrier *empty) { mbarrier_wait_tx(&empty[current.slot], current.parity ^ 1); };
    const auto copy_q = [&](auto &tile, Mbarrier *full) {
        mbarrier_arrive_expect_tx(full, Preset::QCodes::BYTES);
        if constexpr (Preset::Q_BOX_ROWS == Preset::BLOCK_M) tile.load(launch.q, full, work.row, work.head_q, work.batch);
        else {
#pragma unroll
            for (int first = 0; first < Preset::BLOCK_M; first += WGMMA_M) {
                const int row = work_of_group<Preset>(launch.params, first / WGMMA_M).row + first;
                tile.load(launch.q, full, row, work.head_q, work.batch, first);
            }
        }
    };
    const auto copy_kv = [&](auto &tile, const AttentionTensorMap &map, Mbarrier *full, int index) {
        mbarrier_arrive_expect_tx(full, Preset::KvCodes::BYTES);
        tile.load(map, full, index * BLOCK_N, work.head_kv, work.batch);
    };
    if constexpr (!Preset::CONVERTS) {
        if (thread != 0) return;
        copy_q(smem.q, &smem.q_full);
#pragma unroll 1
        for (int tile = work.tiles - 1; tile >= 0; --tile, current.advance()) {
            wait_empty(smem.k_empty);
            copy_kv(smem.k[current.slot], launch.k, &smem.k_full[current.slot], tile);
            wait_empty(smem.v_empty);
            copy_kv(smem.v[current.slot], launch.v, &smem.v_full[current.slot], tile);
        }
    } else {
        // All threads convert codes that have landed; each makes its part visible to the tensor cores before it arrives for the
        // consumers. Behind the barrier the codes have been read, and others may land in their place.
        auto &staging = smem.staging;
        const auto convert = [&](auto &halves, auto &codes, Mbarrier *full) {
            convert_tile<128>(halves, codes, thread);
            fence_proxy_async();
            mbarrier_arrive(full);
            named_barrier_sync<Preset::LOADER_BARRIER, 128>();
        };
        if (thread == 0) {
            copy_q(staging.q, &staging.q_full);
            copy_kv(staging.k, launch.k, &staging.k_full, work.tiles - 1);
            copy_kv(staging.v, launch.v, &staging.v_full, work.tiles - 1);
        }
        mbarrier_wait_tx(&staging.q_full, 0);
        convert(smem.q, staging.q, &smem.q_full);
        int parity = 0; // of staging
#pragma unroll 1
        for (int tile = work.tiles - 1; tile >= 0; --tile, current.advance(), parity ^= 1) {
            wait_empty(smem.k_empty);
            mbarrier_wait_tx(&staging.k_full, parity);
            convert(smem.k[current.slot], staging.k, &smem.k_full[current.slot]);
            if (thread == 0 && tile > 0) copy_kv(staging.k, launch.k, &staging.k_full, tile - 1);
            wait_empty(smem.v_empty);
            mbarrier_wait_tx(&staging.v_full, parity);
            convert(smem.v[current.slot], staging.v, &smem.v_full[current.slot]);
            if (thread == 0 && tile > 0) copy_kv(staging.v, launch.v, &staging.v_full, tile - 1);
        }
    }
}

} // namespace attn
