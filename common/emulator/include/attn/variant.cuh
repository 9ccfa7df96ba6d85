// The emulated side of <attn/variant.cuh>: each instance is a function that runs one CUDA thread, and a record of its
// constants; with ATTN_TABLE_ALONE the record alone. The generated translation unit exports the table (see `kernel-build`).
#pragma once

#include <attn/params.h>
#include <type_traits>

#define ATTN_CONCAT_(a, b) a##_##b
#define ATTN_CONCAT(a, b) ATTN_CONCAT_(a, b)
#define ATTN_STRING_(x) #x
#define ATTN_STRING(x) ATTN_STRING_(x)

namespace {
struct AttentionTable {
    static constexpr int CAPACITY = 256;
    AttentionKernel kernels[CAPACITY];
    int count = 0;
};
AttentionTable attention_table;

template <class Preset, class = void>
constexpr int32_t writes_lse = 0;
template <class Preset>
constexpr int32_t writes_lse<Preset, std::void_t<decltype(Preset::LSE)>> = Preset::LSE;

struct AttentionRegistration {
    explicit AttentionRegistration(const AttentionKernel &kernel) {
        if (attention_table.count < AttentionTable::CAPACITY) attention_table.kernels[attention_table.count] = kernel;
        ++attention_table.count; // past the capacity the exported count says so, and the host refuses the table
    }
};
} // namespace

#ifdef ATTN_TABLE_ALONE
// For programs that link no emulator: records without functions.
#define ATTN_ENTRY(function, argument, ...) static constexpr decltype(AttentionKernel::emulated) function = nullptr;
#else
#define ATTN_ENTRY(function, argument, ...)                                                                            \
    EMULATOR_ENTRY static void function(const AttentionParams *params) { attention<__VA_ARGS__>(argument); }
#endif

#define ATTN_INSTANCE(family, name, suffix, dtype, dim, ...)                                                           \
    ATTN_ENTRY(ATTN_CONCAT(ATTN_STAGE, name##suffix), *params, __VA_ARGS__)                                            \
    static const AttentionRegistration ATTN_CONCAT(ATTN_STAGE, name##suffix##_registration)(AttentionKernel{           \
        #family, #name, ATTN_STRING(ATTN_CONCAT(ATTN_STAGE, name##suffix)), dtype, dim, __VA_ARGS__::BLOCK_M,          \
        __VA_ARGS__::BLOCK_N, __VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS, (int32_t)sizeof(__VA_ARGS__::Shared),     \
        __VA_ARGS__::PROBABILITY, writes_lse<__VA_ARGS__>, ATTN_CONCAT(ATTN_STAGE, name##suffix)});

#define ATTN_VARIANT(family, name, Preset)                                                                             \
    ATTN_INSTANCE(family, name, _f16_d64, ATTENTION_F16, 64, Preset<attn::F16, 64>)                                    \
    ATTN_INSTANCE(family, name, _f16_d128, ATTENTION_F16, 128, Preset<attn::F16, 128>)                                 \
    ATTN_INSTANCE(family, name, _e4m3_d64, ATTENTION_E4M3, 64, Preset<attn::E4M3, 64>)                                 \
    ATTN_INSTANCE(family, name, _e4m3_d128, ATTENTION_E4M3, 128, Preset<attn::E4M3, 128>)

#define ATTN_BF16_VARIANT(family, name, Preset)                                                                        \
    ATTN_VARIANT(family, name, Preset)                                                                                 \
    ATTN_INSTANCE(family, name, _bf16_d64, ATTENTION_BF16, 64, Preset<attn::BF16, 64>)                                 \
    ATTN_INSTANCE(family, name, _bf16_d128, ATTENTION_BF16, 128, Preset<attn::BF16, 128>)
