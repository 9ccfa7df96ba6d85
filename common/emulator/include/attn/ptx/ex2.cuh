// The emulated side of <attn/ptx/ex2.cuh>: 2^x rounded once, subnormal results flushed to 0.
#pragma once

#include <emulator/prelude.h>

namespace attn {
EMULATOR_BEGIN

__device__ __forceinline__ float exp2_approx(float x) {
    const float y = exp2f(x); // counted as an exponential
    return y < 1.17549435e-38f ? 0.0f : y;
}

EMULATOR_END
} // namespace attn
