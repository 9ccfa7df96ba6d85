// The one buffer of shared memory. Every kernel carves it through a struct, so that its size is a constant that the
// host reads, the emulator can poison it, and no tile is bound to the 48 KB of static shared memory.
#pragma once

#include <type_traits>

extern "C" {
extern __shared__ __align__(128) unsigned char attn_shared[];
}

namespace attn {

// The block's dynamic shared memory as the kernel's own layout. The launch passes sizeof(Layout) bytes.
template <class Layout>
static __device__ __forceinline__ Layout &shared() {
    static_assert(alignof(Layout) <= 128, "the buffer starts on a 128-byte boundary");
    static_assert(std::is_trivially_default_constructible_v<Layout>, "nobody constructs it");
    return *reinterpret_cast<Layout *>(attn_shared);
}

} // namespace attn
