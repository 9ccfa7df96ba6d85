//! Stage 3: P·V on tensor cores by WMMA. See README.md.

use common::claim::{self, Base, Claim, Relation};
use common::metric::Metric;
use common::stage::{Artifacts, Attention, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct WmmaPv;

/// The same kernel with P·V by FMA.
const SIMD_PV: Base = Base {
    stage: "stage2-simd-pv",
    family: "simd-pv",
};

const INFO: StageInfo = StageInfo {
    id: "stage3-wmma-pv",
    idea: "P·V on tensor cores, O rescaled by row",
    predecessor: Some("stage2-simd-pv"),
    role: Role::Rung,
    default_variant: "wmma-pv-32x128-k2",
    claims: &[
        Claim::faster("wmma-pv", SIMD_PV, 1.2),
        Claim {
            family: "wmma-pv",
            metrics: &[Metric::TensorMacs],
            relation: Relation::times(2.0, SIMD_PV),
            problems: claim::BOTH,
            why: "both products run on tensor cores, and they are of one size",
        },
        Claim {
            family: "wmma-pv",
            metrics: &[
                Metric::GlobalReadBytes,
                Metric::AsyncCopyBytes,
                Metric::Exps,
                Metric::BlockBarriers,
            ],
            relation: Relation::equal_to(SIMD_PV),
            problems: claim::BOTH,
            why: "nothing but P·V changes",
        },
        Claim::none(
            "wmma-pv",
            &[Metric::SharedReadConflicts, Metric::AsyncWriteConflicts],
            "rows end in padding, so that no access of a warp meets a bank twice that it reads or \
             copies",
        ),
        Claim {
            family: "wmma-pv",
            metrics: &[Metric::SharedWriteConflictShare],
            relation: Relation::AtMost { bound: 0.46 },
            problems: claim::BOTH,
            why: "stores of an accumulator, whose lanes hold pairs of rows, meet each bank twice; \
                  no padding spares them and the reads both, and reads are more",
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
