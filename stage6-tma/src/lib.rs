//! Stage 6: whole tiles by TMA, whose bytes mbarriers count; products as in stage 5.

use common::claim::{self, Base, Claim, Relation, Where};
use common::metric::Metric;
use common::stage::{Artifacts, Attention, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Tma;

/// The control of the whole ladder.
const WMMA_QK: Base = Base {
    stage: "stage0-scalar",
    family: "wmma-qk",
};
/// The same products, with tiles that all threads copy by cp.async.
const SWIZZLE: Base = Base {
    stage: "stage5-swizzle",
    family: "swizzle",
};

const INFO: StageInfo = StageInfo {
    id: "stage6-tma",
    idea: "tiles by TMA descriptors, mbarriers that count bytes",
    predecessor: Some("stage5-swizzle"),
    role: Role::Rung,
    default_variant: "tma-32x256-k4",
    claims: &[
        Claim::faster("tma", WMMA_QK, 2.0),
        Claim::faster("tma", SWIZZLE, 1.10),
        Claim::faster_on("tma", SWIZZLE, &Where::f16("long"), 0.98),
        Claim::faster_on("tma", SWIZZLE, &Where::f16("big"), 0.98),
        Claim::none(
            "tma",
            &[Metric::AsyncCopyBytes],
            "Q, K and V all come by TMA",
        ),
        Claim {
            family: "tma",
            metrics: &[Metric::TmaReadShare],
            relation: Relation::AtLeast { bound: 1.0 },
            problems: claim::F16,
            why: "Q, K and V all come by TMA",
        },
        Claim {
            family: "tma",
            metrics: &[Metric::TmaReadShare],
            relation: Relation::AtLeast { bound: 0.95 },
            problems: claim::E4M3,
            why: "Q, K and V all come by TMA, and the scales, which every thread reads, by loads",
        },
        Claim {
            family: "tma",
            metrics: &[Metric::TensorMacs, Metric::Exps, Metric::GlobalReadBytes],
            relation: Relation::equal_to(SWIZZLE),
            problems: claim::BOTH,
            why: "the same arithmetic on the same tiles",
        },
        Claim::none(
            "tma",
            &[Metric::SharedReadConflicts],
            "TMA swizzles the boxes as stage 5 does its rows",
        ),
        Claim::none(
            "tma",
            &[Metric::LoopLdgsts, Metric::LoopLds, Metric::LoopSts],
            "tiles come by descriptor, and fragments by ldmatrix alone",
        ),
    ],
    redundant: &[],
};

impl Attention for Tma {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
