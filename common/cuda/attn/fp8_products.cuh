// O += P·V of E4M3 on FP8 tensor cores: V transposed on chip, P rounded to codes, and outputs moved out of the tensor cores'
// accumulators, which have 13 bits, before many keys are summed there.
#pragma once

#include <attn/fp8_scores.cuh>
#include <attn/warpgroup_output.cuh>

namespace attn {

// Keys whose products one accumulator sums: what outputs then lose is in common/docs/error-budgets.md.
constexpr int KEYS_OF_SUM = 512;

// P is held, and summed, 2^6 times as large: of normal codes 12 binades lie below the largest P, and under a maximum that is kept P
// may grow 7 times, to the largest code.
constexpr float CODE_EXPONENT = 6.0f, LARGEST_CODE = 448.0f;

// Starts o[64, HEAD_DIM] += p[64, KEYS] · v[KEYS, HEAD_DIM], of which the tile holds the transpose.
template <int HEAD_DIM, int KEYS>
static __device__ __forceinline__ void start_pv(float (&o)[HEAD_DIM / 2], const uint32_t (&p)[KEYS / FP8_K][4],
                                                const BoxTile<E4M3, KEYS, HEAD_DIM> &v) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < KEYS / FP8_K; ++step) wgmma_e4m3(o, p[step], k_major(v, 0, step), true);
    wgmma_commit();
}

// Transposes V, by THREADS threads of which the caller is `thread`. wgmma reads four keys of a row of P from one register: of each 16
// keys those that a thread has of S, 2i, 2i + 1, 2i + 8 and 2i + 9, become columns 4i to 4i + 3. Of each 16 columns the even ones
// become rows 0 to 7 and the odd ones 8 to 15, so that stores meet no bank twice: see output_column(). No barrier: the caller orders
// the writes.
template <int THREADS, int HEAD_DIM, int KEYS>
static __device__ __forceinline__ void convert_tile(BoxTile<E4M3, KEYS, HEAD_DIM> &transposed, BoxTile<E4M3, HEAD_DIM, KEYS> &v,
                                                      int thread) {
    const int warp = thread / 32, lane = thread % 32;
#pragma unroll 2
    for (int part = warp; part < KEYS / 32 * (HEAD_DIM / 16); part += THREADS / 32) {
        const int chunk = part % (HEAD_DIM / 16), keys = part / (HEAD_DIM / 16); // 16 columns of 32 keys
        // Matrices of 8 keys and 8 pairs of columns: the lane gets columns 2 * (lane / 4) and the next of two keys.
        uint32_t pairs[4], columns[4];
        ldmatrix_x4_trans(pairs, v.at(keys * 32 + lane, chunk));
#pragma unroll
        for (int half = 0; half < 2; ++half) { // of the keys
            columns[half] = __byte_perm(pairs[2 * half], pairs[2 * half + 1], 0x6420);     // even
            columns[2 + half] = __byte_perm(pairs[2 * half], pairs[2 * half + 1], 0x7531); // odd
        }
        stmatrix_x4(transposed.at(chunk * 16 + lane / 16 * 8 + lane % 8, keys * 2 + lane / 8 % 2), columns);
    }
}

// The column of O that element `i` of a thread's outputs belongs to: of codes a thread has four of every 16, one after the other.
template <bool CODES>
static __device__ __forceinline__ int output_column(int i, int lane) {
    return CODES ? i / 8 * 16 + lane % 4 * 4 + i % 2 * 2 + i / 4 % 2 : i / 4 * 8 + lane % 4 * 2 + i % 2;
}

