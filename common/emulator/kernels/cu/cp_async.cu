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

// n[0]: offset of the destination, n[1]: of the source; n[2]: bytes read.
KERNEL(cp_async_misused) {
    attn::cp_async_zfill<16>(shared<char>(params->n[0]), in<char>(params) + params->n[1], params->n[2]);
}

KERNEL(cp_async_to_global) { attn::cp_async<16>(params->out[0], params->in[0]); }
