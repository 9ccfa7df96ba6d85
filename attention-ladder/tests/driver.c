// A CUDA driver of two H100s that do nothing: what a launch asks of it, and in which context. Tests
// load it as libcuda.so, call driver_make_context, driver_make_stream and driver_destroy, and read
// driver_log and driver_grid. Its GPU memory is the host's.
//
// Like the driver's own: a kernel of a library belongs to no context and is launched in that of its
// stream, on a default stream in the current one; a function belongs to the context that it was
// asked for in; tensor maps are encoded only where a context is current.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, NO_BINARY = 209, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, IS_DESTROYED = 709 };
enum { CONTEXTS = 64, DEPTH = 16, DEVICES = 2 };

typedef struct Context {
    char name[32];
    int device;
    int is_green;
    int is_destroyed;
} Context;
typedef struct Stream {
    Context *context;
} Stream;
// A kernel of a library has no context.
typedef struct Function {
    char name[160];
    Context *context;
} Function;

static Context contexts[CONTEXTS];
static Context *primaries[DEVICES];
static Stream streams[CONTEXTS];
static Function functions[1024];
static unsigned grid[3];
static int context_count, stream_count, function_count, failing_launches, is_capturing;
static __thread Context *stack[DEPTH];
static __thread int depth;
static __thread int capture_mode;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char text[1 << 20];

static void note(const char *what, const char *subject, const char *context) {
    pthread_mutex_lock(&lock);
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%s%s%s%s\n", what, *subject ? " " : "", subject, context ? " in " : "", context ? context : "");
    pthread_mutex_unlock(&lock);
}

static Context *current(void) {
    return depth ? stack[depth - 1] : NULL;
}

static const char *name_of(const Context *context) {
    return context ? context->name : "no context";
}

static Context *make_context(const char *name, int device, int is_green) {
    pthread_mutex_lock(&lock);
    Context *context = &contexts[context_count++];
    pthread_mutex_unlock(&lock);
    snprintf(context->name, sizeof context->name, "%s", name);
    context->device = device;
    context->is_green = is_green;
    return context;
}

static Function *make_function(const char *name, Context *context) {
    pthread_mutex_lock(&lock);
    Function *function = &functions[function_count++];
    pthread_mutex_unlock(&lock);
    snprintf(function->name, sizeof function->name, "%s", name);
    function->context = context;
    return function;
}

static Context *primary(int device) {
    char name[32];
    snprintf(name, sizeof name, "primary %d", device);
    if (!primaries[device]) primaries[device] = make_context(name, device, 0);
    return primaries[device];
}

// For tests.
void *driver_primary(int device) {
    return primary(device);
}
void *driver_make_context(const char *name, int device, int is_green) {
    return make_context(name, device, is_green);
}
void *driver_make_stream(Context *context) {
    Stream *stream = &streams[stream_count++];
    stream->context = context;
    return stream;
}
void driver_destroy(Context *context) {
    context->is_destroyed = 1;
}
void driver_fail_launches(int count) {
    failing_launches = count;
}
void driver_capture(int is_on) {
    is_capturing = is_on;
}
// The blocks of the last launch.
const unsigned *driver_grid(void) {
    return grid;
}
// The contexts of this thread, the current one last.
const char *driver_stack(void) {
    static __thread char names[512];
    names[0] = 0;
    for (int i = 0; i < depth; i++) {
        if (i) strcat(names, ", ");
        strcat(names, stack[i]->name);
    }
    return names;
}
// What was called since the last time.
const char *driver_log(void) {
    static char taken[sizeof text];
    pthread_mutex_lock(&lock);
    strcpy(taken, text);
    text[0] = 0;
    pthread_mutex_unlock(&lock);
    return taken;
}

int cuInit(unsigned flags) {
    return flags ? INVALID_VALUE : OK;
}
int cuDriverGetVersion(int *version) {
    *version = 13000;
    return OK;
}
int cuDeviceGetCount(int *count) {
    *count = DEVICES;
    return OK;
}
int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return OK;
}
int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    snprintf(name, (size_t)length, "NVIDIA H100 80GB HBM3");
    return OK;
}
int cuDeviceGetUuid_v2(char *uuid, int device) {
    memset(uuid, device, 16);
    return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 16: *value = 132; break;       // MULTIPROCESSOR_COUNT
    case 38: *value = 50 << 20; break;  // L2_CACHE_SIZE
    case 75: *value = 9; break;         // COMPUTE_CAPABILITY_MAJOR
    case 76: *value = 0; break;         // COMPUTE_CAPABILITY_MINOR
    case 97: *value = 232448; break;    // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    default: *value = 0;
    }
    return OK;
}
int cuGetErrorName(int error, const char **name) {
    *name = error == IS_DESTROYED ? "CUDA_ERROR_CONTEXT_IS_DESTROYED" : "CUDA_ERROR";
    return OK;
}
int cuGetErrorString(int error, const char **name) {
    return cuGetErrorName(error, name);
}

