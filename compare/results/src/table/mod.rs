//! What is known: rows by key, and the sessions that measured them.
//!
//! `measure` appends rows to a run, `accept` merges runs into the committed tables; `judge` and
//! `pages` read them.

mod columns;
pub mod digest;
mod draws;
pub mod error;
mod figure;
pub mod files;
pub mod kernels;
mod kind;
pub mod measured;
pub mod merge;
pub mod names;
pub mod ncu;
pub mod results;
pub mod row;
pub mod run;
pub mod session;
mod subject;

pub use error::StoreError;
pub use figure::Figure;
pub use kind::{CORRECT_MODEL, CasePlace, Instance, Kind, Place, ProblemPlace, Source};
pub use merge::{Compiled, Table};
pub use results::Results;
pub use row::{Judged, Key, Row};
pub use run::Run;
pub use session::{Claim, Negative, Relation, Role, Session, StageMeta, VariantMeta};
pub use subject::Subject;

#[cfg(test)]
mod tests;
