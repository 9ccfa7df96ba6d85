// What nvcc gives a kernel without an #include. Force-included (`-include emulator/prelude.h`) in front of every kernel, so
// that kernel.cu is the same text for both compilers.
//
// All code lives in an inline namespace named after the build flavour (EMULATOR_BUILD), so that a kernel built twice with
// other flags keeps two sets of inline functions in one binary. The traced build (EMULATOR_TRACED, and `-fsanitize=thread`
// without its library) reports every access to the scheduler.
#pragma once

#ifdef EMULATOR_TRACED
#define EMULATOR_BUILD traced
#endif

#ifndef EMULATOR_BUILD
#define EMULATOR_BUILD plain
#endif

// Host headers first: a kernel may be included inside a namespace, and they must not see the macros below.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <emulator/abi.h>

#define EMULATOR_BEGIN inline namespace EMULATOR_BUILD {
#define EMULATOR_END }

// For what runs on behalf of a whole warp while accesses are not reported: checking at each of them would only cost time.
#define EMULATOR_UNTRACED __attribute__((no_sanitize("thread")))

// Kernels share functions, which takes g++ a third of the time of inlining all of them, and kernels run as fast. The emulator learns who
// called a function from its frame.
#define __forceinline__ inline

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// Only the one dynamic buffer can be declared, as `extern __shared__`: a static array could be neither poisoned nor bounded,
// and does not compile.
#define __shared__ __thread

#include <emulator/vector_types.h>
#include <emulator/thread.h>
#include <emulator/warp.h>
#include <emulator/math.h>
#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>
#include <attn/ptx/barrier.cuh>
#include <attn/ptx/cp_async.cuh>
#include <attn/ptx/ldmatrix.cuh>
#include <attn/ptx/mbarrier.cuh>
#include <attn/ptx/mbarrier_tx.cuh>
#include <attn/ptx/mma.cuh>
#include <attn/ptx/setmaxnreg.cuh>
#include <attn/ptx/stmatrix.cuh>
#include <attn/ptx/wgmma.cuh>
// <attn/ptx/tma.cuh> is not here: it needs a device header that only some kernels include.
#include <emulator/bulk.h> // last: it shadows memcpy and memset
