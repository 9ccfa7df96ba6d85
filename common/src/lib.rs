//! What every stage shares on the host: problems, inputs, references, gates, timing, records and the two backends.

pub mod problem;
pub mod verdict;
