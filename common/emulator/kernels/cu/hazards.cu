// Hazards that the judge must find, and near misses that it must not flag.
#include "kernel.h"
#include <attn/ptx/cp_async.cuh>
#include <attn/ptx/ldmatrix.cuh>
#include <mma.h>

using namespace nvcuda;

// One warp's scores are read by another warp. n[0]: whether the barrier between is there.
KERNEL(barrier_in_one_branch) {
    float *scores = shared<float>();
    scores[threadIdx.x] = in<float>(params)[threadIdx.x];
    if (params->n[0]) {
        __syncthreads();
    }
    float sum = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) sum += scores[i];
    out<float>(params)[threadIdx.x] = sum;
}

// Tiles through a ring of two buffers, copied one ahead; every warp reads what the others copied. n[0]: tiles; n[1]: wait
// for the last tile; n[2]: commit a group even where nothing is left to copy.
KERNEL(copied_one_ahead) {
    float *ring = shared<float>(); // [2][blockDim.x][4]
    const int threads = blockDim.x, tiles = params->n[0];
    auto copy = [&](int tile) {
        attn::cp_async<16>(ring + (tile % 2 * threads + threadIdx.x) * 4, in<float>(params) + (tile * threads + threadIdx.x) * 4);
        attn::cp_async_commit(); // of a tile
    };
    copy(0);
    float sum = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) {
            copy(tile + 1);
        } else if (params->n[2]) {
            attn::cp_async_commit(); // an empty group
        }
        if (tile + 1 == tiles && params->n[1]) {
            attn::cp_async_wait_group<0>();
        } else {
            attn::cp_async_wait_group<1>(); // but not for the last tile
        }
        __syncthreads(); // everybody has copied a part
        for (int i = 0; i < threads; ++i) sum += ring[(tile % 2 * threads + i) * 4];
        __syncthreads(); // everybody has read it
    }
    out<float>(params)[threadIdx.x] = sum;
}

// Warp 0 copies, the others consume. n[0]: who waits (0: the consumers, 1: warp 0); n[1]: whether a barrier follows.
KERNEL(copied_by_a_producer) {
    float *tile = shared<float>();
    const bool is_producer = threadIdx.x < 32;
    if (is_producer) {
        attn::cp_async<16>(tile + threadIdx.x * 4, in<float>(params) + threadIdx.x * 4);
        attn::cp_async_commit();
    }
    if (is_producer == (params->n[0] == 1)) attn::cp_async_wait_group<0>(); // its own groups only
    if (params->n[1]) __syncthreads();
    if (!is_producer) out<float>(params)[threadIdx.x] = tile[threadIdx.x - 32];
}

// Warp 0 streams n[0] tiles through a ring to consumers. n[1]: a barrier frees each slot; n[2]: two slots.
KERNEL(ring_without_free_slots) {
    float *ring = shared<float>(); // [2][32]
    const bool is_producer = threadIdx.x < 32;
    float sum = 0;
    for (int tile = 0; tile < params->n[0]; ++tile) {
        float *slot = ring + tile % (params->n[2] ? 2 : 1) * 32;
        if (is_producer) slot[threadIdx.x] = in<float>(params)[tile * 32 + threadIdx.x];
        __syncthreads(); // it is there
        if (!is_producer) sum += slot[threadIdx.x - 32];
        if (params->n[1]) __syncthreads(); // the slot is free
    }
    if (!is_producer) out<float>(params)[threadIdx.x] = sum;
}

// Of 8 rows of 32 words n[0] are written and n[1] read.
KERNEL(rows_one_too_many) {
    float *tile = shared<float>();
    for (int row = 0; row < params->n[0]; ++row) tile[row * 32 + threadIdx.x] = 1.0f;
    __syncthreads(); // all rows are there
    float sum = 0;
    for (int row = 0; row < params->n[1]; ++row) sum += tile[row * 32 + threadIdx.x];
    out<float>(params)[threadIdx.x] = sum;
}

// Row n[0] of the input, 16 bytes a lane.
KERNEL(row_of_input) {
    const float4 *rows = in<float4>(params);
    out<float4>(params)[threadIdx.x] = rows[params->n[0] * 32 + threadIdx.x];
}

