//! Runs every stage of the attention ladder through the same gates and writes COMPARE.md.

#![forbid(unsafe_code)]

mod builds;
mod cli;
mod comparison;
mod execute;
mod input;
mod machine;
mod plan;
mod progress;
mod registry;
mod run;
mod select;
#[cfg(test)]
mod testing;

fn main() {}
