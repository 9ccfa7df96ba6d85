// Copies of whole tiles between global and shared memory.
#pragma once

#include <attn/element.cuh>

namespace attn {

// Calls `body(row, col)` for this thread's 16-byte chunks of a tile [ROWS, HEAD_DIM], neighbours on neighbouring addresses. `col`
// counts elements.
template <class Element, int HEAD_DIM, int ROWS, int THREADS, class Body>
static __device__ __forceinline__ void for_own_chunks(Body body) {
    constexpr int CHUNK = Element::PER_16_BYTES;
    constexpr int CHUNKS_PER_ROW = HEAD_DIM / CHUNK, CHUNKS = ROWS * CHUNKS_PER_ROW;
    static_assert(HEAD_DIM % CHUNK == 0, "a row is whole 16-byte chunks");
#pragma unroll 4 // loads in flight per thread: more would cost 4 registers each and spill at head_dim 128
    for (int step = 0; step < (CHUNKS + THREADS - 1) / THREADS; ++step) {
        const int chunk = step * THREADS + threadIdx.x;
        if (CHUNKS % THREADS != 0 && chunk >= CHUNKS) break; // fewer chunks than threads in the last step
        body(chunk / CHUNKS_PER_ROW, chunk % CHUNKS_PER_ROW * CHUNK);
    }
}

// Copies `valid_rows` rows into a tile [ROWS, HEAD_DIM] of FP16; the other rows become zero, because P is zero there and 0 * NaN
// would reach the output. All THREADS threads take part. No barrier: the caller orders the writes before the reads.
template <class Element, int HEAD_DIM, int THREADS, int ROWS, int PITCH>
static __device__ __forceinline__ void load_tile(half (&smem)[ROWS][PITCH], const typename Element::Storage *gmem,
                                                 int64_t row_stride, int valid_rows) {
    static_assert(PITCH % 8 == 0, "every row of the tile starts on a 16-byte boundary");
    for_own_chunks<Element, HEAD_DIM, ROWS, THREADS>([&](int row, int col) {
        uint4 raw = make_uint4(0, 0, 0, 0);
        if (row < valid_rows) raw = *reinterpret_cast<const uint4 *>(gmem + row * row_stride + col);
        Element::unpack(raw, &smem[row][col]);
    });
}

// Two floats as FP16, as they lie in a word of memory.
static __device__ __forceinline__ unsigned narrow_pair(float2 pair) {
    return static_cast<unsigned>(__half_as_ushort(__float2half(pair.x))) |
           static_cast<unsigned>(__half_as_ushort(__float2half(pair.y))) << 16;
}

// 4 FP16 values from 8-byte aligned memory, in one load, as floats.
static __device__ __forceinline__ void load_4(float2 (&reg)[2], const half *memory) {
    const uint2 raw = *reinterpret_cast<const uint2 *>(memory);
    reg[0] = F16::floats(raw.x);
    reg[1] = F16::floats(raw.y);
}

// 4 floats to 8-byte aligned memory, in one store, as FP16.
static __device__ __forceinline__ void store_4(half *memory, const float2 (&reg)[2]) {
    *reinterpret_cast<uint2 *>(memory) = make_uint2(narrow_pair(reg[0]), narrow_pair(reg[1]));
}

// 8 FP16 values from 16-byte aligned shared memory, in one load, as floats.
static __device__ __forceinline__ void load_8(float (&reg)[8], const half *smem) {
    const uint4 raw = *reinterpret_cast<const uint4 *>(smem);
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 pair = F16::floats(words[i]);
        reg[2 * i] = pair.x;
        reg[2 * i + 1] = pair.y;
    }
}

} // namespace attn
