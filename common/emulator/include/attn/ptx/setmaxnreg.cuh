// The emulated side of <attn/ptx/setmaxnreg.cuh>: bookkeeping. The pool is what the block's threads start with, the most
// that __launch_bounds__(THREADS, 1) allows; ptxas knows how many a thread really needs.
#pragma once

#include <emulator/prelude.h>

namespace attn {
EMULATOR_BEGIN
namespace emulated {

template <int REGISTERS> __forceinline__ void set_registers(const char *name, EmulatorKind kind, EmulatorSite site) {
    static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0, "24 to 256, a multiple of 8");
    EmulatorCollective call{name, nullptr, nullptr, {REGISTERS, 0}, 0, 0xffffffff, 0, kind, site};
    emulator_collective(emulator_current, &call);
}

} // namespace emulated

template <int REGISTERS> __device__ __forceinline__ void give_registers_back(EMULATOR_HERE) {
    emulated::set_registers<REGISTERS>("give_registers_back", EMULATOR_GIVE_REGISTERS, EMULATOR_SITE);
}

template <int REGISTERS> __device__ __forceinline__ void take_registers(EMULATOR_HERE) {
    emulated::set_registers<REGISTERS>("take_registers", EMULATOR_TAKE_REGISTERS, EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
