//! Compiles the test kernels as a stage's kernel is compiled, once plain and once traced; and those
//! of `gpu.cu` for GPUs, too, where nvcc is found.

use std::path::{Path, PathBuf};

/// Returns the kernels that a source declares.
fn declared(source: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(source).unwrap();
    let mut kernels = Vec::new();
    for line in text.lines() {
        if let Some((called, arguments)) = line.split_once('(')
            && MACROS.contains(&called)
            && let Some((name, _)) = arguments.split_once([',', ')'])
        {
            kernels.push(name.to_owned());
        }
    }
    kernels
}

/// Returns the sources for the emulator, in order.
fn emulator_sources() -> Vec<PathBuf> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir("cu").unwrap() {
        let path = entry.unwrap().path();
        let is_source = path.extension().is_some_and(|extension| extension == "cu");
        if is_source && !path.ends_with("gpu.cu") {
            sources.push(path);
        }
    }
    sources.sort();
    sources
}

/// The macros that make a kernel of their first argument.
const MACROS: [&str; 6] = [
    "KERNEL",
    "BOUNDED_KERNEL",
    "CLUSTER_KERNEL",
    "MMA",
    "LDMATRIX",
    "MULTIPLY",
];

const DEVICE_HEADERS: &str = "../../cuda";

/// The kernel that `cu/reference.cu` includes.
const REFERENCE: &str = "../../src/reference/attend.cu";

/// The schedules that `cu/schedule.cu` and `cu/served_schedule.cu` include.
const SCHEDULES: [&str; 2] = [
    "../../../stage13-persistent/schedule.cuh",
    "../../../stage14-served/schedule.cuh",
];

fn main() {
    kernel_build::test_kernels("cu/gpu.cu");
    let sources = emulator_sources();
    let kernels: Vec<String> = sources.iter().flat_map(|path| declared(path)).collect();
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    let list = out_dir.join("kernels.rs");
    std::fs::write(list, format!("kernels! {{ {} }}\n", kernels.join(" "))).unwrap();
    let shim = Path::new("../include");
    let watched = ["build.rs", "cu", "../include", DEVICE_HEADERS, REFERENCE];
    for input in watched.into_iter().chain(SCHEDULES) {
        println!("cargo:rerun-if-changed={input}");
    }
    // Lines for hazards.
    let traced = [&kernel_build::TRACED_FLAGS[..], &["-g1"]].concat();
    for (library, level, flags) in [
        ("emulator_kernels", 2, &[][..]),
        ("emulator_kernels_traced", 1, &traced[..]),
    ] {
        let mut build = kernel_build::host_build();
        build
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
        // Device code rounds every operation; `#pragma unroll` and `.cu` mean nothing to a host
        // compiler.
        build
            .flag("-ffp-contract=off")
            .flag("-Wno-unknown-pragmas")
            .flag("-x")
            .flag("c++");
        for flag in flags {
            build.flag(flag);
        }
        let objects = build.files(&sources).compile_intermediates();
        let gathered = out_dir.join(format!("{library}.o"));
        kernel_build::gather(&build.get_compiler(), &objects, &gathered).unwrap();
        kernel_build::host_build()
            .object(&gathered)
            .compile(library);
    }
}
