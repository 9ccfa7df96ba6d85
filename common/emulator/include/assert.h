// A failed assert stops the launch with the assertion's text and place, not the process. No include guard, as in C.
#include <emulator/prelude.h>

#undef assert
#define assert(condition)                                                                                              \
    ((condition) ? (void)0                                                                                             \
                 : ::EMULATOR_BUILD::emulator::trap("assertion `" #condition "` failed",                               \
                                                    EmulatorSite{__builtin_FILE(), __builtin_LINE(), 0}))
