// mma.sync (sm_80, e4m3: sm_89): D = A * B + D on one warp's tensor core, fragments in registers. PTX ISA, "Warp-level matrix
// instructions: mma".
#pragma once

#include <stdint.h>

namespace attn {

// m16n8k16, f16 operands, f32 accumulate. Lane l, with row = l / 4 and pair = 2 * (l % 4), holds
//   a[0] = A[row][pair, pair + 1]      a[1] = A[row + 8][pair, ..]
//   a[2] = A[row][pair + 8, ..]        a[3] = A[row + 8][pair + 8, ..]
//   b[0] = B[pair, pair + 1][row]      b[1] = B[pair + 8, ..][row]      (B is 16 x 8; row is here its column)
//   d[0], d[1] = D[row][pair, ..]      d[2], d[3] = D[row + 8][pair, ..]
// with the lower index in the low half of each register.
static __device__ __forceinline__ void mma_m16n8k16_f16_f32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same of bf16 operands.
static __device__ __forceinline__ void mma_m16n8k16_bf16_f32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// m16n8k32, e4m3 operands, f32 accumulate. As above with four codes a register: lane l, with row = l / 4 and
// quad = 4 * (l % 4), holds a[0] = A[row][quad .. quad + 3], a[1] = A[row + 8][quad ..], a[2] = A[row][quad + 16 ..],
// a[3] = A[row + 8][quad + 16 ..], b[0] = B[quad ..][row], b[1] = B[quad + 16 ..][row]; d as above.
// Compiled for a GPU before sm_89 it traps: a stage must not select it there.
static __device__ __forceinline__ void mma_m16n8k32_e4m3_f32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

} // namespace attn
