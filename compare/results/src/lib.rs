//! What is known of the kernels: rows and the tables that keep them, and the questions that pages,
//! commands and exit codes ask of them. Nothing here launches a kernel, starts a process, or knows
//! a command line.

#![forbid(unsafe_code)]

pub mod builds;
pub mod judge;
pub mod table;
pub mod testing;
pub mod workspace;
