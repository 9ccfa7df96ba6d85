//! Compiles the test kernels as a stage's kernel is compiled, once plain and once traced; and those of `gpu.cu` for GPUs,
//! too, where nvcc is found.

use std::path::{Path, PathBuf};

/// The kernels that a source declares.
fn declared(source: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(source).unwrap();
    let name = |line: &str| {
        let (called, rest) = line.split_once('(')?;
        let (name, _) = rest.split_once([',', ')'])?;
        MACROS.contains(&called).then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// Which make a kernel of their first argument.
const MACROS: [&str; 6] = [
    "KERNEL",
    "BOUNDED_KERNEL",
    "CLUSTER_KERNEL",
    "MMA",
    "LDMATRIX",
    "MULTIPLY",
];

const DEVICE_HEADERS: &str = "../../cuda";

/// Included by `cu/reference.cu`.
const REFERENCE: &str = "../../src/reference/attend.cu";

fn main() {
    kernel_build::test_kernels("cu/gpu.cu");
    let sources = std::fs::read_dir("cu").unwrap();
    let mut sources: Vec<PathBuf> = sources.map(|entry| entry.unwrap().path()).collect();
    sources
        .retain(|path| path.extension().is_some_and(|it| it == "cu") && !path.ends_with("gpu.cu"));
    sources.sort();
    let kernels: Vec<String> = sources.iter().flat_map(|path| declared(path)).collect();
    let list = Path::new(&std::env::var_os("OUT_DIR").unwrap()).join("kernels.rs");
    std::fs::write(list, format!("kernels! {{ {} }}\n", kernels.join(" "))).unwrap();
    let shim = Path::new("../include");
    for input in ["build.rs", "cu", "../include", DEVICE_HEADERS, REFERENCE] {
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
        // Device code rounds every operation; `#pragma unroll` and `.cu` mean nothing to a host compiler.
        build
            .flag("-ffp-contract=off")
            .flag("-Wno-unknown-pragmas")
            .flag("-x")
            .flag("c++");
        flags.iter().for_each(|flag| _ = build.flag(flag));
        build.files(&sources).compile(library);
    }
}
