//! Compiles kernel.cu for both backends; wgmma is Hopper's.
fn main() {
    kernel_build::stage_for(&["sm_90a"]);
}
