//! Stage 13: keys split over the warpgroups of a block, which have the same 64 query rows. All
//! tiles are requested at once; in the end each warpgroup owns a share of the columns, and they
//! exchange their parts through shared memory. For grids that give each multiprocessor one block.

use common::claim::{Base, Claim, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::stage::{Artifacts, Attention, Redundant, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Shares;

/// Keys split over the blocks of a cluster, of one warpgroup each.
const CLUSTER: Base = Base {
    stage: "stage9-cluster",
    family: "cluster",
};

const INFO: StageInfo = StageInfo {
    id: "stage13-shares",
    idea: "keys split over the warpgroups of a block, all tiles requested at once",
    predecessor: Some("stage9-cluster"),
    role: Role::Branch {
        purpose: "small grids",
        on: Where::new("mission_b2", Dtype::F16, Mask::Full),
    },
    default_variant: "shares-64x512",
    claims: &[
        Claim::faster_on("shares", CLUSTER, &Where::f16("mission_b2"), 1.1),
        Claim::faster_on("shares", CLUSTER, &Where::bf16("mission_b2"), 1.1),
        Claim::over_peers("shares", &Where::f16("mission_b2"), 1.7),
        Claim::none(
            "shares",
            &[Metric::AsyncCopyBytes],
            "Q, K and V all come by TMA",
        ),
        Claim::none(
            "shares",
            &[Metric::LoopHmma, Metric::LoopLdsm],
            "every product is a warpgroup's, which reads its tiles by descriptor",
        ),
    ],
    redundant: &[Redundant {
        family: "shares",
        site: "as for K and V",
        reason: "racecheck (C7) needs it: where warps have come to different numbers of named \
                 barriers, it takes the block's for none",
    }],
};

impl Attention for Shares {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
