// Rows of all query heads that read the same keys, one query after the other: neighbours lie in other heads, where TMA has nothing to
// gain.
#pragma once

#include <attn/block_work.cuh>
#include <attn/box_tile.cuh>

namespace attn {

// Reads the tile's rows of Q, by THREADS threads of which the caller is `thread`. Rows that do not exist become zero. No barrier: the
// caller orders the writes.
template <class Element, int THREADS, int HEAD_DIM, int ROWS>
static __device__ __forceinline__ void load_packed_rows(BoxTile<typename Element::Operand, HEAD_DIM, ROWS> &tile,
                                                        const AttentionParams &params, const Work &work, int thread) {
    constexpr int CHUNKS = HEAD_DIM / Element::PER_16_BYTES; // of a row
    static_assert(ROWS * CHUNKS % THREADS == 0, "threads have as many chunks each");
#pragma unroll
    for (int i = 0; i < ROWS * CHUNKS / THREADS; ++i) {
        const int row = (i * THREADS + thread) / CHUNKS, chunk = thread % CHUNKS;
        const Row from = work.at(work.row + row);
        uint4 raw = make_uint4(0, 0, 0, 0);
        if (from.query < params.seq_q) {
            const auto *q = row_address<const typename Element::Storage>(params.q, work.batch, from.head, from.query);
            raw = *reinterpret_cast<const uint4 *>(q + chunk * Element::PER_16_BYTES);
        }
        const auto put = [&](int at, const uint4 &halves) { *reinterpret_cast<uint4 *>(tile.at(row, at)) = halves; };
        if constexpr (std::is_same_v<Element, E4M3>) {
            put(2 * chunk, make_uint4(E4M3::low(raw.x), E4M3::high(raw.x), E4M3::low(raw.y), E4M3::high(raw.y)));
            put(2 * chunk + 1, make_uint4(E4M3::low(raw.z), E4M3::high(raw.z), E4M3::low(raw.w), E4M3::high(raw.w)));
        } else {
            put(chunk, raw);
        }
    }
}

// Copies what the warp has just written, 16 rows from `row` of the tile on, to O.
template <class Element, int HEAD_DIM, int ROWS>
static __device__ __forceinline__ void copy_packed_rows(const AttentionParams &params, const Work &work,
                                                        const BoxTile<Element, HEAD_DIM, ROWS> &tile, int row, int lane) {
    constexpr int CHUNKS = HEAD_DIM / Element::PER_16_BYTES; // of a row
    __syncwarp();                                            // all lanes have written
#pragma unroll
    for (int i = 0; i < 16 * CHUNKS / 32; ++i) {
        const int from = row + (i * 32 + lane) / CHUNKS, chunk = lane % CHUNKS;
        const Row to = work.at(work.row + from);
        if (to.query >= params.seq_q) break;
        auto *o = row_address<typename Element::Storage>(params.o, work.batch, to.head, to.query);
        *reinterpret_cast<uint4 *>(o + chunk * Element::PER_16_BYTES) = *reinterpret_cast<const uint4 *>(tile.at(from, chunk));
    }
}

} // namespace attn
