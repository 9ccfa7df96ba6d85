// IEEE binary16 on integers and floats only: the host compiler's half type computes with excess precision. Every operation
// rounds once, to the nearest, ties to even.
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

// A double's value with its inexactness kept in the last bit ("round to odd"), so that rounding again to a format at
// least two bits narrower gives what rounding once would have given.
__forceinline__ float double_to_float_odd(double value) {
    float nearest = float(value);
    if (double(nearest) == value || nearest != nearest) return nearest;
    uint32_t all = bits<uint32_t>(nearest);
    if ((all & 1) == 0) {
        // One step towards the value: the truncated result and its neighbour away from zero differ in the last bit.
        bool away = (nearest < value) == (value > 0);
        all = away ? all + 1 : all - 1;
    }
    return bits<float>(all);
}

// a * b is exact in double. The sum with c is inexact only where the terms lie so far apart that what is lost cannot turn a
// rounding to 11 bits, except through a tie, for which the last bit is kept odd.
__forceinline__ uint16_t half_fma(uint16_t a, uint16_t b, uint16_t c) {
    double product = double(half_to_float(a)) * double(half_to_float(b));
    double addend = half_to_float(c);
    double sum = product + addend;
    // The exact error of the sum (Knuth's two-sum), 0 for infinities and NaN.
    double part = sum - product;
    double error = (product - (sum - part)) + (addend - part);
    if (error != 0 && error == error) {
        uint64_t all = bits<uint64_t>(sum);
        if ((all & 1) == 0) all = ((error > 0) == (sum > 0)) ? all + 1 : all - 1;
        sum = bits<double>(all);
    }
    return float_to_half(double_to_float_odd(sum));
}

} // namespace emulator

struct __half {
    unsigned short emulator_bits;

    __half() = default;
    __half(__half_raw raw) : emulator_bits(raw.x) {}
    template <class T, class = typename std::enable_if<std::is_arithmetic<T>::value>::type>
    __half(T value) : emulator_bits(round(value)) {}
    operator float() const { return emulator::half_to_float(emulator_bits); }
    operator __half_raw() const { return {emulator_bits}; }
    __half &operator+=(__half other);
    __half &operator-=(__half other);
    __half &operator*=(__half other);
    __half &operator/=(__half other);

  private:
    static unsigned short round(float value) { return emulator::float_to_half(value); }
    // double, and integers through it (those of 64 bits lose nothing that a half could show).
    static unsigned short round(double value) { return emulator::float_to_half(emulator::double_to_float_odd(value)); }
    template <class T> static typename std::enable_if<std::is_integral<T>::value, unsigned short>::type round(T value) {
        return round(double(value));
    }
};
using half = __half;

__forceinline__ unsigned short __half_as_ushort(__half h) { return h.emulator_bits; }
__forceinline__ __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }

__forceinline__ __half __float2half(float x) { return __half(x); }
__forceinline__ __half __float2half_rn(float x) { return __half(x); }
__forceinline__ __half __double2half(double x) { return __half(x); }
__forceinline__ float __half2float(__half h) { return float(h); }

// Rounding to float and then to half is as rounding once: float has more than twice the bits of a half, and two to spare.
__forceinline__ __half __hadd(__half a, __half b) { return __half(float(a) + float(b)); }
__forceinline__ __half __hsub(__half a, __half b) { return __half(float(a) - float(b)); }
__forceinline__ __half __hmul(__half a, __half b) { return __half(float(a) * float(b)); }
__forceinline__ __half __hdiv(__half a, __half b) { return __half(float(a) / float(b)); }
__forceinline__ __half __hfma(__half a, __half b, __half c) {
    return __ushort_as_half(emulator::half_fma(a.emulator_bits, b.emulator_bits, c.emulator_bits));
}
// The sign flips even on a NaN.
__forceinline__ __half __hneg(__half h) { return __ushort_as_half(h.emulator_bits ^ 0x8000); }
__forceinline__ __half __habs(__half h) { return __ushort_as_half(h.emulator_bits & 0x7fff); }
__forceinline__ __half __hmax(__half a, __half b) { return __half(emulator::max_number(a, b)); }
__forceinline__ __half __hmin(__half a, __half b) { return __half(emulator::min_number(a, b)); }
__forceinline__ bool __hisnan(__half h) { return (h.emulator_bits & 0x7fff) > 0x7c00; }
__forceinline__ int __hisinf(__half h) {
    return (h.emulator_bits & 0x7fff) != 0x7c00 ? 0 : (h.emulator_bits & 0x8000) ? -1 : 1;
}

