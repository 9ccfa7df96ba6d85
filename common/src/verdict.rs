//! Verdicts of gates.

use serde::{Deserialize, Serialize};

named! {
    /// The verdict of a gate.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Verdict {
        Pass = "PASS",
        Fail = "FAIL",
        /// The machine, backend or tier cannot measure it.
        NoData = "NO DATA",
        /// The evidence does not decide.
        Ambiguous = "AMBIGUOUS",
    }
}

impl Verdict {
    /// The order of several verdicts on one subject: the first of these stands for all.
    pub const WORST_FIRST: [Self; 4] = [
        Verdict::Fail,
        Verdict::Ambiguous,
        Verdict::Pass,
        Verdict::NoData,
    ];
}

named! {
    /// A gate; its doc is what it demands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    pub enum GateId {
        /// Finite and complete.
        C1 = "C1",
        /// Accuracy as far as the precision allows.
        C2 = "C2",
        /// Every row right.
        C3 = "C3",
        /// End to end.
        C4 = "C4",
        /// Deterministic.
        C5 = "C5",
        /// Stays in its buffers.
        C6 = "C6",
        /// compute-sanitizer.
        C7 = "C7",
        /// Right log-sum-exps, if the kernel writes them.
        C8 = "C8",
        /// The GPU agrees with the emulator.
        B1 = "B1",
        /// What nvcc emits computes the emulator's bits.
        B2 = "B2",
        /// No hazard on the emulator.
        H1 = "H1",
        /// Within its resources.
        R1 = "R1",
        /// Faster, as claimed.
        L1 = "L1",
        /// Figures that change for the stated reason.
        E1 = "E1",
        /// Every planted fault, and every synchronisation site left out, is killed.
        S1 = "S1",
    }
}

/// The verdict of one gate on one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateResult {
    pub gate: GateId,
    pub verdict: Verdict,
    /// The reason, with the measured value and the threshold: `max error 1.2e-4 <= 4.9e-4`.
    pub reason: String,
}

impl GateResult {
    /// Returns `Pass` if `ok`, else `Fail`. Write `ok` as `error <= bound`, so that NaN fails.
    pub fn judge(gate: GateId, ok: bool, reason: impl Into<String>) -> Self {
        Self {
            gate,
            verdict: if ok { Verdict::Pass } else { Verdict::Fail },
            reason: reason.into(),
        }
    }

    pub fn fail(gate: GateId, reason: impl Into<String>) -> Self {
        Self::judge(gate, false, reason)
    }

    pub fn is_fail(&self) -> bool {
        self.verdict == Verdict::Fail
    }

    pub fn no_data(gate: GateId, reason: impl Into<String>) -> Self {
        Self {
            gate,
            verdict: Verdict::NoData,
            reason: reason.into(),
        }
    }
}
