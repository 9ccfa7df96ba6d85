// As the plain header has it, with notes.
#pragma once

#include <attn/timeline.cuh>

#define stmatrix_x4 plain_stmatrix_x4
#include_next <attn/ptx/stmatrix.cuh>
#undef stmatrix_x4

namespace attn {

static __device__ __forceinline__ void stmatrix_x4(void *smem_row, const uint32_t (&reg)[4], int line = __builtin_LINE()) {
    timeline::run<timeline::SHARED_STORE>(line);
    plain_stmatrix_x4(smem_row, reg);
}

} // namespace attn
