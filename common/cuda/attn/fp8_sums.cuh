// What FP8 tensor cores keep of a sum of products of E4M3 codes, and for which heads that is enough.
#pragma once

namespace attn {

constexpr int FP8_K = 32; // columns of one product of codes

// The largest scale of scores, in base 2, at which tensor cores sum codes. They add 32 products and the previous sum in fixed point,
// truncated 13 bits below the largest of these (common/docs/fp8-accumulation.md). Products of codes have exponents of up to 16, so
// each addend may lose 2^3, and an exponential be off by 2^(1/16). The scale is known without looking at the codes: one number
// decides for a head. For N(0, 1) under the scales of its largest elements it is 4 to 6 times smaller.
template <int HEAD_DIM>
constexpr float LARGEST_SCALE = 0.0625f / (HEAD_DIM / FP8_K * (FP8_K + 1) * 8);

} // namespace attn
