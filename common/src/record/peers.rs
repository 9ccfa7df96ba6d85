//! `peers.json`: what a user of PyTorch would call instead, timed side by side with the ladder on one GPU.

use super::null_is_nan;
use crate::problem::{Dtype, Mask, Shape};
use crate::stage::Rival;
use crate::timing::stats::{Ratios, Summary};
use crate::timing::{Comparison, Rotation};
use crate::verdict::GateResult;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// All that `compare peers` measured for a record. Times are microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peers {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// When it started, UTC.
    pub started: String,
    /// How it was timed, in words.
    pub method: String,
    /// The GPU.
    pub gpu: String,
    /// What was imported, with versions: `torch` is `2.11.0+cu130`.
    pub software: BTreeMap<String, String>,
    /// What the GPU reached today.
    pub ceilings: Ceilings,
    /// Problems, in the order in which they were measured.
    pub problems: Vec<PeerProblem>,
    /// Claims against peers, as judged.
    pub claims: Vec<PeerClaimResult>,
}

/// What the same GPU reached in the same session on work that does nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Ceilings {
    /// Measured.
    Measured {
        /// FLOP/s of PyTorch's matrix product of 8192 x 8192 f16 matrices.
        matrix_flops: f64,
        /// Bytes per second read and written by a copy of 2 GiB.
        copy_bytes: f64,
    },
    /// Not measured.
    NoData {
        /// Why.
        reason: String,
    },
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerProblem {
    /// The shape's name, or its extents.
    pub shape_name: String,
    /// Its extents.
    pub shape: Shape,
    /// Our element type. Peers always compute in f16, for e4m3 on the same values before quantisation.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
    /// The buffers, the same for all.
    pub rotation: Rotation,
    /// Launches in each graph, the same for all.
    pub launches_per_graph: usize,
    /// Ours.
    pub ours: Vec<OurArm>,
    /// Theirs.
    pub peers: Vec<PeerArm>,
}

/// One of our variants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OurArm {
    /// The stage.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// The stage's identity.
    pub identity: String,
    /// The figures.
    #[serde(flatten)]
    pub figures: PeerFigures,
}

/// The figures of one arm, ours or theirs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerFigures {
    /// Device time of one launch.
    pub device: Summary,
    /// One call between two events.
    pub single: Summary,
    /// The host's time for one call, which only enqueues.
    pub host: Summary,
    /// Largest error against FP64.
    #[serde(deserialize_with = "null_is_nan")]
    pub max_abs: f64,
    /// The gates on the buffers that were timed.
    pub after: Vec<GateResult>,
}

/// One of theirs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerArm {
    /// `torch-flash`.
    pub peer: String,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: PeerOutcome,
}

/// What came of a peer on a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "nearly every outcome is the large one")]
pub enum PeerOutcome {
    /// Timed.
    Timed {
        /// The figures.
        #[serde(flatten)]
        figures: PeerFigures,
        /// Its time over ours, for each of ours whose output and whose own are right.
        over: Vec<Over>,
    },
    /// Not timed.
    NoData {
        /// Why.
        reason: String,
    },
}

/// A peer's time over one of ours, from paired chunks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Over {
    /// Our stage.
    pub stage: String,
    /// Our variant.
    pub variant: String,
    /// `peer / ours`: above 1, ours is faster.
    pub ratios: Ratios,
}

/// A promise against peers on one problem, f16.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerClaimTerms {
    /// The family of variants that must be faster.
    pub family: String,
    /// The shape, by name.
    pub shape: String,
    /// The mask.
    pub mask: Mask,
    /// Who is compared with.
    pub rival: Rival,
    /// The ratio peer / ours promised on p50, p90 and mean.
    pub at_least: f64,
    /// The ratio hoped for; shown, never judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<f64>,
}

impl fmt::Display for PeerClaimTerms {
    /// `swizzle >= 1.50x over the fastest of PyTorch on mission f16 causal`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerClaimTerms { family, shape, mask, rival, at_least, .. } = self;
        write!(f, "{family} >= {at_least:.2}x over {rival} on {shape} f16 {mask}")
    }
}

/// A claim against peers as judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerClaimResult {
    /// The stage that claims.
    pub stage: String,
    /// The claim.
    #[serde(flatten)]
    pub terms: PeerClaimTerms,
    /// Our variant.
    pub variant: String,
    /// The rival that counts: `torch-cudnn`.
    pub peer: String,
    /// The identity of the claiming stage.
    pub identity: String,
    /// The base is the peer; both arms alternated.
    pub comparison: Comparison,
    /// Gate L1.
    pub result: GateResult,
}

impl PeerProblem {
    /// Whether it is of this shape, dtype and mask.
    pub fn is_of(&self, shape_name: &str, dtype: Dtype, mask: Mask) -> bool {
        (self.shape_name.as_str(), self.dtype, self.mask) == (shape_name, dtype, mask)
    }
}
