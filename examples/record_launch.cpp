// Records how a program launches a kernel, without a GPU: takes the CUDA runtime's place, runs no kernel, and writes the launch file
// that `compare hazards` judges the kernel by. The program is linked with it in place of the runtime:
//
//     g++ -std=c++17 -shared -fPIC -I .cuda/nvidia/cu13/include examples/record_launch.cpp -o librecord_launch.so
//     nvcc -gencode arch=compute_90a,code=compute_90a -lineinfo --keep -cudart none app.cu librecord_launch.so -o app
//     RECORD_PTX=app.ptx RECORD_TO=recorded LD_LIBRARY_PATH=. ./app
//     cargo run -p compare -- hazards app.ptx --launch recorded/launch.toml
//
// The folder must exist. RECORD_LAUNCH=3 records the third launch in place of the first. Device memory is the host's: what the program
// copies there is what the kernel finds, and what earlier kernels would have computed is missing. Every buffer may be written; take
// `output = true` from those that may not. A function that the linker does not find is one that nobody has needed here yet.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace {

struct Buffer {
    std::string name;
    size_t bytes;
    // Whether the program has given it values.
    bool is_filled;
    // The element type of the tensor maps over it, if there are any.
    std::string type;
};

// What cuTensorMapEncodeTiled was asked for.
struct Map {
    uint64_t base;
    std::vector<uint64_t> extents, strides;
    std::vector<uint32_t> box;
    int swizzle;
};

struct Launch {
    std::string entry;
    dim3 grid, block;
    unsigned cluster;
    size_t shared_bytes;
    void **arguments;
};

struct State {
    std::map<uint64_t, Buffer> buffers;
    std::vector<Map> maps;
    std::map<const void *, std::string> entries;
    Launch configured;
    int launches;
};

State &state() {
    static State only{};
    return only;
}

// The first and the last word of an encoded map; the second is its number.
constexpr uint64_t MAP_STARTS = 0x7265636f72646d70, MAP_ENDS = 0x706d64726f636572;
constexpr size_t MAP_BYTES = sizeof(CUtensorMap), WORD = 8;

[[noreturn]] void fail(const std::string &reason) {
    std::fprintf(stderr, "record_launch: %s\n", reason.c_str());
    std::exit(2);
}

std::string setting(const char *name, const char *otherwise) {
    const char *value = std::getenv(name);
    if (value == nullptr && otherwise == nullptr) fail(std::string("set ") + name);
    return value == nullptr ? otherwise : value;
}

// The buffer that an address lies in, or null.
std::pair<const uint64_t, Buffer> *find(uint64_t address) {
    auto &buffers = state().buffers;
    auto behind = buffers.upper_bound(address);
    if (behind == buffers.begin()) return nullptr;
    auto &before = *std::prev(behind);
    return address < before.first + before.second.bytes ? &before : nullptr;
}

void fill(void *to) {
    if (auto *buffer = find(reinterpret_cast<uint64_t>(to))) buffer->second.is_filled = true;
}

// The sizes of an entry's parameters, from the text of its module.
std::vector<size_t> parameter_sizes(const std::string &entry) {
    std::ifstream file(setting("RECORD_PTX", nullptr));
    std::stringstream all;
    all << file.rdbuf();
    std::string text = all.str();
    size_t start = text.find(".entry " + entry + "(");
    if (start == std::string::npos) fail("RECORD_PTX has no entry " + entry);
    std::istringstream head(text.substr(start, text.find('{', start) - start));
    std::vector<size_t> sizes;
    for (std::string word, type; head >> word;) {
        if (word == ".param") sizes.push_back(0);
        if (sizes.empty() || sizes.back() != 0) continue;
        size_t open = word.find('[');
        if (word.rfind(".b", 0) == 0 || word.rfind(".u", 0) == 0 || word.rfind(".s", 0) == 0 || word.rfind(".f", 0) == 0) type = word;
        if (word[0] == '.' || word.find("_param_") == std::string::npos) continue;
        sizes.back() = open == std::string::npos ? std::stoul(type.substr(2)) / 8 : std::stoul(word.substr(open + 1));
    }
    return sizes;
}

