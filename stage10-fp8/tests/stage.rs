//! The tests that every stage runs, see `stage-tests`, and beside them this stage's own: one
//! program, so that the emulator and the kernels are linked once.

#[path = "stage/largest_scale.rs"]
mod largest_scale;
#[path = "stage/mixed_scale.rs"]
mod mixed_scale;
#[path = "stage/warpgroups.rs"]
mod warpgroups;

stage_tests::tests!(stage10_fp8::Fp8);
