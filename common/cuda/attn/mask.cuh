// Which keys a query sees, in tiles. Both masks are a prefix of the keys: a row sees keys [0, visible).
#pragma once

#include <attn/observe.cuh>
#include <attn/params.h>

namespace attn {

// Number of keys that query `row` sees: under the causal mask, aligned bottom-right, key j iff j <= row + seq_kv - seq_q.
static __device__ __forceinline__ int visible_keys(const AttentionParams &params, int row) {
    const int visible = params.mask == ATTENTION_FULL
                            ? params.seq_kv
                            : min(params.seq_kv, max(0, row + 1 + params.seq_kv - params.seq_q));
 ATTN_VISIBLE(visible);
    return visible;
}

} // namespace attn
