//! Stage 12: few queries, many keys. The query heads that read the same keys are rows of one tile,
//! and the keys of a tile are split over the blocks of a cluster, which merge their outputs through
//! distributed shared memory. A part is a warpgroup's, with 64 rows, or a warp's, with 16; E4M3 is
//! always a warp's, which converts it in registers.

use common::claim::{self, Base, Claim, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::stage::{Artifacts, Attention, Kernel, Role, StageInfo};

include!(concat!(env!("OUT_DIR"), "/artifacts.rs"));

/// The stage.
pub struct Decode;

/// Also of keys split over a cluster, whose tiles are of one query head.
const CLUSTER: Base = Base {
    stage: "stage9-cluster",
    family: "cluster",
};

const DECODE_1K: &[Where] = &Where::each_type("decode_1k", Mask::Full);
const DECODE_8K: &[Where] = &Where::each_type("decode_8k", Mask::Full);
const DECODE_128K: &[Where] = &Where::each_type("decode_128k", Mask::Full);
const VERIFY: &[Where] = &Where::each_type("verify", Mask::Causal);

const INFO: StageInfo = StageInfo {
    id: "stage12-decode",
    idea: "query heads of a group packed into a tile, its keys split over a cluster",
    predecessor: Some("stage9-cluster"),
    role: Role::Branch {
        purpose: "decode",
        problem: Where::new("decode_8k", Dtype::F16, Mask::Full),
    },
    default_variant: "decode-64x256",
    claims: &[
        Claim::faster_on("decode", CLUSTER, DECODE_1K, 1.5),
        Claim::faster_on("decode", CLUSTER, DECODE_8K, 1.4),
        Claim::faster_on("decode", CLUSTER, DECODE_128K, 3.0),
        Claim::faster_on("decode", CLUSTER, VERIFY, 1.4),
        Claim::over_peers("decode", DECODE_1K, 1.0),
        Claim::over_peers("decode", DECODE_8K, 1.0),
        Claim::over_peers("decode", DECODE_128K, 1.0),
        Claim::over_peers("decode", VERIFY, 1.0),
        Claim::none(
            "decode",
            &[Metric::AsyncCopyBytes],
            "K and V come by TMA, and Q by plain loads into registers",
        ),
        Claim::none(
            "decode",
            &[Metric::LoopSts],
            "products take P and Q from the registers in which they are made, and codes are \
             converted there",
        ),
        Claim {
            problems: claim::E4M3,
            ..Claim::none(
                "decode",
                &[Metric::LoopHgmma],
                "a warp multiplies codes alone: wgmma would take halves of V from shared memory",
            )
        },
    ],
    redundant: &[],
};

impl Attention for Decode {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }

    fn packs_heads(&self, _kernel: &Kernel) -> bool {
        true
    }
}
