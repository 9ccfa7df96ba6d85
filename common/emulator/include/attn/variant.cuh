// The emulated side of <attn/variant.cuh>: each instance is a function that runs one CUDA thread, and a record of its
// constants. `kernel-build` compiles kernel.cu once for the table of records, which it exports, and once for the functions
// of each element type, so that they compile side by side:
//   ATTN_UNIT_TABLE   the records, and declarations of the functions
//   ATTN_UNIT_F16     the functions of f16 alone; likewise ATTN_UNIT_E4M3 and ATTN_UNIT_BF16
//   ATTN_TABLE_ALONE  the records without functions, for programs that link no emulator
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

#if defined(ATTN_TABLE_ALONE) || defined(ATTN_UNIT_TABLE)
#define ATTN_RECORD(type, name, ...) static const type name(__VA_ARGS__);
#else
#define ATTN_RECORD(type, name, ...)
#endif

#define ATTN_ENTRY_DEFINED(function, argument, ...)                                                                    \
    extern "C" void function(const AttentionParams *params) { attention<__VA_ARGS__>(argument); }
#define ATTN_ENTRY_DECLARED(function, argument, ...) extern "C" void function(const AttentionParams *params);
#define ATTN_ENTRY_ABSENT(function, argument, ...)                                                                     \
    static constexpr decltype(AttentionKernel::emulated) function = nullptr;

// Of an instance's element type: ATTN_ENTRY_ATTENTION_F16 and so on.
#if defined(ATTN_TABLE_ALONE)
#define ATTN_ENTRY_ATTENTION_F16 ATTN_ENTRY_ABSENT
#define ATTN_ENTRY_ATTENTION_E4M3 ATTN_ENTRY_ABSENT
#define ATTN_ENTRY_ATTENTION_BF16 ATTN_ENTRY_ABSENT
#else
#if defined(ATTN_UNIT_F16)
#define ATTN_ENTRY_ATTENTION_F16 ATTN_ENTRY_DEFINED
#else
#define ATTN_ENTRY_ATTENTION_F16 ATTN_ENTRY_DECLARED
#endif
#if defined(ATTN_UNIT_E4M3)
#define ATTN_ENTRY_ATTENTION_E4M3 ATTN_ENTRY_DEFINED
#else
#define ATTN_ENTRY_ATTENTION_E4M3 ATTN_ENTRY_DECLARED
#endif
#if defined(ATTN_UNIT_BF16)
#define ATTN_ENTRY_ATTENTION_BF16 ATTN_ENTRY_DEFINED
#else
#define ATTN_ENTRY_ATTENTION_BF16 ATTN_ENTRY_DECLARED
#endif
#endif

#define ATTN_ENTRY(dtype, function, argument, ...) ATTN_ENTRY_##dtype(function, argument, __VA_ARGS__)

#define ATTN_INSTANCE(family, name, suffix, dtype, dim, ...)                                                           \
    ATTN_ENTRY(dtype, ATTN_CONCAT(ATTN_STAGE, name##suffix), *params, __VA_ARGS__)                                     \
    ATTN_INSTANCE_RECORD(family, name, suffix, dtype, dim, __VA_ARGS__)

#define ATTN_INSTANCE_RECORD(family, name, suffix, dtype, dim, ...)                                                    \
    ATTN_RECORD(AttentionRegistration, ATTN_CONCAT(ATTN_STAGE, name##suffix##_registration),                           \
        AttentionKernel{#family, #name, ATTN_STRING(ATTN_CONCAT(ATTN_STAGE, name##suffix)), dtype, dim,                \
            __VA_ARGS__::BLOCK_M, __VA_ARGS__::BLOCK_N, __VA_ARGS__::THREADS, __VA_ARGS__::MIN_BLOCKS,                 \
            (int32_t)sizeof(__VA_ARGS__::Shared), __VA_ARGS__::PROBABILITY, writes_lse<__VA_ARGS__>,                   \
            ATTN_CONCAT(ATTN_STAGE, name##suffix)})

#define ATTN_VARIANT(family, name, Preset)                                                                             \
    ATTN_INSTANCE(family, name, _f16_d64, ATTENTION_F16, 64, Preset<attn::F16, 64>)                                    \
    ATTN_INSTANCE(family, name, _f16_d128, ATTENTION_F16, 128, Preset<attn::F16, 128>)                                 \
    ATTN_INSTANCE(family, name, _e4m3_d64, ATTENTION_E4M3, 64, Preset<attn::E4M3, 64>)                                 \
    ATTN_INSTANCE(family, name, _e4m3_d128, ATTENTION_E4M3, 128, Preset<attn::E4M3, 128>)

#define ATTN_BF16_VARIANT(family, name, Preset)                                                                        \
    ATTN_VARIANT(family, name, Preset)                                                                                 \
    ATTN_INSTANCE(family, name, _bf16_d64, ATTENTION_BF16, 64, Preset<attn::BF16, 64>)                                 \
    ATTN_INSTANCE(family, name, _bf16_d128, ATTENTION_BF16, 128, Preset<attn::BF16, 128>)
