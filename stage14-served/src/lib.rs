//! Stage 14: stage 13's packed tiles for sequences as they are served: each with its own number of
//! queries and keys, one after the other in one tensor, padded or in pages, under windows, with
//! sinks and capped scores, and with K and V in E4M3.

use common::claim::{Base, Claim, Relation, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask, Problem};
use common::serving::Cache;
use common::stage::{Artifacts, Attention, Kernel, Redundant, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Served;

/// Prompts of unequal lengths, one after the other.
const PROMPTS: Where = Where::new("varlen_llm", Dtype::Bf16, Mask::Causal);

/// The same tiles of rows, of dense tensors alone.
const PACKED: Base = Base {
    stage: "stage13-persistent",
    family: "packed",
};

/// Sequences of models as they are served: windows and sinks, prompts and images of unequal lengths,
/// decoding from pages, and chunks of prompts beside it.
const AS_SERVED: &[Where] = &[
    Where::new("gptoss_full", Dtype::Bf16, Mask::Causal),
    Where::new("gptoss_window", Dtype::Bf16, Mask::Causal),
    Where::new("mistral_window", Dtype::Bf16, Mask::Causal),
    PROMPTS,
    Where::new("varlen_encoder", Dtype::Bf16, Mask::Full),
    Where::new("varlen_dit", Dtype::Bf16, Mask::Full),
    Where::new("vit_72", Dtype::Bf16, Mask::Full),
    Where::new("paged_decode_16", Dtype::Bf16, Mask::Causal),
    Where::new("paged_decode_64", Dtype::Bf16, Mask::Causal),
    Where::new("mixed", Dtype::Bf16, Mask::Causal),
];

/// Decoding from pages whose keys and values have a byte each.
const FROM_CODES: &[Where] = &[Where::new("fp8_cache", Dtype::Bf16, Mask::Causal)];

const MISSION: &[Where] = &[Where::new("mission", Dtype::F16, Mask::Full)];

/// The family that reads K and V in E4M3.
const CACHED: &str = "cached";

/// The rows of a tile that a warp has: at least that many of each query head.
const WARP_ROWS: usize = 16;

const INFO: StageInfo = StageInfo {
    id: "stage14-served",
    idea: "sequences as they are served: packed, padded or in pages, with windows, sinks and \
           capped scores, counted on the device",
    predecessor: Some("stage13-persistent"),
    role: Role::Branch {
        purpose: "as served",
        problem: PROMPTS,
    },
    default_variant: "served-128x128",
    claims: &[
        Claim::over_peers("served", AS_SERVED, 1.0),
        Claim::over_peers(CACHED, FROM_CODES, 1.0),
        Claim {
            family: "served",
            metrics: &[Metric::TensorMacs],
            relation: Relation::equal_to(PACKED),
            problems: MISSION,
            why: "the same tiles of rows and keys where sequences are equal",
        },
    ],
    redundant: &[Redundant {
        family: CACHED,
        site: "TMA may overtake loads",
        reason: "the emulator's loads are complete at once; on an H200 TMA overtook them without \
                 the fence, and outputs of fp8_cache differed from launch to launch (C2, C3, C5)",
    }],
};

impl Attention for Served {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }

    fn is_persistent(&self, _kernel: &Kernel) -> bool {
        true
    }

    fn serves(&self, _kernel: &Kernel) -> bool {
        true
    }

    fn cache(&self, kernel: &Kernel) -> Option<Cache> {
        (kernel.family == CACHED).then_some(Cache::E4m3)
    }

    /// Returns the items if every sequence were as long as the longest, which is as many as there
    /// can be: blocks that find none end at once. Tiles are those of `Schedule` in schedule.cuh.
    fn grid(&self, kernel: &Kernel, problem: &Problem) -> [u32; 3] {
        let shape = &problem.shape;
        let group = shape.heads_q / shape.heads_kv;
        let warps = kernel.block_m / WARP_ROWS;
        let heads = 1 << group.trailing_zeros().min(warps.trailing_zeros());
        let tiles = shape.seq_q.div_ceil(kernel.block_m / heads);
        [tiles, shape.heads_q / heads, shape.batch].map(|size| size as u32)
    }
}
