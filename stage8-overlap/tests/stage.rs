//! The tests that every stage runs, see `stage-tests`, and beside them this stage's own: one
//! program, so that the emulator and the kernels are linked once.

#[path = "stage/suppression.rs"]
mod suppression;
#[path = "stage/warpgroups.rs"]
mod warpgroups;

stage_tests::tests!(stage8_overlap::Overlap);
