// As the plain header has it, with notes.
#pragma once

#include <attn/timeline.cuh>

#define named_barrier_sync plain_named_barrier_sync
#define named_barrier_arrive plain_named_barrier_arrive
#include_next <attn/ptx/barrier.cuh>
#undef named_barrier_sync
#undef named_barrier_arrive

namespace attn {

template <int ID, int THREADS>
static __device__ __forceinline__ void named_barrier_sync(int line = __builtin_LINE()) {
    timeline::begin(timeline::NAMED_SYNC, line, ID);
    plain_named_barrier_sync<ID, THREADS>();
    timeline::finish();
}

template <int ID, int THREADS>
static __device__ __forceinline__ void named_barrier_arrive(int line = __builtin_LINE()) {
    timeline::mark(timeline::NAMED_ARRIVE, line, ID);
    plain_named_barrier_arrive<ID, THREADS>();
}

template <int THREADS>
static __device__ __forceinline__ void named_barrier_sync(int id, int line = __builtin_LINE()) {
    timeline::begin(timeline::NAMED_SYNC, line, id);
    plain_named_barrier_sync<THREADS>(id);
    timeline::finish();
}

} // namespace attn
