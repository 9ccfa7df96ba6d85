// Each form of wgmma on one warpgroup: D = A B, or D += A B, on small whole numbers. Tiles are written by generic stores, so
// no TMA is needed.
#include "kernel.h"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL) // no other architecture has these instructions
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/ptx/stmatrix.cuh>
#include <attn/ptx/tma.cuh>
#include <attn/ptx/wgmma.cuh>
#include <cuda_bf16.h>
#include <type_traits>

namespace {

// The place of byte `at` of a tile that starts on a boundary of 1,024 bytes.
template <int SPAN> __device__ int swizzled(int at) { return at ^ (at >> 7 & (SPAN / 16 - 1)) << 4; }

// A row-major matrix as slabs of SPAN bytes of each row.
template <int SPAN, int ROWS, int COLS, class T> __device__ void fill_slabs(unsigned char *tile_smem, const T *matrix) {
    constexpr int SLAB_COLS = SPAN / sizeof(T);
    for (int i = threadIdx.x; i < ROWS * COLS; i += 128) {
        const int row = i / COLS, col = i % COLS;
        const int at = col / SLAB_COLS * ROWS * SPAN + row * SPAN + col % SLAB_COLS * int(sizeof(T));
        *reinterpret_cast<T *>(tile_smem + swizzled<SPAN>(at)) = matrix[i];
    }
}

// Step `step` along K of a matrix [ROWS][K].
template <int SPAN, int ROWS> __device__ uint64_t along_k(const unsigned char *tile_smem, int step) {
    const int byte = step * 32;
    return attn::matrix_descriptor<SPAN>(tile_smem + byte / SPAN * ROWS * SPAN + byte % SPAN, 16, 8 * SPAN);
}

template <class T, bool TRANS_B, bool A_IN_REGISTERS, int COUNT>
__device__ void multiply_16_bits(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t a_tile, uint64_t b_tile, bool accumulate) {
    if constexpr (std::is_same_v<T, half>) {
        if constexpr (A_IN_REGISTERS) {
            attn::wgmma_f16<TRANS_B>(d, a, b_tile, accumulate);
        } else {
            attn::wgmma_f16<TRANS_B>(d, a_tile, b_tile, accumulate);
        }
    } else if constexpr (A_IN_REGISTERS) {
        attn::wgmma_bf16<TRANS_B>(d, a, b_tile, accumulate);
    } else {
        attn::wgmma_bf16<TRANS_B>(d, a_tile, b_tile, accumulate);
    }
}

// in[0]: A [64][K]; in[1]: B [N][K], or with TRANS_B [K][N]; out: D [64][N]. n[0]: added to 3 row - 2 col.
template <class T, int SPAN, int N, int K, bool TRANS_B, bool A_IN_REGISTERS>
__device__ void multiply(const KernelParams *params) {
    constexpr int STEP = 32 / sizeof(T);
    unsigned char *a_smem = shared<unsigned char>(), *b_smem = a_smem + 64 * K * sizeof(T);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    fill_slabs<SPAN, 64, K>(a_smem, in<T>(params, 0));
    if constexpr (TRANS_B) {
        fill_slabs<SPAN, K, N>(b_smem, in<T>(params, 1));
    } else {
        fill_slabs<SPAN, N, K>(b_smem, in<T>(params, 1));
    }
    attn::fence_proxy_async(); // what this thread has written
    __syncthreads();           // what all have written

    float d[N / 2];
    uint32_t a[K / STEP][4];
    const int first_row = 16 * warp + lane / 4, first_col = 2 * (lane % 4);
    for (int i = 0; i < N / 2; ++i)
        d[i] = float(3 * (first_row + i / 2 % 2 * 8) - 2 * (first_col + i / 4 * 8 + i % 2));
    for (int step = 0; step < K / STEP; ++step) {
        for (int i = 0; i < 4; ++i) {
            const int row = first_row + i % 2 * 8, byte = step * 32 + lane % 4 * 4 + i / 2 * 16;
            a[step][i] = *reinterpret_cast<const uint32_t *>(in<char>(params, 0) + row * K * sizeof(T) + byte);
        }
    }
    attn::wgmma_fence(); // d and a were written
    for (int step = 0; step < K / STEP; ++step) {
        const bool accumulate = step > 0 || params->n[0];
        const uint64_t a_tile = along_k<SPAN, 64>(a_smem, step);
        if constexpr (TRANS_B) {
            const uint64_t b_tile = attn::matrix_descriptor<SPAN>(b_smem + step * 16 * SPAN, K * SPAN, 8 * SPAN);
            multiply_16_bits<T, true, A_IN_REGISTERS>(d, a[step], a_tile, b_tile, accumulate);
        } else {
            const uint64_t b_tile = along_k<SPAN, N>(b_smem, step);
            if constexpr (sizeof(T) == 1) {
                if constexpr (A_IN_REGISTERS) {
                    attn::wgmma_e4m3(d, a[step], b_tile, accumulate);
                } else {
                    attn::wgmma_e4m3(d, a_tile, b_tile, accumulate);
                }
            } else {
                multiply_16_bits<T, false, A_IN_REGISTERS>(d, a[step], a_tile, b_tile, accumulate);
            }
        }
    }
    attn::wgmma_commit();
    attn::wgmma_wait<0>(d); // and the compiler learns that d has changed
    for (int i = 0; i < N / 2; ++i)
        out<float>(params)[(first_row + i / 2 % 2 * 8) * N + first_col + i / 4 * 8 + i % 2] = d[i];
}

} // namespace

#define MULTIPLY(name, ...)                                                                                            \
    KERNEL(name) { multiply<__VA_ARGS__>(params); }

