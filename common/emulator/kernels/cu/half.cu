#include "kernel.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

KERNEL(bfloat16_to_float) {
    int i = global_thread();
    if (i < params->n[0]) out<float>(params)[i] = __bfloat162float(in<__nv_bfloat16>(params)[i]);
}

// Alone, and as both of a pair.
KERNEL(float_to_bfloat16) {
    int i = global_thread();
    if (i >= params->n[0]) return;
    float value = in<float>(params)[i];
    __nv_bfloat162_raw low = __floats2bfloat162_rn(value, 0.0f), high = __floats2bfloat162_rn(0.0f, value);
    unsigned short *codes = out<unsigned short>(params) + 3 * i;
    codes[0] = __bfloat16_as_ushort(__float2bfloat16(value));
    codes[1] = low.x;
    codes[2] = high.y;
}

KERNEL(half_to_float) {
    int i = global_thread();
    if (i < params->n[0]) out<float>(params)[i] = __half2float(in<half>(params)[i]);
}

KERNEL(float_to_half) {
    int i = global_thread();
    if (i < params->n[0]) out<half>(params)[i] = __float2half(in<float>(params)[i]);
}

KERNEL(double_to_half) {
    int i = global_thread();
    if (i < params->n[0]) out<half>(params)[i] = __double2half(in<double>(params)[i]);
}

KERNEL(half_arithmetic) {
    int i = global_thread();
    if (i >= params->n[0]) return;
    half a = in<half>(params, 0)[i], b = in<half>(params, 1)[i], c = in<half>(params, 2)[i];
    half *row = out<half>(params) + 7 * i;
    row[0] = __hadd(a, b);
    row[1] = __hsub(a, b);
    row[2] = __hmul(a, b);
    row[3] = __hfma(a, b, c);
    row[4] = a / b;
    row[5] = __hmax(a, b);
    row[6] = -a;
}

// Both halves of a half2 go their own way, in the right order.
KERNEL(half2_operations) {
    half2 a = __floats2half2_rn(1.0f, 2.0f), b = __float22half2_rn(make_float2(3.0f, 5.0f)), c = __float2half2_rn(0.5f);
    const half2 rows[] = {__hadd2(a, b), __hsub2(a, b), __hmul2(a, b), __hfma2(a, b, c), __hmax2(a, __hneg2(b)),
                          __half2half2(__high2half(b)), __halves2half2(__low2half(b), __high2half(a)),
                          __lowhigh2highlow(a), a + b * c};
    int row = 0;
    for (half2 value : rows) {
        float2 unpacked = __half22float2(value);
        out<float>(params)[row++] = unpacked.x;
        out<float>(params)[row++] = unpacked.y;
    }
    unsigned packed;
    memcpy(&packed, &a, sizeof a);
    out<float>(params)[row++] = float(packed >> 16);
    out<float>(params)[row++] = __low2float(a) + __high2float(b);
    half mixed = 1;
    mixed += half(0.5);
    mixed *= half(3);
    out<float>(params)[row++] = mixed > half(4.25f) ? float(mixed) : -1.0f;
}
