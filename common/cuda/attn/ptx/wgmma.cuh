// wgmma (sm_90a): D = A * B + D by a warpgroup, four warps whose first is a multiple of 4. PTX ISA, "Asynchronous
// warpgroup-level matrix instructions".
//
// All 128 threads execute each of these functions. Products run by themselves until the wgmma_wait that covers them; until then
// nobody touches their accumulators or the registers of A, nor writes their operands in shared memory.
#pragma once

#include <attn/ptx/shared_address.cuh>
#include <type_traits>

namespace attn {

// A matrix in shared memory as wgmma reads it: rows of SWIZZLE_BYTES (128 or 64), swizzled by that width as TMA does it.
// Core matrices are 8 rows of 16 bytes; `stride` bytes lie between 8 rows and the next, `leading` bytes between the
// columns of one row of the pattern and the next (for an operand whose reduction runs along memory, "K-major", one row
// is all that an instruction reads, and `leading` is ignored). "Matrix descriptor".
template <int SWIZZLE_BYTES>
static __device__ __forceinline__ uint64_t matrix_descriptor(const void *smem, int leading, int stride) {
    static_assert(SWIZZLE_BYTES == 128 || SWIZZLE_BYTES == 64, "the widths of our boxes");
    constexpr uint64_t MODE = SWIZZLE_BYTES == 128 ? 1 : 2;
    return (shared_address(smem) & 0x3ffff) >> 4 | static_cast<uint64_t>(leading >> 4) << 16 |
           static_cast<uint64_t>(stride >> 4) << 32 | MODE << 62;
}

// Orders the thread's accesses to accumulators and registers of A before the products that come next; not needed between
// products that add to the same accumulators.
static __device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends the group of products that the warpgroup has started since the last commit.
static __device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Tells the compiler that `registers` change here, so that it reads none of them earlier.
template <class Register, int COUNT>
static __device__ __forceinline__ void fence_operands(Register (&registers)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if constexpr (sizeof(Register) == 4 && std::is_same_v<Register, float>) {
            asm volatile("" : "+f"(registers[i])::"memory");
        } else {
            asm volatile("" : "+r"(registers[i])::"memory");
        }
    }
}

// Waits until at most PENDING groups are in flight. `registers`: the accumulators that the waited-for products wrote, which
// the compiler must not read earlier.
template <int PENDING, class... Registers>
static __device__ __forceinline__ void wgmma_wait(Registers &...registers) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    (fence_operands(registers), ...);
}

// Layout of the operands. Thread t of the warpgroup, in warp w = t / 32 with lane l = t % 32, holds of D[64][N]
//   d[4 * j + 2 * h + i] = D[16 * w + 8 * h + l / 4][8 * j + 2 * (l % 4) + i]          h and i are 0 or 1
// and of A[64][16], two f16 or bf16 a register, what mma.m16n8k16 has of its rows 16 * w and on:
//   a[0] = A[row][pair, pair + 1]      a[1] = A[row + 8][pair, ..]                     row = 16 * w + l / 4
//   a[2] = A[row][pair + 8, ..]        a[3] = A[row + 8][pair + 8, ..]                 pair = 2 * (l % 4)
// so that D, rounded, is A of the next product. Of A[64][32] in e4m3 a register holds four: as above with
// 4 * (l % 4) for `pair` and 16 for 8.

#define ATTN_D_NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ATTN_D_NAMES_48 ATTN_D_NAMES_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define ATTN_D_NAMES_64 ATTN_D_NAMES_48 \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ATTN_D_NAMES_80 ATTN_D_NAMES_64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define ATTN_D_NAMES_88 ATTN_D_NAMES_80 \
    ", %80, %81, %82, %83, %84, %85, %86, %87"
#define ATTN_D_NAMES_96 ATTN_D_NAMES_88 \
    ", %88, %89, %90, %91, %92, %93, %94, %95"
