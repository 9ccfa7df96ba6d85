//! Stage 13: blocks that stay on their multiprocessor and take one tile of rows after the other from a schedule, so that the next
//! tile's Q, K and V arrive, and the last one's O leaves, while the tensor cores work. In the family `packed` the rows of a tile
//! are those of several query heads that read the same keys.

use common::claim::{Base, Claim, Where};
use common::problem::Problem;
use common::stage::{Artifacts, Attention, Kernel, Redundant, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Persistent;

/// A block for each tile of rows.
const SPREAD: Base = Base {
    stage: "stage11-spread",
    family: "spread",
};

/// The most query heads whose rows a tile of eight warps has, 16 for each warp.
const MOST_HEADS_LOG: u32 = 3;

const INFO: StageInfo = StageInfo {
    id: "stage13-persistent",
    idea: "blocks that stay and take tiles of rows from a schedule, the next one's copies under this one's products",
    predecessor: Some("stage11-spread"),
    role: Role::Rung,
    default_variant: "persistent-128x128",
    claims: &[
        Claim::faster_on("persistent", SPREAD, &Where::f16("big_wide"), 1.02),
        Claim::over_peers("persistent", &Where::f16("big_wide"), 1.0),
        Claim::by_descriptor("persistent"),
        Claim::by_descriptor("packed"),
    ],
    redundant: &[Redundant {
        family: "packed",
        site: "const auto meet",
        reason: "warpgroups that take turns meet there; it is needed where an item is finished before tiles that none of its rows sees",
    }],
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

    /// As `item_of` in kernel.cu has them: tiles of rows, heads or the groups of heads that a tile has, and batch.
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
