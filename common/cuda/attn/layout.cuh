// Where the 16-byte chunks of a tile lie in shared memory. ldmatrix reads the chunks of 8 rows in one wavefront if they lie in 8
// different groups of 4 banks, that is, at 8 different addresses modulo 128 bytes.
#pragma once

#include <attn/element.cuh>
#include <attn/ptx/cp_async.cuh>
#include <type_traits>

namespace attn {

// Rows one after the other. Rows of 128 bytes or more all start in bank 0: 8 rows are an 8-way conflict.
template <int ROW_BYTES>
struct LinearLayout {
    static constexpr int PITCH_BYTES = ROW_BYTES;
    static __device__ __forceinline__ int offset(int row, int chunk) { return row * PITCH_BYTES + chunk * 16; }
};

// Each row followed by 16 unused bytes: no conflict, and 1/16 (rows of 256 bytes) to 1/4 (of 64) more memory.
template <int ROW_BYTES>
struct PaddedLayout {
    static constexpr int PITCH_BYTES = ROW_BYTES + 16;
    static __device__ __forceinline__ int offset(int row, int chunk) { return row * PITCH_BYTES + chunk * 16; }
};

// Rows one after the other, the chunks within each permuted by XOR with the row: no conflict and no unused memory. Rows that share
// 128 bytes lie in different bank groups anyway, and have the same permutation.
template <int ROW_BYTES>
struct SwizzledLayout {
    static constexpr int PITCH_BYTES = ROW_BYTES;
    static constexpr int CHUNKS = ROW_BYTES / 16 < 8 ? ROW_BYTES / 16 : 8; // that are permuted among each other
    static constexpr int ROWS = 8 / CHUNKS;                                // in 128 bytes
    static __device__ __forceinline__ int offset(int row, int chunk) {
        return row * PITCH_BYTES + (chunk ^ (row / ROWS % CHUNKS)) * 16;
    }
};

// ROWS x HEAD_DIM elements as they are in global memory, in one of the layouts above.
template <class Element_, int HEAD_DIM_, int ROWS_, template <int> class Layout_>
struct StoredTile {
    using Element = Element_;
    static constexpr int HEAD_DIM = HEAD_DIM_, ROWS = ROWS_;
    static constexpr int ROW_BYTES = HEAD_DIM * sizeof(typename Element::Storage);
    using Layout = Layout_<ROW_BYTES>;
    static_assert(ROW_BYTES % 64 == 0, "4, 8 or 16 chunks a row");

    alignas(128) unsigned char bytes[ROWS * Layout::PITCH_BYTES];

    // The 16 bytes at `chunk` of `row`.
    __device__ __forceinline__ unsigned char *at(int row, int chunk) { return bytes + Layout::offset(row, chunk); }
    __device__ __forceinline__ const unsigned char *at(int row, int chunk) const {
        return bytes + Layout::offset(row, chunk);
    }
};

// One thread's part in copying, a tile at a time, to the ROWS rows from `first_row` of tiles in shared memory. THREADS threads work
// together, neighbours on neighbouring addresses.
template <class Tile, int THREADS, int ROWS>
struct TileStream {
    using Storage = typename Tile::Element::Storage;
    static constexpr int CHUNKS_PER_ROW = Tile::ROW_BYTES / 16;
    static constexpr int ROWS_PER_STEP = THREADS / CHUNKS_PER_ROW;
    static_assert(THREADS % CHUNKS_PER_ROW == 0, "a thread stays in its column");

    const Storage *src; // this thread's first 16 bytes of the next tile
    int64_t row_stride; // in elements
    int row, chunk;     // of those 16 bytes in the tile
    int valid_rows;     // in global memory, from `row` of the next tile on; negative past the end

    // gmem: row `first_row` of the first tile. rows: how many there are from there on.
    __device__ __forceinline__ void start(const Storage *gmem, int64_t gmem_stride, int first_row, int rows) {
        static_assert(std::is_trivially_default_constructible_v<TileStream>, "start() says where it starts");
        const int thread_row = threadIdx.x % THREADS / CHUNKS_PER_ROW;
        row_stride = gmem_stride;
        chunk = threadIdx.x % CHUNKS_PER_ROW;
        src = gmem + thread_row * row_stride + chunk * Tile::Element::PER_16_BYTES;
        row = first_row + thread_row;
        valid_rows = rows - thread_row;
    }

    // Starts the copies into `tile` and moves on to the next, `tile_rows` rows further. Rows that do not exist become zero, because
    // P is zero there and 0 * NaN would reach the output. The caller commits, waits, and orders the writes.
    __device__ __forceinline__ void copy_next(Tile &tile, int tile_rows) {
        const int thread_row = threadIdx.x % THREADS / CHUNKS_PER_ROW;
#pragma unroll
        for (int step = 0; step < ROWS; step += ROWS_PER_STEP) {
            if (ROWS % ROWS_PER_STEP != 0 && thread_row + step >= ROWS) break; // more threads than rows left
            cp_async_zfill<16>(tile.at(row + step, chunk), src + step * row_stride, step < valid_rows ? 16 : 0);
        }
        src += tile_rows * row_stride;
        valid_rows -= tile_rows;
    }
};

} // namespace attn
