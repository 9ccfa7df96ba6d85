// A value that the compiler knows nothing about. No instruction.
#pragma once

namespace attn {

// The same value: what follows from it is computed again where it is used, and not kept in registers from before a loop.
static __device__ __forceinline__ int opaque(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

} // namespace attn
