// Ways to access memory; a test pins the accesses that the traced build sees.
#include "kernel.h"

struct Wide {
    float x[16];
};

KERNEL(snippet_scalar) { out<float>(params)[0] = in<float>(params)[1]; }
KERNEL(snippet_half) { out<half>(params)[0] = in<half>(params)[1]; }
KERNEL(snippet_half2) { out<half2>(params)[0] = half2(in<half>(params)[0], in<half>(params)[1]); }
KERNEL(snippet_bytes) { out<unsigned char>(params)[3] = in<unsigned char>(params)[5]; }
KERNEL(snippet_vector) { out<uint4>(params)[0] = in<uint4>(params)[1]; }
KERNEL(snippet_vector_made) { out<uint4>(params)[0] = make_uint4(1, 2, 3, unsigned(params->n[0])); }
KERNEL(snippet_vector_braces) { out<float4>(params)[0] = float4{1, 2, 3, float(params->n[0])}; }
KERNEL(snippet_vector_chosen) {
    uint4 raw = make_uint4(0, 0, 0, 0);
    if (params->n[0] == 0) raw = in<uint4>(params)[0];
    out<unsigned>(params)[0] = raw.x ^ raw.w;
}
KERNEL(snippet_vector_member) { out<unsigned>(params)[0] = in<uint4>(params)[0].z; }
KERNEL(snippet_local_array) {
    float local[8];
    for (int i = 0; i < 8; ++i) local[i] = in<float>(params)[i];
    float sum = 0;
    for (int i = 0; i < 8; ++i) sum += local[(i * params->n[1]) & 7];
    out<float>(params)[0] = sum;
}
KERNEL(snippet_struct) { *out<Wide>(params) = *in<Wide>(params); }
KERNEL(snippet_copy_16) { memcpy(out<char>(params), in<char>(params), 16); }
KERNEL(snippet_copy_48) { memcpy(out<char>(params), in<char>(params), 48); }
KERNEL(snippet_copy_variable) { memcpy(out<char>(params), in<char>(params), params->n[0]); }
KERNEL(snippet_set) { memset(out<char>(params), 0, 64); }
KERNEL(snippet_twice) { out<float>(params)[0] = in<float>(params)[0] + __ldg(in<float>(params) + 4); }
