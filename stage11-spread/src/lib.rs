//! Stage 11: what bounds head_dim 64 spread. Warpgroups with the same rows split the keys, so that
//! four of them compute on a multiprocessor that has rows for two, and FP32 arithmetic is spread
//! among the exponentials, where it does not hold up wgmma. In the family `zigzag` the rows of a
//! block lie apart, so that under the causal mask all blocks have the same work; in `packed` they
//! are those of all query heads of a key head.

use common::claim::{self, Base, Claim, Relation, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::stage::{Artifacts, Attention, Kernel, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Spread;

/// The same products, with rows alone shared out and arithmetic where ptxas puts it.
const OVERLAP: Base = Base {
    stage: "stage8-overlap",
    family: "overlap-lazy",
};

/// The same kernel, where the rows of a block are neighbours, of one head.
const NEIGHBOURS: Base = Base {
    stage: "stage11-spread",
    family: "spread",
};

const LONG_CAUSAL: &[Where] = &[Where::new("long", Dtype::F16, Mask::Causal)];
const STRETCH_CAUSAL: &[Where] = &[Where::new("stretch", Dtype::F16, Mask::Causal)];

const CHUNK_64: &[Where] = &Where::each_type("chunk_64", Mask::Causal);

/// The problem on which the source documents ask for 40 % of the tensor pipe.
const BIG_FULL: &[Where] = &[Where::new("big", Dtype::F16, Mask::Full)];

const INFO: StageInfo = StageInfo {
    id: "stage11-spread",
    idea: "keys split over warpgroups, FP32 arithmetic spread among exponentials",
    predecessor: Some("stage8-overlap"),
    role: Role::Rung,
    default_variant: "spread-256x64",
    claims: &[
        Claim::faster_on("spread", OVERLAP, &Where::f16("long"), 1.08),
        Claim::faster_on("spread", OVERLAP, &Where::bf16("long"), 1.08),
        Claim::faster_on("spread", OVERLAP, &Where::f16("big"), 1.0),
        Claim::over_peers("spread", &Where::f16("long"), 1.2),
        Claim::over_peers("spread", &Where::bf16("long"), 1.2),
        Claim::over_peers("spread", &Where::f16("big"), 1.0),
        Claim::over_peers("spread", &Where::f16("big_wide"), 0.97),
        Claim::over_peers("spread", &Where::f16("long_16k"), 1.0),
        Claim::over_peers("spread", &Where::f16("long_16k_wide"), 0.97),
        Claim {
            family: "spread",
            metrics: &[Metric::TensorMacs],
            relation: Relation::equal_to(OVERLAP),
            problems: claim::F16,
            why: "the same work, elsewhere",
        },
        Claim {
            family: "spread-256x64",
            metrics: &[Metric::TensorPipeActive],
            relation: Relation::AtLeast { bound: 0.4 },
            problems: BIG_FULL,
            why: "the grid fills the GPU, and products run under exponentials",
        },
        Claim::by_descriptor("spread"),
        Claim::faster_on("zigzag", NEIGHBOURS, LONG_CAUSAL, 1.19),
        Claim::faster_on("zigzag", NEIGHBOURS, STRETCH_CAUSAL, 1.1),
        Claim {
            family: "zigzag",
            metrics: &[Metric::TensorMacs],
            relation: Relation::equal_to(NEIGHBOURS),
            problems: claim::BOTH,
            why: "the same work, in blocks that have the same",
        },
        Claim::by_descriptor("zigzag"),
        Claim::faster_on("packed", NEIGHBOURS, CHUNK_64, 1.3),
        Claim::by_descriptor("packed"),
    ],
    redundant: &[],
};

impl Attention for Spread {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }

    fn packs_heads(&self, kernel: &Kernel) -> bool {
        kernel.family == "packed"
    }

    fn deals_rows(&self, kernel: &Kernel) -> bool {
        kernel.family == "zigzag"
    }
}
