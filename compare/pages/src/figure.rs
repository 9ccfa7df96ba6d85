//! The ladder and the peers as pictures, for the README.

mod charts;
mod svg;

pub use charts::{against_peers, ladder};

#[cfg(test)]
mod tests;
