//! Runs every stage through the same gates.
fn main() {}
