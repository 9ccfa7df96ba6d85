//! A record: what one run measured, as rows. `measure` appends rows; `judge` and `pages` read them.

pub mod error;
pub mod files;
pub mod meta;
pub mod ncu;
pub mod row;
pub mod store;

pub use error::StoreError;
pub use meta::{Claim, Meta, Negative, Refuted, Relation, StageMeta, VariantMeta};
pub use row::{CORRECT_MODEL, Figure, Judged, On, Place, Row, Source, Subject};
pub use store::Record;