//                         element, swizzle, N, K, TRANS_B, A in registers
MULTIPLY(wgmma_f16_64, half, 128, 64, 64, false, false)
MULTIPLY(wgmma_f16_96, half, 128, 96, 64, false, false)
MULTIPLY(wgmma_f16_128, half, 128, 128, 64, false, false)
MULTIPLY(wgmma_f16_192, half, 128, 192, 64, false, false)
MULTIPLY(wgmma_f16_narrow, half, 64, 64, 32, false, false)
MULTIPLY(wgmma_f16_slabs, half, 128, 128, 128, false, false)
MULTIPLY(wgmma_f16_narrow_slabs, half, 64, 96, 64, false, false)
MULTIPLY(wgmma_f16_trans_64, half, 128, 64, 64, true, false)
MULTIPLY(wgmma_f16_trans_96, half, 128, 96, 64, true, false)
MULTIPLY(wgmma_f16_trans_128, half, 128, 128, 128, true, false)
MULTIPLY(wgmma_f16_trans_192, half, 128, 192, 64, true, false)
MULTIPLY(wgmma_f16_trans_narrow, half, 64, 64, 32, true, false)
MULTIPLY(wgmma_f16_registers, half, 128, 64, 64, false, true)
MULTIPLY(wgmma_f16_registers_trans, half, 128, 64, 128, true, true)
MULTIPLY(wgmma_f16_registers_trans_128, half, 128, 128, 128, true, true)
MULTIPLY(wgmma_bf16_64, __nv_bfloat16, 128, 64, 64, false, false)
MULTIPLY(wgmma_bf16_slabs, __nv_bfloat16, 128, 192, 128, false, false)
MULTIPLY(wgmma_bf16_narrow, __nv_bfloat16, 64, 96, 64, false, false)
MULTIPLY(wgmma_bf16_trans_96, __nv_bfloat16, 128, 96, 64, true, false)
MULTIPLY(wgmma_bf16_registers, __nv_bfloat16, 128, 64, 64, false, true)
MULTIPLY(wgmma_bf16_registers_trans, __nv_bfloat16, 128, 128, 128, true, true)
MULTIPLY(wgmma_e4m3_64, uint8_t, 128, 64, 128, false, false)
MULTIPLY(wgmma_e4m3_128, uint8_t, 128, 128, 128, false, false)
MULTIPLY(wgmma_e4m3_192, uint8_t, 128, 192, 128, false, false)
MULTIPLY(wgmma_e4m3_narrow, uint8_t, 64, 96, 64, false, false)
MULTIPLY(wgmma_e4m3_slabs, uint8_t, 128, 64, 256, false, false)
MULTIPLY(wgmma_e4m3_registers, uint8_t, 128, 64, 128, false, true)
MULTIPLY(wgmma_e4m3_registers_128, uint8_t, 128, 128, 256, false, true)

// Two groups in flight, as in attention: S of the next tile while O is added to. in[0]: A [64][64] f16, in[1]: B [64][64]
// along K. out[0]: A B^T, then 2 A B^T + 5, as in the registers.
KERNEL(wgmma_two_groups) {
    unsigned char *a_smem = shared<unsigned char>(), *b_smem = a_smem + 8192;
    fill_slabs<128, 64, 64>(a_smem, in<half>(params, 0));
    fill_slabs<128, 64, 64>(b_smem, in<half>(params, 1));
    attn::fence_proxy_async();
    __syncthreads(); // the tiles are there
    float s[32], o[32];
    for (float &x : o) x = 10.0f;
    const auto product = [&](float(&d)[32], bool accumulate) {
        for (int step = 0; step < 4; ++step)
            attn::wgmma_f16<false>(d, along_k<128, 64>(a_smem, step), along_k<128, 64>(b_smem, step), step > 0 || accumulate);
        attn::wgmma_commit(); // of a product
    };
    attn::wgmma_fence(); // o was written
    product(s, false);
    product(o, true);
    attn::wgmma_wait<1>(s); // the older one
    for (int i = 0; i < 32; ++i) out<float>(params)[threadIdx.x * 64 + i] = s[i];
    attn::wgmma_wait<0>(o); // both
    for (float &x : o) x *= 0.5f;
    attn::wgmma_fence(); // o was scaled
    product(o, true);
    attn::wgmma_fence(); // s was read
    product(s, false);
    attn::wgmma_wait<0>(s, o); // both again
    for (int i = 0; i < 32; ++i) out<float>(params)[threadIdx.x * 64 + 32 + i] = o[i] + 0.5f * s[i];
}

// in[0]: registers of each lane; in[1]: the byte of each lane's row. out: 2 KiB of shared memory.
KERNEL(stmatrix_x4) {
    const int lane = threadIdx.x;
    for (int i = lane; i < 512; i += 32) shared<uint32_t>()[i] = 0;
    __syncwarp(); // before it is overwritten
    uint32_t reg[4];
    for (int i = 0; i < 4; ++i) reg[i] = in<uint32_t>(params, 0)[lane * 4 + i];
    attn::stmatrix_x4(shared<char>(in<int>(params, 1)[lane]), reg);
    __syncwarp(); // the rows are written, each is read by other lanes
    for (int i = lane; i < 512; i += 32) out<uint32_t>(params)[i] = shared<uint32_t>()[i];
}

// One warpgroup gives registers back, two take them.
BOUNDED_KERNEL(registers_change_hands, 384) {
    if (threadIdx.x < 128) {
        attn::give_registers_back<24>();
        out<int>(params)[threadIdx.x] = 1;
    } else {
        attn::take_registers<240>();
        out<int>(params)[threadIdx.x] = 2;
    }
}

#endif
