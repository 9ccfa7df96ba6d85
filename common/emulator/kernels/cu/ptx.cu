// One warp, or as few as possible: each wrapper of attn/ptx/, on data in which no two elements may be exchanged, in the
// emulator and on a GPU.
#include "kernel.h"
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/cp_async.cuh>
#include <attn/ptx/ldmatrix.cuh>
#include <attn/ptx/mbarrier.cuh>
#include <attn/ptx/mma.cuh>
#include <attn/ptx/opaque.cuh>

// in[0]: a[4] of each lane, in[1]: b[2], in[2]: d[4].
#define MMA(name)                                                                                                      \
    KERNEL(name) {                                                                                                     \
        const int lane = threadIdx.x;                                                                                  \
        uint32_t a[4], b[2];                                                                                           \
        float d[4];                                                                                                    \
        for (int i = 0; i < 4; ++i) a[i] = in<uint32_t>(params, 0)[lane * 4 + i];                                      \
        for (int i = 0; i < 2; ++i) b[i] = in<uint32_t>(params, 1)[lane * 2 + i];                                      \
        for (int i = 0; i < 4; ++i) d[i] = in<float>(params, 2)[lane * 4 + i];                                         \
        attn::name(d, a, b);                                                                                           \
        for (int i = 0; i < 4; ++i) out<float>(params)[lane * 4 + i] = d[i];                                           \
    }
MMA(mma_m16n8k16_f16_f32)
MMA(mma_m16n8k16_bf16_f32)
MMA(mma_m16n8k32_e4m3_f32)

// in[0]: 2 KiB of shared memory; in[1]: the byte of each lane's row.
#define LDMATRIX(name, MATRICES)                                                                                       \
    KERNEL(name) {                                                                                                     \
        const int lane = threadIdx.x;                                                                                  \
        for (int i = lane; i < 512; i += 32) shared<uint32_t>()[i] = in<uint32_t>(params, 0)[i];                       \
        __syncwarp(); /* the rows are written, each is read by other lanes */                                          \
        uint32_t reg[MATRICES];                                                                                        \
        attn::name(reg, shared<char>(in<int>(params, 1)[lane]));                                                       \
        for (int i = 0; i < MATRICES; ++i) out<uint32_t>(params)[lane * MATRICES + i] = reg[i];                        \
    }
LDMATRIX(ldmatrix_x4, 4)
LDMATRIX(ldmatrix_x4_trans, 4)
LDMATRIX(ldmatrix_x2, 2)
LDMATRIX(ldmatrix_x2_trans, 2)

// in[0]: A 16 x 16, in[1]: B 16 x 8, both row-major; D = A B. B goes through shared memory as it is and transposed, for both
// forms of ldmatrix.
KERNEL(ldmatrix_and_mma) {
    constexpr int PITCH = 24; // elements; 48 bytes, so that 8 rows lie in different banks
    const int lane = threadIdx.x;
    half *a_smem = shared<half>();                   // [16][PITCH]
    half *b_smem = a_smem + 16 * PITCH;              // [16][PITCH], of which 8 columns
    half *b_transposed_smem = b_smem + 16 * PITCH;   // [8][PITCH]
    for (int i = lane; i < 256; i += 32) a_smem[i / 16 * PITCH + i % 16] = in<half>(params, 0)[i];
    for (int i = lane; i < 128; i += 32) {
        const half element = in<half>(params, 1)[i];
        b_smem[i / 8 * PITCH + i % 8] = element;
        b_transposed_smem[i % 8 * PITCH + i / 8] = element;
    }
    __syncwarp(); // the tiles are written, their rows are read by other lanes
    uint32_t a[4], b[2];
    attn::ldmatrix_x4(a, a_smem + lane % 16 * PITCH + lane / 16 * 8);
    for (int form = 0; form < 2; ++form) {
        if (form == 0) {
            attn::ldmatrix_x2_trans(b, b_smem + lane % 16 * PITCH);
        } else {
            attn::ldmatrix_x2(b, b_transposed_smem + lane % 8 * PITCH + lane / 8 % 2 * 8);
        }
        float d[4] = {0, 0, 0, 0};
        attn::mma_m16n8k16_f16_f32(d, a, b);
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
            out<float>(params)[form * 128 + row * 8 + col] = d[i];
        }
    }
}

