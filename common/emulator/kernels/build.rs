//! Compiles the test kernels as a stage's kernel is compiled, once plain and once traced; and those of `gpu.cu` for GPUs,
//! too, where nvcc is found.

use std::path::Path;

const KERNELS: [&str; 19] = [
    "barrier",
    "builtins",
    "cluster",
    "cp_async",
    "faults",
    "fp8",
    "half",
    "hazards",
    "mbarrier",
    "named_barrier",
    "ptx",
    "roles",
    "shared",
    "snippets",
    "tma",
    "warp",
    "wgmma",
    "wgmma_hazards",
    "wmma",
];

const DEVICE_HEADERS: &str = "../../cuda";

fn main() {
    kernel_build::test_kernels("cu/gpu.cu");
    let shim = Path::new("../include");
    for input in ["build.rs", "cu", "../include", DEVICE_HEADERS] {
        println!("cargo:rerun-if-changed={input}");
    }
    // Lines for hazards.
    let traced = [&kernel_build::TRACED_FLAGS[..], &["-g1"]].concat();
    for (library, level, flags) in [
        ("emulator_kernels", 2, &[][..]),
        ("emulator_kernels_traced", 1, &traced[..]),
    ] {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .opt_level(level)
            .warnings(true)
            .extra_warnings(true);
        build
            .include(shim)
            .include(DEVICE_HEADERS)
            .include("cu")
            .flag("-include")
            .flag("emulator/prelude.h");
        // Device code rounds every operation; `#pragma unroll` and `.cu` mean nothing to a host compiler.
        build
            .flag("-ffp-contract=off")
            .flag("-Wno-unknown-pragmas")
            .flag("-x")
            .flag("c++");
        flags.iter().for_each(|flag| _ = build.flag(flag));
        for kernel in KERNELS {
            build.file(format!("cu/{kernel}.cu"));
        }
        build.compile(library);
    }
}
