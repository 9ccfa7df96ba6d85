//! Stage 1: K and V copied by cp.async, one tile ahead. See README.md.

use common::claim::{self, Base, Claim, Relation};
use common::metric::Metric;
use common::stage::{Artifacts, Attention, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct CpAsync;

/// The control, which copies through registers.
const WMMA_QK: Base = Base {
    stage: "stage0-scalar",
    family: "wmma-qk",
};

const INFO: StageInfo = StageInfo {
    id: "stage1-cpasync",
    idea: "K and V copied by cp.async, one tile ahead",
    predecessor: Some("stage0-scalar"),
    role: Role::Rung,
    default_variant: "cpasync-32x64",
    claims: &[
        Claim::faster("cpasync", WMMA_QK, 1.1),
        Claim {
            family: "cpasync",
            metrics: &[Metric::GlobalReadBytes, Metric::TensorMacs, Metric::Exps],
            relation: Relation::equal_to(WMMA_QK),
            problems: claim::BOTH,
            why: "the same tiles are read, only earlier, and the same sums computed",
        },
        Claim {
            family: "cpasync",
            metrics: &[Metric::SharedReadBytes],
            relation: Relation::equal_to(WMMA_QK),
            problems: claim::F16,
            why: "what arrives is what is read",
        },
        Claim {
            family: "cpasync",
            metrics: &[Metric::SharedReadBytes],
            relation: Relation::Ratio {
                base: WMMA_QK,
                at_least: 1.0,
                at_most: 1.03,
            },
            problems: claim::E4M3,
            why: "codes that have arrived are read once, to be converted",
        },
        // Q alone: 8 heads x 512 rows x 64 elements.
        Claim {
            family: "cpasync",
            metrics: &[Metric::PlainReadBytes],
            relation: Relation::AtMost { bound: 524_288.0 },
            problems: claim::F16,
            why: "K and V come by cp.async, only Q through registers",
        },
        // Half of that, and the scales, which every thread of up to 256 reads.
        Claim {
            family: "cpasync",
            metrics: &[Metric::PlainReadBytes],
            relation: Relation::AtMost { bound: 655_360.0 },
            problems: claim::E4M3,
            why: "K and V come by cp.async, only Q through registers",
        },
        Claim::none(
            "cpasync",
            &[
                Metric::SharedReadConflicts,
                Metric::SharedWriteConflicts,
                Metric::AsyncWriteConflicts,
            ],
            "rows end in padding, so that no access of a warp meets a bank twice",
        ),
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