template <typename T> std::string list(const std::vector<T> &values) {
    std::string text;
    for (T value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
    return "[" + text + "]";
}

std::string map_text(const Map &map) {
    auto *buffer = find(map.base);
    if (buffer == nullptr) fail("a tensor map is not over memory of cudaMalloc");
    std::ostringstream text;
    text << "map = { buffer = '" << buffer->second.name << "', offset = " << map.base - buffer->first << ", extents = " << list(map.extents)
         << ", strides = " << list(map.strides) << ", box = " << list(map.box) << ", swizzle = " << map.swizzle << " }";
    return text.str();
}

std::string hex(const uint8_t *bytes, size_t count) {
    std::string text;
    char two[3];
    for (size_t i = 0; i < count; ++i) {
        std::snprintf(two, sizeof two, "%02x", bytes[i]);
        text += two;
    }
    return "hex = '" + text + "'";
}

uint64_t word_at(const uint8_t *bytes) {
    uint64_t word;
    std::memcpy(&word, bytes, WORD);
    return word;
}

// What lies at a byte of an argument: a tensor map, an address, or other bytes.
struct Part {
    size_t bytes;
    std::string text;
};

Part part_at(const uint8_t *from, size_t left) {
    uint64_t word = left >= WORD ? word_at(from) : 0;
    if (left >= MAP_BYTES && word == MAP_STARTS && word_at(from + MAP_BYTES - WORD) == MAP_ENDS) {
        return {MAP_BYTES, map_text(state().maps[word_at(from + WORD)])};
    }
    if (auto *buffer = find(word)) {
        std::string offset = word == buffer->first ? "" : ", offset = " + std::to_string(word - buffer->first);
        return {WORD, "buffer = '" + buffer->second.name + "'" + offset};
    }
    size_t bytes = left < WORD ? left : WORD;
    return {bytes, hex(from, bytes)};
}

void write_argument(std::ostream &to, const uint8_t *from, size_t bytes) {
    to << "\n[[argument]]\nbytes = " << bytes << "\nparts = [\n";
    for (size_t at = 0; at < bytes;) {
        Part part = part_at(from + at, bytes - at);
        bool is_zero = part.text.find_first_not_of("0", sizeof("hex = '") - 1) == part.text.size() - 1;
        if (!is_zero) to << "  { at = " << at << ", " << part.text << " },\n";
        at += part.bytes;
    }
    to << "]\n";
}

void write_buffer(std::ostream &to, const std::string &folder, uint64_t start, const Buffer &buffer) {
    std::string type = buffer.type.empty() ? "u8" : buffer.type;
    size_t element = type == "u8" || type == "e4m3" ? 1 : type == "f16" || type == "bf16" ? 2 : type == "i64" ? 8 : 4;
    to << "\n[[buffer]]\nname = '" << buffer.name << "'\ntype = '" << type << "'\nshape = [" << buffer.bytes / element << "]\noutput = true\n";
    if (!buffer.is_filled) return;
    std::string file = buffer.name + ".bin";
    std::ofstream(folder + "/" + file, std::ios::binary).write(reinterpret_cast<const char *>(start), std::streamsize(buffer.bytes));
    to << "fill = 'file:" << file << "'\n";
}

// Writes the launch file, and the content of the buffers that have any.
void record(const Launch &launch) {
    if (++state().launches != std::stoi(setting("RECORD_LAUNCH", "1"))) return;
    std::string folder = setting("RECORD_TO", nullptr);
    std::ofstream to(folder + "/launch.toml");
    if (!to) fail("cannot write to the folder " + folder);
    auto extent = [](dim3 size) { return list(std::vector<unsigned>{size.x, size.y, size.z}); };
    to << "entry = '" << launch.entry << "'\ngrid = " << extent(launch.grid) << "\nblock = " << extent(launch.block)
       << "\ndynamic-shared-bytes = " << launch.shared_bytes << "\n";
    if (launch.cluster != 0) to << "cluster = " << launch.cluster << "\n";
    for (auto &[start, buffer] : state().buffers) write_buffer(to, folder, start, buffer);
    std::vector<size_t> sizes = parameter_sizes(launch.entry);
    for (size_t i = 0; i < sizes.size(); ++i) write_argument(to, static_cast<const uint8_t *>(launch.arguments[i]), sizes[i]);
}

const std::string &entry_of(const void *function) {
    auto known = state().entries.find(function);
    if (known == state().entries.end()) fail("a launch of what is no kernel of the program");
    return known->second;
}

std::string type_name(CUtensorMapDataType type) {
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return "u8";
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16: return "f16";
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return "bf16";
    case CU_TENSOR_MAP_DATA_TYPE_INT32: return "i32";
    case CU_TENSOR_MAP_DATA_TYPE_INT64: return "i64";
    default: return "f32";
    }
}

} // namespace

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap *to, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *extents,
                                const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *, CUtensorMapInterleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    constexpr int WIDTHS[] = {0, 32, 64, 128};
    Map map{reinterpret_cast<uint64_t>(base), {extents, extents + rank}, {strides, strides + rank - 1}, {box, box + rank}, WIDTHS[swizzle & 3]};
    uint64_t words[MAP_BYTES / WORD] = {MAP_STARTS, state().maps.size()};
    words[MAP_BYTES / WORD - 1] = MAP_ENDS;
    std::memcpy(to, words, MAP_BYTES);
    if (auto *buffer = find(map.base)) buffer->second.type = type_name(type);
    state().maps.push_back(map);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult *found) {
    if (std::strcmp(name, "cuTensorMapEncodeTiled") != 0) fail(std::string("the program asks the driver for ") + name);
    *function = reinterpret_cast<void *>(cuTensorMapEncodeTiled);
    if (found != nullptr) *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **to, size_t bytes) {
    constexpr size_t BOUNDARY = 1024;
    *to = std::aligned_alloc(BOUNDARY, (bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY);
    std::string name = "buffer" + std::to_string(state().buffers.size());
    state().buffers[reinterpret_cast<uint64_t>(*to)] = {name, bytes, false, ""};
    return cudaSuccess;
}

// Buffers stay: a launch may have been told of them.
cudaError_t cudaFree(void *) { return cudaSuccess; }

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    std::memmove(to, from, bytes);
    fill(to);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) { return cudaMemcpy(to, from, bytes, kind); }

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    std::memset(to, value, bytes);
    fill(to);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t) { return cudaMemset(to, value, bytes); }

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t) {
    record({entry_of(function), grid, block, 0, shared_bytes, arguments});
    return cudaSuccess;
}

