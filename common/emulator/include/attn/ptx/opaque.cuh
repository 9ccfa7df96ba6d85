// The emulated side of <attn/ptx/opaque.cuh>: the value.
#pragma once

#include <emulator/prelude.h>

namespace attn {

static __device__ __forceinline__ int opaque(int value) { return value; }

} // namespace attn
