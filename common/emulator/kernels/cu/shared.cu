#include "kernel.h"

// What an unwritten word of shared memory is, as f32, as half and as its bits.
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

// The last thread writes one word at byte n[0].
KERNEL(write_shared_at) {
    if (threadIdx.x == blockDim.x - 1) shared<int>()[params->n[0] / 4] = 7;
}
