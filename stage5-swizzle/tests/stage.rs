//! The tests that every stage runs, see `stage-tests`, and beside them this stage's own: one
//! program, so that the emulator and the kernels are linked once.

#[path = "stage/every_dtype.rs"]
mod every_dtype;

stage_tests::tests!(stage5_swizzle::Swizzle);
