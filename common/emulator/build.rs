//! Compiles the thread-local storage that kernels and scheduler share: `cpp/runtime.cc`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cpp/runtime.cc");
    println!("cargo:rerun-if-changed=include/emulator/abi.h");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .include("include")
        .file("cpp/runtime.cc")
        .warnings(true)
        .extra_warnings(true)
        .compile("emulator_runtime");
}
