// The emulated side of <attn/ptx/stmatrix.cuh>: one access of the whole warp to 8 rows of 16 bytes per matrix.
#pragma once

#include <emulator/prelude.h>

namespace attn {
EMULATOR_BEGIN
namespace emulated {

struct StmatrixOperand {
    const uint32_t *reg;
    void *row;
};

EMULATOR_UNTRACED inline const char *stmatrix(void *const *operands, uint32_t, uint32_t *lane_at_fault) {
    const void *rows[32];
    for (uint32_t lane = 0; lane < 32; ++lane) {
        rows[lane] = static_cast<const StmatrixOperand *>(operands[lane])->row;
        const size_t offset = static_cast<const unsigned char *>(rows[lane]) - emulator_current->shared;
        if (offset > EMULATOR_SHARED_BYTES - 16) {
            *lane_at_fault = lane;
            return "the row address that it passes is not in shared memory";
        }
    }
#ifdef EMULATOR_TRACED
    const EmulatorMatrixAccess access{rows, 32, 16, 2, 1, EMULATOR_COUNT_LDMATRIX, 0};
    if (!emulator_matrix_access(&access)) return "it accesses memory that does not exist";
#endif
    for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const auto *row = static_cast<const StmatrixOperand *>(operands[8 * i + lane / 4]);
            static_cast<uint32_t *>(row->row)[lane % 4] = static_cast<const StmatrixOperand *>(operands[lane])->reg[i];
        }
    }
    return nullptr;
}

} // namespace emulated

__device__ __forceinline__ void stmatrix_x4(void *smem_row, const uint32_t (&reg)[4], EMULATOR_HERE) {
    emulator::check_aligned("the row address of stmatrix", smem_row, 16, EMULATOR_SITE);
    emulated::StmatrixOperand operand{reg, smem_row};
    emulator::collective("stmatrix_x4", emulated::stmatrix, operand, 0xffffffff, 0, 0, 0, 0, EMULATOR_MATRIX_COPY,
                         EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
