//! Stage 10: scores of E4M3 on FP8 tensor cores. Q and K are multiplied as they land, and V alone
//! is converted to FP16. For E4M3 alone: problems of other element types are Unsupported.

use common::claim::{self, Base, Claim, Relation, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::stage::{Artifacts, Attention, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Fp8;

/// The last stage of the main path with E4M3: it converts all codes to FP16, and no wgmma.
const TMA: Base = Base {
    stage: "stage6-tma",
    family: "tma",
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
        Claim::faster_on("fp8-scores", TMA, &Where::e4m3("big"), 2.15),
        Claim::faster_on("fp8-scores", TMA, &Where::e4m3("big_wide"), 3.3),
        Claim::over_peers("fp8-scores", &Where::e4m3("long"), 1.0),
        Claim::over_peers("fp8-scores", &Where::e4m3("big"), 1.0),
        Claim::over_peers("fp8-scores", &Where::e4m3("big_wide"), 1.0),
        converts_v_alone("fp8-scores-256x64", 16),
        converts_v_alone("fp8-scores-128x128", 32),
        converts_v_alone("fp8-scores-64x128", 64),
        Claim {
            problems: claim::E4M3,
            ..Claim::by_descriptor("fp8-scores")
        },
    ],
    redundant: &[],
};

/// Returns the claim that at mission a variant's `blocks` write V of a head in FP16 to shared
/// memory, each, and all of them O.
const fn converts_v_alone(variant: &'static str, blocks: usize) -> Claim {
    const V_BYTES: usize = 512 * 64 * 2;
    const O_BYTES: usize = 8 * 512 * 64 * 2;
    Claim {
        family: variant,
        metrics: &[Metric::SharedWriteBytes],
        relation: Relation::AtMost {
            bound: (blocks * V_BYTES + O_BYTES) as f64,
        },
        problems: claim::E4M3,
        why: "V alone is converted, and neither K nor Q",
    }
}

impl Attention for Fp8 {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
