// The boundary between the shim (C++) and the scheduler (`emulator/src/ffi.rs`). Nothing here depends on the build flavour,
// so kernels of several flavours can share one scheduler.
#pragma once

#include <stdint.h>

extern "C" {

// A place in kernel.cu. `calls`: the traced build's emulator_here() at the call, which leads to the lines that called it; 0
// in the plain build.
struct EmulatorSite {
    const char *file;
    uint32_t line;
    uint32_t calls;
};

// What a function of the traced build has on its stack (-fno-omit-frame-pointer), where __builtin_frame_address(0) is.
struct EmulatorFrame {
    const EmulatorFrame *caller;
    const void *returns_to;
};

// What CUDA leaves open about lanes, and the schedule decides. `element`: for each WMMA operand (a, b, accumulator) and
// fragment size (128, 256, 512 elements) a permutation of the elements.
struct EmulatorLayouts {
    uint16_t element[3][3][512];
    uint32_t leader; // the lane that elect_one elects
};

// One CUDA thread. The scheduler sets `emulator_current` on every resume.
struct EmulatorThread {
    uint32_t thread_idx[3];
    uint32_t block_idx[3];
    uint32_t block_dim[3];
    uint32_t grid_dim[3];
    uint32_t thread; // linear index in the block; of a cluster, numbered on from block to block
    uint32_t lane;
    uint32_t cluster_rank;
    uint32_t cluster_size;
    unsigned char *shared; // of the block
    const EmulatorLayouts *layouts;
    // Followed by the scheduler's own fields.
};

// Executes a collective: operands[i] is lane i's operand, `lanes` names those that take part. Returns null, or the reason of
// a failure and in *lane the lane at fault. Must not call the scheduler.
typedef const char *(*EmulatorExecute)(void *const *operands, uint32_t lanes, uint32_t *lane);

enum EmulatorRule {
    EMULATOR_EXITED_LANES_DROP = 1,  // a lane of the mask that has exited is not waited for
    EMULATOR_PLACES_MAY_DIFFER = 2,  // lanes may arrive from different source lines
};

// Only EMULATOR_SYNC_WARP and the named barriers order memory.
enum EmulatorKind {
    EMULATOR_SYNC_WARP = 0,
    EMULATOR_SHUFFLE = 1,
    EMULATOR_VOTE = 2,
    EMULATOR_MATRIX_COPY = 3, // its execution declares what it accesses by emulator_matrix_access
    EMULATOR_MMA = 4,         // `work` is the number of multiply-adds
    // A warp arrives at barrier agree[0] of agree[1] threads, and waits there or goes on.
    EMULATOR_NAMED_SYNC = 5,
    EMULATOR_NAMED_ARRIVE = 6,
    // Of warpgroups. A wait leaves agree[0] groups in flight.
    EMULATOR_WGMMA = 16,
    EMULATOR_WGMMA_FENCE = 17,
    EMULATOR_WGMMA_COMMIT = 18,
    EMULATOR_WGMMA_WAIT = 19,
    // agree[0]: the thread's future number of registers.
    EMULATOR_GIVE_REGISTERS = 20,
    EMULATOR_TAKE_REGISTERS = 21,
    // The barrier of the cluster.
    EMULATOR_CLUSTER_ARRIVE = 22,
    EMULATOR_CLUSTER_WAIT = 23,
    EMULATOR_CLUSTER_ARRIVE_RELAXED = 24,
};

struct EmulatorCollective {
    const char *name; // as the kernel author knows it: "__shfl_xor_sync"
    EmulatorExecute execute; // null: a pure rendezvous
    void *operand;
    uint64_t agree[2]; // arguments that must be equal in all lanes
    uint64_t work;
    uint32_t mask;
    uint32_t rules; // EmulatorRule
    uint32_t kind;  // EmulatorKind
    EmulatorSite site;
};

// The shape of a warp's access to a matrix, for counting.
enum EmulatorMatrixCount {
    EMULATOR_COUNT_LDMATRIX = 0,     // 8 rows of 16 bytes at a time
    EMULATOR_COUNT_ACCUMULATOR = 1,  // per 8x8 elements, each lane two neighbours in a row of memory
    EMULATOR_COUNT_TRANSPOSED = 2,   // per 8x8 elements and register, each lane one element; columns lie in memory's rows
};

// `rows` contiguous pieces of `row_bytes`. Which lane touches which byte is open, so the access is ordered with another one
// only if it is so for every lane.
struct EmulatorMatrixAccess {
    const void *const *rows;
    uint32_t row_count;
    uint32_t row_bytes;
    uint32_t element_bytes;
    uint32_t write;
    uint32_t count; // EmulatorMatrixCount
    // If not 0: accesses with the same number give each lane the same bytes, so program order orders them.
    uint64_t distribution;
};

enum EmulatorTrap {
    EMULATOR_TRAP = 0,       // __trap(), a failed assert, or a use of the shim that CUDA does not define
    EMULATOR_MISALIGNED = 1, // `message` names the operand, `value` is the address or stride, `required` its multiple
};

// Implemented by the scheduler, called on the given thread. They return when it may go on, or never.
void emulator_collective(const EmulatorThread *thread, const EmulatorCollective *collective);
void emulator_barrier(const EmulatorThread *thread, EmulatorSite site);
[[noreturn]] void emulator_trap(const EmulatorThread *thread, uint32_t kind, const char *message, uint64_t value,
                                uint64_t required, EmulatorSite site);
void emulator_cp_async(const EmulatorThread *thread, void *dst, const void *src, uint32_t bytes, uint32_t src_bytes,
                       EmulatorSite site);
void emulator_cp_async_commit(const EmulatorThread *thread, EmulatorSite site);
void emulator_cp_async_wait(const EmulatorThread *thread, uint32_t newest_groups, EmulatorSite site);
void emulator_mbarrier_init(const EmulatorThread *thread, uint64_t *object, int32_t arrivals, EmulatorSite site);
void emulator_mbarrier_arrive(const EmulatorThread *thread, uint64_t *object, EmulatorSite site);
void emulator_mbarrier_arrive_after_cp_async(const EmulatorThread *thread, uint64_t *object, EmulatorSite site);
bool emulator_mbarrier_test_wait(const EmulatorThread *thread, uint64_t *object, int32_t parity, EmulatorSite site);
void emulator_mbarrier_wait(const EmulatorThread *thread, uint64_t *object, int32_t parity, EmulatorSite site);
void emulator_fence_mbarrier_init(const EmulatorThread *thread, EmulatorSite site);
void emulator_mbarrier_arrive_expect_tx(const EmulatorThread *thread, uint64_t *object, int32_t bytes, EmulatorSite site);
bool emulator_mbarrier_try_wait(const EmulatorThread *thread, uint64_t *object, int32_t parity, EmulatorSite site);
void emulator_mbarrier_wait_tx(const EmulatorThread *thread, uint64_t *object, int32_t parity, EmulatorSite site);
// `map`: the 16 words of emulator::TensorMap::encode; `at`: column, row, head, batch.
void emulator_tma_prefetch_map(const EmulatorThread *thread, const uint64_t *map, EmulatorSite site);
void emulator_tma_load(const EmulatorThread *thread, void *smem_box, const uint64_t *map, uint64_t *object, const int32_t *at,
                       EmulatorSite site);
void emulator_tma_store(const EmulatorThread *thread, const uint64_t *map, const void *smem_box, const int32_t *at,
                        EmulatorSite site);
void emulator_tma_store_commit(const EmulatorThread *thread, EmulatorSite site);
void emulator_tma_store_wait_read(const EmulatorThread *thread, uint32_t newest_groups, EmulatorSite site);
void emulator_fence_proxy_async(const EmulatorThread *thread, EmulatorSite site);

// `smem` and `object` are translated to the same places in block `rank`.
void emulator_store_async(const EmulatorThread *thread, uint32_t rank, void *smem, const void *value, uint64_t *object,
                          EmulatorSite site);
void emulator_mbarrier_wait_cluster(const EmulatorThread *thread, uint64_t *object, int32_t parity, EmulatorSite site);

// For the traced build. The first may be called from an EmulatorExecute; false: unmapped memory, don't touch it. The second
// is a plain access at a known place, the third one of the function that called the owner of `frame` (a __tsan_* function).
// `write`: bit 0: a write; bit 1: may be made in pieces, so any address is aligned.
bool emulator_matrix_access(const EmulatorMatrixAccess *access);
void emulator_access_at(const EmulatorThread *thread, const void *address, uint64_t bytes, uint32_t write, EmulatorSite site);
void emulator_access(const EmulatorThread *thread, const void *address, uint64_t bytes, uint32_t write,
                     const EmulatorFrame *frame);
// On the thread's own stack, near bytes that wgmma holds.
void emulator_held_access(const EmulatorThread *thread, const void *address, uint64_t bytes, uint32_t write,
                          const EmulatorFrame *frame);

// Element `index` of an array that has no such element.
void emulator_no_element(const EmulatorThread *thread, const char *array, int64_t index, EmulatorSite site);

// A value of a query row that a kernel shows by ATTN_OBSERVE.
struct EmulatorObserved {
    uint32_t what;   // attn::Seen
    int32_t row[3];  // batch, head, query row
    int32_t tile;    // its first key
    int32_t index;   // key, counted from there, or output column
    int32_t element; // of the array that is shown
    float value;
};

// For the traced build: whether anyone watches, and a value for those who do.
bool emulator_observes(const EmulatorThread *thread);
void emulator_observe(const EmulatorThread *thread, const EmulatorObserved *observed, EmulatorSite site);
// A step of the algorithm (attn::Step), with its argument.
void emulator_step(const EmulatorThread *thread, uint32_t what, int32_t value, EmulatorSite site);

// Read by the __tsan_* functions before they call the scheduler.
struct EmulatorTrace {
    uint64_t active;      // 0: this OS thread does not trace, or a warp-wide operation is being executed
    uint64_t stack_start; // the running CUDA thread's own stack: local memory, of no interest
    uint64_t stack_bytes;
    uint64_t exps;        // exponentials computed; only the shim counts them
    uint64_t held_start;  // within the stack: from the first to the last byte that wgmma holds
    uint64_t held_bytes;
};

// The number of the calls that lead to its caller.
uint32_t emulator_here();
uint32_t emulator_calls(const EmulatorFrame *frame);

// Of the calling OS thread; that of a block without a cluster.
unsigned char *emulator_shared_memory();

// Defined in runtime.cc. The initial-exec model makes an access one load; it holds in executables, which is where kernels
// run.
extern __thread const EmulatorThread *emulator_current __attribute__((tls_model("initial-exec")));
extern __thread EmulatorTrace emulator_trace_state __attribute__((tls_model("initial-exec")));
}

// Of the largest block (227 KiB on sm_90), and a guard behind it to detect overruns.
#define EMULATOR_SHARED_BYTES 232448
#define EMULATOR_GUARD_BYTES 4096
