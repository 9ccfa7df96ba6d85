// The running CUDA thread: its coordinates, the block's barrier, and how it stops.
#pragma once

EMULATOR_BEGIN

namespace emulator {

// A shim function takes the kernel's place as defaulted arguments, which the compiler fills in at the call: EMULATOR_HERE
// declares them, EMULATOR_SITE makes one value of them.
#define EMULATOR_HERE const char *file = __builtin_FILE(), uint32_t line = __builtin_LINE()
#define EMULATOR_SITE (EmulatorSite{file, line, EMULATOR_CALLS})
#ifdef EMULATOR_TRACED
#define EMULATOR_CALLS emulator_here()
#else
#define EMULATOR_CALLS 0u
#endif

[[noreturn]] __forceinline__ void trap(const char *message, EmulatorSite site) {
    emulator_trap(emulator_current, EMULATOR_TRAP, message, 0, 0, site);
}

// `what`: operand and operation; `value`: an address, or a stride in bytes.
__forceinline__ void check_aligned(const char *what, uint64_t value, uint64_t required, EmulatorSite site) {
    if (__builtin_expect(value % required != 0, 0))
        emulator_trap(emulator_current, EMULATOR_MISALIGNED, what, value, required, site);
}

__forceinline__ void check_aligned(const char *what, const void *address, uint64_t required, EmulatorSite site) {
    check_aligned(what, reinterpret_cast<uint64_t>(address), required, site);
}

__forceinline__ uint3 coordinates(const uint32_t (&xyz)[3]) { return {xyz[0], xyz[1], xyz[2]}; }
__forceinline__ dim3 extent(const uint32_t (&xyz)[3]) { return {xyz[0], xyz[1], xyz[2]}; }

} // namespace emulator

#define threadIdx (::EMULATOR_BUILD::emulator::coordinates(emulator_current->thread_idx))
#define blockIdx (::EMULATOR_BUILD::emulator::coordinates(emulator_current->block_idx))
#define blockDim (::EMULATOR_BUILD::emulator::extent(emulator_current->block_dim))
#define gridDim (::EMULATOR_BUILD::emulator::extent(emulator_current->grid_dim))

__forceinline__ void __syncthreads(EMULATOR_HERE) { emulator_barrier(emulator_current, EMULATOR_SITE); }

[[noreturn]] __forceinline__ void __trap(EMULATOR_HERE) { emulator::trap("__trap() was called", EMULATOR_SITE); }

EMULATOR_END
