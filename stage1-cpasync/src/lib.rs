//! Stage 1: K and V copied by cp.async, one tile ahead. See README.md.

use common::evidence::{EvidenceClaim, Quantity, Relation};
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
            quantities: &[Quantity::GlobalReadBytes, Quantity::TensorMacs, Quantity::Exps, Quantity::SharedReadBytes],
            relation: Relation::equal_to(WMMA_QK),
            why: "the same tiles are read, only earlier, and the same sums computed",
        },
        EvidenceClaim {
            family: "cpasync",
            quantities: &[Quantity::PlainReadBytes],
            // Q alone: 8 heads x 512 rows x 64 halves.
            relation: Relation::AtMost { bound: 524_288.0 },
            why: "K and V come by cp.async, only Q through registers",
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
