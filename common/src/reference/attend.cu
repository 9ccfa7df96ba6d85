// Attention for the references of large problems: as plain as it can be, and operation by operation what the host computes
// (mod.rs), in the same order and never fused. Only exp and log may differ from the host's, in their last bit.

#include <math.h>
#include <stdint.h>

// The rows of a tile are of one head; a tile has a block.
constexpr int REFERENCE_ROWS = 4;
constexpr int REFERENCE_THREADS = 128;

// The structs of layout.rs.
struct ReferenceTile {
    int32_t first_row, rows, head, most;
    int32_t visible[REFERENCE_ROWS];
    double score_scale, output_scale;
};

// How P is rounded: bits behind the first, none for f32; the least exponent of a normal number; whether before the division
// by the sum, and after which factor.
struct ReferenceRounding {
    float scale;
    int32_t bits, least_exponent, is_first;
};

struct ReferenceParams {
    const void *q;      // [rows, head_dim]
    const void *keys;   // [heads, head_dim, seq_kv]: threads that take one key each read one line
    const void *values; // [heads, seq_kv, head_dim]
    const ReferenceTile *tiles;
    void *weights; // [blocks, REFERENCE_ROWS, seq_kv + REFERENCE_THREADS]
    void *out;     // [rows, head_dim]
    double *lse;   // [rows]
    int32_t seq_kv, head_dim;
    ReferenceRounding rounding;
};

namespace {

__device__ inline double product(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double total(double a, double b) { return __dadd_rn(a, b); }
__device__ inline float total(float a, float b) { return __fadd_rn(a, b); }

// Rounded once from FP64: CUDA's own of f32 is two units off where the host's is half of one.
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float exponential(float x) { return float(exp(double(x))); }

__device__ inline double rounded(double weight, const ReferenceRounding &) { return weight; }

// To nearest, ties to even: a sum with 1.5 * 2^(e + 23 - bits) has no bits below 2^(e - bits).
__device__ inline float rounded(float weight, const ReferenceRounding &to) {
    if (to.bits == 0) return weight;
    const float scaled = product(weight, to.scale);
    const int exponent = max(int(__float_as_uint(scaled) >> 23) - 127, to.least_exponent);
    const float large = __uint_as_float(unsigned(exponent + 23 - to.bits + 127) << 23 | 0x400000);
    return total(total(scaled, large), -large) / to.scale;
}

template <class T> __device__ void attend(const ReferenceParams &params) {
    const ReferenceTile tile = params.tiles[blockIdx.x];
    const int thread = int(threadIdx.x), seq_kv = params.seq_kv, dim = params.head_dim;
    const size_t head = size_t(tile.head) * size_t(seq_kv) * size_t(dim), pitch = size_t(seq_kv) + REFERENCE_THREADS;
    const T *q = static_cast<const T *>(params.q) + size_t(tile.first_row) * dim;
    const T *keys = static_cast<const T *>(params.keys) + head;
    const T *values = static_cast<const T *>(params.values) + head;
    T *weights = static_cast<T *>(params.weights) + size_t(blockIdx.x) * REFERENCE_ROWS * pitch;
    T *out = static_cast<T *>(params.out) + size_t(tile.first_row) * dim;
    T *of_threads = weights + seq_kv; // behind each row's weights, one a thread

    // Scores, and the largest that each thread saw.
    T largest[REFERENCE_ROWS], sums[REFERENCE_ROWS];
    for (int r = 0; r < REFERENCE_ROWS; ++r) largest[r] = T(-INFINITY);
    for (int key = thread; key < tile.most; key += REFERENCE_THREADS) {
        for (int r = 0; r < REFERENCE_ROWS; ++r) sums[r] = T(0);
        for (int d = 0; d < dim; ++d) {
            const T k = keys[size_t(d) * seq_kv + key];
            // A tile may have fewer rows: the last one stands in, and nobody reads it.
            for (int r = 0; r < REFERENCE_ROWS; ++r)
                sums[r] = total(sums[r], product(q[min(r, tile.rows - 1) * dim + d], k));
        }
        for (int r = 0; r < REFERENCE_ROWS; ++r) {
            const bool is_visible = key < tile.visible[r];
            const T score = product(sums[r], T(tile.score_scale));
            weights[r * pitch + key] = is_visible ? score : T(0);
            if (is_visible && score > largest[r]) largest[r] = score;
        }
    }
    for (int r = 0; r < REFERENCE_ROWS; ++r) of_threads[r * pitch + thread] = largest[r];
    __syncthreads();

    // Exponentials.
    for (int r = 0; r < REFERENCE_ROWS; ++r) {
        for (int other = 0; other < REFERENCE_THREADS; ++other) {
            const T theirs = of_threads[r * pitch + other];
            if (theirs > largest[r]) largest[r] = theirs;
        }
        for (int key = thread; key < tile.visible[r]; key += REFERENCE_THREADS)
            weights[r * pitch + key] = exponential(total(weights[r * pitch + key], -largest[r]));
    }
    __syncthreads();

    // Sums, key by key as the host's: the baseline's error is that of this order. A thread has a row.
    if (thread < REFERENCE_ROWS) {
        T top = largest[0], sum = T(0);
        for (int r = 1; r < REFERENCE_ROWS; ++r) top = thread == r ? largest[r] : top;
        const int visible = tile.visible[thread];
#pragma unroll 8
        for (int key = 0; key < visible; ++key) sum = total(sum, weights[thread * pitch + key]);
        of_threads[thread * pitch] = sum;
        const double lse = visible == 0 ? double(-INFINITY) : double(top) + log(double(sum));
        if (thread < tile.rows) params.lse[tile.first_row + thread] = lse;
    }
    __syncthreads();

    // P.
    for (int r = 0; r < REFERENCE_ROWS; ++r) {
        const T sum = of_threads[r * pitch];
        for (int key = thread; key < tile.visible[r]; key += REFERENCE_THREADS) {
            const T weight = weights[r * pitch + key];
            weights[r * pitch + key] = params.rounding.is_first ? rounded(weight, params.rounding) / sum
                                                                : rounded(weight / sum, params.rounding);
        }
    }
    __syncthreads();

    // P V.
    for (int d = thread; d < dim; d += REFERENCE_THREADS) {
        for (int r = 0; r < REFERENCE_ROWS; ++r) sums[r] = T(0);
#pragma unroll 8
        for (int key = 0; key < tile.most; ++key) {
            const T v = values[size_t(key) * dim + d];
            for (int r = 0; r < REFERENCE_ROWS; ++r) sums[r] = total(sums[r], product(weights[r * pitch + key], v));
        }
        for (int r = 0; r < tile.rows; ++r) out[r * dim + d] = product(sums[r], T(tile.output_scale));
    }
}

} // namespace

// The emulator's entries are in emulator/kernels/cu/reference.cu.
#ifndef EMULATOR_BUILD
extern "C" __global__ void __launch_bounds__(REFERENCE_THREADS) reference_f64(ReferenceParams params) {
    attend<double>(params);
}
extern "C" __global__ void __launch_bounds__(REFERENCE_THREADS) reference_f32(ReferenceParams params) {
    attend<float>(params);
}
#endif
