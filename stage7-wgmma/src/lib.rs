//! Stage 7: products by warpgroup. wgmma reads its operands in shared memory by descriptor; scores,
//! probabilities and output stay in registers.

use common::claim::{self, Base, Claim, Relation, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::stage::{Artifacts, Attention, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Wgmma;

/// The best of mma.sync with cp.async.
const SWIZZLE: Base = Base {
    stage: "stage5-swizzle",
    family: "swizzle",
};
const TMA: Base = Base {
    stage: "stage6-tma",
    family: "tma",
};

/// The problem on which the source documents ask for 40 % of the tensor pipe.
const BIG_FULL: &[Where] = &[Where::new("big", Dtype::F16, Mask::Full)];

const INFO: StageInfo = StageInfo {
    id: "stage7-wgmma",
    idea: "products by warpgroup, operands by descriptor, P in registers",
    predecessor: Some("stage6-tma"),
    role: Role::Rung,
    default_variant: "wgmma-128x128",
    claims: &[
        Claim::faster_on("wgmma", SWIZZLE, &Where::f16("big"), 1.25),
        Claim::faster_on("wgmma", SWIZZLE, &Where::f16("big_wide"), 1.5),
        Claim::faster_on("wgmma", TMA, &Where::f16("big"), 1.25),
        Claim {
            problems: claim::F16,
            ..Claim::none(
                "wgmma",
                &[Metric::AsyncCopyBytes],
                "Q, K and V all come by TMA",
            )
        },
        Claim {
            family: "wgmma",
            metrics: &[Metric::SharedReadBytes, Metric::SharedWriteBytes],
            relation: Relation::AtMost { bound: 0.0 },
            problems: claim::F16,
            why: "wgmma reads its operands by itself, and S, P and O never leave registers",
        },
        Claim {
            family: "wgmma",
            metrics: &[Metric::TensorMacs],
            relation: Relation::times(1.0, TMA),
            problems: claim::F16,
            why: "the same products: mission's keys are whole tiles",
        },
        Claim {
            family: "wgmma-128x128",
            metrics: &[Metric::TensorPipeActive],
            relation: Relation::AtLeast { bound: 0.4 },
            problems: BIG_FULL,
            why: "the grid fills the GPU, and a warpgroup's product is issued at once",
        },
        Claim {
            problems: claim::F16,
            ..Claim::none(
                "wgmma",
                &[Metric::LoopHmma, Metric::LoopLdsm],
                "every product is a warpgroup's, which reads its tiles by descriptor",
            )
        },
    ],
    redundant: &[],
};

impl Attention for Wgmma {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
