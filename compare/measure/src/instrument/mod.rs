//! The tools that look at kernels from outside, and the processes that run under them.

pub mod child;
pub mod cuobjdump;
pub mod find;
pub mod noting;
pub mod process;
