#include "kernel.h"

// An unwritten word as f32, as half and as its bits.
KERNEL(read_uninitialised) {
    if (threadIdx.x == 0) {
        unsigned bits = shared<unsigned>()[7];
        out<float>(params)[4 * blockIdx.x + 0] = shared<float>()[7];
        out<float>(params)[4 * blockIdx.x + 1] = __half2float(shared<half>()[14]);
        out<float>(params)[4 * blockIdx.x + 2] = bits == 0xffffffff ? 1.0f : 0.0f;
    }
    __syncthreads();
    shared<float>()[threadIdx.x] = 1.0f; // the next block on this OS thread must not see it
}

// Adds 1 to each of 64 accumulators, whose order is known at run time only so that they lie in memory; the first n[0] start
// as 0.
KERNEL(accumulate_registers) {
    float acc[64];
    const int initialised = params->n[0];
    for (int i = 0; i < initialised; ++i) acc[i] = 0.0f;
    for (int i = 0; i < 64; ++i) acc[(i * 5 + initialised) % 64] += 1.0f;
    for (int i = 0; i < 64; ++i) out<float>(params)[global_thread() * 64 + i] = acc[i];
}

// The last thread writes one word at byte n[0].
KERNEL(write_shared_at) {
    if (threadIdx.x == blockDim.x - 1) shared<int>()[params->n[0] / 4] = 7;
}
