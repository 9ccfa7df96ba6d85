//! `profile.json`: what ncu read of single launches, and what the evidence claims are worth on the GPU.

use super::EvidenceResult;
use crate::problem::{Dtype, Mask, Shape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What `compare profile` adds to a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// The profiler and its version: `ncu 2025.3.1.0`.
    pub tool: String,
    /// How it was run, in words.
    pub method: String,
    /// The GPU.
    pub gpu: String,
    /// One entry per launch.
    pub launches: Vec<Profiled>,
    /// The evidence claims whose quantity ncu measures.
    pub claims: Vec<EvidenceResult>,
}

/// One launch under the profiler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profiled {
    /// The stage.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// The stage's identity when it was launched.
    pub identity: String,
    /// Element type.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
    /// The shape's name, or its extents.
    pub shape_name: String,
    /// Its extents.
    pub shape: Shape,
    /// ncu's metrics by their full names, in base units: bytes, nanoseconds, percent, counts. One that ncu has no value
    /// for is not there.
    pub metrics: BTreeMap<String, f64>,
}
