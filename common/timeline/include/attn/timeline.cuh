// The third flavour of these headers: each wrapper also notes when it ran. `compare timeline` compiles a kernel with this folder
// before common/cuda on the include path, so that a header here hides the one of its name there, takes it in by #include_next with
// its functions renamed (`plain_` before their names), and defines them again with a note around. Kernels stay as they are, and
// compute the same bits.
//
// The first lane of each warp of one block notes. What it keeps while the kernel runs lies in two registers that the entry declares
// (ATTN_TIMELINE_BODY) and the text of the asm names, so that wrappers, which are inlined, share them without a parameter. Where the
// next note goes counts up to LIMIT, where all other threads start: they note nothing, by predicate and not by branch.
//
// Many instructions of one kind that follow each other (exponentials, mma.sync, cp.async) are one note, a run: it begins before the
// first of them and ends where the next note begins, or at close().
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <float.h>
#include <mma.h>
#include <stdint.h>
#include <type_traits>

// Notes of a warp. One of 16 bytes has begin and end on the clock of the multiprocessor (its low half), the wrapper with the line of
// its call in the upper three bytes, and an argument. Note i of warp w is the (32 * i + w)th.
#define ATTN_TIMELINE_NOTES 4096
#define ATTN_TIMELINE_WARPS 32

extern "C" {
// The block that is noted: x + gridDim.x * (y + gridDim.y * z).
__device__ unsigned int attn_timeline_block;
__device__ uint4 attn_timeline_notes[ATTN_TIMELINE_NOTES * ATTN_TIMELINE_WARPS];
}

namespace attn {
namespace timeline {

// What was called. The argument of a note is in brackets; where none is named it is 0.
enum What : uint32_t {
    ENTERED = 1,         // the entry began [nanoseconds, low half]
    LEFT,                // and ended [nanoseconds, low half]
    CP_ASYNC,            // a run of cp.async
    TMA_LOAD,            // [address of the barrier]
    STORE_ASYNC,         // a run of st.async to another block
    ARRIVE,              // [address of the barrier]
    ARRIVE_AFTER_COPIES, // [address of the barrier]
    ARRIVE_EXPECT_TX,    // [address of the barrier]
    NAMED_ARRIVE,        // [number of the barrier]
    CLUSTER_ARRIVE,
    MBARRIER_WAIT,      // [address of the barrier]
    NAMED_SYNC,         // [number of the barrier]; 0 is __syncthreads
    CLUSTER_WAIT,       //
    CP_ASYNC_WAIT,      // [groups that may be in flight]
    PRODUCT_WAIT,       // [groups that may be in flight]
    STORE_WAIT,         // [groups that may be in flight]
    REGISTER_WAIT,      // [registers]
    WARP_PRODUCT,       // a run of mma.sync or wmma
    WARPGROUP_PRODUCT,  // a run of wgmma
    PRODUCT_COMMIT,     // ends a group
    EXPONENTIAL,        // a run of ex2
    SHARED_STORE,       // a run of stmatrix
    TMA_STORE,
};

constexpr uint32_t LIMIT = ATTN_TIMELINE_NOTES * ATTN_TIMELINE_WARPS * 16;

static __device__ __forceinline__ uint32_t code(What what, int line) {
    return static_cast<uint32_t>(what) | static_cast<uint32_t>(line) << 8;
}

static __device__ __forceinline__ uint64_t notes() { return __cvta_generic_to_global(attn_timeline_notes); }

// Begins a note, now: it has an end once finish() has been called.
static __device__ __forceinline__ void start(What what, int line, uint32_t argument) {
    asm volatile("{\n.reg .pred there;\n.reg .u64 to;\n.reg .u32 now;\n"
                 "setp.lt.u32 there, attn_timeline_next, %0;\n"
                 "cvt.u64.u32 to, attn_timeline_next;\n"
                 "add.u64 to, to, %1;\n"
                 "mov.u32 now, %%clock;\n"
                 "@there st.global.v4.u32 [to], {now, 0, %2, %3};\n}" ::"n"(LIMIT),
                 "l"(notes()), "r"(code(what, line)), "r"(argument));
}

// Ends the note that was begun last, now.
static __device__ __forceinline__ void finish() {
    asm volatile("{\n.reg .pred there;\n.reg .u64 to;\n.reg .u32 now;\n"
                 "mov.u32 now, %%clock;\n"
                 "setp.lt.u32 there, attn_timeline_next, %0;\n"
                 "cvt.u64.u32 to, attn_timeline_next;\n"
                 "add.u64 to, to, %1;\n"
                 "@there st.global.u32 [to+4], now;\n"
                 "@there add.u32 attn_timeline_next, attn_timeline_next, %2;\n}" ::"n"(LIMIT),
                 "l"(notes()), "n"(ATTN_TIMELINE_WARPS * 16));
}

// Ends the run, if there is one.
static __device__ __forceinline__ void close() {
    asm volatile("{\n.reg .pred none, there;\n.reg .u64 to;\n.reg .u32 now, next;\n"
                 "setp.eq.u32 none, attn_timeline_run, 0;\n"
                 "selp.u32 next, %0, attn_timeline_next, none;\n"
                 "setp.lt.u32 there, next, %0;\n"
                 "cvt.u64.u32 to, attn_timeline_next;\n"
                 "add.u64 to, to, %1;\n"
                 "mov.u32 now, 0;\n"
                 "@there mov.u32 now, %%clock;\n"
                 "@there st.global.u32 [to+4], now;\n"
                 "@there add.u32 attn_timeline_next, attn_timeline_next, %2;\n"
                 "mov.u32 attn_timeline_run, 0;\n}" ::"n"(LIMIT),
                 "l"(notes()), "n"(ATTN_TIMELINE_WARPS * 16));
}

// Before an instruction of a run: begins one, and ends another's. Within unrolled code ptxas finds out that a run goes on, and
// nothing is left of this.
template <What WHAT>
static __device__ __forceinline__ void run(int line) {
    asm volatile("{\n.reg .pred same, none, there;\n.reg .u64 to;\n.reg .u32 now, next;\n"
                 "setp.eq.u32 same, attn_timeline_run, %0;\n"
                 "setp.eq.u32 none, attn_timeline_run, 0;\n"
                 // Ends another's.
                 "selp.u32 next, %1, attn_timeline_next, same;\n"
                 "selp.u32 next, %1, next, none;\n"
                 "setp.lt.u32 there, next, %1;\n"
                 "cvt.u64.u32 to, attn_timeline_next;\n"
                 "add.u64 to, to, %2;\n"
                 "mov.u32 now, 0;\n"
                 "@there mov.u32 now, %%clock;\n"
                 "@there st.global.u32 [to+4], now;\n"
                 "@there add.u32 attn_timeline_next, attn_timeline_next, %3;\n"
                 // Begins one.
                 "selp.u32 next, %1, attn_timeline_next, same;\n"
                 "setp.lt.u32 there, next, %1;\n"
                 "cvt.u64.u32 to, attn_timeline_next;\n"
                 "add.u64 to, to, %2;\n"
                 "mov.u32 now, 0;\n"
                 "@there mov.u32 now, %%clock;\n"
                 "@there st.global.v4.u32 [to], {now, 0, %4, 0};\n"
                 "mov.u32 attn_timeline_run, %0;\n}" ::"n"(static_cast<uint32_t>(WHAT)),
                 "n"(LIMIT), "l"(notes()), "n"(ATTN_TIMELINE_WARPS * 16), "r"(code(WHAT, line)));
}

// Before what is a note of its own: ends a run, and begins it.
static __device__ __forceinline__ void begin(What what, int line, uint32_t argument = 0) {
    close();
    start(what, line, argument);
}

// Notes what takes no time worth measuring, and ends a run.
static __device__ __forceinline__ void mark(What what, int line, uint32_t argument = 0) {
    close();
    asm volatile("{\n.reg .pred there;\n.reg .u64 to;\n.reg .u32 now;\n"
                 "setp.lt.u32 there, attn_timeline_next, %0;\n"
                 "cvt.u64.u32 to, attn_timeline_next;\n"
                 "add.u64 to, to, %1;\n"
                 "mov.u32 now, %%clock;\n"
                 "@there st.global.v4.u32 [to], {now, now, %2, %3};\n"
                 "@there add.u32 attn_timeline_next, attn_timeline_next, %4;\n}" ::"n"(LIMIT),
                 "l"(notes()), "r"(code(what, line)), "r"(argument), "n"(ATTN_TIMELINE_WARPS * 16));
}

static __device__ __forceinline__ uint32_t nanoseconds() {
    uint32_t low;
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(low));
    return low;
}

// The entry's own notes. `next`: where this thread's first note goes.
static __device__ __forceinline__ uint32_t first_note() {
    const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const bool is_noted = threadIdx.x % 32 == 0 && block == attn_timeline_block;
    return is_noted ? threadIdx.x / 32 * 16 : LIMIT;
}
static __device__ __forceinline__ void entered() { mark(ENTERED, 0, nanoseconds()); }
static __device__ __forceinline__ void left() { mark(LEFT, 0, nanoseconds()); }

// __syncthreads().
static __device__ __forceinline__ void sync_threads(int line) {
    begin(NAMED_SYNC, line);
    __syncthreads();
    finish();
}

// Whether an entry has a body: all, or the one that the build asks for by ATTN_TIMELINE_ENTRY.
static __host__ __device__ constexpr bool is_wanted(const char *entry, const char *wanted) {
    while (*entry && *entry == *wanted) ++entry, ++wanted;
    return *entry == *wanted;
}

} // namespace timeline
} // namespace attn

