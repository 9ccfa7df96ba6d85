//! Compiles the test kernels as a stage's kernel is compiled: unchanged CUDA C++ against the emulator's shim.

use std::path::Path;

fn main() {
    let shim = Path::new("../include");
    for input in ["build.rs", "cu", "../include"] {
        println!("cargo:rerun-if-changed={input}");
    }
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).warnings(true).extra_warnings(true);
    build.include(shim).include("cu").flag("-include").flag("emulator/prelude.h");
    // Device code rounds every operation; `#pragma unroll` and `.cu` mean nothing to a host compiler.
    build.flag("-ffp-contract=off").flag("-Wno-unknown-pragmas").flag("-x").flag("c++");
    for kernel in ["barrier", "builtins", "cp_async", "faults", "fp8", "half", "shared", "speed", "warp", "wmma"] {
        build.file(format!("cu/{kernel}.cu"));
    }
    build.compile("emulator_kernels");
}
