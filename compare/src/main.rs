//! scratch
#![forbid(unsafe_code)]
mod cli;
mod plan;
mod select;
#[cfg(test)]
mod testing;
fn main() {}
