//! The tests that every stage runs, see `stage-tests`, and beside them this stage's own: one
//! program, so that the emulator and the kernels are linked once.

#[path = "stage/largest_scale.rs"]
mod largest_scale;
#[path = "stage/largest_values.rs"]
mod largest_values;
#[path = "stage/mixed_scale.rs"]
mod mixed_scale;
#[path = "stage/rounded_parts.rs"]
mod rounded_parts;

stage_tests::tests!(stage9_cluster::Cluster);
