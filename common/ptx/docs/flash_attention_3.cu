// FlashAttention-3's forward pass for one small problem: bfloat16, one batch, two heads, no mask, one or two tiles of rows, two of
// keys. others.md says how it is compiled and judged.
#include "flash_fwd_launch_template.h"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif

int main() {
    constexpr int head_dim = HEAD_DIM, heads = 2;
    constexpr auto tile = tile_size_fwd_sm90(head_dim, head_dim, false, false);
    constexpr int rows = CLUSTER * std::get<0>(tile), keys = 2 * std::get<1>(tile);
    using Element = cutlass::bfloat16_t;
    Flash_fwd_params params{};
    auto fill = [](int count, unsigned seed) {
        std::vector<Element> values(count);
        for (auto& value : values) {
            seed = seed * 1664525u + 1013904223u;
            value = Element(float(int(seed >> 16) - 32768) / 32768);
        }
        void* device = nullptr;
        CHECK_CUDA(cudaMalloc(&device, count * sizeof(Element)));
        CHECK_CUDA(cudaMemcpy(device, values.data(), count * sizeof(Element), cudaMemcpyHostToDevice));
        return device;
    };
    params.q_ptr = fill(rows * heads * head_dim, 1);
    params.k_ptr = fill(keys * heads * head_dim, 2);
    params.v_ptr = fill(keys * heads * head_dim, 3);
    void *output = nullptr, *sums = nullptr;
    CHECK_CUDA(cudaMalloc(&output, rows * heads * head_dim * sizeof(Element)));
    CHECK_CUDA(cudaMalloc(&sums, rows * heads * sizeof(float)));
    params.o_ptr = output;
    params.softmax_lse_ptr = sums;
    params.q_row_stride = params.k_row_stride = params.v_row_stride = params.o_row_stride = heads * head_dim;
    params.q_head_stride = params.k_head_stride = params.v_head_stride = params.o_head_stride = head_dim;
    params.q_batch_stride = params.o_batch_stride = rows * heads * head_dim;
    params.k_batch_stride = params.v_batch_stride = keys * heads * head_dim;
    params.v_dim_stride = 1;
    params.h = params.h_k = heads;
    params.b = params.b_k = 1;
    params.seqlen_q = rows;
    params.seqlen_k = keys;
    params.d = params.dv = head_dim;
    params.scale_softmax = 0.125f;
    params.window_size_left = params.window_size_right = -1;
    params.num_splits = 1;
    params.is_bf16 = true;
    params.arch = 90;
    params.num_sm = CLUSTER; // so that each block has two tiles, one after the other
    run_flash_fwd<90, head_dim, head_dim, CLUSTER, Element, Element, false, false, false, false, false, false, false,
                  false, false, false>(params, 0);
    CHECK_CUDA(cudaDeviceSynchronize());
    return 0;
}
