// The emulated side of <attn/ptx/mma.cuh>, with the fragment layout of the PTX ISA. Products are exact in FP32; each element
// of D adds them in ascending k, every sum rounded to FP32. Tensor cores add in another order and with another internal
// width, so D agrees with a GPU's only within that.
#pragma once

#include <emulator/prelude.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

namespace attn {
EMULATOR_BEGIN
namespace emulated {

// Elements of a register, and the value of the lowest.
struct MmaF16 {
    static constexpr int PER_REGISTER = 2;
    static float value(uint32_t bits) { return emulator::half_to_float(uint16_t(bits)); }
};
struct MmaBf16 {
    static constexpr int PER_REGISTER = 2;
    static float value(uint32_t bits) { return emulator::bfloat16_to_float(uint16_t(bits)); }
};
struct MmaE4m3 {
    static constexpr int PER_REGISTER = 4;
    static float value(uint32_t bits) { return emulator::e4m3_to_float(uint8_t(bits)); }
};

struct MmaOperand {
    float *d;
    const uint32_t *a;
    const uint32_t *b;
};

template <class Element>
EMULATOR_UNTRACED const char *mma(void *const *operands, uint32_t, uint32_t *) {
    constexpr int PER = Element::PER_REGISTER, K = 8 * PER;
    float a[16][K], b[K][8], d[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const auto *operand = static_cast<const MmaOperand *>(operands[lane]);
        const int row = lane / 4, first = PER * (lane % 4);
        for (int j = 0; j < PER; ++j) {
            for (int i = 0; i < 4; ++i)
                a[row + i % 2 * 8][first + i / 2 * (K / 2) + j] = Element::value(operand->a[i] >> (32 / PER * j));
            for (int i = 0; i < 2; ++i) b[first + i * (K / 2) + j][row] = Element::value(operand->b[i] >> (32 / PER * j));
        }
        for (int i = 0; i < 4; ++i) d[row + i / 2 * 8][2 * (lane % 4) + i % 2] = operand->d[i];
    }
    for (int m = 0; m < 16; ++m) {
        // Columns innermost: they are independent, so the host may vectorise without changing any sum's order.
        for (int k = 0; k < K; ++k)
            for (int n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
    }
    for (int lane = 0; lane < 32; ++lane) {
        auto *operand = static_cast<MmaOperand *>(operands[lane]);
        for (int i = 0; i < 4; ++i) operand->d[i] = d[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
    }
    return nullptr;
}

template <class Element>
__forceinline__ void mma_sync(const char *name, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                              EmulatorSite site) {
    MmaOperand operand{d, a, b};
    emulator::collective(name, mma<Element>, operand, 0xffffffff, 0, 0, 16 * 8 * 8 * Element::PER_REGISTER, 0,
                         EMULATOR_MMA, site);
}

} // namespace emulated

__device__ __forceinline__ void mma_m16n8k16_f16_f32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                                     EMULATOR_HERE) {
    emulated::mma_sync<emulated::MmaF16>("mma_m16n8k16_f16_f32", d, a, b, EMULATOR_SITE);
}

__device__ __forceinline__ void mma_m16n8k16_bf16_f32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                                      EMULATOR_HERE) {
    emulated::mma_sync<emulated::MmaBf16>("mma_m16n8k16_bf16_f32", d, a, b, EMULATOR_SITE);
}

__device__ __forceinline__ void mma_m16n8k32_e4m3_f32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                                      EMULATOR_HERE) {
    emulated::mma_sync<emulated::MmaE4m3>("mma_m16n8k32_e4m3_f32", d, a, b, EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
