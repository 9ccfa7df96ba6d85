// stmatrix (sm_90): 8x8 matrices of 16-bit elements from fragments to shared memory, the way back of ldmatrix. PTX ISA,
// "stmatrix".
#pragma once

#include <attn/ptx/shared_address.cuh>

namespace attn {

// Stores four 8x8 matrices. Lane l passes the address of row l % 8 of matrix l / 8: 16 bytes, on a 16-byte boundary.
// Register i of lane l holds elements [l / 4][2 * (l % 4)] and [..][2 * (l % 4) + 1] of matrix i, the first in the low
// half. A warp-wide access: all 32 lanes take part, and it orders nothing.
static __device__ __forceinline__ void stmatrix_x4(void *smem_row, const uint32_t (&reg)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(smem_row)),
                 "r"(reg[0]), "r"(reg[1]), "r"(reg[2]), "r"(reg[3])
                 : "memory");
}

} // namespace attn
