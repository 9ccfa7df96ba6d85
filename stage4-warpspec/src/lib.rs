//! Stage 4: warps with roles. Producer warps copy K and V into a ring, consumer warps compute as in
//! stage 3; they meet at mbarriers, one that says full and one that says empty for each slot of the
//! ring.

use common::claim::{self, Base, Claim, Relation};
use common::metric::Metric;
use common::stage::{Artifacts, Attention, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct WarpSpec;

/// The same computation by warps that all copy.
const WMMA_PV: Base = Base {
    stage: "stage3-wmma-pv",
    family: "wmma-pv",
};

const INFO: StageInfo = StageInfo {
    id: "stage4-warpspec",
    idea: "producer warps stream K/V, consumer warps compute",
    predecessor: Some("stage3-wmma-pv"),
    role: Role::Rung,
    default_variant: "warpspec-32x128-k2",
    claims: &[
        Claim::faster("warpspec", WMMA_PV, 1.1),
        Claim {
            family: "warpspec",
            metrics: &[Metric::TensorMacs],
            relation: Relation::equal_to(WMMA_PV),
            problems: claim::BOTH,
            why: "the same products are computed, by other warps",
        },
        Claim {
            family: "warpspec",
            metrics: &[Metric::GlobalReadBytes],
            relation: Relation::equal_to(WMMA_PV),
            problems: claim::F16,
            why: "the same tiles are read, by other warps",
        },
        Claim {
            family: "warpspec",
            metrics: &[Metric::GlobalReadBytes],
            relation: Relation::Ratio {
                base: WMMA_PV,
                at_least: 1.0,
                at_most: 1.01,
            },
            problems: claim::E4M3,
            why: "the same tiles are read, by other warps; the producers read the scales too",
        },
        Claim {
            family: "warpspec",
            metrics: &[Metric::BlockBarriers],
            // 128 blocks.
            relation: Relation::AtMost { bound: 128.0 },
            problems: claim::BOTH,
            why: "one barrier a block, before the roles part; nobody waits for the slowest warp of \
                  a tile",
        },
        Claim {
            family: "warpspec",
            metrics: &[Metric::BarrierStallShare],
            relation: Relation::Ratio {
                base: WMMA_PV,
                at_least: 0.0,
                at_most: 0.8,
            },
            // `compare profile` launches f16 unless it is asked for more.
            problems: claim::F16,
            why: "consumers wait for tiles that have not arrived, not for each other",
        },
        Claim::none(
            "warpspec",
            &[Metric::SharedReadConflicts, Metric::AsyncWriteConflicts],
            "rows end in padding, so that no access of a warp meets a bank twice that it reads or \
             copies",
        ),
        Claim {
            family: "warpspec",
            metrics: &[Metric::SharedWriteConflictShare],
            relation: Relation::AtMost { bound: 0.46 },
            problems: claim::BOTH,
            why: "stores of an accumulator, whose lanes hold pairs of rows, meet each bank twice; \
                  no padding spares them and the reads both, and reads are more",
        },
        Claim::none(
            "warpspec",
            &[Metric::LoopLdgsts],
            "the warps that compute copy nothing",
        ),
    ],
    redundant: &[],
};

impl Attention for WarpSpec {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
