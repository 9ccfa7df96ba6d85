// The second warpgroup of E4M3: it converts V while the first computes scores and exponentials.
#pragma once

#include <attn/ptx/barrier.cuh>
#include <attn/wgmma_tile.cuh>

namespace {

// Converts V of `tiles` tiles, each into its slot. `load_next(tile)` starts the copies of the round that begins with a tile.
template <class Preset, class LoadNext>
__device__ __forceinline__ void convert_values(typename Preset::Shared &smem, int tiles, const LoadNext &load_next) {
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        const int slot = tile % Preset::PAIR, parity = tile / Preset::PAIR % 2;
        // The products have read V of the previous round.
        if (tile > 0 && slot == 0) attn::named_barrier_sync<Preset::V_READ, Preset::THREADS>();
        attn::mbarrier_wait_tx(&smem.staging.v_full[slot], parity);
        attn::convert_tile<128>(smem.v[slot], smem.staging.v[slot], threadIdx.x % 128);
        // Each makes its part visible to the tensor cores; behind the barrier the tile is complete and its codes read.
        attn::fence_proxy_async();
        attn::named_barrier_sync<Preset::CODES_READ, 128>();
        if (threadIdx.x % 128 == 0) {
            attn::mbarrier_arrive(&smem.v_full[slot]);
            if (slot == 1) load_next(tile + 1);
        }
    }
}

} // namespace
