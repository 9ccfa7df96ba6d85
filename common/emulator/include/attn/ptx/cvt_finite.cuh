// The emulated side of <attn/ptx/cvt_finite.cuh>.
#pragma once

#include <attn/element.cuh>
#include <emulator/prelude.h>
#include <type_traits>

namespace attn {
EMULATOR_BEGIN

// A number that rounds to infinity becomes the largest, by its bits, with its sign.
template <class Operand>
__device__ __forceinline__ uint32_t pack_finite(float low, float high) {
    constexpr uint32_t INFINITE = std::is_same_v<Operand, F16> ? 0x7c00 : 0x7f80;
    uint32_t pair = Operand::pack(low, high);
    for (int shift = 0; shift < 32; shift += 16) {
        if ((pair >> shift & 0x7fff) == INFINITE) pair -= 1u << shift;
    }
    return pair;
}

EMULATOR_END
} // namespace attn
