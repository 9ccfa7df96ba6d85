//! What measures, and the rows that it appends: what is asked for (`select`, `plan`), its execution
//! (`execute`), the tools that look at kernels from outside (`instrument`), and the process with
//! PyTorch (`python`). A command of the program puts these together.

#![forbid(unsafe_code)]

pub mod count;
pub mod estimate;
pub mod execute;
pub mod input;
pub mod instrument;
pub mod interrupt;
pub mod limits;
pub mod machine;
pub mod machine_code;
pub mod plan;
pub mod python;
pub mod select;
pub mod self_test;
pub mod session;
pub mod sink;
pub mod summary;
pub mod timed_problem;
pub mod timer;

#[cfg(test)]
mod testing;
