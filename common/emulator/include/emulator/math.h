// Device arithmetic, rounded exactly where CUDA's is, and where CUDA gives an error bound (exp2f, rsqrtf, __fdividef) at
// least as accurate.
#pragma once

EMULATOR_BEGIN

template <class T> __forceinline__ T __ldg(const T *address) { return *address; }

#define EMULATOR_MIN_MAX(T)                                                                                            \
    __forceinline__ T min(T a, T b) { return b < a ? b : a; }                                                          \
    __forceinline__ T max(T a, T b) { return a < b ? b : a; }
EMULATOR_MIN_MAX(int)
EMULATOR_MIN_MAX(unsigned int)
EMULATOR_MIN_MAX(long)
EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long)
EMULATOR_MIN_MAX(unsigned long long)
#undef EMULATOR_MIN_MAX

namespace emulator {

// IEEE 754-2008 minNum and maxNum, as in CUDA: a NaN loses against a number, and -0 lies below +0. Inline, unlike the C
// library's.
__forceinline__ float max_number(float a, float b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_signbit(a) ? b : a;
    return a < b ? b : a;
}
__forceinline__ float min_number(float a, float b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_signbit(a) ? a : b;
    return b < a ? b : a;
}

template <class To, class From> __forceinline__ To bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

} // namespace emulator

__forceinline__ float min(float a, float b) { return emulator::min_number(a, b); }
__forceinline__ float max(float a, float b) { return emulator::max_number(a, b); }
__forceinline__ double min(double a, double b) { return ::fmin(a, b); }
__forceinline__ double max(double a, double b) { return ::fmax(a, b); }
#define fmaxf ::EMULATOR_BUILD::emulator::max_number
#define fminf ::EMULATOR_BUILD::emulator::min_number

// Exponentials are counted in the traced build.
namespace emulator {
template <class T, T (*FUNCTION)(T)> __forceinline__ T counted_exponential(T x) {
#ifdef EMULATOR_TRACED
    ++emulator_trace_state.exps;
#endif
    return FUNCTION(x);
}
} // namespace emulator
__forceinline__ float __expf(float x) { return emulator::counted_exponential<float, ::expf>(x); }
#define exp2f ::EMULATOR_BUILD::emulator::counted_exponential<float, ::exp2f>
#define expf ::EMULATOR_BUILD::emulator::counted_exponential<float, ::expf>

__forceinline__ float rsqrtf(float x) { return float(1.0 / ::sqrt(double(x))); }
__forceinline__ float __fdividef(float a, float b) { return a / b; }
__forceinline__ float __fdiv_rn(float a, float b) { return a / b; }
__forceinline__ float __frcp_rn(float x) { return 1.0f / x; }
__forceinline__ float __fadd_rn(float a, float b) { return a + b; }
__forceinline__ float __fsub_rn(float a, float b) { return a - b; }
__forceinline__ float __fmul_rn(float a, float b) { return a * b; }
__forceinline__ float __fmaf_rn(float a, float b, float c) { return ::fmaf(a, b, c); }
__forceinline__ float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

__forceinline__ int __float_as_int(float x) { return emulator::bits<int>(x); }
__forceinline__ unsigned __float_as_uint(float x) { return emulator::bits<unsigned>(x); }
__forceinline__ float __int_as_float(int x) { return emulator::bits<float>(x); }
__forceinline__ float __uint_as_float(unsigned x) { return emulator::bits<float>(x); }

// To the nearest, ties to even; saturates, and NaN gives 0, as PTX `cvt.rni` does.
__forceinline__ int __float2int_rn(float x) {
    if (x != x) return 0;
    if (x >= 2147483648.0f) return INT_MAX;
    if (x < -2147483648.0f) return INT_MIN;
    return int(::nearbyintf(x));
}
__forceinline__ float __int2float_rn(int x) { return float(x); }
__forceinline__ float __uint2float_rn(unsigned x) { return float(x); }

__forceinline__ int __popc(unsigned x) { return __builtin_popcount(x); }
__forceinline__ int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
__forceinline__ int __ffs(int x) { return __builtin_ffs(x); }

EMULATOR_END
