// K and V in E4M3 under Q in f16 or bf16: their codes pass through a ring of tiles of their own, from which warpgroups that do nothing
// else widen them to Q's type. Consumers get the tiles that they get otherwise. The scale of K is a factor of the scores, that of V one of
// the output.
#pragma once

#include <attn/ptx/setmaxnreg.cuh>
#include "loader.cuh"

namespace {

// Tiles of codes on their way, K and V by turns, and the ring of them. A box has 64 or 128 of a row's codes: of head_dim 96 it is 128, of
// which the last 32 are outside of the tensor.
template <int HEAD_DIM, int BLOCK_N, int SLOTS>
struct Codes {
    attn::BoxTile<attn::E4M3, HEAD_DIM == 64 ? 64 : 128, BLOCK_N> tiles[SLOTS];
    Ring<SLOTS> ring;

    // By one thread, before any other uses it. `readers`: warps that widen.
    __device__ __forceinline__ void init(int readers) { ring.init(readers); }
};

// Two values of Q's type from two halves. Every code is exact in either.
template <class Element>
__device__ __forceinline__ uint32_t of_halves(uint32_t halves) {
    if constexpr (std::is_same_v<Element, attn::F16>) return halves;
    const float2 values = attn::F16::floats(halves);
    return Element::pack(values.x, values.y);
}

// Eight codes of two words, as 16 bytes of Q's type.
template <class Element>
__device__ __forceinline__ uint4 widened(uint32_t first, uint32_t second) {
    return make_uint4(of_halves<Element>(attn::E4M3::low(first)), of_halves<Element>(attn::E4M3::high(first)),
                      of_halves<Element>(attn::E4M3::low(second)), of_halves<Element>(attn::E4M3::high(second)));
}

// Widening warpgroups, of whose threads the caller is number `thread`. One alone has K, then V of each tile of each item. Of two the first
// has K and the second V: neither waits for the other, nor for a slot of what the other widens. A thread has one row of each tile: where
// it is is computed once. Eight threads in a row have eight rows, so that the swizzled chunks that they read, and those that they write,
// are in all banks. Rows behind the sequence's end become zeros, which is the mender's work where there are no codes.
template <class Preset>
__device__ __forceinline__ void widen(typename Preset::Shared &smem, int thread) {
    constexpr int BLOCK_N = Preset::BLOCK_N, WIDENERS = Preset::WIDENERS, CHUNKS = Preset::HEAD_DIM / 16; // of 16 codes
    constexpr int AT_ONCE = WIDENERS == 1 && CHUNKS > 4 ? CHUNKS / 2 : CHUNKS; // for which there are registers
    static_assert(BLOCK_N == 128 && CHUNKS * 16 == Preset::HEAD_DIM, "each thread of a warpgroup has a row");
    static_assert(WIDENERS == 1 || (WIDENERS == 2 && Preset::CODE_SLOTS % 2 == 0), "two have slots of codes by turns");
    using Element = typename Preset::Element;
    attn::give_registers_back<Preset::WIDENER_REGISTERS>();
    const int row = thread % BLOCK_N, widener = __shfl_sync(0xffffffffu, thread / 128, 0);
    const bool has_k = WIDENERS == 1 || widener == 0, has_v = WIDENERS == 1 || widener == 1;
    auto &codes = smem.landing;
    auto rows = Place<Preset::ROW_SLOTS>::first();
    auto from = Place<Preset::CODE_SLOTS>::first();
    auto k = Place<Preset::K_SLOTS>::first();
    auto v = Place<Preset::V_SLOTS>::first();
    // `valid`: rows of the tile that are the sequence's.
    const auto widen_tile = [&](auto &ring, auto &at, auto &tiles, int valid) {
        const auto &codes_tile = codes.tiles[from.slot()];
        auto &tile = tiles[at.slot()];
        // TMA has written the codes.
        codes.ring.wait_full(from);
#pragma unroll 1
        for (int first = 0; first < CHUNKS; first += AT_ONCE) {
            uint4 raw[AT_ONCE]; // all read before any is written: the compiler moves no read past a write
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                raw[i] = make_uint4(0, 0, 0, 0);
                if (row < valid) raw[i] = *reinterpret_cast<const uint4 *>(codes_tile.at(row, first + i));
            }
            if (first + AT_ONCE == CHUNKS) {
                // Others may replace the codes while these are widened. TMA may overtake loads whose values nobody has used yet, and write
                // what they read: each lane orders its own before that, and one of them then says that the slot is empty.
                attn::fence_proxy_async();
                __syncwarp();
                if (attn::elect_one()) attn::mbarrier_arrive(&codes.ring.empty[from.slot()]);
            }
            // Every consumer has read the slot's tile before.
            if (first == 0) ring.wait_empty(at);
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int chunk = 2 * (first + i);
                *reinterpret_cast<uint4 *>(tile.at(row, chunk)) = widened<Element>(raw[i].x, raw[i].y);
                *reinterpret_cast<uint4 *>(tile.at(row, chunk + 1)) = widened<Element>(raw[i].z, raw[i].w);
            }
        }
        // Each lane makes what it wrote visible to wgmma, before one of them says that the slot is full.
        attn::fence_proxy_async();
        __syncwarp();
        if (attn::elect_one()) attn::mbarrier_arrive(&ring.full[at.slot()]);
        at.advance();
    };
#pragma unroll 1
    for (;; rows.advance()) {
        smem.rows.wait_full(rows);
        const int key_tiles = smem.items[rows.slot()].key_tiles;
        int valid = smem.items[rows.slot()].template keys_of_highest_tile<Preset>();
        __syncwarp(); // all lanes have read the item, which may be followed by another
        if (attn::elect_one()) attn::mbarrier_arrive(&smem.rows.empty[rows.slot()]);
        if (key_tiles == Item::NO_MORE) return;
#pragma unroll 1
        for (int tile = 0; tile < key_tiles; ++tile, valid = BLOCK_N) {
            if (has_k) widen_tile(smem.k, k, smem.k_tiles, valid);
            from.advance();
            if (has_v) widen_tile(smem.v, v, smem.v_tiles, valid);
            from.advance();
        }
    }
}

} // namespace
