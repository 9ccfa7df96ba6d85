//! Stage 10: scores of E4M3 on FP8 tensor cores. Q and K are multiplied as they land, and V alone
//! is converted to FP16. For E4M3 alone: problems of other element types are Unsupported.

use common::claim::{self, Base, Claim, Relation, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::stage::{Artifacts, Attention, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Fp8;

/// The same overlap with codes of Q and K converted to FP16, too.
const OVERLAP: Base = Base {
    stage: "stage8-overlap",
    family: "overlap-lazy",
};

const INFO: StageInfo = StageInfo {
    id: "stage10-fp8",
    idea: "scores of E4M3 on FP8 tensor cores, V alone converted",
    predecessor: Some("stage8-overlap"),
    role: Role::Branch {
        purpose: "FP8",
        problem: Where::new("big", Dtype::E4m3, Mask::Full),
    },
    default_variant: "fp8-scores-256x64",
    claims: &[
        Claim::faster_on("fp8-scores", OVERLAP, &Where::e4m3("big"), 1.1),
        Claim::faster_on("fp8-scores", OVERLAP, &Where::e4m3("big_wide"), 1.5),
        Claim::over_peers("fp8-scores", &Where::e4m3("long"), 1.0),
        Claim::over_peers("fp8-scores", &Where::e4m3("big"), 1.0),
        Claim::over_peers("fp8-scores", &Where::e4m3("big_wide"), 1.0),
        Claim {
            family: "fp8-scores",
            metrics: &[Metric::SharedWriteBytes],
            relation: Relation::Ratio {
                base: OVERLAP,
                at_least: 0.0,
                at_most: 0.6,
            },
            problems: claim::E4M3,
            why: "V alone is converted, and neither K nor Q",
        },
        Claim {
            problems: claim::E4M3,
            ..Claim::by_descriptor("fp8-scores")
        },
    ],
    redundant: &[],
};

impl Attention for Fp8 {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
