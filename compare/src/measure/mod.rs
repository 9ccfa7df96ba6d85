//! Everything that measures, and the rows that it appends.

pub mod ncu;
pub mod rows;
