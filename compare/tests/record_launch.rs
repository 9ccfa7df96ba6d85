//! `examples/record_launch.cpp`: a program that is linked with it instead of the CUDA runtime writes
//! the launch file of its kernel, and `compare hazards` judges the kernel by it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Scales a matrix that TMA brings, by a factor in a structure. Two numbers are there twice: as
/// bytes and in memory.
const PROGRAM: &str = r#"
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <vector>

struct Arguments {
    CUtensorMap map;
    float *to;
    const float *factors;
    float scale;
};

__global__ void scaled(const __grid_constant__ Arguments arguments, int rows) {
    __shared__ alignas(1024) __half box[8 * 64];
    __shared__ alignas(8) unsigned long long full;
    unsigned object = __cvta_generic_to_shared(&full), shared = __cvta_generic_to_shared(box);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(object));
        asm volatile("fence.proxy.async.shared::cta;");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" ::"r"(object));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
                     ::"r"(shared), "l"(&arguments.map), "r"(0), "r"(object) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra again; }" ::"r"(object) : "memory");
    if (threadIdx.x < rows) {
        // Column 0 stands in the chunk that the row's number gives.
        float first = __half2float(box[threadIdx.x * 64 + threadIdx.x * 8]);
        arguments.to[threadIdx.x] = first * arguments.factors[1] * arguments.scale;
    }
}

int main() {
    std::vector<__half> matrix(8 * 64, __float2half(3));
    float factors[] = {5, 7}, *device_factors;
    __half *device;
    Arguments arguments{};
    cudaMalloc(&device, matrix.size() * sizeof(__half));
    cudaMalloc(&device_factors, sizeof factors);
    cudaMalloc(&arguments.to, 8 * sizeof(float));
    cudaMemcpy(device, matrix.data(), matrix.size() * sizeof(__half), cudaMemcpyHostToDevice);
    cudaMemcpy(device_factors, factors, sizeof factors, cudaMemcpyHostToDevice);
    arguments.factors = device_factors;
    arguments.scale = 2;
    cuuint64_t extents[] = {64, 8}, strides[] = {128};
    cuuint32_t box[] = {64, 8}, steps[] = {1, 1};
    cuTensorMapEncodeTiled(&arguments.map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, device, extents, strides, box, steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    scaled<<<1, 32>>>(arguments, 8);
    return cudaDeviceSynchronize();
}
"#;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Runs a command in a folder, and fails with what it has printed if it does.
fn run(command: &mut Command, folder: &Path) -> Output {
    let output = command.current_dir(folder).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    output
}

/// Builds the recorder and the program, and runs it. The folder then has `app.ptx` and
/// `launch.toml`.
fn record(nvcc: &Path, folder: &Path) {
    let include = nvcc.parent().unwrap().parent().unwrap().join("include");
    let recorder: PathBuf = folder.join("librecord_launch.so");
    let mut compiler = Command::new("g++");
    compiler
        .args(["-std=c++17", "-Wall", "-Werror", "-shared", "-fPIC", "-I"])
        .arg(include)
        .arg(root().join("examples/record_launch.cpp"))
        .arg("-o")
        .arg(&recorder);
    run(&mut compiler, folder);
    std::fs::write(folder.join("app.cu"), PROGRAM).unwrap();
    let mut build = Command::new(nvcc);
    build
        .args(["-gencode", "arch=compute_90a,code=compute_90a", "-lineinfo"])
        .args(["--keep", "-cudart", "none", "app.cu"])
        .arg(&recorder)
        .args(["-o", "app"]);
    run(&mut build, folder);
    let mut app = Command::new(folder.join("app"));
    app.env("RECORD_PTX", "app.ptx")
        .env("RECORD_TO", ".")
        .env("LD_LIBRARY_PATH", folder);
    run(&mut app, folder);
}

#[test]
fn a_recorded_launch_is_judged_and_its_output_is_right() {
    let nvcc = root().join(".cuda/nvidia/cu13/bin/nvcc");
    if !nvcc.is_file() {
        assert!(std::env::var_os("CI").is_none(), "scripts/cuda-toolkit");
        println!("not checked: scripts/cuda-toolkit installs nvcc");
        return;
    }
    let folder = TempDir::new().unwrap();
    record(&nvcc, folder.path());
    let launch = folder.path().join("launch.toml");
    let recorded = std::fs::read_to_string(&launch).unwrap();
    // The output is the third buffer; its type is not known, so that it is bytes.
    let named = recorded.split_once("name = 'buffer2'\ntype = 'u8'\nshape = [32]");
    let (before, after) = named.expect(&recorded);
    let typed = format!("{before}name = 'buffer2'\ntype = 'f32'\nshape = [8]{after}");
    let expected = "\n[[expect]]\nbuffer = 'buffer2'\nvalues = [42.0]\n";
    std::fs::write(&launch, typed + expected).unwrap();
    let mut judge = Command::new(env!("CARGO_BIN_EXE_compare"));
    judge.args([
        "hazards",
        "app.ptx",
        "--launch",
        "launch.toml",
        "--suppress",
    ]);
    let output = run(&mut judge, folder.path());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("no hazard"), "{text}");
}
