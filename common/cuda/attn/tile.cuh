// Copies of whole tiles between global and shared memory.
#pragma once

#include <attn/element.cuh>

namespace attn {

// Copies `valid_rows` rows of HEAD_DIM elements into a ROWS x HEAD_DIM tile of halves whose rows are PITCH halves
// apart; the remaining rows become zero, because P is zero there and 0 * NaN would reach the output. All THREADS
// threads take part, each 16 bytes of global memory at a time, neighbours on neighbouring addresses. No barrier: the
// caller orders the writes before the reads.
template <class Element, int HEAD_DIM, int THREADS, int ROWS, int PITCH>
static __device__ __forceinline__ void load_tile(half (&smem)[ROWS][PITCH], const typename Element::Storage *gmem,
                                                 int64_t row_stride, int valid_rows) {
    constexpr int CHUNK = Element::PER_16_BYTES;
    constexpr int CHUNKS_PER_ROW = HEAD_DIM / CHUNK;
    static_assert(HEAD_DIM % CHUNK == 0, "a row is whole 16-byte chunks");
    static_assert(PITCH % 8 == 0, "every row of the tile starts on a 16-byte boundary");
    constexpr int CHUNKS = ROWS * CHUNKS_PER_ROW;
#pragma unroll 4 // loads in flight per thread: more would cost 4 registers each and spill at head_dim 128
    for (int step = 0; step < (CHUNKS + THREADS - 1) / THREADS; ++step) {
        const int chunk = step * THREADS + threadIdx.x;
        if (CHUNKS % THREADS != 0 && chunk >= CHUNKS) break; // fewer chunks than threads in the last step
        const int row = chunk / CHUNKS_PER_ROW;
        const int col = chunk % CHUNKS_PER_ROW * CHUNK;
        uint4 raw = make_uint4(0, 0, 0, 0);
        if (row < valid_rows) raw = *reinterpret_cast<const uint4 *>(gmem + row * row_stride + col);
        Element::unpack(raw, &smem[row][col]);
    }
}

// 8 halves from 16-byte aligned shared memory, in one load, as floats.
static __device__ __forceinline__ void load_8(float (&reg)[8], const half *smem) {
    const uint4 raw = *reinterpret_cast<const uint4 *>(smem);
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        reg[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i])));
        reg[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i] >> 16)));
    }
}

} // namespace attn
