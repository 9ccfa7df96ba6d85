// How kernel.cu declares E4M3-only variants: as <attn/mapped.cuh> has it, with two instances each.
//
//   ATTN_MAPPED_E4M3_VARIANT(family, name, Preset)
//
// `Preset<HEAD_DIM>` takes no element type. The emulator has its own version of this header.
#pragma once

#include <attn/mapped.cuh>

#define ATTN_MAPPED_E4M3_VARIANT(family, name, Preset)                                                                 \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_e4m3_d64), Preset<64>)                                         \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_e4m3_d128), Preset<128>)
