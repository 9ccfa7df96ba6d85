// The contract between host and kernel, in C: bindgen writes its Rust side (`common/src/params.rs`), so the two
// cannot drift. Plain C, no CUDA types; included by nvcc, by the host C++ compiler and by libclang.
#ifndef ATTN_PARAMS_H
#define ATTN_PARAMS_H

#include <stdint.h>

enum AttentionDtype {
    ATTENTION_F16 = 0,  // Q, K, V in IEEE binary16
    ATTENTION_E4M3 = 1, // Q, K, V in OCP FP8 E4M3FN, one f32 scale per batch and head: value = scale * code
    ATTENTION_BF16 = 2, // Q, K, V, O in bfloat16
};

// How exact P is where it meets V (gates C2 and C3): its type, or one of fewer bits where scores are exact enough for no more.
// The type's number of bits, but for bf16, which has as many as f16.
enum AttentionProbability {
    ATTENTION_P_E4M3 = 8,
    ATTENTION_P_F16 = 16,
    ATTENTION_P_BF16 = 17,
    ATTENTION_P_F32 = 32,
};

enum AttentionMask {
    ATTENTION_FULL = 0,   // every key is visible to every query
    ATTENTION_CAUSAL = 1, // bottom-right aligned: key j is visible to query i iff j <= i + seq_kv - seq_q
};

// One logical [batch, heads, rows, head_dim] tensor. head_dim is contiguous. Strides count elements; the base address
// and every stride in bytes are multiples of 16, so that a row can be read 16 bytes at a time.
struct AttentionTensor {
    void *data;           // address of element [0, 0, 0, 0]
    const float *scales;  // [batch, heads], dense; null unless the tensor is E4M3
    int64_t batch_stride; // elements from [b, h, s, d] to [b + 1, h, s, d]
    int64_t head_stride;  // elements from [b, h, s, d] to [b, h + 1, s, d]
    int64_t row_stride;   // elements from [b, h, s, d] to [b, h, s + 1, d]
};

// Everything a kernel reads besides its tiles. Passed by value; head_dim and dtype are compiled in.
struct AttentionParams {
    struct AttentionTensor q; // [batch, heads_q, seq_q, head_dim]
    struct AttentionTensor k; // [batch, heads_kv, seq_kv, head_dim]
    struct AttentionTensor v; // [batch, heads_kv, seq_kv, head_dim]
    struct AttentionTensor o; // [batch, heads_q, seq_q, head_dim], bf16 if Q is, else f16
    int32_t batch;
    int32_t heads_q;
    int32_t heads_kv; // divides heads_q; query head h reads key head h / (heads_q / heads_kv)
    int32_t seq_q;
    int32_t seq_kv;
    int32_t mask;               // enum AttentionMask
    float softmax_scale;        // multiplies Q.K before the softmax; default 1 / sqrt(head_dim)
    uint32_t reserved[7];       // zero; room for window, dropout and bias without an ABI break
    float *lse;                 // [batch, heads_q, seq_q], dense: log(sum(exp(scaled scores of a row))); null: not wanted
};

// What one compiled entry of a stage is: written by kernel.cu as constants, exported by the emulated build, read by
// Rust for both backends.
struct AttentionKernel {
    const char *family;           // which of the stage's code paths: "wmma_qk"
    const char *variant;          // the preset: "wmma_qk_32x64"
    const char *symbol;           // name of the entry in the fatbin
    int32_t dtype;                // enum AttentionDtype
    int32_t head_dim;             // 64 or 128
    int32_t block_m;              // query rows per thread block
    int32_t block_n;              // keys per tile
    int32_t threads;              // threads per block
    int32_t min_blocks;           // second argument of __launch_bounds__
    int32_t dynamic_shared_bytes; // size of the carved dynamic shared memory
    int32_t probability_dtype;    // enum AttentionProbability
    int32_t lse;                  // 1 if it writes AttentionParams::lse where that is wanted, else 0
    void (*emulated)(const struct AttentionParams *params); // one CUDA thread on the emulator
};

#endif
