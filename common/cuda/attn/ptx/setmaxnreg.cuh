// setmaxnreg (sm_90a): a warpgroup hands registers back to its block, or takes more. PTX ISA, "setmaxnreg". The entry's
// __launch_bounds__ names the number that each thread starts with.
#pragma once

namespace attn {

// All four warps of the warpgroup call it. From here on a thread has REGISTERS registers.
template <int REGISTERS>
static __device__ __forceinline__ void give_registers_back() {
    static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0, "24 to 256, a multiple of 8");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// The same upwards; waits until other warpgroups have given back enough.
template <int REGISTERS>
static __device__ __forceinline__ void take_registers() {
    static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0, "24 to 256, a multiple of 8");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

} // namespace attn
