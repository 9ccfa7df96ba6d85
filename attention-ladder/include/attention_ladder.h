// Attention forward on NVIDIA GPUs. Memory, workspace and stream are the caller's; every function may be called from any thread.
// Made by cbindgen from attention-ladder/src/lib.rs; `UPDATE_BINDINGS=1 cargo test -p attention-ladder --test c` rewrites it.

#ifndef ATTENTION_LADDER_H
#define ATTENTION_LADDER_H

#include <stddef.h>
#include <stdint.h>

// The call did what it is for.
#define ATTENTION_LADDER_OK 0

// No kernel takes this problem, writes log-sum-exps for it, or runs on this device.
#define ATTENTION_LADDER_UNSUPPORTED 1

// An argument is wrong: a null pointer, an address or stride that is no multiple of 16 bytes (of lse: of 4).
#define ATTENTION_LADDER_INVALID 2

// There is no driver, it is too old, there is no such GPU, or the library was built without GPU code.
#define ATTENTION_LADDER_UNAVAILABLE 3

// A call of the CUDA driver failed.
#define ATTENTION_LADDER_DRIVER 4

// A fault of the library.
#define ATTENTION_LADDER_INTERNAL 5

// Q, K and V in IEEE binary16.
#define ATTENTION_LADDER_F16 0

// Q, K and V in OCP FP8 E4M3FN with one f32 scale per batch and head: value = scale * code.
#define ATTENTION_LADDER_E4M3 1

// Q, K, V and O in bfloat16.
#define ATTENTION_LADDER_BF16 2

// Every key is visible to every query.
#define ATTENTION_LADDER_FULL 0

// Bottom-right aligned: key j is visible to query i iff j <= i + seq_kv - seq_q. A query that sees no key gives 0.
#define ATTENTION_LADDER_CAUSAL 1

// A tensor [batch, heads, rows, head_dim] in GPU memory. head_dim is contiguous; the address and every stride are multiples
// of 16 bytes, and strides are positive where the extent is more than 1.
typedef struct AttentionLadderTensor {
  // Address of element [0, 0, 0, 0] on the GPU; may be null for a query.
  void *data;
  // [batch, heads] scales, dense, on the GPU: of Q, K and V in E4M3. Else null. Each is positive and finite, which nothing checks
  // there: a head of zeros has the scale 1, since 0 makes NaN of masked keys.
  const float *scales;
  // Elements from [b, h, s, d] to [b + 1, h, s, d].
  int64_t batch_stride;
  // Elements from [b, h, s, d] to [b, h + 1, s, d].
  int64_t head_stride;
  // Elements from [b, h, s, d] to [b, h, s + 1, d].
  int64_t row_stride;
} AttentionLadderTensor;

// One attention forward call.
typedef struct AttentionLadderCall {
  // [batch, heads_q, seq_q, head_dim]
  struct AttentionLadderTensor q;
  // [batch, heads_kv, seq_kv, head_dim]
  struct AttentionLadderTensor k;
  // [batch, heads_kv, seq_kv, head_dim]
  struct AttentionLadderTensor v;
  // [batch, heads_q, seq_q, head_dim], bf16 where Q is, else f16.
  struct AttentionLadderTensor o;
  // [batch, heads_q, seq_q], dense, on the GPU: log-sum-exp of each row's scaled scores, natural logarithm, -inf for a row that
  // sees no key. Null: not wanted. For a query, any address that is not null asks for it.
  float *lse;
  // ATTENTION_LADDER_F16, ATTENTION_LADDER_E4M3 or ATTENTION_LADDER_BF16.
  int32_t dtype;
  // ATTENTION_LADDER_FULL or ATTENTION_LADDER_CAUSAL.
  int32_t mask;
  // Sequences.
  int32_t batch;
  // Query heads.
  int32_t heads_q;
  // Key and value heads; divides heads_q: query head h reads key head h / (heads_q / heads_kv).
  int32_t heads_kv;
  // Query rows per head.
  int32_t seq_q;
  // Keys per head.
  int32_t seq_kv;
  // 64 or 128.
  int32_t head_dim;
  // Multiplies Q.K before the softmax; 0: 1 / sqrt(head_dim). Scores beyond 1e8 after it may overflow P to inf.
  float softmax_scale;
} AttentionLadderCall;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Whether `call` can be launched on GPU number `device` of the driver (from 0), and if not, why. Loads the kernel, so that a
// launch of the same problem allocates nothing. Addresses may be null.
//
// # Safety
// `call` is null, or points to a call.
int32_t attention_ladder_query(const struct AttentionLadderCall *call,
                               int32_t device);

// Which variant of which stage a launch of `call` takes, "stage8-overlap/overlap-lazy-64x128"; null where none does, as
// attention_ladder_query says. The string lives as long as the process.
//
// # Safety
// `call` is null, or points to a call.
const char *attention_ladder_variant(const struct AttentionLadderCall *call,
                                     int32_t device);

// Writes to `bytes` how much GPU memory a launch of `call` needs besides its tensors: 0 in this version.
//
// # Safety
// `call` is null, or points to a call; `bytes` is null, or points to a size_t.
int32_t attention_ladder_workspace(const struct AttentionLadderCall *call,
                                   int32_t device,
                                   size_t *bytes);

// Puts one launch of `call` into `stream`, a CUstream or cudaStream_t of GPU number `device` (null: the default stream).
// `workspace` has the bytes that attention_ladder_workspace says; null for 0.
//
// # Safety
// `call` is null, or points to a call whose addresses are GPU memory that extents and strides stay within, until the stream has
// done the launch. `stream` is a stream of the device's primary context, the one that the CUDA runtime uses.
int32_t attention_ladder_launch(const struct AttentionLadderCall *call,
                                int32_t device,
                                void *workspace,
                                size_t workspace_bytes,
                                void *stream);

// What the last call that failed on this thread failed for, as a sentence; empty before the first. Valid until the next
// failure on the thread.
const char *attention_ladder_last_error(void);

// The library's version, "0.1.0".
const char *attention_ladder_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ATTENTION_LADDER_H */
