//! What the tests of the program share.

pub mod git;
