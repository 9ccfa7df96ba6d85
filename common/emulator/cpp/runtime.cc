// What every OS thread that runs blocks owns: the block's shared memory and the pointer to the running CUDA thread.
#include <emulator/abi.h>

extern "C" {

// Aligned as the most demanding user of shared memory wants it (a 128-byte swizzle atom spans 1,024 bytes).
extern __thread unsigned char attn_shared[EMULATOR_SHARED_BYTES + EMULATOR_GUARD_BYTES];
__attribute__((aligned(1024))) __thread unsigned char attn_shared[EMULATOR_SHARED_BYTES + EMULATOR_GUARD_BYTES];

__thread const EmulatorThread *emulator_current __attribute__((tls_model("initial-exec")));
__thread EmulatorTrace emulator_trace_state __attribute__((tls_model("initial-exec")));

unsigned char *emulator_shared_memory() { return attn_shared; }

const EmulatorThread **emulator_current_slot() { return &emulator_current; }

EmulatorTrace *emulator_trace_slot() { return &emulator_trace_state; }

// The program's own image, as the linker has laid it out: code, constants and static variables.
extern char __executable_start[], end[];
const char *emulator_image_start() { return __executable_start; }
uint32_t emulator_here() { return emulator_calls(static_cast<const EmulatorFrame *>(__builtin_frame_address(0))); }
const char *emulator_image_end() { return end; }

// All code of kernels: kernel-build puts it into this section, and the linker names its ends where there is any.
extern char __start_attn_kernels[] __attribute__((weak)), __stop_attn_kernels[] __attribute__((weak));
const char *emulator_kernels_start() { return __start_attn_kernels; }
const char *emulator_kernels_end() { return __stop_attn_kernels; }
}
