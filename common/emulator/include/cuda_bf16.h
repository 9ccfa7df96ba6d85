// bfloat16 as CUDA has it: the upper half of a float. Every operation rounds once, to the nearest, ties to even.
#pragma once

#include <emulator/prelude.h>

EMULATOR_BEGIN

struct __nv_bfloat16_raw {
    unsigned short x;
};
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

    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw raw) : emulator_bits(raw.x) {}
    __nv_bfloat16(float value) : emulator_bits(emulator::float_to_bfloat16(value)) {}
    operator float() const { return emulator::bfloat16_to_float(emulator_bits); }
    operator __nv_bfloat16_raw() const { return {emulator_bits}; }
};

__forceinline__ unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.emulator_bits; }
__forceinline__ __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
__forceinline__ __nv_bfloat16 __float2bfloat16(float x) { return x; }
__forceinline__ __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
__forceinline__ float __bfloat162float(__nv_bfloat16 b) { return b; }

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
    operator __nv_bfloat162_raw() const { return {x.emulator_bits, y.emulator_bits}; }
};

__forceinline__ __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }

EMULATOR_END
