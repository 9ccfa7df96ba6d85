// What a kernel gets beside AttentionLaunch that takes sequences as they are served: packed one after the other, padded, or in pages.
// Plain C like <attn/params.h>, for the same readers; only such kernels include it.
#ifndef ATTN_SERVED_H
#define ATTN_SERVED_H

#include <attn/launch.h>

// Sequence b has queries_of(b) rows of Q and O, and keys_of(b) rows of K and V; AttentionParams says the most that any has, as seq_q and
// seq_kv. Key j is visible to query i iff j is among the sequence's keys and
//   i + keys_of(b) - queries_of(b) - window_left <= j <= i + keys_of(b) - queries_of(b) + window_right
// where a negative window is none, and the causal mask is a window_right of 0.
// Arrays lie on the device and may change from launch to launch: no host reads them.
struct AttentionServing {
    // [batch + 1], ascending from 0: sequence b has rows q_starts[b] to q_starts[b + 1] - 1 of a Q and an O whose only batch is 0.
    // Null: it has the seq_q rows of batch b.
    const int32_t *q_starts;
    // [batch + 1]: likewise of K and V. Null: it has the seq_kv rows of batch b, or pages.
    const int32_t *kv_starts;
    const int32_t *kv_used; // [batch]: keys of each sequence, the first of those that it has; null: all
    // [batch, pages_stride]: key j of sequence b is row j % page_rows of page pages[b, j / page_rows], a batch of K and V. Entries
    // behind the last key are not read. Null: no pages.
    const int32_t *pages;
    const float *sinks;   // [heads_q]: a logit that takes weight from every row of the head, and has no value; null: none
    int32_t pages_stride; // entries of a sequence
    int32_t page_rows;    // a power of two of at least 16; 0: no pages
    int32_t total_q;      // rows of the packed Q, and of each head of the packed log-sum-exps [heads_q, total_q]
    int32_t window_left;  // keys before a query's own that it sees; negative: all
    int32_t window_right; // keys after a query's own that it sees, without a causal mask; negative: all
    float softcap;        // scaled scores s become softcap * tanh(s / softcap); 0: they stay
    int32_t head_dim;     // columns of Q, K, V and O, a multiple of 8; those behind, up to what is compiled, read as zero
};

// One map has boxes of page_rows rows where pages are shorter than what the variant asks for (AttentionMaps). A batch of -1 is outside of
// the tensor: its box reads as zero.
struct AttentionServed {
    struct AttentionLaunch launch;
    struct AttentionServing serving;
};

#endif
