//! Stage 5: tiles in shared memory that ldmatrix reads without bank conflicts, mma.sync, scores and
//! output in registers. Three families share all code but the layout of the tiles: `mma-linear`,
//! `mma-padded` and `swizzle`, so that the gain of registers and the gain of conflict-free reads
//! can be told apart.

use common::claim::{self, Base, Claim, Relation, Rival, Where};
use common::metric::Metric;
use common::stage::{Artifacts, Attention, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Swizzle;

/// The control of the whole ladder.
const WMMA_QK: Base = Base {
    stage: "stage0-scalar",
    family: "wmma-qk",
};
/// WMMA on both products, whose scores and products go through shared memory.
const WMMA_PV: Base = Base {
    stage: "stage3-wmma-pv",
    family: "wmma-pv",
};
/// The same with warps that only copy.
const WARPSPEC: Base = Base {
    stage: "stage4-warpspec",
    family: "warpspec",
};
/// The same kernel with rows one after the other.
const LINEAR: Base = Base {
    stage: "stage5-swizzle",
    family: "mma-linear",
};

const INFO: StageInfo = StageInfo {
    id: "stage5-swizzle",
    idea: "XOR-swizzled tiles, ldmatrix, mma.sync",
    predecessor: Some("stage4-warpspec"),
    role: Role::Rung,
    default_variant: "swizzle-32x256-k4",
    claims: &[
        Claim::faster("swizzle", WMMA_QK, 1.85),
        Claim::faster("swizzle", WMMA_PV, 1.05),
        Claim::faster("swizzle", WARPSPEC, 1.05),
        Claim::faster("swizzle", LINEAR, 1.05),
        Claim::over(
            "swizzle",
            Rival::FastestPyTorch,
            &Where::f16("mission"),
            1.5,
        ),
        Claim::over(
            "swizzle",
            Rival::FastestPyTorch,
            &Where::f16("mission_b2"),
            1.25,
        ),
        Claim::over("swizzle", Rival::PyTorchFlash, &Where::f16("long"), 1.0),
        Claim::over("swizzle", Rival::PyTorchFlash, &Where::f16("big"), 1.0),
        Claim {
            family: "swizzle",
            metrics: &[Metric::SharedReadConflictShare],
            relation: Relation::AtMost { bound: 0.05 },
            problems: claim::BOTH,
            why: "8 rows of one chunk column lie in 8 different groups of banks",
        },
        Claim {
            family: "mma-linear",
            metrics: &[Metric::SharedReadConflictShare],
            relation: Relation::AtLeast { bound: 0.5 },
            problems: claim::BOTH,
            why: "the control: rows of 128 bytes all start in bank 0",
        },
        Claim {
            family: "swizzle",
            metrics: &[
                Metric::GlobalReadBytes,
                Metric::SharedReadBytes,
                Metric::TensorMacs,
                Metric::Exps,
                Metric::DynamicSharedBytes,
            ],
            relation: Relation::equal_to(LINEAR),
            problems: claim::BOTH,
            why: "only the places of the chunks differ, and they cost no memory",
        },
        Claim {
            family: "swizzle",
            metrics: &[Metric::AsyncCopyShare],
            relation: Relation::AtLeast { bound: 1.0 },
            problems: claim::F16,
            why: "Q, K and V all come by cp.async",
        },
        Claim {
            family: "swizzle",
            metrics: &[Metric::AsyncCopyShare],
            relation: Relation::AtLeast { bound: 0.95 },
            problems: claim::E4M3,
            why: "Q, K and V all come by cp.async, and the scales, which every thread reads, by \
                  loads",
        },
        Claim::none(
            "mma-padded",
            &[Metric::SharedReadConflicts, Metric::SharedWriteConflicts],
            "8 rows of one chunk column lie in 8 different groups of banks, rows of the merge in \
             different banks",
        ),
        Claim {
            family: "mma-padded",
            metrics: &[Metric::AsyncWriteConflicts],
            relation: Relation::AtMost { bound: 0.0 },
            // With E4M3 two rows are copied at a time, and the padding between them makes the
            // second one meet the first.
            problems: claim::F16,
            why: "8 lanes copy one row",
        },
        Claim::none(
            "swizzle",
            &[
                Metric::SharedReadConflicts,
                Metric::SharedWriteConflicts,
                Metric::AsyncWriteConflicts,
            ],
            "8 rows of one chunk column lie in 8 different groups of banks, rows of the merge in \
             different banks",
        ),
        Claim::none(
            "mma-linear",
            &[Metric::SharedWriteConflicts, Metric::AsyncWriteConflicts],
            "only ldmatrix reads columns; rows of the merge end in padding",
        ),
        Claim::none(
            "swizzle",
            &[Metric::LoopSts],
            "S and P stay in registers: no tile of them is stored",
        ),
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