__forceinline__ __half operator+(__half a, __half b) { return __hadd(a, b); }
__forceinline__ __half operator-(__half a, __half b) { return __hsub(a, b); }
__forceinline__ __half operator*(__half a, __half b) { return __hmul(a, b); }
__forceinline__ __half operator/(__half a, __half b) { return __hdiv(a, b); }
__forceinline__ __half operator-(__half h) { return __hneg(h); }
__forceinline__ __half &__half::operator+=(__half other) { return *this = *this + other; }
__forceinline__ __half &__half::operator-=(__half other) { return *this = *this - other; }
__forceinline__ __half &__half::operator*=(__half other) { return *this = *this * other; }
__forceinline__ __half &__half::operator/=(__half other) { return *this = *this / other; }
__forceinline__ bool operator==(__half a, __half b) { return float(a) == float(b); }
__forceinline__ bool operator!=(__half a, __half b) { return float(a) != float(b); }
__forceinline__ bool operator<(__half a, __half b) { return float(a) < float(b); }
__forceinline__ bool operator>(__half a, __half b) { return float(a) > float(b); }
__forceinline__ bool operator<=(__half a, __half b) { return float(a) <= float(b); }
__forceinline__ bool operator>=(__half a, __half b) { return float(a) >= float(b); }
__forceinline__ bool __heq(__half a, __half b) { return a == b; }
__forceinline__ bool __hlt(__half a, __half b) { return a < b; }
__forceinline__ bool __hgt(__half a, __half b) { return a > b; }

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

__forceinline__ __half2 make_half2(__half x, __half y) { return {x, y}; }
__forceinline__ __half2 __halves2half2(__half x, __half y) { return {x, y}; }
__forceinline__ __half2 __half2half2(__half h) { return {h, h}; }
__forceinline__ __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
__forceinline__ __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
__forceinline__ __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
__forceinline__ float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
__forceinline__ __half __low2half(__half2 v) { return v.x; }
__forceinline__ __half __high2half(__half2 v) { return v.y; }
__forceinline__ float __low2float(__half2 v) { return float(v.x); }
__forceinline__ float __high2float(__half2 v) { return float(v.y); }
__forceinline__ __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }

__forceinline__ __half2 __hadd2(__half2 a, __half2 b) { return {__hadd(a.x, b.x), __hadd(a.y, b.y)}; }
__forceinline__ __half2 __hsub2(__half2 a, __half2 b) { return {__hsub(a.x, b.x), __hsub(a.y, b.y)}; }
__forceinline__ __half2 __hmul2(__half2 a, __half2 b) { return {__hmul(a.x, b.x), __hmul(a.y, b.y)}; }
__forceinline__ __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
__forceinline__ __half2 __hneg2(__half2 v) { return {__hneg(v.x), __hneg(v.y)}; }
__forceinline__ __half2 __habs2(__half2 v) { return {__habs(v.x), __habs(v.y)}; }
__forceinline__ __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
__forceinline__ __half2 __hmin2(__half2 a, __half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
__forceinline__ __half2 operator+(__half2 a, __half2 b) { return __hadd2(a, b); }
__forceinline__ __half2 operator-(__half2 a, __half2 b) { return __hsub2(a, b); }
__forceinline__ __half2 operator*(__half2 a, __half2 b) { return __hmul2(a, b); }

EMULATOR_END
