// The emulated side of <attn/ptx/ldmatrix.cuh>: one access of the whole warp to 8 rows of 16 bytes per matrix.
#pragma once

#include <emulator/prelude.h>

namespace attn {
EMULATOR_BEGIN
namespace emulated {

struct LdmatrixOperand {
    uint32_t *reg;
    const void *row;
};

template <int MATRICES, bool TRANS>
EMULATOR_UNTRACED const char *ldmatrix(void *const *operands, uint32_t, uint32_t *lane_at_fault) {
    constexpr uint32_t ROWS = 8 * MATRICES;
    const void *rows[ROWS];
    for (uint32_t lane = 0; lane < ROWS; ++lane) {
        rows[lane] = static_cast<const LdmatrixOperand *>(operands[lane])->row;
        const size_t offset = static_cast<const unsigned char *>(rows[lane]) - emulator_current->shared;
        if (offset > EMULATOR_SHARED_BYTES - 16) {
            *lane_at_fault = lane;
            return "the row address that it passes is not in shared memory";
        }
    }
#ifdef EMULATOR_TRACED
    const EmulatorMatrixAccess access{rows, ROWS, 16, 2, 0, EMULATOR_COUNT_LDMATRIX, 0};
    if (!emulator_matrix_access(&access)) return "it accesses memory that does not exist";
#endif
    for (int lane = 0; lane < 32; ++lane) {
        auto *operand = static_cast<LdmatrixOperand *>(operands[lane]);
        for (int i = 0; i < MATRICES; ++i) {
            uint16_t element[2];
            for (int j = 0; j < 2; ++j) {
                const int across = lane / 4, along = 2 * (lane % 4) + j;
                const auto *row = static_cast<const uint16_t *>(rows[8 * i + (TRANS ? along : across)]);
                element[j] = row[TRANS ? across : along];
            }
            operand->reg[i] = element[0] | uint32_t(element[1]) << 16;
        }
    }
    return nullptr;
}

template <int MATRICES, bool TRANS>
__forceinline__ void ldmatrix_sync(const char *name, uint32_t (&reg)[MATRICES], const void *smem_row, EmulatorSite site) {
    // The addresses of lanes beyond the rows are ignored.
    if (emulator_current->lane < 8 * MATRICES)
        emulator::check_aligned("the row address of ldmatrix", smem_row, 16, site);
    LdmatrixOperand operand{reg, smem_row};
    emulator::collective(name, ldmatrix<MATRICES, TRANS>, operand, 0xffffffff, 0, 0, 0, 0, EMULATOR_MATRIX_COPY, site);
}

} // namespace emulated

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&reg)[4], const void *smem_row, EMULATOR_HERE) {
    emulated::ldmatrix_sync<4, false>("ldmatrix_x4", reg, smem_row, EMULATOR_SITE);
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&reg)[4], const void *smem_row, EMULATOR_HERE) {
    emulated::ldmatrix_sync<4, true>("ldmatrix_x4_trans", reg, smem_row, EMULATOR_SITE);
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t (&reg)[2], const void *smem_row, EMULATOR_HERE) {
    emulated::ldmatrix_sync<2, false>("ldmatrix_x2", reg, smem_row, EMULATOR_SITE);
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&reg)[2], const void *smem_row, EMULATOR_HERE) {
    emulated::ldmatrix_sync<2, true>("ldmatrix_x2_trans", reg, smem_row, EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
