// Tiles of K, V and Q as TMA leaves them in shared memory, and the state of a ring of them.
#pragma once

#include <attn/element.cuh>
#include <attn/ptx/tma.cuh>
#include <stdint.h>
#include <type_traits>

namespace attn {

// ROWS x HEAD_DIM elements in boxes of at most 128 bytes of each row, one box after the other: FP16 of head_dim 128 lies in
// two, and so does that of head_dim 96, which reads half of the second. Within a box the 16-byte chunks of a row are permuted
// by XOR with the number of the 128-byte line in which the row begins.
template <class Element_, int HEAD_DIM_, int ROWS_>
struct BoxTile {
    using Element = Element_;
    static constexpr int HEAD_DIM = HEAD_DIM_, ROWS = ROWS_;
    static constexpr int ELEMENT_BYTES = sizeof(typename Element::Storage), ROW_BYTES = HEAD_DIM * ELEMENT_BYTES;
    static constexpr int BOX_BYTES = ROW_BYTES < 128 ? ROW_BYTES : 128; // of a row: what TMA swizzles by
    static constexpr int BOXES = (ROW_BYTES + BOX_BYTES - 1) / BOX_BYTES, BOX_COLS = BOX_BYTES / ELEMENT_BYTES, CHUNKS = BOX_BYTES / 16;
    static constexpr int BYTES = BOXES * ROWS * BOX_BYTES; // what TMA writes
    static_assert(ROWS % 8 == 0 && ROWS <= 256, "whole patterns of 8 rows, and what one box may have");
    static_assert(BOX_BYTES == 64 || BOX_BYTES == 128, "the widths of our boxes");

    alignas(1024) unsigned char boxes[BOXES][ROWS * BOX_BYTES];

    // Starts the copy of a box of rows, from `row` on, to those of the tile from `first` on, by one thread.
    __device__ __forceinline__ void load(const AttentionTensorMap &map, Mbarrier *full, int row, int head, int batch,
                                         int first = 0) {
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
            tma_load(boxes[box] + first * BOX_BYTES, map, full, box * BOX_COLS, row, head, batch);
        }
    }

    // The 16 bytes at `chunk` of `row`.
    __device__ __forceinline__ unsigned char *at(int row, int chunk) { return boxes[chunk / CHUNKS] + offset(row, chunk); }
    __device__ __forceinline__ const unsigned char *at(int row, int chunk) const {
        return boxes[chunk / CHUNKS] + offset(row, chunk);
    }

  private:
    static __device__ __forceinline__ int offset(int row, int chunk) {
        return row * BOX_BYTES + (chunk % CHUNKS ^ row * BOX_BYTES / 128 % CHUNKS) * 16;
    }
};

// Converts `codes` to FP16, by THREADS threads of which the caller is `thread`. No barrier: the caller orders the writes.
template <int THREADS, int HEAD_DIM, int ROWS>
static __device__ __forceinline__ void convert_tile(BoxTile<F16, HEAD_DIM, ROWS> &halves, BoxTile<E4M3, HEAD_DIM, ROWS> &codes,
                                                    int thread) {
    constexpr int CHUNKS_PER_ROW = HEAD_DIM / 16; // of codes; each becomes two of FP16
#pragma unroll 2
    for (int chunk = thread; chunk < ROWS * CHUNKS_PER_ROW; chunk += THREADS) {
        const int row = chunk / CHUNKS_PER_ROW, col = chunk % CHUNKS_PER_ROW;
        const uint4 raw = *reinterpret_cast<const uint4 *>(codes.at(row, col));
        *reinterpret_cast<uint4 *>(halves.at(row, 2 * col)) =
            make_uint4(E4M3::low(raw.x), E4M3::high(raw.x), E4M3::low(raw.y), E4M3::high(raw.y));
        *reinterpret_cast<uint4 *>(halves.at(row, 2 * col + 1)) =
            make_uint4(E4M3::low(raw.z), E4M3::high(raw.z), E4M3::low(raw.w), E4M3::high(raw.w));
    }
}

// Slot of a ring of SLOTS tiles, and the parity of the phase that its mbarriers are in.
template <int SLOTS>
struct PipelineState {
    int slot, parity;

    static __device__ __forceinline__ PipelineState first() { return {0, 0}; }
    __device__ __forceinline__ void advance() {
        if (++slot == SLOTS) {
            slot = 0;
            parity ^= 1;
        }
    }
};
static_assert(std::is_trivially_default_constructible_v<PipelineState<2>>, "first() says where it starts");

} // namespace attn
