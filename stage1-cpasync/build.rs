//! Compiles kernel.cu for both backends.
fn main() {
    kernel_build::stage();
}
