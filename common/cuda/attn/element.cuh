// The element types of Q, K and V in global memory. E4M3 becomes FP16 on chip: every value is exact in binary16, and its scale is
// applied to the scores and to the output. Operand: what tensor cores multiply, and the elements of O.
#pragma once

#include <attn/params.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace attn {

struct F16 {
    using Storage = half;
    using Operand = F16;
    static constexpr int PER_16_BYTES = 8;
    static constexpr AttentionProbability PROBABILITY = ATTENTION_P_F16;

    // Writes the 8 elements of `raw` to 16-byte aligned shared memory.
    static __device__ __forceinline__ void unpack(const uint4 &raw, half *smem) {
        *reinterpret_cast<uint4 *>(smem) = raw;
    }

    // Two floats as two FP16 values, the first in the low half.
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        const __half2_raw pair = __floats2half2_rn(low, high);
        return static_cast<uint32_t>(pair.x) | static_cast<uint32_t>(pair.y) << 16;
    }

    // The inverse.
    static __device__ __forceinline__ float2 floats(uint32_t word) {
        return make_float2(__half2float(__ushort_as_half(static_cast<unsigned short>(word))),
                           __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16))));
    }
};

// As wide as a half, with the exponents of a float.
struct BF16 {
    using Storage = __nv_bfloat16;
    using Operand = BF16;
    static constexpr int PER_16_BYTES = 8;
    static constexpr AttentionProbability PROBABILITY = ATTENTION_P_BF16;

    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        const __nv_bfloat162_raw pair = __floats2bfloat162_rn(low, high);
        return static_cast<uint32_t>(pair.x) | static_cast<uint32_t>(pair.y) << 16;
    }
    static __device__ __forceinline__ float2 floats(uint32_t word) {
        return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000));
    }
};

struct E4M3 {
    using Storage = __nv_fp8_storage_t;
    using Operand = F16;
    static constexpr int PER_16_BYTES = 16;

    // Writes the 16 elements of `raw` to 16-byte aligned shared memory.
    static __device__ __forceinline__ void unpack(const uint4 &raw, half *smem) {
        reinterpret_cast<uint4 *>(smem)[0] = make_uint4(low(raw.x), high(raw.x), low(raw.y), high(raw.y));
        reinterpret_cast<uint4 *>(smem)[1] = make_uint4(low(raw.z), high(raw.z), low(raw.w), high(raw.w));
    }

    // The two lower and the two upper codes of a word as two FP16 values, in the same order.
    static __device__ __forceinline__ unsigned low(unsigned word) { return convert(word & 0xffff); }
    static __device__ __forceinline__ unsigned high(unsigned word) { return convert(word >> 16); }

  private:
    static __device__ __forceinline__ unsigned convert(unsigned short codes) {
        const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
        return static_cast<unsigned>(pair.x) | static_cast<unsigned>(pair.y) << 16;
    }
};

// Address of element [batch, head, row, 0]; rows are row_stride elements apart.
template <class Storage>
static __device__ __forceinline__ Storage *row_address(const AttentionTensor &tensor, int batch, int head, int row) {
    return static_cast<Storage *>(tensor.data) + batch * tensor.batch_stride + head * tensor.head_stride +
           row * tensor.row_stride;
}

// The key head that a query head reads. Division takes a hundred instructions, and most models need none.
static __device__ __forceinline__ int kv_head(const AttentionParams &params, int head_q) {
    return params.heads_kv == params.heads_q ? head_q : head_q / (params.heads_q / params.heads_kv);
}

// The E4M3 scale of one batch and head; 1 for the others, which have none.
static __device__ __forceinline__ float scale_of(const AttentionTensor &tensor, int heads, int batch, int head) {
    return tensor.scales ? tensor.scales[batch * heads + head] : 1.0f;
}

} // namespace attn
