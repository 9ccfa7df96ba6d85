//! Stage 2: P·V in pairs of halves and floats. See README.md.

use common::evidence::{EvidenceClaim, Quantity, Relation};
use common::problem::Dtype;
use common::stage::{Artifacts, Attention, Base, Claim, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct SimdPv;

/// The same kernel with single values.
const CPASYNC: Base = Base { stage: "stage1-cpasync", family: "cpasync" };

const INFO: StageInfo = StageInfo {
    id: "stage2-simd-pv",
    idea: "P·V in half2 and float2, 8x4 outputs a lane",
    predecessor: Some("stage1-cpasync"),
    default_variant: "simd-pv-32x64",
    claims: &[Claim { family: "simd-pv", base: CPASYNC, at_least: 1.1 }],
    peer_claims: &[],
    evidence: &[
        EvidenceClaim {
            family: "simd-pv",
            quantities: &[Quantity::SharedReadRequests],
            relation: Relation::Ratio { base: CPASYNC, at_least: 0.35, at_most: 0.65 },
            dtypes: &Dtype::ALL,
            why: "P·V takes 9 loads for 32 products a lane instead of 10 for 16, and is most of the loads",
        },
        EvidenceClaim {
            family: "simd-pv",
            quantities: &[
                Quantity::GlobalReadBytes,
                Quantity::AsyncCopyBytes,
                Quantity::TensorMacs,
                Quantity::Exps,
                Quantity::BlockBarriers,
            ],
            relation: Relation::equal_to(CPASYNC),
            dtypes: &Dtype::ALL,
            why: "nothing but P·V changes",
        },
        EvidenceClaim {
            family: "simd-pv",
            quantities: &[Quantity::SharedReadConflicts, Quantity::SharedWriteConflicts, Quantity::AsyncWriteConflicts],
            relation: Relation::AtMost { bound: 0.0 },
            dtypes: &Dtype::ALL,
            why: "rows end in padding, so that no access of a warp meets a bank twice",
        },
    ],
    redundant: &[],
};

impl Attention for SimdPv {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
