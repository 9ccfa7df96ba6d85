#include "kernel.h"
#include <cuda_fp8.h>

// All codes: as half bits, as a pair, and through the class.
KERNEL(e4m3_to_half) {
    unsigned code = threadIdx.x;
    unsigned short *row = out<unsigned short>(params) + 4 * code;
    row[0] = __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t(code), __NV_E4M3).x;
    __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t(code | (255 - code) << 8), __NV_E4M3);
    row[1] = pair.x;
    row[2] = pair.y;
    __nv_fp8_e4m3 value;
    value.__x = code;
    row[3] = __half_as_ushort(__float2half(float(value)));
}

KERNEL(float_to_e4m3) {
    int i = global_thread();
    if (i >= params->n[0]) return;
    float value = in<float>(params)[i];
    out<unsigned char>(params, 0)[i] = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
    out<unsigned char>(params, 1)[i] = __nv_cvt_float_to_fp8(value, __NV_NOSAT, __NV_E4M3);
}
