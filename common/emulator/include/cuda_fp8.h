// OCP FP8 E4M3FN: bias 7, no infinity, NaN at 0x7f and 0xff, largest value 448.
#pragma once

#include <emulator/prelude.h>
#include <cuda_fp16.h>

EMULATOR_BEGIN

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short int __nv_fp8x2_storage_t;
enum __nv_fp8_interpretation_t { __NV_E4M3 };

namespace emulator {

// As a half's bits, exponent and mantissa sit 7 places higher and lack 8 in the exponent.
__forceinline__ float e4m3_to_float(uint8_t code) {
    if ((code & 0x7f) == 0x7f) return bits<float>(0x7fffffffu);
    return half_to_float(uint16_t((code & 0x80) << 8 | (code & 0x7f) << 7)) * 256.0f;
}

// Every E4M3 value is a half.
__forceinline__ uint16_t e4m3_to_half(uint8_t code) { return float_to_half(e4m3_to_float(code)); }

} // namespace emulator

__forceinline__ __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t codes, __nv_fp8_interpretation_t) {
    return {emulator::e4m3_to_half(codes & 0xff), emulator::e4m3_to_half(codes >> 8)};
}

EMULATOR_END
