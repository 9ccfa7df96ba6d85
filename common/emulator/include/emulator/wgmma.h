// Operands of <attn/ptx/wgmma.cuh>; the Rust counterparts are in `emulator/src/wgmma/`.
#pragma once

#include <stdint.h>

enum EmulatorElement { EMULATOR_F16 = 0, EMULATOR_E4M3 = 1, EMULATOR_BF16 = 2 };

// A product of 64 x `columns`.
struct EmulatorWgmma {
    float *d;          // N / 2 accumulators
    const uint32_t *a; // four registers; null: A is in shared memory
    uint64_t a_descriptor;
    uint64_t b_descriptor;
    uint32_t columns;
    uint32_t element; // EmulatorElement
    uint32_t transposed_b;
    uint32_t accumulate;
};

struct EmulatorRegisters {
    const void *address[4];
    uint64_t bytes[4];
};
