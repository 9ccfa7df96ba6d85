//! `sanitizer.json`: what compute-sanitizer found (gate C7).

use crate::verdict::GateResult;
use serde::{Deserialize, Serialize};

/// What `compare sanitize` adds to a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sanitizer {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// The tool and its version: `compute-sanitizer 2025.4.0.0`.
    pub tool: String,
    /// The GPU.
    pub gpu: String,
    /// The problems, each launched once per variant and tool: `1x1x17x128 f16 causal`.
    pub problems: Vec<String>,
    /// What it does not see.
    pub blind_spots: Vec<String>,
    /// One entry per variant and tool.
    pub checks: Vec<SanitizerCheck>,
}

/// One variant under one tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SanitizerCheck {
    /// The stage.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// The stage's identity when it was launched.
    pub identity: String,
    /// `memcheck`, `racecheck`, `initcheck` or `synccheck`.
    pub tool: String,
    /// Launches that ended.
    pub launches: usize,
    /// Gate C7.
    pub result: GateResult,
}
