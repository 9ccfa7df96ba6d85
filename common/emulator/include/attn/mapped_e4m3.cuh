// The emulated side of <attn/mapped_e4m3.cuh>.
#pragma once

#include <attn/mapped.cuh>

#define ATTN_MAPPED_E4M3_VARIANT(family, name, Preset)                                                                 \
    ATTN_MAPPED_INSTANCE(family, name, _e4m3_d64, ATTENTION_E4M3, 64, Preset<64>)                                      \
    ATTN_MAPPED_INSTANCE(family, name, _e4m3_d128, ATTENTION_E4M3, 128, Preset<128>)
