// A load-only warpgroup, for those that compute: Q, and tiles of K and V through a ring. Preset::Shared has the tiles q, k[] and
// v[], their full and empty barriers, and, for E4M3, `staging`, where codes land. Packed rows of Q, which are in no box, are read by
// the warpgroups that compute.
#pragma once

#include <attn/block_work.cuh>
#include <attn/box_tile.cuh>
#include <attn/launch.h>
#include <attn/ptx/barrier.cuh>
#include <attn/wgmma_tile.cuh>

namespace attn {

// E4M3, which the loading warpgroup converts to FP16.
template <class Preset>
constexpr bool CONVERTS = !std::is_same_v<typename Preset::Element, typename Preset::Element::Operand>;

// By one thread, before any other uses the barriers. `readers`: warpgroups that read a tile.
template <class Preset>
static __device__ __forceinline__ void init_ring(typename Preset::Shared &smem, int readers) {
    constexpr int LOADERS = CONVERTS<Preset> ? 128 : 1; // threads that arrive for a tile
    mbarrier_init(&smem.q_full, Preset::Q_BOX_ROWS > 0 ? LOADERS : Preset::CONSUMERS * 128);
    for (auto &full : smem.k_full) mbarrier_init(&full, LOADERS);
    for (auto &full : smem.v_full) mbarrier_init(&full, LOADERS);
    for (auto &empty : smem.k_empty) mbarrier_init(&empty, readers);
    for (auto &empty : smem.v_empty) mbarrier_init(&empty, readers);
    if constexpr (CONVERTS<Preset>) {
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
    auto pipe = PipelineState<Preset::STAGES>::first();
    // Every consumer has read the slot's previous tile. In the first lap nobody waits: of a fresh mbarrier the phase before the first
    // has ended.
    const auto wait_empty = [&](Mbarrier *empty) { mbarrier_wait_tx(&empty[pipe.slot], pipe.parity ^ 1); };
    const auto copy_q = [&](auto &tile, Mbarrier *full) {
        mbarrier_arrive_expect_tx(full, tile.BYTES);
        if constexpr (Preset::Q_BOX_ROWS == Preset::BLOCK_M) tile.load(launch.q, full, work.row, work.head_q, work.batch);
        else { // groups of rows that lie apart (zigzag)
#pragma unroll
            for (int first = 0; first < Preset::BLOCK_M; first += WGMMA_M) {
                const int row = work_of_group<Preset>(launch.params, first / WGMMA_M).row + first;
                tile.load(launch.q, full, row, work.head_q, work.batch, first);
            }
        }
    };
    const auto copy_kv = [&](auto &tile, const AttentionTensorMap &map, Mbarrier *full, int index) {
        mbarrier_arrive_expect_tx(full, tile.BYTES);
        tile.load(map, full, index * BLOCK_N, work.head_kv, work.batch);
    };
    const int last = work.tiles - 1;
    if constexpr (!CONVERTS<Preset>) {
        if (thread != 0) return;
        if constexpr (Preset::Q_BOX_ROWS > 0) copy_q(smem.q, &smem.q_full);
#pragma unroll 1
        for (int tile = last; tile >= 0; --tile, pipe.advance()) {
            wait_empty(smem.k_empty);
            copy_kv(smem.k[pipe.slot], launch.k, &smem.k_full[pipe.slot], tile);
            wait_empty(smem.v_empty);
            copy_kv(smem.v[pipe.slot], launch.v, &smem.v_full[pipe.slot], tile);
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
            if constexpr (Preset::Q_BOX_ROWS > 0) copy_q(staging.q, &staging.q_full);
            copy_kv(staging.k, launch.k, &staging.k_full, last);
            copy_kv(staging.v, launch.v, &staging.v_full, last);
        }
        if constexpr (Preset::Q_BOX_ROWS > 0) {
            mbarrier_wait_tx(&staging.q_full, 0);
            convert(smem.q, staging.q, &smem.q_full);
        }
        int parity = 0; // of staging
#pragma unroll 1
        for (int tile = last; tile >= 0; --tile, pipe.advance(), parity ^= 1) {
            wait_empty(smem.k_empty);
            mbarrier_wait_tx(&staging.k_full, parity);
            convert(smem.k[pipe.slot], staging.k, &smem.k_full[pipe.slot]);
            if (thread == 0 && tile > 0) copy_kv(staging.k, launch.k, &staging.k_full, tile - 1);
            wait_empty(smem.v_empty);
            mbarrier_wait_tx(&staging.v_full, parity);
            convert(smem.v[pipe.slot], staging.v, &smem.v_full[pipe.slot]);
            if (thread == 0 && tile > 0) copy_kv(staging.v, launch.v, &staging.v_full, tile - 1);
        }
    }
}

} // namespace attn
