// What a kernel gets that asks for tensor maps, for TMA, beside AttentionParams. Plain C like <attn/params.h>, for the
// same readers; only such kernels include it.
#ifndef ATTN_LAUNCH_H
#define ATTN_LAUNCH_H

#include <attn/params.h>

// A CUtensorMap on a GPU; the emulator encodes its own. Opaque to kernels, which hand its address to TMA.
struct AttentionTensorMap {
    uint64_t opaque[16];
} __attribute__((aligned(64)));

// One box of a map is `rows` rows of one head, and of each row `box_bytes` (64 or 128) that start at a column: a box
// lies in shared memory row by row, `box_bytes` apart, its 16-byte chunks swizzled by that width. Coordinates are column,
// row, head, batch; rows past the end of the sequence, or before its start, read as zero. Those past the end are not written, and a
// store must not begin before the start.
struct AttentionLaunch {
    struct AttentionParams params;
    struct AttentionTensorMap q; // of those that the variant does not ask for, all bytes are zero
    struct AttentionTensorMap k;
    struct AttentionTensorMap v;
    struct AttentionTensorMap o;
};

// What the launches of one compiled entry need: written by kernel.cu as constants, read by Rust for both backends. All
// zero for an entry that takes AttentionParams alone.
struct AttentionMaps {
    int32_t q_box_rows; // rows of one box; 0: no map of this operand
    int32_t k_box_rows;
    int32_t v_box_rows;
    int32_t o_box_rows;
};

#endif
