//! One case through the correctness gates: generate inputs, launch, compare, judge.

use crate::device::BackendKind;
use crate::gate::Errors;
use crate::inputs::Family;
use crate::problem::{Dtype, Mask, Problem, Shape};
use crate::verdict::{GateResult, Verdict};
use serde::{Deserialize, Serialize};

/// Which case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseKey {
    /// The stage's id.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// Where it ran.
    pub backend: BackendKind,
    /// The shape's name, or its extents where it has none.
    pub shape_name: String,
    /// Its extents.
    pub shape: Shape,
    /// Element type of Q, K and V.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
    /// Where the inputs came from.
    pub source: Source,
}

/// Where the inputs of a case came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Source {
    /// Generated.
    Seeded {
        /// The distribution.
        family: Family,
        /// The seed.
        seed: u64,
    },
    /// Read from a file.
    File {
        /// Its name, without folders.
        name: String,
    },
}

/// What came of a case. The fields that exist depend on the status, so that 0 never stands for "not measured".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// It ran; the gates judged it.
    Checked {
        /// Measured errors.
        errors: Errors,
        /// One result per gate.
        gates: Vec<GateResult>,
    },
    /// The stage has no such launch. Not a failure of this variant.
    Unsupported {
        /// Why.
        reason: String,
    },
    /// The launch failed or never ended. A failure.
    Failed {
        /// The error, with its place.
        reason: String,
    },
}

/// One case and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Which case.
    #[serde(flatten)]
    pub key: CaseKey,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl CaseResult {
    /// Whether the case ran and no gate failed.
    pub fn is_green(&self) -> bool {
        matches!(&self.outcome, Outcome::Checked { gates, .. } if gates.iter().all(|gate| gate.verdict != Verdict::Fail))
    }
}
