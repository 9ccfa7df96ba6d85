// As the plain header has it, with notes. Without notes: give_registers_back, which waits for nobody.
#pragma once

#include <attn/timeline.cuh>

#define take_registers plain_take_registers
#include_next <attn/ptx/setmaxnreg.cuh>
#undef take_registers

namespace attn {

template <int REGISTERS>
static __device__ __forceinline__ void take_registers(int line = __builtin_LINE()) {
    timeline::begin(timeline::REGISTER_WAIT, line, REGISTERS);
    plain_take_registers<REGISTERS>();
    timeline::finish();
}

} // namespace attn
