//! Everything that measures, and the rows that it appends.

pub mod count;
pub mod estimate;
pub mod execute;
pub mod input;
pub mod limits;
pub mod machine;
pub mod machine_code;
pub mod plan;
pub mod select;
pub mod self_test;
pub mod session;
pub mod sink;
pub mod summary;
pub mod timed_problem;
pub mod timer;
