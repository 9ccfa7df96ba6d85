// IEEE binary16 on integers and floats only: the host compiler's half type computes with excess precision. Kernels
// compute in f32: there are conversions alone.
#pragma once

#include <emulator/prelude.h>

EMULATOR_BEGIN

struct __half_raw {
    unsigned short x;
};
struct alignas(4) __half2_raw {
    unsigned short x, y;
};

namespace emulator {

// Exact for every input, NaN payloads included. A subnormal needs no case of its own: scaling by 2^112 normalises it.
__forceinline__ float half_to_float(uint16_t half) {
    uint32_t magnitude = uint32_t(half & 0x7fff) << 13;
    float scaled = bits<float>(magnitude) * 0x1p112f;
    uint32_t result = bits<uint32_t>(scaled);
    if (magnitude >= 0x0f800000) result = magnitude | 0x7f800000; // infinity or NaN
    return bits<float>(result | uint32_t(half & 0x8000) << 16);
}

// To the nearest half, ties to even; NaN becomes 0x7fff, as PTX `cvt` gives it.
__forceinline__ uint16_t float_to_half(float value) {
    uint32_t all = bits<uint32_t>(value);
    uint16_t sign = uint16_t(all >> 16 & 0x8000);
    uint32_t magnitude = all & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7fff;
    if (magnitude >= 0x477ff000) return sign | 0x7c00; // 65520 and above round to infinity
    if (magnitude < 0x38800000) {
        // Subnormal or 0: adding 0.5 puts the half's last bit at the float's last bit, and the addition rounds.
        float shifted = bits<float>(magnitude) + 0.5f;
        return sign | uint16_t(bits<uint32_t>(shifted) - 0x3f000000);
    }
    uint32_t odd = magnitude >> 13 & 1;
    return sign | uint16_t((magnitude - 0x38000000 + 0x0fff + odd) >> 13);
}

} // namespace emulator

struct __half {
    unsigned short emulator_bits;

    __half() = default;
    __half(__half_raw raw) : emulator_bits(raw.x) {}
    __half(float value) : emulator_bits(emulator::float_to_half(value)) {}
    // Explicit, so that no sum of FP16 values is one of floats.
    explicit operator float() const { return emulator::half_to_float(emulator_bits); }
    operator __half_raw() const { return {emulator_bits}; }
};
using half = __half;

__forceinline__ unsigned short __half_as_ushort(__half h) { return h.emulator_bits; }
__forceinline__ __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }

__forceinline__ __half __float2half(float x) { return __half(x); }
__forceinline__ float __half2float(__half h) { return float(h); }

struct alignas(4) __half2 {
    __half x, y;

    __half2() = default;
    __half2(__half x, __half y) : x(x), y(y) {}
    __half2(__half2_raw raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
    __half2(const __half2 &) = default;
#ifdef EMULATOR_TRACED
    EMULATOR_WHOLE(__half2, 4)
#else
    __half2 &operator=(const __half2 &) = default;
#endif
    operator __half2_raw() const { return {x.emulator_bits, y.emulator_bits}; }
};
using half2 = __half2;

__forceinline__ __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }

EMULATOR_END
