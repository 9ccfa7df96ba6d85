//! The commands, one file each. None imports another: what two of them share lies beside this
//! folder.

pub mod accept;
pub mod candidate;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod fuzz;
pub mod launch;
pub mod peers;
pub mod profile;
pub mod render;
pub mod run;
pub mod sanitize;
pub mod selftest;
pub mod show;
pub mod sources;
