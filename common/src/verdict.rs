//! What a gate says. A gate turns evidence into one of four verdicts, always with a reason.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The outcome of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The evidence is there and meets the rule.
    Pass,
    /// The evidence is there and breaks the rule.
    Fail,
    /// There is no evidence: the machine, the backend or the tier cannot measure it.
    NoData,
    /// There is evidence, but it does not decide.
    Ambiguous,
}

impl Verdict {
    /// Of several that a gate says of one subject the first of these stands for all.
    pub const WORST_FIRST: [Self; 4] = [
        Verdict::Fail,
        Verdict::Ambiguous,
        Verdict::Pass,
        Verdict::NoData,
    ];

    /// As printed in tables.
    pub fn label(self) -> &'static str {
        match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::NoData => "NO DATA",
            Verdict::Ambiguous => "AMBIGUOUS",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// Which gate. The ids are those of the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GateId {
    /// Finite and complete.
    C1,
    /// As accurate as the precision allows.
    C2,
    /// Every row right.
    C3,
    /// End to end.
    C4,
    /// Deterministic.
    C5,
    /// Stays in its buffers.
    C6,
    /// Clean under compute-sanitizer.
    C7,
    /// Log-sum-exps right, of kernels that write them.
    C8,
    /// The GPU agrees with the emulator.
    B1,
    /// No hazard on the emulator.
    H1,
    /// Within its resources.
    R1,
    /// Faster, as claimed.
    L1,
    /// For the stated reason.
    E1,
    /// The gates kill every planted fault, and every kernel without one of its synchronisation sites.
    S1,
}

impl GateId {
    /// Every gate, in the order of the tables.
    pub const ALL: [Self; 14] = {
        use GateId::*;
        [C1, C2, C3, C4, C5, C6, C7, C8, B1, H1, R1, L1, E1, S1]
    };
}

impl fmt::Display for GateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}"))
    }
}

/// One gate's verdict on one piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateResult {
    /// Which gate.
    pub gate: GateId,
    /// What it says.
    pub verdict: Verdict,
    /// Why, with the measured value and the threshold: `max error 1.2e-4 <= 4.9e-4`.
    pub reason: String,
}

impl GateResult {
    /// `Pass` if `ok`, else `Fail`. Write `ok` as `error <= bound`, so that NaN fails.
    pub fn judge(gate: GateId, ok: bool, reason: impl Into<String>) -> Self {
        Self {
            gate,
            verdict: if ok { Verdict::Pass } else { Verdict::Fail },
            reason: reason.into(),
        }
    }

    /// No evidence, and why.
    pub fn no_data(gate: GateId, reason: impl Into<String>) -> Self {
        Self {
            gate,
            verdict: Verdict::NoData,
            reason: reason.into(),
        }
    }
}
