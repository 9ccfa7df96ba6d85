//! What is known: rows by key, and the sessions that measured them. `measure` appends rows to the record of a run, `accept` merges
//! records into the committed tables; `judge` and `pages` read them.

mod columns;
pub mod error;
pub mod files;
pub mod kernels;
pub mod meta;
pub mod ncu;
#[allow(
    clippy::module_inception,
    reason = "the record of one run, beside what all of them know"
)]
pub mod record;
pub mod row;
pub mod table;

pub use error::StoreError;
pub use kernels::Kernels;
pub use meta::{Claim, Meta, Negative, Relation, StageMeta, VariantMeta};
pub use record::Record;
pub use row::{CORRECT_MODEL, Figure, Judged, Key, On, Place, Row, Source, Subject};
pub use table::{Results, Table};

#[cfg(test)]
mod tests;
