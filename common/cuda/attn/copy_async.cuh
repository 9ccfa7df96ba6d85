// Tiles of keys and values that arrive by cp.async while the block computes on the previous tile. cp_async_wait_group tells a thread
// that its own chunks have arrived, and only a barrier after it that everyone's have.
#pragma once

#include <attn/element.cuh>
#include <attn/ptx/cp_async.cuh>
#include <type_traits>

namespace attn {

// One thread's part in copying tiles [ROWS, HEAD_DIM] that follow each other in global memory: 16 bytes of every ROWS_PER_STEP-th
// row, neighbours on neighbouring addresses. The address of the next tile is kept, so that a copy takes few instructions.
template <class Element, int HEAD_DIM, int ROWS, int THREADS>
struct TileCopy {
    using Storage = typename Element::Storage;
    static constexpr int CHUNK = Element::PER_16_BYTES;
    static constexpr int CHUNKS_PER_ROW = HEAD_DIM / CHUNK;
    static constexpr int ROWS_PER_STEP = THREADS / CHUNKS_PER_ROW;
    static constexpr int STEPS = (ROWS + ROWS_PER_STEP - 1) / ROWS_PER_STEP;
    static_assert(HEAD_DIM % CHUNK == 0 && THREADS % CHUNKS_PER_ROW == 0, "a step is whole rows");

    const Storage *source; // this thread's first chunk of the next tile
    int64_t row_stride;    // in elements

    static __device__ __forceinline__ TileCopy from(const Storage *gmem, int64_t row_stride) {
        static_assert(std::is_trivially_default_constructible_v<TileCopy>, "from() says what it starts as");
        return {gmem + first_row() * row_stride + col(), row_stride};
    }

    static __device__ __forceinline__ int first_row() { return threadIdx.x / CHUNKS_PER_ROW; }
    static __device__ __forceinline__ int col() { return threadIdx.x % CHUNKS_PER_ROW * CHUNK; }

    // Calls `body(row, step)` for each of this thread's chunks.
    template <class Body>
    static __device__ __forceinline__ void for_each_step(Body body) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const int row = first_row() + step * ROWS_PER_STEP;
            if (ROWS % ROWS_PER_STEP == 0 || row < ROWS) body(row, step);
        }
    }

    // Starts copying the next tile, of which `valid_rows` rows exist; the others become zero, because P is zero there and 0 * NaN
    // would reach the output. Commits nothing.
    template <int PITCH>
    __device__ __forceinline__ void start(Storage (&smem)[ROWS][PITCH], int valid_rows) {
        static_assert(PITCH % CHUNK == 0, "every row of the tile starts on a 16-byte boundary");
        for_each_step([&](int row, int step) {
            const Storage *chunk = source + step * ROWS_PER_STEP * row_stride;
            cp_async_zfill<16>(&smem[row][col()], chunk, row < valid_rows ? 16 : 0);
        });
        source += ROWS * row_stride;
    }
};

// Where one operand's tiles arrive, one ahead of the tile that is read as FP16: a copy into `arriving`, a commit; one tile later
// a wait, a barrier and, where CONVERTS, `convert` and another barrier. Then `tile` may be read until the next such barrier.
template <class Element, int HEAD_DIM, int ROWS, int PITCH, int THREADS>
struct AsyncTile;

// What arrives is what is read: two alternating slots.
template <int HEAD_DIM, int ROWS, int PITCH, int THREADS>
struct AsyncTile<F16, HEAD_DIM, ROWS, PITCH, THREADS> {
    static constexpr bool CONVERTS = false;
    alignas(128) half slots[2][ROWS][PITCH];

    __device__ __forceinline__ half (&arriving(int index))[ROWS][PITCH] { return slots[index % 2]; }
    __device__ __forceinline__ void convert() {}
    __device__ __forceinline__ const half (&tile(int index) const)[ROWS][PITCH] { return slots[index % 2]; }
};

// Codes are converted by the thread that copied them. So the next tile may land without a barrier: a thread's copy comes after its
// own reads.
template <int HEAD_DIM, int ROWS, int PITCH, int THREADS>
struct AsyncTile<E4M3, HEAD_DIM, ROWS, PITCH, THREADS> {
    static constexpr bool CONVERTS = true;
    alignas(128) half halves[ROWS][PITCH];
    alignas(128) E4M3::Storage codes[ROWS][HEAD_DIM];

    __device__ __forceinline__ E4M3::Storage (&arriving(int))[ROWS][HEAD_DIM] { return codes; }
    __device__ __forceinline__ void convert() {
        using Copy = TileCopy<E4M3, HEAD_DIM, ROWS, THREADS>;
        Copy::for_each_step([&](int row, int) {
            const uint4 raw = *reinterpret_cast<const uint4 *>(&codes[row][Copy::col()]); // one load, not one per word
            E4M3::unpack(raw, &halves[row][Copy::col()]);
        });
    }
    __device__ __forceinline__ const half (&tile(int) const)[ROWS][PITCH] { return halves; }
};

} // namespace attn
