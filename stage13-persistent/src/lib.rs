//! Stage 13: blocks that stay on their multiprocessor and take one tile of rows after the other from a schedule, so that the next
//! tile's Q, K and V arrive, and the last one's O leaves, while the tensor cores work. In the family `packed` the rows of a tile
//! are those of several query heads that read the same keys.

use common::claim::{Base, Claim, Relation, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask, Problem};
use common::stage::{Artifacts, Attention, Kernel, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Persistent;

/// A block for each tile of rows.
const SPREAD: Base = Base {
    stage: "stage11-spread",
    family: "spread",
};

/// The same packed rows, with a block for each tile of rows.
const SPREAD_PACKED: Base = Base {
    stage: "stage11-spread",
    family: "packed",
};

/// Prefill and cross attention of models with 128 columns a head.
const PREFILL: &[Where] = &[
    Where::new("prompt_128", Dtype::Bf16, Mask::Causal),
    Where::new("prefill_512", Dtype::Bf16, Mask::Causal),
    Where::new("prefill_2k", Dtype::Bf16, Mask::Causal),
    Where::new("prefill_3k_g7", Dtype::Bf16, Mask::Causal),
    Where::new("chunk_2k", Dtype::Bf16, Mask::Causal),
    Where::new("cross_512", Dtype::Bf16, Mask::Full),
    Where::new("video_14k", Dtype::Bf16, Mask::Full),
];
/// Long sequences, whose heads are in several sections of the schedule.
const LONG: &[Where] = &[
    Where::new("long_16k", Dtype::F16, Mask::Causal),
    Where::new("long_16k_wide", Dtype::F16, Mask::Causal),
];
const MISSION: &[Where] = &[Where::new("mission", Dtype::F16, Mask::Full)];
const PROMPTS: &[Where] = &[Where::new("prompt_128", Dtype::Bf16, Mask::Causal)];
const CHUNK_64: &[Where] = &[Where::new("chunk_64", Dtype::Bf16, Mask::Causal)];

/// The most query heads whose rows a tile of eight warps has, 16 for each warp.
const MOST_HEADS_LOG: u32 = 3;

const INFO: StageInfo = StageInfo {
    id: "stage13-persistent",
    idea: "blocks that stay and take tiles of rows from a schedule, the next one's copies under \
           this one's products",
    predecessor: Some("stage11-spread"),
    role: Role::Rung,
    default_variant: "persistent-256x64",
    claims: &[
        Claim::faster_on("persistent", SPREAD, PREFILL, 1.0),
        Claim::faster_on("persistent", SPREAD, PROMPTS, 1.3),
        Claim::faster_on("persistent", SPREAD, &Where::f16("big_wide"), 1.02),
        Claim::faster_on("persistent", SPREAD, &Where::bf16("big_wide"), 1.02),
        Claim::faster_on("persistent", SPREAD, LONG, 1.0),
        Claim::over_peers("persistent", PREFILL, 1.0),
        Claim::over_peers("persistent", LONG, 1.0),
        Claim::over_peers("persistent", &Where::f16("big_wide"), 1.0),
        Claim::over_peers("persistent", &Where::bf16("big_wide"), 1.0),
        Claim::faster_on("packed", SPREAD_PACKED, CHUNK_64, 1.0),
        Claim {
            family: "persistent",
            metrics: &[Metric::TensorMacs],
            relation: Relation::equal_to(SPREAD),
            problems: MISSION,
            why: "the same work, by blocks that stay",
        },
    ],
    redundant: &[],
};

impl Attention for Persistent {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }

    fn is_persistent(&self, _kernel: &Kernel) -> bool {
        true
    }

    /// As `Schedule` in schedule.cuh has them: tiles of rows, heads or the groups of heads that a tile has, and batch.
    fn grid(&self, kernel: &Kernel, problem: &Problem) -> [u32; 3] {
        let shape = &problem.shape;
        let heads = if kernel.family == "packed" {
            let group = shape.heads_q / shape.heads_kv;
            1 << group.trailing_zeros().min(MOST_HEADS_LOG)
        } else {
            1
        };
        let tiles = shape.seq_q.div_ceil(kernel.block_m / heads);
        [tiles, shape.heads_q / heads, shape.batch].map(|size| size as u32)
    }
}
