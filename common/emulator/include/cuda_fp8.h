// OCP FP8 E4M3FN: bias 7, no infinity, NaN at 0x7f and 0xff, largest value 448.
#pragma once

#include <emulator/prelude.h>
#include <cuda_fp16.h>

EMULATOR_BEGIN

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short int __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_fp8_interpretation_t { __NV_E4M3 };
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };

namespace emulator {

// As a half's bits, exponent and mantissa sit 7 places higher and lack 8 in the exponent.
__forceinline__ float e4m3_to_float(uint8_t code) {
    if ((code & 0x7f) == 0x7f) return bits<float>(0x7fffffffu);
    return half_to_float(uint16_t((code & 0x80) << 8 | (code & 0x7f) << 7)) * 256.0f;
}

// Every E4M3 value is a half.
__forceinline__ uint16_t e4m3_to_half(uint8_t code) { return float_to_half(e4m3_to_float(code)); }

// To the nearest code, ties to even. A NaN gives 0x7f. Above the largest value: that value, or NaN with __NV_NOSAT.
__forceinline__ uint8_t float_to_e4m3(float value, bool saturate) {
    uint32_t all = bits<uint32_t>(value);
    uint8_t sign = uint8_t(all >> 24 & 0x80);
    uint32_t magnitude = all & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7f;
    if (magnitude > 0x43e80000) return sign | (saturate ? 0x7e : 0x7f); // above 464, half way to the next step
    if (magnitude < 0x3c800000) {
        // Below 2^-6, subnormal or 0: adding 2^14 puts the code's last bit (2^-9) at the float's last bit.
        float shifted = bits<float>(magnitude) + 16384.0f;
        return sign | uint8_t(bits<uint32_t>(shifted) - 0x46800000);
    }
    uint32_t odd = magnitude >> 20 & 1;
    uint32_t code = (magnitude - 0x3c000000 + 0x7ffff + odd) >> 20;
    return sign | uint8_t(code);
}

} // namespace emulator

__forceinline__ __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t code, __nv_fp8_interpretation_t) {
    return {emulator::e4m3_to_half(code)};
}
__forceinline__ __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t codes, __nv_fp8_interpretation_t) {
    return {emulator::e4m3_to_half(codes & 0xff), emulator::e4m3_to_half(codes >> 8)};
}
__forceinline__ __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturation,
                                                         __nv_fp8_interpretation_t) {
    return emulator::float_to_e4m3(x, saturation == __NV_SATFINITE);
}
__forceinline__ __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t saturation,
                                                              __nv_fp8_interpretation_t kind) {
    return __nv_fp8x2_storage_t(__nv_cvt_float_to_fp8(v.x, saturation, kind) |
                                __nv_cvt_float_to_fp8(v.y, saturation, kind) << 8);
}
__forceinline__ __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw h, __nv_saturation_t saturation,
                                                           __nv_fp8_interpretation_t kind) {
    return __nv_cvt_float_to_fp8(emulator::half_to_float(h.x), saturation, kind);
}
__forceinline__ __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw h, __nv_saturation_t saturation,
                                                                __nv_fp8_interpretation_t kind) {
    return __nv_cvt_float2_to_fp8x2({emulator::half_to_float(h.x), emulator::half_to_float(h.y)}, saturation, kind);
}

struct __nv_fp8_e4m3 {
    __nv_fp8_storage_t __x;

    __nv_fp8_e4m3() = default;
    explicit __nv_fp8_e4m3(float x) : __x(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)) {}
    explicit __nv_fp8_e4m3(__half h) : __nv_fp8_e4m3(float(h)) {}
    explicit operator float() const { return emulator::e4m3_to_float(__x); }
    explicit operator __half() const { return __half(__nv_cvt_fp8_to_halfraw(__x, __NV_E4M3)); }
};

EMULATOR_END
