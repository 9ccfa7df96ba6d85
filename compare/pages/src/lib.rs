//! The pages that people read: each is composed here from the answers of [`results::judge`], as
//! blocks for every format.

#![forbid(unsafe_code)]

mod blocks;
pub mod candidate;
mod cells;
mod columns;
pub mod counted;
pub mod diff;
pub mod explain;
pub mod files;
mod generated;
pub mod json;
pub mod ladder;
pub mod metrics;
pub mod names;
mod pictures;
pub mod report;
pub mod self_test;
pub mod shared;
pub mod show;
pub mod summary;
pub mod timeline;
mod words;

#[cfg(test)]
mod tests;
