#include "kernel.h"
#include <attn/ptx/cp_async.cuh>
#include <cassert>

KERNEL(trap_in_one_thread) {
    if (int(blockIdx.x) >= params->n[0] && threadIdx.x == 33) __trap();
    __syncthreads();
}

KERNEL(failing_assert) {
    assert(threadIdx.x != 2);
    __syncthreads();
}

// Reads n[0] TiB in front of the first input; so does the next kernel.
KERNEL(far_from_any_memory) {
    out<float>(params)[global_thread()] = in<float>(params)[-(int64_t(params->n[0]) << 38)];
}

KERNEL(copy_from_far) {
    const float *source = in<float>(params) - (int64_t(params->n[0]) << 38);
    attn::cp_async<16>(shared<float>(), source);
    attn::cp_async_commit();
    attn::cp_async_wait_group<0>();
    out<float>(params)[global_thread()] = shared<float>()[0];
}

KERNEL(divides) { out<int>(params)[global_thread()] = 100 / params->n[0]; }

// The sum of the first n[0] of 8 registers.
KERNEL(sum_of_registers) {
    float registers[8], sum = 0.0f;
    for (int i = 0; i < 8; ++i) registers[i] = in<float>(params)[i];
    for (int i = 0; i < params->n[0]; ++i) sum += registers[i];
    out<float>(params)[global_thread()] = sum;
}

KERNEL(loops_for_ever) {
    volatile int times = 0;
    do { times = times + 1; } while (params->n[0] != 0);
    out<int>(params)[global_thread()] = times;
}