#define ATTN_TIMELINE_TEXT_(...) #__VA_ARGS__
#define ATTN_TIMELINE_TEXT(...) ATTN_TIMELINE_TEXT_(__VA_ARGS__)
#ifdef ATTN_TIMELINE_ENTRY
#define ATTN_TIMELINE_WANTS(symbol) ::attn::timeline::is_wanted(ATTN_TIMELINE_TEXT(symbol), ATTN_TIMELINE_TEXT(ATTN_TIMELINE_ENTRY))
#else
#define ATTN_TIMELINE_WANTS(symbol) true
#endif

// The body of an entry: declares the registers, for the whole of it, and calls the kernel.
#define ATTN_TIMELINE_BODY(symbol, ...)                                                                                \
    if constexpr (ATTN_TIMELINE_WANTS(symbol)) {                                                                       \
        asm volatile(".reg .u32 attn_timeline_next, attn_timeline_run;\n"                                              \
                     "mov.u32 attn_timeline_next, %0;\n"                                                               \
                     "mov.u32 attn_timeline_run, 0;" ::"r"(::attn::timeline::first_note()));                                                 \
        ::attn::timeline::entered();                                                                                   \
        __VA_ARGS__;                                                                                                   \
        ::attn::timeline::left();                                                                                      \
    }

namespace nvcuda {
namespace wmma {

template <class D, class A, class B, class C>
static __device__ __forceinline__ void noted_mma_sync(D &d, const A &a, const B &b, const C &c, int line = __builtin_LINE()) {
    attn::timeline::run<attn::timeline::WARP_PRODUCT>(line);
    mma_sync(d, a, b, c);
}

} // namespace wmma
} // namespace nvcuda

#define mma_sync noted_mma_sync
#define __syncthreads() ::attn::timeline::sync_threads(__LINE__)
