// The emulated side of <attn/mapped.cuh>: as <attn/variant.cuh>, and beside each record what its launches need.
#pragma once

#include <attn/launch.h>
#include <attn/variant.cuh>
#include <type_traits>

namespace attn {

template <class Layout>
__forceinline__ Layout &shared_tiles() {
    static_assert(alignof(Layout) <= 1024, "the buffer starts on a 1,024-byte boundary");
    static_assert(std::is_trivially_default_constructible_v<Layout>, "nobody constructs it");
    return *reinterpret_cast<Layout *>(emulator_current->shared);
}

} // namespace attn

namespace {
AttentionMaps attention_maps[AttentionTable::CAPACITY];

struct AttentionMapsRegistration {
    explicit AttentionMapsRegistration(const AttentionMaps &maps) { // of the instance that was registered last
        if (attention_table.count <= AttentionTable::CAPACITY) attention_maps[attention_table.count - 1] = maps;
    }
};
} // namespace

#define ATTN_MAPPED_INSTANCE(family, name, suffix, dtype, dim, ...)                                                    \
    ATTN_ENTRY(dtype, ATTN_CONCAT(ATTN_STAGE, name##suffix), *reinterpret_cast<const AttentionLaunch *>(params),       \
        __VA_ARGS__)                                                                                                   \
    ATTN_INSTANCE_RECORD(family, name, suffix, dtype, dim, __VA_ARGS__)                                                \
    ATTN_RECORD(AttentionMapsRegistration, ATTN_CONCAT(ATTN_STAGE, name##suffix##_maps),                               \
        AttentionMaps{__VA_ARGS__::Q_BOX_ROWS, __VA_ARGS__::K_BOX_ROWS, __VA_ARGS__::V_BOX_ROWS, __VA_ARGS__::O_BOX_ROWS})

#define ATTN_MAPPED_VARIANT(family, name, Preset)                                                                      \
    ATTN_MAPPED_INSTANCE(family, name, _f16_d64, ATTENTION_F16, 64, Preset<attn::F16, 64>)                             \
    ATTN_MAPPED_INSTANCE(family, name, _f16_d128, ATTENTION_F16, 128, Preset<attn::F16, 128>)                          \
    ATTN_MAPPED_INSTANCE(family, name, _e4m3_d64, ATTENTION_E4M3, 64, Preset<attn::E4M3, 64>)                          \
    ATTN_MAPPED_INSTANCE(family, name, _e4m3_d128, ATTENTION_E4M3, 128, Preset<attn::E4M3, 128>)                       \
    ATTN_MAPPED_INSTANCE(family, name, _bf16_d64, ATTENTION_BF16, 64, Preset<attn::BF16, 64>)                          \
    ATTN_MAPPED_INSTANCE(family, name, _bf16_d128, ATTENTION_BF16, 128, Preset<attn::BF16, 128>)