// A kernel's handle is here its function's address.
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void *>(function));
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
    unsigned cluster = 0;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const cudaLaunchAttribute &attribute = config->attrs[i];
        if (attribute.id != cudaLaunchAttributeClusterDimension) continue;
        auto size = attribute.val.clusterDim;
        if (size.y != 1 || size.z != 1) fail("clusters lie along x here");
        cluster = size.x;
    }
    record({entry_of(function), config->gridDim, config->blockDim, cluster, config->dynamicSmemBytes, arguments});
    return cudaSuccess;
}

// The calls that nvcc makes of `kernel<<<…>>>(…)`, and of a program's start.
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void *) {
    state().configured = {"", grid, block, 0, shared_bytes, nullptr};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream) {
    const Launch &configured = state().configured;
    *grid = configured.grid;
    *block = configured.block;
    *shared_bytes = configured.shared_bytes;
    *static_cast<cudaStream_t *>(stream) = nullptr;
    return cudaSuccess;
}

void **__cudaRegisterFatBinary(void *) {
    static void *handle = nullptr;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
char __cudaInitModule(void **) { return 1; }
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}

void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *, dim3 *, int *) {
    state().entries[host] = name;
}

// What programs ask before a launch, answered as an H100 does.
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 232448; break;
    default: *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
    *properties = {};
    properties->major = 9;
    properties->multiProcessorCount = 132;
    properties->sharedMemPerBlockOptin = 232448;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *, int, size_t, unsigned) {
    *blocks = 1;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t) { return "an error"; }
const char *cudaGetErrorName(cudaError_t) { return "an error"; }

} // extern "C"