// P, rounded to codes, as the first operand of the next product, and the sums of what V is multiplied by: a row in which one key
// has most of the weight is not off by that key's rounding.
template <int COUNT>
static __device__ __forceinline__ void round_to_codes(uint32_t (&p)[COUNT / 4], float (&sum)[2], const float (&s)[COUNT]) {
    const auto pair = [&](int i) { return __nv_cvt_float2_to_fp8x2(make_float2(s[i], s[i + 1]), __NV_SATFINITE, __NV_E4M3); };
    const auto halves = [](__nv_fp8x2_storage_t codes) { return __half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)); };
    __half2 sums[2]; // of at most 32 codes: exact to their 4 bits and 7 more
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
        const int first = i / 4 * 16 + i % 4 / 2 * 8 + i % 2 * 2; // of 16 keys, in the upper or lower row
        const __nv_fp8x2_storage_t low = pair(first), high = pair(first + 4);
        p[i] = static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
        const __half2 both = __hadd2(halves(low), halves(high));
        sums[i % 2] = i < 2 ? both : __hadd2(sums[i % 2], both);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) sum[half] = __low2float(sums[half]) + __high2float(sums[half]);
}

// Codes to the first operand of the next product, once the products that read it have ended. The compiler must not know that `never`
// is false: it would have P rounded to `p` itself, which they still read, and wait for each product instead (C7513).
template <int COUNT>
static __device__ __forceinline__ void copy_codes(uint32_t (&p)[COUNT / 4][4], uint32_t (&codes)[COUNT], bool never) {
    fence_operands(codes);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) p[i / 4][i % 4] = codes[i] ^ static_cast<uint32_t>(never);
}

// Scores to exponentials under the new maxima of their rows, and to codes. `rescale`: the factors for outputs so far.
template <int COUNT>
static __device__ __forceinline__ void codes_of_rows(uint32_t (&p)[COUNT / 4], float (&s)[COUNT], RowState (&state)[2],
                                                     float scale_log2, float (&rescale)[2]) {
    float scale[2], shift[2], sum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float largest = row_max<4>(row_max_of(s, half, -INFINITY));
        scale[half] = state[half].raise(largest, scale_log2, rescale[half]);
        shift[half] = CODE_EXPONENT - state[half].max;
    }
 ATTN_STEP(EXPONENTIAL);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) s[i] = exp2_approx(fmaf(s[i], scale[i % 4 / 2], shift[i % 4 / 2]));
    round_to_codes(p, sum, s);
 ATTN_STEP(SUM);
#pragma unroll
    for (int half = 0; half < 2; ++half) state[half].sum = fmaf(state[half].sum, rescale[half], sum[half]);
}

// The same under the maxima that the rows had before. False, with the sums as they were, if in some row of the warp the maximum is
// far or an exponential is too large for a code. A thread's part of a row's sum bounds each of its terms, so that a look at each is
// seldom needed.
template <int COUNT>
static __device__ __forceinline__ bool codes_of_rows(uint32_t (&p)[COUNT / 4], float (&s)[COUNT], RowState (&state)[2],
                                                     float scale_log2) {
    const float shift[2] = {CODE_EXPONENT - state[0].max, CODE_EXPONENT - state[1].max};
    float sum[2];
 ATTN_STEP(EXPONENTIAL);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) s[i] = exp2_approx(fmaf(s[i], scale_log2, shift[i % 4 / 2]));
    round_to_codes(p, sum, s);
    const bool far = is_far(state[0].max) || is_far(state[1].max);
    if (__any_sync(0xffffffffu, far || fmaxf(sum[0], sum[1]) >= LARGEST_CODE)) {
        const float largest = fmaxf(row_max_of(s, 0, 0.0f), row_max_of(s, 1, 0.0f));
        if (__any_sync(0xffffffffu, far || largest > LARGEST_CODE)) return false;
    }
 ATTN_STEP(SUM);
    state[0].sum += sum[0];
    state[1].sum += sum[1];
    return true;
}

// Of each warp the outputs of its 16 rows in f32, and at last, rounded, on their way out.
template <int HEAD_DIM_, int ROWS>
struct WarpOutputs {
    static constexpr int HEAD_DIM = HEAD_DIM_;
    union {
        float4 sums[HEAD_DIM / 8][32]; // of each lane
        BoxTile<F16, HEAD_DIM, 16> o;
    } of_warp[ROWS / 16];
};

