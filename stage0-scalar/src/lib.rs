//! Stage 0, the control of the ladder: tiled online softmax with scalar P·V, in two families.
//! `scalar` computes Q·Kᵀ by FMA, `wmma-qk` on tensor cores; everything else is the same code.

use common::claim::{self, Base, Claim, Relation};
use common::metric::Metric;
use common::stage::{Artifacts, Attention, Redundant, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Scalar;

/// `wmma-qk` against its control.
const SCALAR: Base = Base {
    stage: "stage0-scalar",
    family: "scalar",
};

const INFO: StageInfo = StageInfo {
    id: "stage0-scalar",
    idea: "tiled online softmax, scalar P·V",
    predecessor: None,
    role: Role::Rung,
    default_variant: "wmma-qk-32x64",
    claims: &[
        Claim::faster("wmma-qk", SCALAR, 1.5),
        Claim {
            family: "wmma-qk",
            metrics: &[Metric::TensorMacs],
            // 512 x 512 x 64 in each of 8 heads.
            relation: Relation::AtLeast {
                bound: 134_217_728.0,
            },
            problems: claim::BOTH,
            why: "all of Q·Kᵀ runs on tensor cores",
        },
        Claim {
            family: "wmma-qk",
            metrics: &[Metric::SharedReadBytes],
            relation: Relation::Ratio {
                base: SCALAR,
                at_least: 0.5,
                at_most: 0.8,
            },
            problems: claim::BOTH,
            why: "a fragment of Q or K serves a whole 8x32 tile of scores",
        },
        Claim {
            family: "wmma-qk",
            metrics: &[
                Metric::GlobalReadBytes,
                Metric::GlobalWriteBytes,
                Metric::Exps,
                Metric::BlockBarriers,
            ],
            relation: Relation::equal_to(SCALAR),
            problems: claim::BOTH,
            why: "everything but Q·Kᵀ is the same code",
        },
        Claim::none(
            "scalar",
            &[
                Metric::SharedReadConflicts,
                Metric::SharedWriteConflicts,
                Metric::AsyncWriteConflicts,
            ],
            "rows end in padding, so that no access of a warp meets a bank twice",
        ),
        Claim::none(
            "wmma-qk",
            &[
                Metric::SharedReadConflicts,
                Metric::SharedWriteConflicts,
                Metric::AsyncWriteConflicts,
            ],
            "rows end in padding, so that no access of a warp meets a bank twice",
        ),
    ],
    redundant: &[Redundant {
        family: "scalar",
        site: "Q was written by all threads",
        reason: "wmma-qk loads its fragments of Q right after it; scalar reads Q in the loop \
                 alone, behind the barriers around the first K and V",
    }],
};

impl Attention for Scalar {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