// A vector access in shared memory at byte n[0].
KERNEL(vector_at) {
    for (int i = 0; i < 16; ++i) shared<float>()[threadIdx.x * 16 + i] = 0.0f;
    __syncwarp(); // the words are there
    out<uint4>(params)[threadIdx.x] = *shared<uint4>(threadIdx.x * 64 + params->n[0]);
}

// A warp stores a matrix, its lanes read it. n[0]: the __syncwarp between.
KERNEL(matrix_then_lanes) {
    float *tile = shared<float>();
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 1.0f);
    wmma::store_matrix_sync(tile, c, 16, wmma::mem_row_major);
    if (params->n[0]) __syncwarp();
    float sum = 0;
    for (int i = 0; i < 8; ++i) sum += tile[threadIdx.x * 8 + i];
    out<float>(params)[threadIdx.x] = sum;
}

// The other way round.
KERNEL(lanes_then_matrix) {
    half *tile = shared<half>();
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = half(1.0f);
    if (params->n[0]) __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::load_matrix_sync(a, tile, 16);
    out<float>(params)[threadIdx.x] = float(a.x[0]);
}

// Each lane stores the elements that it has loaded.
KERNEL(matrix_in_place) {
    float *tile = shared<float>();
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = 1.0f;
    __syncwarp();
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    for (int round = 0; round < 3; ++round) {
        wmma::load_matrix_sync(c, tile, 16, wmma::mem_row_major);
        for (float &x : c.x) x *= 2.0f;
        wmma::store_matrix_sync(tile, c, 16, wmma::mem_row_major);
    }
    __syncwarp();
    out<float>(params)[threadIdx.x] = tile[threadIdx.x];
}

// The halves of a warp exchange words, each under its own mask. n[0]: a shuffle replaces the first __syncwarp.
KERNEL(warp_ping_pong) {
    float *words = shared<float>();
    const unsigned mask = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
    const int partner = threadIdx.x ^ 8;
    float value = float(threadIdx.x);
    for (int round = 0; round < 4; ++round) {
        words[threadIdx.x] = value;
        if (params->n[0]) {
            value = __shfl_xor_sync(mask, value, 1);
        } else {
            __syncwarp(mask);
        }
        value += words[partner];
        __syncwarp(mask);
    }
    out<float>(params)[threadIdx.x] = value;
}

// Each thread waits for its groups one after the other and reads only its own copies.
KERNEL(groups_of_ones_own) {
    float *mine = shared<float>() + threadIdx.x * 16;
    for (int group = 0; group < 4; ++group) {
        attn::cp_async<16>(mine + group * 4, in<float>(params) + group * 4);
        attn::cp_async_commit();
    }
    float sum = 0;
    attn::cp_async_wait_group<3>();
    sum += mine[0];
    attn::cp_async_wait_group<1>();
    sum += mine[4] + mine[8];
    attn::cp_async_wait_group<0>();
    sum += mine[12];
    out<float>(params)[threadIdx.x] = sum;
}

// n[0]: commit; n[1]: wait.
KERNEL(copy_without) {
    float *mine = shared<float>() + threadIdx.x * 4;
    attn::cp_async<16>(mine, in<float>(params));
    if (params->n[0]) attn::cp_async_commit();
    if (params->n[1]) attn::cp_async_wait_group<0>(); // for nothing
    out<float>(params)[threadIdx.x] = mine[0];
}

// A copying thread overwrites the copy's source. n[0]: after the wait.
KERNEL(copy_source_overwritten) {
    float *source = out<float>(params) + threadIdx.x * 4;
    source[0] = 1.0f;
    attn::cp_async<16>(shared<float>(threadIdx.x * 16), source);
    attn::cp_async_commit();
    if (params->n[0]) attn::cp_async_wait_group<0>();
    source[0] = 2.0f;
    attn::cp_async_wait_group<0>(); // at the end
}

// n[0]: each block its own word.
KERNEL(blocks_overlap) {
    if (threadIdx.x == 0) out<float>(params)[params->n[0] ? blockIdx.x : 0] = 1.0f;
}

