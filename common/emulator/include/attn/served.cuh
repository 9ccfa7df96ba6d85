// The emulated side of <attn/served.cuh>.
#pragma once

#include <attn/mapped.cuh>
#include <attn/served.h>

#define ATTN_SERVED_INSTANCE(family, name, suffix, dtype, dim, ...)                                                    \
    ATTN_ENTRY(dtype, ATTN_CONCAT(ATTN_STAGE, name##suffix), *reinterpret_cast<const AttentionServed *>(params),       \
        __VA_ARGS__)                                                                                                   \
    ATTN_INSTANCE_RECORD(family, name, suffix, dtype, dim, __VA_ARGS__)                                                \
    ATTN_RECORD(AttentionMapsRegistration, ATTN_CONCAT(ATTN_STAGE, name##suffix##_maps),                               \
        AttentionMaps{__VA_ARGS__::Q_BOX_ROWS, __VA_ARGS__::K_BOX_ROWS, __VA_ARGS__::V_BOX_ROWS, __VA_ARGS__::O_BOX_ROWS})

#define ATTN_SERVED_VARIANT(family, name, Preset)                                                                      \
    ATTN_SERVED_INSTANCE(family, name, _f16_d64, ATTENTION_F16, 64, Preset<attn::F16, 64>)                             \
    ATTN_SERVED_INSTANCE(family, name, _f16_d96, ATTENTION_F16, 96, Preset<attn::F16, 96>)                             \
    ATTN_SERVED_INSTANCE(family, name, _f16_d128, ATTENTION_F16, 128, Preset<attn::F16, 128>)                          \
    ATTN_SERVED_INSTANCE(family, name, _bf16_d64, ATTENTION_BF16, 64, Preset<attn::BF16, 64>)                          \
    ATTN_SERVED_INSTANCE(family, name, _bf16_d96, ATTENTION_BF16, 96, Preset<attn::BF16, 96>)                          \
    ATTN_SERVED_INSTANCE(family, name, _bf16_d128, ATTENTION_BF16, 128, Preset<attn::BF16, 128>)
