//! Compiles the kernel of references for GPUs, where nvcc is found.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    kernel_build::test_kernels("src/reference/attend.cu");
}
