//! Stage 1: K and V copied by cp.async, one tile ahead. See README.md.

use common::evidence::{EvidenceClaim, Quantity, Relation};
use common::problem::Dtype;
use common::stage::{Artifacts, Attention, Base, Claim, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct CpAsync;

/// The control, which copies through registers.
const WMMA_QK: Base = Base { stage: "stage0-scalar", family: "wmma-qk" };

const INFO: StageInfo = StageInfo {
    id: "stage1-cpasync",
    idea: "K and V copied by cp.async, one tile ahead",
    predecessor: Some("stage0-scalar"),
    default_variant: "cpasync-32x64",
    claims: &[Claim { family: "cpasync", base: WMMA_QK, at_least: 1.1 }],
    peer_claims: &[],
    evidence: &[
        EvidenceClaim {
            family: "cpasync",
            quantities: &[Quantity::GlobalReadBytes, Quantity::TensorMacs, Quantity::Exps],
            relation: Relation::equal_to(WMMA_QK),
            dtypes: &Dtype::ALL,
            why: "the same tiles are read, only earlier, and the same sums computed",
        },
        EvidenceClaim {
            family: "cpasync",
            quantities: &[Quantity::SharedReadBytes],
            relation: Relation::equal_to(WMMA_QK),
            dtypes: &[Dtype::F16],
            why: "what arrives is what is read",
        },
        EvidenceClaim {
            family: "cpasync",
            quantities: &[Quantity::SharedReadBytes],
            relation: Relation::Ratio { base: WMMA_QK, at_least: 1.0, at_most: 1.03 },
            dtypes: &[Dtype::E4m3],
            why: "codes that have arrived are read once, to be widened",
        },
        // Q alone: 8 heads x 512 rows x 64 elements.
        EvidenceClaim {
            family: "cpasync",
            quantities: &[Quantity::PlainReadBytes],
            relation: Relation::AtMost { bound: 524_288.0 },
            dtypes: &[Dtype::F16],
            why: "K and V come by cp.async, only Q through registers",
        },
        // Half of that, and the scales, which every thread of up to 256 reads.
        EvidenceClaim {
            family: "cpasync",
            quantities: &[Quantity::PlainReadBytes],
            relation: Relation::AtMost { bound: 655_360.0 },
            dtypes: &[Dtype::E4m3],
            why: "K and V come by cp.async, only Q through registers",
        },
        EvidenceClaim {
            family: "cpasync",
            quantities: &[Quantity::SharedReadConflicts, Quantity::SharedWriteConflicts, Quantity::AsyncWriteConflicts],
            relation: Relation::AtMost { bound: 0.0 },
            dtypes: &Dtype::ALL,
            why: "rows end in padding, so that no access of a warp meets a bank twice",
        },
    ],
    redundant: &[],
};

impl Attention for CpAsync {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
