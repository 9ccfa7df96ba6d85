//! The tests that every stage runs, see `stage-tests`, and beside them this stage's own: one
//! program, so that the emulator and the kernels are linked once.

#[path = "stage/merge.rs"]
mod merge;
#[path = "stage/packed_rows.rs"]
mod packed_rows;

stage_tests::tests!(stage12_decode::Decode);
