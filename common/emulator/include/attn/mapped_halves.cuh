// The emulated side of <attn/mapped_halves.cuh>.
#pragma once

#include <attn/mapped.cuh>

#define ATTN_MAPPED_HALVES_VARIANT(family, name, Preset)                                                               \
    ATTN_MAPPED_INSTANCE(family, name, _f16_d64, ATTENTION_F16, 64, Preset<attn::F16, 64>)                             \
    ATTN_MAPPED_INSTANCE(family, name, _f16_d128, ATTENTION_F16, 128, Preset<attn::F16, 128>)                          \
    ATTN_MAPPED_INSTANCE(family, name, _bf16_d64, ATTENTION_BF16, 64, Preset<attn::BF16, 64>)                          \
    ATTN_MAPPED_INSTANCE(family, name, _bf16_d128, ATTENTION_BF16, 128, Preset<attn::BF16, 128>)
