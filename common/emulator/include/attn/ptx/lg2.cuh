// The emulated side of <attn/ptx/lg2.cuh>: log2(x) rounded once, of 0 for subnormals.
#pragma once

#include <emulator/prelude.h>

namespace attn {
EMULATOR_BEGIN

__device__ __forceinline__ float log2_approx(float x) { return ::log2f(x < 1.17549435e-38f ? 0.0f : x); }

EMULATOR_END
} // namespace attn
