//! The tests that every stage runs, see `stage-tests`, and beside them this stage's own: one program, so that
//! the emulator and the kernels are linked once.

#[path = "stage/items.rs"]
mod items;
#[path = "stage/packed_rows.rs"]
mod packed_rows;
#[path = "stage/warpgroups.rs"]
mod warpgroups;

stage_tests::tests!(stage13_persistent::Persistent);
