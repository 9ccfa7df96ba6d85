// Loader: one thread requests what all others read, as far ahead as there are slots. Preset::Shared has tiles of rows, K and V, the ring
// of each, and the items that belong to the rows.
#pragma once

#include <attn/box_tile.cuh>
#include <attn/launch.h>
#include "schedule.cuh"

namespace {

// The barriers of tiles that are used again and again. A slot is full when TMA has written it, and empty when all that read it have
// arrived.
template <int SLOTS>
struct Ring {
    attn::Mbarrier full[SLOTS], empty[SLOTS];

    // By one thread, before any other uses it. `readers`: how many arrive.
    __device__ __forceinline__ void init(int readers) {
        for (auto &barrier : full) attn::mbarrier_init(&barrier, 1);
        for (auto &barrier : empty) attn::mbarrier_init(&barrier, readers);
    }
    // The slot's tile has landed.
    __device__ __forceinline__ void wait_full(const attn::PipelineState<SLOTS> &at) {
        attn::mbarrier_wait_tx(&full[at.slot], at.parity);
    }
    // Everybody has read the tile before; in the first lap nobody waits.
    __device__ __forceinline__ void wait_empty(const attn::PipelineState<SLOTS> &at) {
        attn::mbarrier_wait_tx(&empty[at.slot], at.parity ^ 1);
    }
};

// Items, Q, and tiles of keys from the last, so that those on the diagonal come first. Rings run on from one item to the next.
template <class Preset>
__device__ __forceinline__ void load(const AttentionLaunch &launch, typename Preset::Shared &smem) {
    auto schedule = Schedule<Preset>::start(launch.params);
    auto rows = attn::PipelineState<Preset::ROW_SLOTS>::first();
    auto k = attn::PipelineState<Preset::K_SLOTS>::first();
    auto v = attn::PipelineState<Preset::V_SLOTS>::first();
#pragma unroll 1
    for (;;) {
        const Item item = schedule.next(launch.params);
        // All warps have read the item before, and its O has left the slot.
        smem.rows.wait_empty(rows);
        smem.items[rows.slot] = item;
        attn::Mbarrier *const full = &smem.rows.full[rows.slot];
        if (item.key_tiles > 0) {
            auto &q = smem.row_tiles[rows.slot];
            attn::mbarrier_arrive_expect_tx(full, Preset::RowTile::BYTES);
            if constexpr (Preset::PACKED) {
#pragma unroll 1
                for (int warp = 0; warp < Preset::WARPS; ++warp) {
                    q.load(launch.q, full, item.row_of(warp), item.head_of(warp), item.batch, warp * 16);
                }
            } else {
                q.load(launch.q, full, item.row, item.head_q, item.batch);
            }
        } else {
            attn::mbarrier_arrive(full); // there is no key to ask for, or no item
        }
        if (item.key_tiles == Item::NO_MORE) return;
        rows.advance();
        const auto copy = [&](auto &tiles, const AttentionTensorMap &map, auto &ring, auto &pipe, int tile) {
            // Every consumer has read the slot's tile before.
            ring.wait_empty(pipe);
            attn::mbarrier_arrive_expect_tx(&ring.full[pipe.slot], Preset::KvTile::BYTES);
            tiles[pipe.slot].load(map, &ring.full[pipe.slot], tile * Preset::BLOCK_N, item.head_kv, item.batch);
            pipe.advance();
        };
#pragma unroll 1
        for (int tile = item.key_tiles - 1; tile >= 0; --tile) {
            copy(smem.k_tiles, launch.k, smem.k, k, tile);
            copy(smem.v_tiles, launch.v, smem.v, v, tile);
        }
    }
}

} // namespace
