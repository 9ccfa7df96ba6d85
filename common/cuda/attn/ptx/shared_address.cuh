// The address form that PTX instructions on shared memory take. The emulator shadows the headers that use it.
#pragma once

#include <stdint.h>

namespace attn {

// The 32-bit address within the shared window of a generic pointer into shared memory.
static __device__ __forceinline__ uint32_t shared_address(const void *smem) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(smem));
}

} // namespace attn
