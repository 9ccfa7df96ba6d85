//! Stage 12: few queries, many keys. The query heads that read the same keys are rows of one tile, and the keys of a tile are split
//! over the blocks of a cluster, which merge their outputs through distributed shared memory.

use common::problem::Problem;
use common::stage::{Artifacts, Attention, Kernel, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Decode;

const INFO: StageInfo = StageInfo {
    id: "stage12-decode",
    idea: "query heads of a group packed into a tile, its keys split over a cluster",
    predecessor: Some("stage9-cluster"),
    default_variant: "decode-64x256",
    claims: &[],
    redundant: &[],
};

impl Attention for Decode {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }

    /// A cluster for each tile of a key head's queries, of all its query heads.
    fn grid(&self, kernel: &Kernel, problem: &Problem) -> [u32; 3] {
        let (shape, cluster) = (&problem.shape, kernel.cluster);
        let rows = shape.seq_q * (shape.heads_q / shape.heads_kv);
        let tiles = rows.div_ceil(kernel.block_m * cluster as usize) as u32;
        [tiles * cluster, shape.heads_kv as u32, shape.batch as u32]
    }
}
