// CUDA's vector types, as far as kernels use them. In the traced build an assignment is one access of the whole type, as on a GPU, also `*p = uint4{a,
// b, c, d}`.
#pragma once

#ifdef EMULATOR_TRACED
#define EMULATOR_WHOLE(name, bytes)                                                                                    \
    __forceinline__ name &operator=(const name &other) {                                                               \
        typedef unsigned char Whole __attribute__((vector_size(bytes), may_alias, aligned(alignof(name))));            \
        *reinterpret_cast<Whole *>(this) = *reinterpret_cast<const Whole *>(&other);                                   \
        return *this;                                                                                                  \
    }
#else
#define EMULATOR_WHOLE(name, bytes)
#endif

EMULATOR_BEGIN

#define EMULATOR_VECTORS(name, T)                                                                                      \
    struct alignas(8) name##2 { T x, y; EMULATOR_WHOLE(name##2, 2 * sizeof(T)) };                                      \
    struct name##3 { T x, y, z; };                                                                                     \
    struct alignas(16) name##4 { T x, y, z, w; EMULATOR_WHOLE(name##4, 4 * sizeof(T)) };                               \
    static __forceinline__ name##2 make_##name##2(T x, T y) { return {x, y}; }                                         \
    static __forceinline__ name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATOR_VECTORS(uint, unsigned int)
EMULATOR_VECTORS(float, float)

#undef EMULATOR_VECTORS

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

EMULATOR_END
