//! Stage 3: P·V on tensor cores by WMMA. See README.md.

use common::evidence::{EvidenceClaim, Quantity, Relation};
use common::problem::Dtype;
use common::stage::{Artifacts, Attention, Base, Claim, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct WmmaPv;

/// The same kernel with P·V by FMA.
const SIMD_PV: Base = Base { stage: "stage2-simd-pv", family: "simd-pv" };

const INFO: StageInfo = StageInfo {
    id: "stage3-wmma-pv",
    idea: "P·V on tensor cores, O rescaled by row",
    predecessor: Some("stage2-simd-pv"),
    default_variant: "wmma-pv-32x128-k2",
    claims: &[Claim { family: "wmma-pv", base: SIMD_PV, at_least: 1.2 }],
    peer_claims: &[],
    evidence: &[
        EvidenceClaim {
            family: "wmma-pv",
            quantities: &[Quantity::TensorMacs],
            relation: Relation::times(2.0, SIMD_PV),
            dtypes: &Dtype::ALL,
            why: "both products run on tensor cores, and they are of one size",
        },
        EvidenceClaim {
            family: "wmma-pv",
            quantities: &[Quantity::GlobalReadBytes, Quantity::AsyncCopyBytes, Quantity::Exps, Quantity::BlockBarriers],
            relation: Relation::equal_to(SIMD_PV),
            dtypes: &Dtype::ALL,
            why: "nothing but P·V changes",
        },
        EvidenceClaim {
            family: "wmma-pv",
            quantities: &[Quantity::SharedReadConflicts, Quantity::AsyncWriteConflicts],
            relation: Relation::AtMost { bound: 0.0 },
            dtypes: &Dtype::ALL,
            why: "rows end in padding, so that no access of a warp meets a bank twice that it reads or copies",
        },
        EvidenceClaim {
            family: "wmma-pv",
            quantities: &[Quantity::SharedWriteConflictShare],
            relation: Relation::AtMost { bound: 0.46 },
            dtypes: &Dtype::ALL,
            why: "stores of an accumulator, whose lanes hold pairs of rows, meet each bank twice; no padding spares them and the \
                  reads both, and reads are more",
        },
    ],
    redundant: &[],
};

impl Attention for WmmaPv {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
