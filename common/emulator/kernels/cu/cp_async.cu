#include "kernel.h"
#include <attn/ptx/cp_async.cuh>

// Three groups of one 16-byte copy. Column g of the result: tile g after n[0] of the waits <2>, <1>, <0>.
KERNEL(cp_async_groups) {
    const char *source = in<char>(params) + 48 * threadIdx.x;
    char *tile = shared<char>(48 * threadIdx.x);
    for (int group = 0; group < 3; ++group) {
        attn::cp_async<16>(tile + 16 * group, source + 16 * group);
        attn::cp_async_commit();
    }
    if (params->n[0] >= 1) attn::cp_async_wait_group<2>();
    if (params->n[0] >= 2) attn::cp_async_wait_group<1>();
    if (params->n[0] >= 3) attn::cp_async_wait_group<0>();
    memcpy(out<char>(params) + 48 * threadIdx.x, tile, 48);
}

// One copy of each size, and zero-filled ones of 0 to 16 bytes.
KERNEL(cp_async_sizes) {
    const char *source = in<char>(params);
    char *tile = shared<char>();
    attn::cp_async<4>(tile, source);
    attn::cp_async<8>(tile + 8, source + 8);
    attn::cp_async<16>(tile + 16, source + 16);
    attn::cp_async_zfill<16>(tile + 32, source + 32, 5);
    attn::cp_async_zfill<16>(tile + 48, nullptr, 0);
    attn::cp_async_zfill<4>(tile + 64, source + 64, 4);
    attn::cp_async_commit();
    attn::cp_async_wait_group<0>();
    memcpy(out<char>(params), tile, 80);
}

// Thread 0 copies and only thread n[0] waits.
KERNEL(cp_async_waited_by) {
    float *tile = shared<float>();
    if (threadIdx.x == 0) attn::cp_async<4>(tile, in<float>(params));
    attn::cp_async_commit();
    if (int(threadIdx.x) == params->n[0]) attn::cp_async_wait_group<0>();
    __syncthreads();
    out<float>(params)[threadIdx.x] = tile[0];
}

// n[0]: offset of the destination, n[1]: of the source; n[2]: bytes read.
KERNEL(cp_async_misused) {
    attn::cp_async_zfill<16>(shared<char>(params->n[0]), in<char>(params) + params->n[1], params->n[2]);
}

KERNEL(cp_async_to_global) { attn::cp_async<16>(params->out[0], params->in[0]); }