// Each block reads the word of block 0 or, with n[0], its own.
KERNEL(blocks_hand_over) {
    float *words = out<float>(params);
    if (threadIdx.x != 0) return;
    const int word = params->n[0] ? blockIdx.x : 0;
    if (word == int(blockIdx.x)) words[word] = 1.0f;
    words[16 + blockIdx.x] = words[word];
}

// n[0]: a barrier between flag and readers.
KERNEL(global_within_block) {
    float *flag = out<float>(params);
    if (threadIdx.x == 0) flag[0] = 1.0f;
    if (params->n[0]) __syncthreads();
    out<float>(params)[1 + threadIdx.x] = flag[0];
}

// Lanes write rows, the warp loads them by ldmatrix; each lane passes its own row. n[0]: the __syncwarp between; n[1]: bytes
// from row to row.
KERNEL(lanes_then_ldmatrix) {
    const int pitch = params->n[1];
    *shared<uint4>(threadIdx.x * pitch) = make_uint4(threadIdx.x, 1, 2, 3);
    if (params->n[0]) __syncwarp();
    uint32_t reg[4];
    attn::ldmatrix_x4(reg, shared<char>(threadIdx.x * pitch));
    out<uint32_t>(params)[threadIdx.x] = reg[0];
}

// n[0]: byte of lane 5's row, in[0] if negative; n[1]: lanes that take part.
KERNEL(ldmatrix_misused) {
    *shared<uint4>(threadIdx.x * 16) = make_uint4(0, 0, 0, 0);
    __syncwarp();
    if (int(threadIdx.x) >= params->n[1]) return;
    const char *row = shared<char>(threadIdx.x * 16);
    if (threadIdx.x == 5) row = params->n[0] < 0 ? in<char>(params) : shared<char>(params->n[0]);
    uint32_t reg[2];
    attn::ldmatrix_x2(reg, row);
    out<uint32_t>(params)[threadIdx.x] = reg[0];
}

// Two tiles of 64 chunks of 16 bytes, copied and read by helpers; each warp reads the other's. n[0]: the first wait is too
// lax; n[1]: the barrier behind it.
KERNEL(tiles_by_helpers) {
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const auto copy = [&](int tile) {
        const int chunk = tile * 64 + thread;
        attn::cp_async<16>(shared<uint4>(chunk * 16), in<uint4>(params) + chunk);
        attn::cp_async_commit(); // of chunks
    };
    const auto load = [&](int tile) {
        uint32_t reg[4];
        attn::ldmatrix_x4(reg, shared<char>((tile * 64 + (1 - warp) * 32 + lane) * 16));
        out<uint32_t>(params)[tile * 64 + thread] = reg[0];
    };
    copy(0);
    copy(1);
    if (params->n[0]) {
        attn::cp_async_wait_group<2>(); // one too lax
    } else {
        attn::cp_async_wait_group<1>(); // all but the second tile
    }
    if (params->n[1]) __syncthreads(); // the first tile is there
    load(0);
    attn::cp_async_wait_group<0>(); // the second tile, too
    __syncthreads(); // the second tile is there
    load(1);
}

namespace {
__device__ int launches = 0;
__device__ const int WEIGHTS[4] = {2, 3, 5, 7};
} // namespace

// n[0]: a static variable is written; else a table is read.
KERNEL(variables_of_the_program) {
    if (params->n[0]) {
        launches += 1; // state that the next launch finds
        out<int>(params)[threadIdx.x] = launches;
    } else {
        out<int>(params)[threadIdx.x] = WEIGHTS[threadIdx.x % 4];
    }
}

namespace {

// Not inlined into the lines that call it.
__attribute__((noinline)) void accumulate(float *sum, float value) {
    *sum += value; // in a function
}

__attribute__((noinline)) void accumulate_twice(float *sum, float value) {
    accumulate(sum, value); // from a function
    accumulate(sum, value);
}

} // namespace

// The first thread of each warp adds to one sum. n[0]: whether a barrier comes between.
KERNEL(called_from_two_lines) {
    float *sum = shared<float>();
    if (threadIdx.x == 0) *sum = 0;
    __syncthreads();
    if (threadIdx.x == 0) accumulate(sum, 1); // of warp 0
    if (params->n[0]) __syncthreads();
    if (threadIdx.x == 32) accumulate_twice(sum, 2); // of warp 1
}
