// Products of a team of warps: of one warp by mma.sync, of codes too, and of four by wgmma.
#pragma once

#include <attn/mma_rows.cuh>
#include <attn/wgmma_rows.cuh>
#include <attn/wgmma_tile.cuh>

namespace {

// o[16, HEAD_DIM] += p[16, KEYS] · v[KEYS, HEAD_DIM] by a warp. ldmatrix transposes pairs of codes, which are converted before the
// keys of a column are put together: one instruction for two halves, of bytes it would be two.
template <int HEAD_DIM, int KEYS>
__device__ __forceinline__ void multiply_pv(float (&o)[HEAD_DIM / 8][4], const uint32_t (&p)[KEYS / attn::MMA_K][4],
                                            const attn::BoxTile<attn::E4M3, HEAD_DIM, KEYS> &v, int lane) {
#pragma unroll
    for (int step = 0; step < KEYS / attn::MMA_K; ++step) {
#pragma unroll
        for (int octet = 0; octet < HEAD_DIM / 8; octet += 2) {
            uint32_t codes[2], even[2], odd[2]; // of keys 0 to 7 and 8 to 15; even, odd: columns
            attn::ldmatrix_x2_trans(codes, v.at(step * attn::MMA_K + lane % 16, octet / 2));
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t first = attn::E4M3::low(codes[i]), second = attn::E4M3::high(codes[i]); // keys
                even[i] = (first & 0xffff) | second << 16;
                odd[i] = first >> 16 | (second & 0xffff0000);
            }
            attn::mma_m16n8k16_f16_f32(o[octet], p[step], even);
            attn::mma_m16n8k16_f16_f32(o[octet + 1], p[step], odd);
        }
    }
}

} // namespace
