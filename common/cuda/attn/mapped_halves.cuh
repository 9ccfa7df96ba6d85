// How kernel.cu declares variants without E4M3: as <attn/mapped.cuh> has it, with four instances each.
//
//   ATTN_MAPPED_HALVES_VARIANT(family, name, Preset)
//
// The emulator has its own version of this header.
#pragma once

#include <attn/mapped.cuh>

#define ATTN_MAPPED_HALVES_VARIANT(family, name, Preset)                                                               \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d64), Preset<attn::F16, 64>)                               \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_f16_d128), Preset<attn::F16, 128>)                             \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d64), Preset<attn::BF16, 64>)                             \
    ATTN_MAPPED_INSTANCE(ATTN_CONCAT(ATTN_STAGE, name##_bf16_d128), Preset<attn::BF16, 128>)
