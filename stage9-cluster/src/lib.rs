//! Stage 9: keys split over a cluster. Two blocks on two multiprocessors share 64 query rows: each
//! takes every second tile of keys, and they exchange halves of their outputs through distributed
//! shared memory. For grids that do not fill the GPU. E4M3 is multiplied as it lands, as in stage
//! 10, and log-sum-exps of it are Unsupported.

use common::claim::{Base, Claim, Rival, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::stage::{Artifacts, Attention, Redundant, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Cluster;

/// The fastest before it where a grid does not fill the GPU: keys split over the warps of one
/// block.
const TMA: Base = Base {
    stage: "stage6-tma",
    family: "tma",
};

const INFO: StageInfo = StageInfo {
    id: "stage9-cluster",
    idea: "keys split over a cluster, halves of O exchanged",
    predecessor: Some("stage7-wgmma"),
    role: Role::Branch {
        purpose: "small grids",
        problem: Where::new("mission", Dtype::F16, Mask::Full),
    },
    default_variant: "cluster-64x256",
    claims: &[
        Claim::faster_on("cluster", TMA, &Where::f16("mission"), 1.03),
        Claim::faster_on("cluster", TMA, &Where::e4m3("mission"), 1.2),
        Claim::over(
            "cluster",
            Rival::FastestPyTorch,
            &Where::f16("mission"),
            2.0,
        ),
        Claim::over(
            "cluster",
            Rival::FastestPyTorch,
            &Where::f16("mission_b2"),
            2.0,
        ),
        Claim::over_peers("cluster", &Where::f16("mission"), 1.0),
        Claim::over_peers("cluster", &Where::e4m3("mission"), 1.0),
        Claim::over_peers("cluster", &Where::bf16("mission"), 1.0),
        Claim::none(
            "cluster",
            &[Metric::AsyncCopyBytes],
            "Q, K and V all come by TMA",
        ),
        Claim::none(
            "cluster",
            &[Metric::LoopHmma, Metric::LoopLdsm],
            "every product is a warpgroup's, which reads its tiles by descriptor",
        ),
    ],
    redundant: &[Redundant {
        family: "cluster",
        site: "who arrived at the cluster barrier waits there",
        reason: "the barrier does without threads that have exited, but nothing says that it does \
                 after they arrived",
    }],
};

impl Attention for Cluster {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
