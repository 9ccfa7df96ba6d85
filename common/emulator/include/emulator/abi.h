// The boundary between the shim (C++) and the scheduler (`emulator/src/ffi.rs`): every struct and function here has
// its twin there. Nothing in this file depends on the build flavour, so kernels of several flavours can share one
// scheduler.
#pragma once

#include <stdint.h>

extern "C" {

// Where kernel.cu stands; `file` is a string literal.
struct EmulatorSite {
    const char *file;
    uint32_t line;
};

// How the elements of WMMA fragments lie over the lanes: for each operand (a, b, accumulator) and fragment size (128,
// 256, 512 elements) a permutation of the elements. CUDA leaves the layout open; here it changes with the schedule.
struct EmulatorLayouts {
    uint16_t element[3][3][512];
};

// One CUDA thread. `emulator_current` points to the running one; the scheduler sets it on every resume.
struct EmulatorThread {
    uint32_t thread_idx[3];
    uint32_t block_idx[3];
    uint32_t block_dim[3];
    uint32_t grid_dim[3];
    uint32_t thread; // linear index in the block
    uint32_t lane;
    const EmulatorLayouts *layouts;
    // The scheduler's own fields follow.
};

// Runs a collective for all its lanes: operands[i] is lane i's operand, `lanes` names those that take part. Returns
// null, or the reason why it can't be done and in *lane the lane at fault. Must not call the scheduler.
typedef const char *(*EmulatorExecute)(void *const *operands, uint32_t lanes, uint32_t *lane);

enum EmulatorRule {
    EMULATOR_EXITED_LANES_DROP = 1,  // a lane of the mask that has exited is not waited for
    EMULATOR_PLACES_MAY_DIFFER = 2,  // lanes may arrive from different source lines
};

// What one lane brings to a warp-wide operation.
struct EmulatorCollective {
    const char *name; // as the kernel author knows it: "__shfl_xor_sync"
    EmulatorExecute execute; // null: a pure rendezvous
    void *operand;
    uint64_t agree[2]; // arguments that must be equal in all lanes
    uint32_t mask;
    uint32_t rules; // EmulatorRule
    EmulatorSite site;
};

enum EmulatorTrap {
    EMULATOR_TRAP = 0,       // __trap(), a failed assert, or a use of the shim that CUDA does not define
    EMULATOR_MISALIGNED = 1, // `message` names the operand, `value` is the address or stride, `required` its multiple
};

// Implemented by the scheduler. Each takes the calling thread. They return when the thread may go on, or never.
void emulator_collective(const EmulatorThread *thread, const EmulatorCollective *collective);
void emulator_barrier(const EmulatorThread *thread, EmulatorSite site);
[[noreturn]] void emulator_trap(const EmulatorThread *thread, uint32_t kind, const char *message, uint64_t value,
                                uint64_t required, EmulatorSite site);
void emulator_cp_async(const EmulatorThread *thread, void *dst, const void *src, uint32_t bytes, uint32_t src_bytes,
                       EmulatorSite site);
void emulator_cp_async_commit(const EmulatorThread *thread);
void emulator_cp_async_wait(const EmulatorThread *thread, uint32_t newest_groups);

// Defined in runtime.cc. The initial-exec model makes an access one load; it holds in executables, which is where
// kernels run.
extern __thread const EmulatorThread *emulator_current __attribute__((tls_model("initial-exec")));
}

// Shared memory of the largest block (227 KiB on sm_90), and behind it room in which an overrun is seen.
#define EMULATOR_SHARED_BYTES 232448
#define EMULATOR_GUARD_BYTES 4096