int cuDevicePrimaryCtxRetain(Context **context, int device) {
    *context = primary(device);
    note("retain", (*context)->name, NULL);
    return OK;
}
int cuCtxGetCurrent(Context **context) {
    *context = current();
    return OK;
}
int cuCtxGetDevice(int *device) {
    if (!current()) return INVALID_CONTEXT;
    if (current()->is_destroyed) return IS_DESTROYED;
    *device = current()->device;
    return OK;
}
int cuCtxPushCurrent_v2(Context *context) {
    note("push", name_of(context), NULL);
    if (!context || context->is_destroyed || depth == DEPTH) return INVALID_CONTEXT;
    stack[depth++] = context;
    return OK;
}
int cuCtxPopCurrent_v2(Context **context) {
    if (!depth) return INVALID_CONTEXT;
    *context = stack[--depth];
    note("pop", (*context)->name, NULL);
    return OK;
}
int cuCtxSetCurrent(Context *context) {
    note("set", name_of(context), NULL);
    if (depth) depth--;
    if (context) stack[depth++] = context;
    return OK;
}
int cuStreamGetCtx_v2(Stream *stream, Context **context, Context **green) {
    Context *of = (uintptr_t)stream <= 2 ? current() : stream->context;
    note("ask for a stream's context", "", NULL);
    if (!of) return INVALID_CONTEXT;
    *green = of->is_green ? of : NULL;
    *context = of->is_green ? primary(of->device) : of;
    return OK;
}

int cuStreamIsCapturing(Stream *stream, int *status) {
    (void)stream;
    *status = is_capturing;
    return OK;
}
int cuStreamSynchronize(Stream *stream) {
    (void)stream;
    note("wait for a stream", "", NULL);
    return OK;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *stream) {
    (void)stream;
    if (!current()) return INVALID_CONTEXT;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    note("copy to the host", "", NULL);
    return OK;
}
int cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    note("capture mode", capture_mode == 2 ? "relaxed" : "as before", NULL);
    return OK;
}
int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    note("load a library", "", NULL);
    if (memcmp(code, "code", 4)) return NO_BINARY;
    *library = text;
    return OK;
}
int cuLibraryGetKernel(Function **kernel, void *library, const char *name) {
    (void)library;
    *kernel = make_function(name, NULL);
    note("take a kernel", "", NULL);
    return OK;
}
int cuKernelSetAttribute(int attribute, int value, Function *kernel, int device) {
    if (kernel->context || attribute != 8 || value <= 0) return INVALID_VALUE; // MAX_DYNAMIC_SHARED_SIZE_BYTES
    note("allow shared memory on", primary(device)->name, NULL);
    return OK;
}
int cuKernelGetFunction(Function **function, Function *kernel) {
    if (!current()) return INVALID_CONTEXT;
    *function = make_function(kernel->name, current());
    return OK;
}
int cuFuncLoad(Function *function) {
    if (!current() || function->context != current()) return INVALID_CONTEXT;
    note("load", "", current()->name);
    return OK;
}
// Of a context, as the library's kernels are not.
int cuModuleLoadData(void **module, const void *code) {
    (void)code;
    if (!current()) return INVALID_CONTEXT;
    *module = current();
    return OK;
}
int cuModuleGetFunction(Function **function, Context *module, const char *name) {
    *function = make_function(name, module);
    return OK;
}
int cuFuncSetAttribute(Function *function, int attribute, int value) {
    (void)function, (void)attribute, (void)value;
    return OK;
}

int cuTensorMapEncodeTiled(uint64_t *map, int a, unsigned b, void *c, void *d, void *e, void *f, void *g, int h, int i, int j, int k) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j, (void)k;
    if (!current()) return INVALID_CONTEXT;
    memset(map, 0, 128);
    return OK;
}
int cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Stream *stream, void **arguments, void **extra) {
    (void)bx, (void)by, (void)bz, (void)shared, (void)arguments, (void)extra;
    Context *of = (uintptr_t)stream <= 2 ? current() : stream->context;
    if (!current()) return INVALID_CONTEXT;
    if (function->context && function->context != of) return INVALID_HANDLE;
    if (failing_launches) {
        failing_launches--;
        return INVALID_VALUE;
    }
    grid[0] = gx, grid[1] = gy, grid[2] = gz;
    note("launch", "", of->name);
    return OK;
}
