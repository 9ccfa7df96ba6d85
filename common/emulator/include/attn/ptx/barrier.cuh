// The emulated side of <attn/ptx/barrier.cuh>. A warp arrives as a whole (`.aligned`), so a lane that goes elsewhere is a
// fault.
#pragma once

#include <assert.h>
#include <emulator/prelude.h>

namespace attn {
EMULATOR_BEGIN
namespace emulated {

template <int THREADS>
__forceinline__ void named_barrier(int id, const char *name, EmulatorKind kind, EmulatorSite site) {
    static_assert(THREADS % 32 == 0 && THREADS > 0, "whole warps take part");
    assert(id >= 1 && id <= 15); // a block has 16 barriers, and 0 is __syncthreads
    EmulatorCollective call{name, nullptr, nullptr, {uint64_t(id), THREADS}, 0, 0xffffffff, 0, kind, site};
    emulator_collective(emulator_current, &call);
}

} // namespace emulated

template <int ID, int THREADS> __device__ __forceinline__ void named_barrier_sync(EMULATOR_HERE) {
    static_assert(ID >= 1 && ID <= 15, "a block has 16 barriers, and 0 is __syncthreads");
    emulated::named_barrier<THREADS>(ID, "named_barrier_sync", EMULATOR_NAMED_SYNC, EMULATOR_SITE);
}

template <int THREADS> __device__ __forceinline__ void named_barrier_sync(int id, EMULATOR_HERE) {
    emulated::named_barrier<THREADS>(id, "named_barrier_sync", EMULATOR_NAMED_SYNC, EMULATOR_SITE);
}

template <int ID, int THREADS> __device__ __forceinline__ void named_barrier_arrive(EMULATOR_HERE) {
    static_assert(ID >= 1 && ID <= 15, "a block has 16 barriers, and 0 is __syncthreads");
    emulated::named_barrier<THREADS>(ID, "named_barrier_arrive", EMULATOR_NAMED_ARRIVE, EMULATOR_SITE);
}

EMULATOR_END
} // namespace attn
