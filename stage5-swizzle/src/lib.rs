//! Stage 5: tiles in shared memory that ldmatrix reads without bank conflicts, mma.sync, scores and output in registers.
//! Three families share all code but the layout of the tiles: `mma-linear`, `mma-padded` and `swizzle`, so that the gain of
//! registers and the gain of conflict-free reads can be told apart.

use common::evidence::{EvidenceClaim, Quantity, Relation};
use common::problem::Dtype;
use common::stage::{Artifacts, Attention, Base, Claim, PeerClaim, Rival, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Swizzle;

/// The control of the whole ladder.
const WMMA_QK: Base = Base { stage: "stage0-scalar", family: "wmma-qk" };
/// WMMA on both products, whose scores and products go through shared memory.
const WMMA_PV: Base = Base { stage: "stage3-wmma-pv", family: "wmma-pv" };
/// The same with warps that only copy.
const WARPSPEC: Base = Base { stage: "stage4-warpspec", family: "warpspec" };
/// The same kernel with rows one after the other.
const LINEAR: Base = Base { stage: "stage5-swizzle", family: "mma-linear" };

const fn over(rival: Rival, shape: &'static str, at_least: f64, goal: Option<f64>) -> PeerClaim {
    PeerClaim { family: "swizzle", shape, rival, at_least, goal }
}

const INFO: StageInfo = StageInfo {
    id: "stage5-swizzle",
    idea: "XOR-swizzled tiles, ldmatrix, mma.sync",
    predecessor: Some("stage4-warpspec"),
    default_variant: "swizzle-32x256-k4",
    claims: &[
        Claim { family: "swizzle", base: WMMA_QK, at_least: 1.85 },
        Claim { family: "swizzle", base: WMMA_PV, at_least: 1.05 },
        Claim { family: "swizzle", base: WARPSPEC, at_least: 1.05 },
        Claim { family: "swizzle", base: LINEAR, at_least: 1.05 },
    ],
    peer_claims: &[
        over(Rival::FastestPyTorch, "mission", 1.5, Some(1.7)),
        over(Rival::FastestPyTorch, "mission_b2", 1.25, Some(1.35)),
        over(Rival::PyTorchFlash, "long", 1.0, None),
        over(Rival::PyTorchFlash, "big", 1.0, None),
    ],
    evidence: &[
        EvidenceClaim {
            family: "swizzle",
            quantities: &[Quantity::SharedReadConflictShare],
            relation: Relation::AtMost { bound: 0.05 },
            dtypes: &Dtype::ALL,
            why: "8 rows of one chunk column lie in 8 different groups of banks",
        },
        EvidenceClaim {
            family: "mma-linear",
            quantities: &[Quantity::SharedReadConflictShare],
            relation: Relation::AtLeast { bound: 0.5 },
            dtypes: &Dtype::ALL,
            why: "the control: rows of 128 bytes all start in bank 0",
        },
        EvidenceClaim {
            family: "swizzle",
            quantities: &[
                Quantity::GlobalReadBytes,
                Quantity::SharedReadBytes,
                Quantity::TensorMacs,
                Quantity::Exps,
                Quantity::DynamicSharedBytes,
            ],
            relation: Relation::equal_to(LINEAR),
            dtypes: &Dtype::ALL,
            why: "only the places of the chunks differ, and they cost no memory",
        },
        EvidenceClaim {
            family: "swizzle",
            quantities: &[Quantity::AsyncCopyShare],
            relation: Relation::AtLeast { bound: 1.0 },
            dtypes: &[Dtype::F16],
            why: "Q, K and V all come by cp.async",
        },
        EvidenceClaim {
            family: "swizzle",
            quantities: &[Quantity::AsyncCopyShare],
            relation: Relation::AtLeast { bound: 0.95 },
            dtypes: &[Dtype::E4m3],
            why: "Q, K and V all come by cp.async, and the scales, which every thread reads, by loads",
        },
        EvidenceClaim {
            family: "mma-padded",
            quantities: &[Quantity::SharedReadConflicts, Quantity::SharedWriteConflicts],
            relation: Relation::AtMost { bound: 0.0 },
            dtypes: &Dtype::ALL,
            why: "8 rows of one chunk column lie in 8 different groups of banks, rows of the merge in different banks",
        },
        EvidenceClaim {
            family: "mma-padded",
            quantities: &[Quantity::AsyncWriteConflicts],
            relation: Relation::AtMost { bound: 0.0 },
            // With E4M3 two rows are copied at a time, and the padding between them makes the second one meet the first.
            dtypes: &[Dtype::F16],
            why: "8 lanes copy one row",
        },
        EvidenceClaim {
            family: "swizzle",
            quantities: &[Quantity::SharedReadConflicts, Quantity::SharedWriteConflicts, Quantity::AsyncWriteConflicts],
            relation: Relation::AtMost { bound: 0.0 },
            dtypes: &Dtype::ALL,
            why: "8 rows of one chunk column lie in 8 different groups of banks, rows of the merge in different banks",
        },
        EvidenceClaim {
            family: "mma-linear",
            quantities: &[Quantity::SharedWriteConflicts, Quantity::AsyncWriteConflicts],
            relation: Relation::AtMost { bound: 0.0 },
            dtypes: &Dtype::ALL,
            why: "only ldmatrix reads columns; rows of the merge end in padding",
        },
    ],
    redundant: &[],
};

impl Attention for Swizzle {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}
