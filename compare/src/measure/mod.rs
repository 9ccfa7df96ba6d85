//! Everything that measures, and the rows that it appends.

pub mod builds;
pub mod count;
mod distinction;
pub mod execute;
pub mod join;
pub mod measured;
pub mod plan;
pub mod rows;
pub mod summary;
pub mod timed_problem;
