// ldmatrix (sm_75): 8x8 matrices of 16-bit elements from shared memory into the fragment layout of mma.sync. PTX ISA,
// "Warp-level matrix load instruction: ldmatrix".
#pragma once

#include <attn/ptx/shared_address.cuh>

namespace attn {

// Loads four 8x8 matrices. Lane l passes the address of row l % 8 of matrix l / 8: 16 bytes, on a 16-byte boundary.
// Register i of lane l receives elements [l / 4][2 * (l % 4)] and [..][2 * (l % 4) + 1] of matrix i, in this order
// from the low half. A warp-wide access: all 32 lanes take part, and it orders nothing.
static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&reg)[4], const void *smem_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(reg[0]), "=r"(reg[1]), "=r"(reg[2]), "=r"(reg[3])
                 : "r"(shared_address(smem_row))
                 : "memory");
}

// The same with each matrix transposed: register i of lane l receives elements [2 * (l % 4)][l / 4] and
// [2 * (l % 4) + 1][l / 4] of matrix i.
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&reg)[4], const void *smem_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(reg[0]), "=r"(reg[1]), "=r"(reg[2]), "=r"(reg[3])
                 : "r"(shared_address(smem_row))
                 : "memory");
}

// Two 8x8 matrices; lanes 0 to 15 pass the row addresses, the others' are ignored.
static __device__ __forceinline__ void ldmatrix_x2(uint32_t (&reg)[2], const void *smem_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(reg[0]), "=r"(reg[1])
                 : "r"(shared_address(smem_row))
                 : "memory");
}

static __device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&reg)[2], const void *smem_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(reg[0]), "=r"(reg[1])
                 : "r"(shared_address(smem_row))
                 : "memory");
}

} // namespace attn
