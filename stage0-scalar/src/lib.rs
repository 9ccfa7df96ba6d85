//! Stage 0, the control of the ladder: tiled online softmax with scalar P·V, in two families. `scalar` computes Q·Kᵀ by
//! FMA, `wmma-qk` on tensor cores; everything else is the same code.

use common::evidence::{EvidenceClaim, Quantity, Relation};
use common::problem::Dtype;
use common::stage::{Artifacts, Attention, Base, Claim, Redundant, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Scalar;

/// `wmma-qk` against its control.
const SCALAR: Base = Base { stage: "stage0-scalar", family: "scalar" };

const INFO: StageInfo = StageInfo {
    id: "stage0-scalar",
    idea: "tiled online softmax, scalar P·V",
    predecessor: None,
    default_variant: "wmma-qk-32x64",
    claims: &[Claim { family: "wmma-qk", base: SCALAR, at_least: 1.5 }],
    peer_claims: &[],
    evidence: &[
        EvidenceClaim {
            family: "wmma-qk",
            quantities: &[Quantity::TensorMacs],
            // 512 x 512 x 64 in each of 8 heads.
            relation: Relation::AtLeast { bound: 134_217_728.0 },
            dtypes: &Dtype::ALL,
            why: "all of Q·Kᵀ runs on tensor cores",
        },
        EvidenceClaim {
            family: "wmma-qk",
            quantities: &[Quantity::SharedReadBytes],
            relation: Relation::Ratio { base: SCALAR, at_least: 0.5, at_most: 0.8 },
            dtypes: &Dtype::ALL,
            why: "a fragment of Q or K serves a whole 16x16 tile of scores",
        },
        EvidenceClaim {
            family: "wmma-qk",
            quantities: &[
                Quantity::GlobalReadBytes,
                Quantity::GlobalWriteBytes,
                Quantity::Exps,
                Quantity::BlockBarriers,
            ],
            relation: Relation::equal_to(SCALAR),
            dtypes: &Dtype::ALL,
            why: "everything but Q·Kᵀ is the same code",
        },
        EvidenceClaim {
            family: "scalar",
            quantities: &[Quantity::SharedReadConflicts, Quantity::SharedWriteConflicts, Quantity::AsyncWriteConflicts],
            relation: Relation::AtMost { bound: 0.0 },
            dtypes: &Dtype::ALL,
            why: "rows end in padding, so that no access of a warp meets a bank twice",
        },
        EvidenceClaim {
            family: "wmma-qk",
            quantities: &[Quantity::SharedReadConflicts, Quantity::SharedWriteConflicts, Quantity::AsyncWriteConflicts],
            relation: Relation::AtMost { bound: 0.0 },
            dtypes: &Dtype::ALL,
            why: "rows end in padding, so that no access of a warp meets a bank twice",
        },
    ],
    redundant: &[Redundant {
        family: "scalar",
        site: "Q was written by all threads",
        reason: "wmma-qk loads its fragments of Q right after it; scalar reads Q in the loop alone, behind the barriers \
                 around the first K and V",
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
