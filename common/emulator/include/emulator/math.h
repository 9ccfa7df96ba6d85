// Device arithmetic, rounded exactly where CUDA's is, and where CUDA gives an error bound (exp2f, __fdividef) at
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
#define exp2f ::EMULATOR_BUILD::emulator::counted_exponential<float, ::exp2f>
#define expf ::EMULATOR_BUILD::emulator::counted_exponential<float, ::expf>

__forceinline__ float __fdividef(float a, float b) { return a / b; }

__forceinline__ unsigned __float_as_uint(float x) { return emulator::bits<unsigned>(x); }
__forceinline__ float __uint_as_float(unsigned x) { return emulator::bits<float>(x); }

EMULATOR_END
