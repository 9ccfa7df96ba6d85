#include "kernel.h"
#include <cuda_fp16.h>

KERNEL(bfloat16_to_float) {
    int i = global_thread();
    if (i < params->n[0]) out<float>(params)[i] = emulator::bfloat16_to_float(in<uint16_t>(params)[i]);
}

// As both of a pair.
KERNEL(float_to_bfloat16) {
    int i = global_thread();
    if (i >= params->n[0]) return;
    float value = in<float>(params)[i];
    __nv_bfloat162_raw low = __floats2bfloat162_rn(value, 0.0f), high = __floats2bfloat162_rn(0.0f, value);
    out<unsigned short>(params)[2 * i] = low.x;
    out<unsigned short>(params)[2 * i + 1] = high.y;
}

KERNEL(half_to_float) {
    int i = global_thread();
    if (i < params->n[0]) out<float>(params)[i] = __half2float(in<half>(params)[i]);
}

// Alone, and as both of a pair.
KERNEL(float_to_half) {
    int i = global_thread();
    if (i >= params->n[0]) return;
    float value = in<float>(params)[i];
    __half2_raw low = __floats2half2_rn(value, 0.0f), high = __floats2half2_rn(0.0f, value);
    out<half>(params)[3 * i] = __float2half(value);
    out<half>(params)[3 * i + 1] = __ushort_as_half(low.x);
    out<half>(params)[3 * i + 2] = __ushort_as_half(high.y);
}