#define ATTN_D_8(d, i)                                                                                                 \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define ATTN_D_32(d) ATTN_D_8(d, 0), ATTN_D_8(d, 8), ATTN_D_8(d, 16), ATTN_D_8(d, 24)
#define ATTN_D_48(d) ATTN_D_32(d), ATTN_D_8(d, 32), ATTN_D_8(d, 40)
#define ATTN_D_64(d) ATTN_D_48(d), ATTN_D_8(d, 48), ATTN_D_8(d, 56)
#define ATTN_D_80(d) ATTN_D_64(d), ATTN_D_8(d, 64), ATTN_D_8(d, 72)
#define ATTN_D_88(d) ATTN_D_80(d), ATTN_D_8(d, 80)
#define ATTN_D_96(d) ATTN_D_88(d), ATTN_D_8(d, 88)

// d[64][N] = a · b, plus d if `accumulate`; N is twice the number of accumulators. a and b by descriptor, or a from
// registers. f16 and bf16: reduces over 16; a is K-major, b too (B[n][k] in memory) or, with TRANS_B, MN-major (B[k][n]).
// e4m3: reduces over 32; both K-major. R0 to R6 are the numbers of the operands behind the accumulators.
#define ATTN_WGMMA_16_BITS(TYPE, N, COUNT, R0, R1, R2, R3, R4, R5, R6)                                                 \
    template <bool TRANS_B>                                                                                            \
    static __device__ __forceinline__ void wgmma_##TYPE(float (&d)[COUNT], uint64_t a, uint64_t b, bool accumulate) {  \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #R2 ", 0;\n"                                                 \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" ATTN_D_NAMES_##COUNT       \
                     "}, %" #R0 ", %" #R1 ", p, 1, 1, 0, %" #R3 ";\n}"                                                 \
                     : ATTN_D_##COUNT(d)                                                                               \
                     : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(TRANS_B)));             \
    }                                                                                                                  \
    template <bool TRANS_B>                                                                                            \
    static __device__ __forceinline__ void wgmma_##TYPE(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b,         \
                                                        bool accumulate) {                                             \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #R5 ", 0;\n"                                                 \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" ATTN_D_NAMES_##COUNT       \
                     "}, {%" #R0 ", %" #R1 ", %" #R2 ", %" #R3 "}, %" #R4 ", p, 1, 1, %" #R6 ";\n}"                    \
                     : ATTN_D_##COUNT(d)                                                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),          \
                       "n"(static_cast<int>(TRANS_B)));                                                                \
    }
#define ATTN_WGMMA(N, COUNT, R0, R1, R2, R3, R4, R5, R6)                                                               \
    ATTN_WGMMA_16_BITS(f16, N, COUNT, R0, R1, R2, R3, R4, R5, R6)                                                      \
    ATTN_WGMMA_16_BITS(bf16, N, COUNT, R0, R1, R2, R3, R4, R5, R6)                                                     \
    static __device__ __forceinline__ void wgmma_e4m3(float (&d)[COUNT], uint64_t a, uint64_t b, bool accumulate) {    \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #R2 ", 0;\n"                                                 \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" ATTN_D_NAMES_##COUNT "}, %" #R0      \
                     ", %" #R1 ", p, 1, 1;\n}"                                                                         \
                     : ATTN_D_##COUNT(d)                                                                               \
                     : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                             \
    }                                                                                                                  \
    static __device__ __forceinline__ void wgmma_e4m3(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b,           \
                                                      bool accumulate) {                                               \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #R5 ", 0;\n"                                                 \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" ATTN_D_NAMES_##COUNT "}, {%" #R0     \
                     ", %" #R1 ", %" #R2 ", %" #R3 "}, %" #R4 ", p, 1, 1;\n}"                                          \
                     : ATTN_D_##COUNT(d)                                                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));         \
    }

ATTN_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
ATTN_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54)
ATTN_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)
ATTN_WGMMA(160, 80, 80, 81, 82, 83, 84, 85, 86)
ATTN_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94)
ATTN_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102)

#undef ATTN_WGMMA
#undef ATTN_WGMMA_16_BITS

} // namespace attn