// 16 + 8 + 4 bytes, and zero-filled 4 (of which 1 is read) + 16 (5) + 16 (0).
KERNEL(cp_async_of_each_size) {
    const char *source = in<char>(params);
    char *tile = shared<char>();
    if (threadIdx.x == 0) {
        attn::cp_async<16>(tile, source);
        attn::cp_async<8>(tile + 16, source + 16);
        attn::cp_async<4>(tile + 24, source + 24);
        attn::cp_async_commit();
        attn::cp_async_zfill<4>(tile + 28, source + 28, 1);
        attn::cp_async_zfill<16>(tile + 32, source + 32, 5);
        attn::cp_async_zfill<16>(tile + 48, source + 48, 0);
        attn::cp_async_commit();
        attn::cp_async_wait_group<1>();
        for (int i = 0; i < 28; ++i) out<char>(params)[i] = tile[i];
        attn::cp_async_wait_group<0>();
        for (int i = 28; i < 64; ++i) out<char>(params)[i] = tile[i];
    }
}

// n[0] times warp 1 turns a row by one lane and triples it, and warp 0 reverses it and adds its lanes.
KERNEL(named_barriers_hand_over) {
    int *row = shared<int>();
    const int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        int value = in<int>(params)[lane];
        for (int round = 0; round < params->n[0]; ++round) {
            row[lane] = value;
            attn::named_barrier_arrive<1, 64>(); // the row is warp 1's
            attn::named_barrier_sync<2, 64>();   // it is back
            value = row[31 - lane] + lane;
            __syncwarp(); // all lanes have read, before any writes again
        }
        out<int>(params)[lane] = value;
    } else {
        for (int round = 0; round < params->n[0]; ++round) {
            attn::named_barrier_sync<1, 64>();
            const int value = row[(lane + 1) % 32];
            __syncwarp(); // all lanes have read
            row[lane] = 3 * value;
            attn::named_barrier_arrive<2, 64>();
        }
    }
}

// n[0] times each pair of warps reverses its 64 numbers, at a barrier known at run time only.
KERNEL(named_barrier_of_each_pair) {
    int *values = shared<int>();
    const int pair = threadIdx.x / 64, thread = threadIdx.x % 64;
    int value = in<int>(params)[threadIdx.x];
    for (int round = 0; round < params->n[0]; ++round) {
        values[threadIdx.x] = value;
        attn::named_barrier_sync<64>(1 + pair); // the pair has written
        value = values[pair * 64 + 63 - thread] + pair;
        attn::named_barrier_sync<64>(1 + pair); // the pair has read
    }
    out<int>(params)[threadIdx.x] = value;
}

// The answers of test_wait through the life of an mbarrier.
KERNEL(mbarrier_phases) {
    auto *barrier = shared<attn::Mbarrier>();
    const int lane = threadIdx.x;
    int *answers = out<int>(params) + lane * 8;
    if (lane == 0) attn::mbarrier_init(barrier, 32);
    __syncthreads(); // the object is there
    answers[0] = attn::mbarrier_test_wait(barrier, 0);
    answers[1] = attn::mbarrier_test_wait(barrier, 1); // "the phase before the first" has ended
    __syncwarp();
    attn::mbarrier_arrive(barrier);
    attn::mbarrier_wait(barrier, 0);
    answers[2] = attn::mbarrier_test_wait(barrier, 0);
    answers[3] = attn::mbarrier_test_wait(barrier, 1);
    __syncwarp();
    attn::mbarrier_arrive(barrier);
    attn::mbarrier_wait(barrier, 1);
    answers[4] = attn::mbarrier_test_wait(barrier, 0);
    answers[5] = attn::mbarrier_test_wait(barrier, 1);
    __syncwarp();
    attn::mbarrier_arrive_after_cp_async(barrier); // nothing is in flight: at once
    while (!attn::mbarrier_test_wait(barrier, 0)) {
    }
    answers[6] = attn::mbarrier_test_wait(barrier, 0);
    answers[7] = attn::mbarrier_test_wait(barrier, 1);
}

// out[0]: the number of each lane, as it was.
KERNEL(opaque_values) { out<int32_t>(params)[threadIdx.x] = attn::opaque(threadIdx.x); }
