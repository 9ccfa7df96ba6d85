//! What is known: rows by key, and the sessions that measured them. `measure` appends rows to a run, `accept` merges runs into the
//! committed tables; `judge` and `pages` read them.

mod columns;
pub mod digest;
mod draws;
pub mod error;
pub mod files;
pub mod kernels;
pub mod merge;
pub mod names;
pub mod ncu;
pub mod row;
pub mod run;
pub mod session;

pub use error::StoreError;
pub use merge::{Results, Table};
pub use row::{CORRECT_MODEL, Figure, Judged, Key, Place, ProblemPlace, Row, Source, Subject};
pub use run::Run;
pub use session::{Claim, Negative, Relation, Role, Session, StageMeta, VariantMeta};

#[cfg(test)]
mod tests;
