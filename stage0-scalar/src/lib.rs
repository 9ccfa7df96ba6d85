//! Stage 0, the control of the ladder: tiled online softmax with scalar P·V, in two families. `scalar` computes Q·Kᵀ by
//! FMA, `wmma-qk` on tensor cores; everything else is the same code.

use common::stage::{Artifacts, Attention, Base, Claim, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Scalar;

const INFO: StageInfo = StageInfo {
    id: "stage0-scalar",
    idea: "tiled online softmax, scalar P·V",
    predecessor: None,
    default_variant: "wmma-qk-32x64",
    claims: &[Claim { family: "wmma-qk", base: Base { stage: "stage0-scalar", family: "scalar" }, at_least: 1.5 }],
};

impl Attention for Scalar {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
