//! Stage 2: P·V in pairs of FP16 values and of floats. See README.md.

use common::claim::{self, Base, Claim, Relation};
use common::metric::Metric;
use common::stage::{Artifacts, Attention, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct SimdPv;

/// The same kernel with single values.
const CPASYNC: Base = Base {
    stage: "stage1-cpasync",
    family: "cpasync",
};

const INFO: StageInfo = StageInfo {
    id: "stage2-simd-pv",
    idea: "P·V in half2 and float2, 8x4 outputs a lane",
    predecessor: Some("stage1-cpasync"),
    role: Role::Rung,
    default_variant: "simd-pv-32x64",
    claims: &[
        Claim::faster("simd-pv", CPASYNC, 1.1),
        Claim {
            family: "simd-pv",
            metrics: &[Metric::SharedReadRequests],
            relation: Relation::Ratio {
                base: CPASYNC,
                at_least: 0.35,
                at_most: 0.65,
            },
            problems: claim::BOTH,
            why: "P·V takes 9 loads for 32 products a lane instead of 10 for 16, and is most of \
                  the loads",
        },
        Claim {
            family: "simd-pv",
            metrics: &[
                Metric::GlobalReadBytes,
                Metric::AsyncCopyBytes,
                Metric::TensorMacs,
                Metric::Exps,
                Metric::BlockBarriers,
            ],
            relation: Relation::equal_to(CPASYNC),
            problems: claim::BOTH,
            why: "nothing but P·V changes",
        },
        Claim::none(
            "simd-pv",
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

impl Attention for SimdPv {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
