#include "kernel.h"
#include <cuda_runtime.h>

// 12 coordinates per thread, in linear order.
KERNEL(builtins) {
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned *row = out<unsigned>(params) + 12 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
    dim3 block_dim = blockDim;
    const unsigned values[12] = {threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z,
                                 block_dim.x, block_dim.y, block_dim.z, gridDim.x,  gridDim.y,  gridDim.z};
    for (int i = 0; i < 12; ++i) row[i] = values[i];
}

// Through vector types and __ldg.
KERNEL(vector_copy) {
    const uint4 *from = reinterpret_cast<const uint4 *>(params->in[0]);
    uint4 *to = reinterpret_cast<uint4 *>(params->out[0]);
    uint4 v = __ldg(&from[threadIdx.x]);
    to[threadIdx.x] = make_uint4(v.w, v.z, v.y, v.x);
}

KERNEL(arithmetic) {
    float a = in<float>(params, 0)[threadIdx.x], b = in<float>(params, 1)[threadIdx.x];
    float *row = out<float>(params) + 7 * threadIdx.x;
    row[0] = fmaxf(a, b);
    row[1] = fminf(a, b);
    row[2] = fmaf(a, b, 1.0f);
    row[3] = exp2f(a);
    row[4] = __fdividef(a, b);
    row[5] = __uint_as_float(__float_as_uint(a) ^ 0x80000000);
    row[6] = float(max(int(a), 1) + min(2u, 3u));
}
