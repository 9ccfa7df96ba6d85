//! Compiles what kernels and scheduler share: thread-local storage (`cpp/runtime.cc`) and the hooks
//! of the traced build (`cpp/trace.cc`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed=include/emulator/abi.h");
    kernel_build::host_build()
        .std("c++17")
        .opt_level(2)
        // A hook's frame must live as long as the scheduler reads it.
        .flag("-fno-optimize-sibling-calls")
        .include("include")
        .file("cpp/runtime.cc")
        .file("cpp/trace.cc")
        .warnings(true)
        .extra_warnings(true)
        .compile("emulator_runtime");
}
