#include "kernel.h"
#include <cassert>

KERNEL(trap_in_one_thread) {
    if (int(blockIdx.x) >= params->n[0] && threadIdx.x == 33) __trap();
    __syncthreads();
}

KERNEL(failing_assert) {
    assert(threadIdx.x != 2);
    __syncthreads();
}
