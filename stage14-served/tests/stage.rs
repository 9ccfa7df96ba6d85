//! The tests that every stage runs, see `stage-tests`, and beside them this stage's own: one program, so that
//! the emulator and the kernels are linked once.

#[path = "stage/cached.rs"]
mod cached;
#[path = "stage/explained.rs"]
mod explained;
#[path = "stage/keyless.rs"]
mod keyless;
#[path = "stage/sink.rs"]
mod sink;
#[path = "stage/warpgroups.rs"]
mod warpgroups;

stage_tests::tests!(stage14_served::Served);
