// The functions that `-fsanitize=thread` calls before each access of the traced build, and `-fsanitize=bounds` before one to
// an element that an array does not have. They take the place of the sanitizers' own libraries, which are never linked: an
// access goes to the scheduler unless it is to the thread's stack.
#include <emulator/abi.h>

namespace {

// Any address will do: the device makes several accesses of it.
constexpr uint32_t IN_PIECES = 2;

inline __attribute__((always_inline)) void access(const void *address, uint64_t bytes, uint32_t write, const void *frame_address) {
    const EmulatorTrace &trace = emulator_trace_state;
    if (!trace.active) return;
    const auto *frame = static_cast<const EmulatorFrame *>(frame_address);
    uint64_t at = reinterpret_cast<uint64_t>(address);
    if (at - trace.stack_start < trace.stack_bytes) {
        if (at - trace.held_start < trace.held_bytes) emulator_held_access(emulator_current, address, bytes, write, frame);
        return;
    }
    if (address == &emulator_current || address == &trace.exps) return; // the shim's own: how threadIdx begins
    emulator_access(emulator_current, address, bytes, write, frame);
}

// What GCC tells of an index, as far as it is read here; its layout is that of the sanitizer's library.
struct Source {
    const char *file;
    uint32_t line, column;
};
struct Type {
    uint16_t kind, info;
    char name[];
};
struct Indexed {
    Source source;
    const Type *array;
};

} // namespace

#define EMULATOR_TSAN_ACCESS(name, bytes, write)                                                                       \
    void __tsan_##name(void *address) { access(address, bytes, write, __builtin_frame_address(0)); }
#define EMULATOR_TSAN_ACCESSES(bytes)                                                                                  \
    EMULATOR_TSAN_ACCESS(read##bytes, bytes, 0)                                                                        \
    EMULATOR_TSAN_ACCESS(write##bytes, bytes, 1)                                                                       \
    EMULATOR_TSAN_ACCESS(unaligned_read##bytes, bytes, IN_PIECES)                                                      \
    EMULATOR_TSAN_ACCESS(unaligned_write##bytes, bytes, IN_PIECES | 1)                                                 \
    EMULATOR_TSAN_ACCESS(volatile_read##bytes, bytes, 0)                                                               \
    EMULATOR_TSAN_ACCESS(volatile_write##bytes, bytes, 1)                                                              \
    EMULATOR_TSAN_ACCESS(unaligned_volatile_read##bytes, bytes, IN_PIECES)                                             \
    EMULATOR_TSAN_ACCESS(unaligned_volatile_write##bytes, bytes, IN_PIECES | 1)

extern "C" {

EMULATOR_TSAN_ACCESSES(1)
EMULATOR_TSAN_ACCESSES(2)
EMULATOR_TSAN_ACCESSES(4)
EMULATOR_TSAN_ACCESSES(8)
EMULATOR_TSAN_ACCESSES(16)

void __tsan_read_range(void *address, unsigned long bytes) { access(address, bytes, IN_PIECES, __builtin_frame_address(0)); }
void __tsan_write_range(void *address, unsigned long bytes) { access(address, bytes, IN_PIECES | 1, __builtin_frame_address(0)); }

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}

void __ubsan_handle_out_of_bounds(const Indexed *indexed, int64_t index) {
    if (!emulator_trace_state.active) return;
    const EmulatorSite site{indexed->source.file, indexed->source.line, 0};
    emulator_no_element(emulator_current, indexed->array->name, index, site);
}
}
