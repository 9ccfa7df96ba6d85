// bfloat16 as CUDA has it: the upper half of a float. Rounded to the nearest, ties to even.
#pragma once

#include <emulator/prelude.h>

EMULATOR_BEGIN

struct alignas(4) __nv_bfloat162_raw {
    unsigned short x, y;
};

namespace emulator {

__forceinline__ float bfloat16_to_float(uint16_t code) { return bits<float>(uint32_t(code) << 16); }

// NaN becomes 0x7fff, as PTX `cvt` gives it. A mantissa that rounds up to the next power of two carries into the exponent.
__forceinline__ uint16_t float_to_bfloat16(float value) {
    const uint32_t all = bits<uint32_t>(value);
    if (value != value) return 0x7fff;
    return uint16_t((all + 0x7fff + (all >> 16 & 1)) >> 16);
}

} // namespace emulator

struct __nv_bfloat16 {
    unsigned short emulator_bits;
};

__forceinline__ __nv_bfloat162_raw __floats2bfloat162_rn(float x, float y) {
    return {emulator::float_to_bfloat16(x), emulator::float_to_bfloat16(y)};
}

EMULATOR_END