// A lane's part of these sums, each to be multiplied by the factor of its row.
template <int HEAD_DIM>
struct LongSums {
    struct Outputs { float of[HEAD_DIM / 2]; };

    float4 (&parts)[HEAD_DIM / 8][32];
    float factor[2];
    int lane;

    __device__ __forceinline__ void scale(const float (&rescale)[2]) { factor[0] *= rescale[0], factor[1] *= rescale[1]; }

    __device__ __forceinline__ void add_to(float (&o)[HEAD_DIM / 2]) const {
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i) {
            const float4 part = parts[i][lane];
            o[4 * i] = fmaf(part.x, factor[0], o[4 * i]), o[4 * i + 1] = fmaf(part.y, factor[0], o[4 * i + 1]);
            o[4 * i + 2] = fmaf(part.z, factor[1], o[4 * i + 2]), o[4 * i + 3] = fmaf(part.w, factor[1], o[4 * i + 3]);
        }
    }

    // Takes all of `o`, which starts again from zero: it is never of more than KEYS_OF_SUM keys.
    template <int BLOCK_N>
    __device__ __forceinline__ void take(int tile, float (&o)[HEAD_DIM / 2]) {
        constexpr int TILES = KEYS_OF_SUM / BLOCK_N;
        if (tile % TILES != TILES - 1) return;
        add_to(o);
        factor[0] = factor[1] = 1.0f;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i) {
            parts[i][lane] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
        }
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; ++i) o[i] = 0.0f;
    }

    // For ATTN_OBSERVE.
    __device__ __forceinline__ Outputs with(const float (&o)[HEAD_DIM / 2]) const {
        Outputs outputs;
        for (int i = 0; i < HEAD_DIM / 2; ++i) outputs.of[i] = o[i];
        add_to(outputs.of);
        return outputs;
    }
};

template <int HEAD_DIM, int ROWS>
static __device__ __forceinline__ LongSums<HEAD_DIM> long_sums(WarpOutputs<HEAD_DIM, ROWS> &outputs, int warp_row, int lane) {
    auto &parts = outputs.of_warp[warp_row / 16].sums;
#pragma unroll
    for (auto &part : parts) part[lane] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return {parts, {1.0f, 1.0f}, lane};
}

// Products of halves are summed in f32, and need none.
struct NoSums {
    __device__ __forceinline__ void scale(const float (&)[2]) {}
    template <class Outputs> __device__ __forceinline__ void add_to(Outputs &) const {}
    template <int BLOCK_N, class Outputs> __device__ __forceinline__ void take(int, Outputs &) {}
    template <class Outputs> __device__ __forceinline__ const Outputs &with(const Outputs &o) const { return o; }
};
template <class QTile>
static __device__ __forceinline__ NoSums long_sums(QTile &, int, int) {
    return {};
}

// store_output() of a warp's 16 rows, from `warp_row` of the block, through a tile of their own, in the columns of output_column().
template <int HEAD_DIM, int ROWS>
static __device__ __forceinline__ void store_output(const AttentionLaunch &launch, const Work &work,
                                                    WarpOutputs<HEAD_DIM, ROWS> &outputs, int warp_row, float (&o)[HEAD_DIM / 2],
                                                    RowState (&state)[2], int lane) {
    auto &tile = outputs.of_warp[warp_row / 16].o;
    const float scale = scale_of(launch.params.v, launch.params.heads_kv, work.batch, work.head_kv);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        state[half].template join<4>();
        factor[half] = state[half].inverse_sum() * scale;
    }
    scale_rows(o, factor);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i += 8) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int even = i + 2 * half, odd = even + 4;
            unsigned char *at = tile.at(half * 8 + lane / 4, i / 4 + lane % 4 / 2) + lane % 2 * 8;
            *reinterpret_cast<uint64_t *>(at) =
                F16::pack(o[even], o[odd]) | static_cast<uint64_t>(F16::pack(o[even + 1], o[odd + 1])) << 32;
        }
    }
    copy_rows(launch.o, tile, 0, work.row + warp_row, work.head_q, work.batch);
}

} // namespace attn
