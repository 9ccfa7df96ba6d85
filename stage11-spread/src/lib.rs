//! Stage 11: a copy of stage8-overlap.

use common::stage::{Artifacts, Attention, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Spread;

const INFO: StageInfo = StageInfo {
    id: "stage11-spread",
    idea: "a copy of stage8-overlap",
    predecessor: Some("stage8-overlap"),
    default_variant: "spread-256x64",
    claims: &[],
    redundant: &[],
};

impl Attention for Spread {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
