// The emulated side of <attn/ptx/wgmma.cuh>. A product of four warps runs once all have issued it, at once or as late as the
// first wait that covers it. Until a thread's wait that covers it and names the accumulators, these are a signalling NaN.
// How D is summed up: `emulator/src/wgmma/multiply.rs`.
#pragma once

#include <emulator/prelude.h>
#include <emulator/wgmma.h>

namespace attn {
EMULATOR_BEGIN
namespace emulated {

template <int COUNT>
__forceinline__ void wgmma(const char *name, float (&d)[COUNT], const uint32_t *a, uint64_t a_descriptor, uint64_t b,
                           EmulatorElement element, bool transposed_b, bool accumulate, EmulatorSite site) {
    static_assert(COUNT % 4 == 0 && COUNT >= 4 && COUNT <= 128, "N is a multiple of 8 up to 256");
    EmulatorWgmma operand{d, a, a_descriptor, b, 2 * COUNT, element, transposed_b, accumulate};
    emulator::collective(name, nullptr, operand, 0xffffffff, 0, 0, 0, 0, EMULATOR_WGMMA, site);
}

template <class... Arrays>
__forceinline__ void wgmma_wait(int pending, EmulatorSite site, Arrays &...arrays) {
    static_assert(sizeof...(Arrays) <= 4);
    EmulatorRegisters operand{{&arrays...}, {sizeof(Arrays)...}};
    emulator::collective("wgmma_wait", nullptr, operand, 0xffffffff, pending, 0, 0, 0, EMULATOR_WGMMA_WAIT, site);
}

} // namespace emulated

// The address is the offset in shared memory, which starts on a boundary of 1,024 bytes.
template <int SWIZZLE_BYTES>
__device__ __forceinline__ uint64_t matrix_descriptor(const void *smem, int leading, int stride, EMULATOR_HERE) {
    static_assert(SWIZZLE_BYTES == 128 || SWIZZLE_BYTES == 64, "the widths of our boxes");
    constexpr uint64_t MODE = SWIZZLE_BYTES == 128 ? 1 : 2;
    const uint64_t address = static_cast<const unsigned char *>(smem) - emulator_current->shared;
    if (address >= EMULATOR_SHARED_BYTES) emulator::trap("a matrix_descriptor of memory that is not shared", EMULATOR_SITE);
    emulator::check_aligned("the address of matrix_descriptor", address, 16, EMULATOR_SITE);
    return (address & 0x3ffff) >> 4 | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32 | MODE << 62;
}

__device__ __forceinline__ void wgmma_fence(EMULATOR_HERE) {
    EmulatorCollective call{"wgmma_fence", nullptr, nullptr, {0, 0}, 0, 0xffffffff, 0, EMULATOR_WGMMA_FENCE, EMULATOR_SITE};
    emulator_collective(emulator_current, &call);
}

__device__ __forceinline__ void wgmma_commit(EMULATOR_HERE) {
    EmulatorCollective call{"wgmma_commit", nullptr, nullptr, {0, 0}, 0, 0xffffffff, 0, EMULATOR_WGMMA_COMMIT, EMULATOR_SITE};
    emulator_collective(emulator_current, &call);
}

// A hint to the compiler alone.
template <class Register, int COUNT> __device__ __forceinline__ void fence_operands(Register (&)[COUNT]) {}

// One overload per number of arrays: the place of the call comes last.
template <int PENDING> __device__ __forceinline__ void wgmma_wait(EMULATOR_HERE) {
    emulated::wgmma_wait(PENDING, EMULATOR_SITE);
}
template <int PENDING, class A, int COUNT_A> __device__ __forceinline__ void wgmma_wait(A (&a)[COUNT_A], EMULATOR_HERE) {
    emulated::wgmma_wait(PENDING, EMULATOR_SITE, a);
}
template <int PENDING, class A, int COUNT_A, class B, int COUNT_B>
__device__ __forceinline__ void wgmma_wait(A (&a)[COUNT_A], B (&b)[COUNT_B], EMULATOR_HERE) {
    emulated::wgmma_wait(PENDING, EMULATOR_SITE, a, b);
}
template <int PENDING, class A, int COUNT_A, class B, int COUNT_B, class C, int COUNT_C>
__device__ __forceinline__ void wgmma_wait(A (&a)[COUNT_A], B (&b)[COUNT_B], C (&c)[COUNT_C], EMULATOR_HERE) {
    emulated::wgmma_wait(PENDING, EMULATOR_SITE, a, b, c);
}
template <int PENDING, class A, int COUNT_A, class B, int COUNT_B, class C, int COUNT_C, class D, int COUNT_D>
__device__ __forceinline__ void wgmma_wait(A (&a)[COUNT_A], B (&b)[COUNT_B], C (&c)[COUNT_C], D (&d)[COUNT_D],
                                           EMULATOR_HERE) {
    emulated::wgmma_wait(PENDING, EMULATOR_SITE, a, b, c, d);
}

template <bool TRANS_B, int COUNT>
__device__ __forceinline__ void wgmma_f16(float (&d)[COUNT], uint64_t a, uint64_t b, bool accumulate, EMULATOR_HERE) {
    emulated::wgmma("wgmma_f16", d, nullptr, a, b, EMULATOR_F16, TRANS_B, accumulate, EMULATOR_SITE);
}

template <bool TRANS_B, int COUNT>
__device__ __forceinline__ void wgmma_f16(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                                          EMULATOR_HERE) {
    emulated::wgmma("wgmma_f16", d, a, 0, b, EMULATOR_F16, TRANS_B, accumulate, EMULATOR_SITE);
}

template <bool TRANS_B, int COUNT>
__device__ __forceinline__ void wgmma_bf16(float (&d)[COUNT], uint64_t a, uint64_t b, bool accumulate, EMULATOR_HERE) {
    emulated::wgmma("wgmma_bf16", d, nullptr, a, b, EMULATOR_BF16, TRANS_B, accumulate, EMULATOR_SITE);
}

template <bool TRANS_B, int COUNT>
__device__ __forceinline__ void wgmma_bf16(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                                           EMULATOR_HERE) {
    emulated::wgmma("wgmma_bf16", d, a, 0, b, EMULATOR_BF16, TRANS_B, accumulate, EMULATOR_SITE);
}

template <int COUNT>
__device__ __forceinline__ void wgmma_e4m3(float (&d)[COUNT], uint64_t a, uint64_t b, bool accumulate, EMULATOR_HERE) {
    emulated::wgmma("wgmma_e4m3", d, nullptr, a, b, EMULATOR_E4M3, false, accumulate, EMULATOR_SITE);
}

template <int COUNT>
__device__ __forceinline__ void wgmma_e4m3(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                                           EMULATOR_HERE) {
    emulated::wgmma("wgmma_e4m3", d, a, 0, b, EMULATOR_E4M3, false, accumulate, EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
