//! Stage 8: copies, products and exponentials at the same time. A warpgroup that only loads gives
//! its registers to those that compute, and the output of one tile is under way while the
//! exponentials of the next are computed. Two families share all code but the maximum: `overlap`
//! waits for that of each tile, `overlap-lazy` takes exponentials under those of earlier tiles.

use common::claim::{self, Base, Claim, Relation, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::stage::{Artifacts, Attention, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Overlap;

/// The same products one after the other.
const WGMMA: Base = Base {
    stage: "stage7-wgmma",
    family: "wgmma",
};
/// The same kernel with the exact maximum of every tile.
const EXACT: Base = Base {
    stage: "stage8-overlap",
    family: "overlap",
};

/// The problem on which the source documents ask for 40 % of the tensor pipe.
const BIG_FULL: &[Where] = &[Where::new("big", Dtype::F16, Mask::Full)];

const INFO: StageInfo = StageInfo {
    id: "stage8-overlap",
    idea: "a loading warpgroup, products under exponentials, lazy maxima",
    predecessor: Some("stage7-wgmma"),
    role: Role::Rung,
    default_variant: "overlap-lazy-256x64",
    claims: &[
        Claim::faster_on("overlap-lazy", WGMMA, &Where::f16("big"), 1.04),
        Claim::faster_on("overlap-lazy", WGMMA, &Where::f16("big_wide"), 1.08),
        Claim::faster_on("overlap-lazy", EXACT, &Where::f16("big"), 1.05),
        Claim::faster_on("overlap-lazy", WGMMA, &Where::bf16("big"), 1.04),
        Claim::faster_on("overlap-lazy", WGMMA, &Where::bf16("big_wide"), 1.08),
        Claim::over_peers("overlap-lazy", &Where::bf16("long"), 1.0),
        Claim::over_peers("overlap-lazy", &Where::bf16("big"), 1.0),
        Claim::over_peers("overlap-lazy", &Where::f16("stretch"), 1.0),
        Claim::over_peers("overlap-lazy", &Where::f16("long"), 1.0),
        Claim::over_peers("overlap-lazy", &Where::f16("big"), 1.0),
        Claim::over_peers("overlap-lazy", &Where::f16("big_wide"), 1.0),
        Claim {
            family: "overlap-lazy",
            metrics: &[Metric::Shuffles],
            relation: Relation::Ratio {
                base: EXACT,
                at_least: 0.0,
                at_most: 0.75,
            },
            problems: claim::F16,
            why: "only the first tile and those on the diagonal look for their maxima",
        },
        Claim {
            problems: claim::F16,
            ..Claim::none(
                "overlap",
                &[Metric::AsyncCopyBytes],
                "Q, K and V all come by TMA",
            )
        },
        Claim {
            family: "overlap-lazy-256x64",
            metrics: &[Metric::TensorPipeActive],
            relation: Relation::AtLeast { bound: 0.4 },
            problems: BIG_FULL,
            why: "the grid fills the GPU, and products run under exponentials",
        },
        Claim {
            problems: claim::F16,
            ..Claim::by_descriptor("overlap")
        },
        Claim {
            problems: claim::F16,
            ..Claim::by_descriptor("overlap-lazy")
        },
    ],
    redundant: &[],
};

impl Attention for Overlap {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
