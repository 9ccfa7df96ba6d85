// memcpy, memmove and memset of the traced build: the compiler instruments only small copies of constant size.
#pragma once

#ifdef EMULATOR_TRACED

EMULATOR_BEGIN
namespace emulator {

__attribute__((noinline, no_sanitize("thread"))) inline void *copy_bulk(void *to, const void *from, size_t bytes,
                                                                       EmulatorSite site) {
    emulator_access_at(emulator_current, from, bytes, 0, site);
    emulator_access_at(emulator_current, to, bytes, 1, site);
    return __builtin_memmove(to, from, bytes);
}

__attribute__((noinline, no_sanitize("thread"))) inline void *set_bulk(void *to, int value, size_t bytes, EmulatorSite site) {
    emulator_access_at(emulator_current, to, bytes, 1, site);
    return __builtin_memset(to, value, bytes);
}

} // namespace emulator
EMULATOR_END

#define EMULATOR_SITE_HERE (EmulatorSite{__builtin_FILE(), __builtin_LINE(), EMULATOR_CALLS})
#define EMULATOR_COPY(builtin, to, from, bytes)                                                                        \
    (__builtin_constant_p(bytes) && (bytes) <= 16                                                                      \
         ? builtin(to, from, bytes)                                                                                    \
         : ::EMULATOR_BUILD::emulator::copy_bulk(to, from, bytes, EMULATOR_SITE_HERE))
#define memcpy(to, from, bytes) EMULATOR_COPY(__builtin_memcpy, to, from, bytes)
#define memmove(to, from, bytes) EMULATOR_COPY(__builtin_memmove, to, from, bytes)
#define memset(to, value, bytes) (::EMULATOR_BUILD::emulator::set_bulk(to, value, bytes, EMULATOR_SITE_HERE))

#endif
