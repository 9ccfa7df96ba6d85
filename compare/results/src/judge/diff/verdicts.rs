//! Verdicts on both sides.

use super::{Change, Difference, Join, Judgement, What};
use crate::table::{Judged, Kind, Row};
use common::device::BackendKind;
use common::verdict::{GateId, Verdict};
use std::collections::BTreeSet;

impl Join<'_> {
    pub(super) fn verdicts(&self, old: Option<&Row>, new: &Row) -> Vec<Difference> {
        let mut gates: BTreeSet<GateId> = new.verdicts.keys().copied().collect();
        if let Some(row) = old {
            gates.extend(row.verdicts.keys());
        }
        let mut differences = Vec::new();
        for gate in gates {
            differences.extend(self.verdict(gate, old, new));
        }
        differences
    }

    fn verdict(&self, gate: GateId, old: Option<&Row>, new: &Row) -> Option<Difference> {
        let was = old.and_then(|row| row.says(gate));
        let is = new.says(gate);
        let judgement = match new.verdicts.get(&gate) {
            Some(judged) => judge_verdict(was, judged, new)?,
            None => judge_lost_verdict(was?, &new.kind)?,
        };
        let mut difference = self.difference(new, What::Gate(gate), judgement);
        difference.required &= gate != GateId::R1;
        difference.base = was.as_ref().map(Verdict::to_string);
        difference.new = is.as_ref().map(Verdict::to_string);
        Some(difference)
    }
}

/// Judges a verdict that the new side has.
fn judge_verdict(was: Option<Verdict>, judged: &Judged, new: &Row) -> Option<Judgement> {
    let fails_now = judged.verdict == Verdict::Fail && was != Some(Verdict::Fail);
    if fails_now && new.refutation().is_some() {
        let why = format!("recorded as refuted: {}", judged.reason);
        return Some(Judgement::new(Change::Informational, why));
    }
    let change = turned(was, judged.verdict)?;
    Some(Judgement::new(change, judged.reason.as_str()))
}

/// Judges a verdict that only the base has.
fn judge_lost_verdict(was: Verdict, kind: &Kind) -> Option<Judgement> {
    // Timed buffers have verdicts only if they are wrong.
    if was == Verdict::NoData || is_timed(kind) {
        return None;
    }
    Some(Judgement::new(Change::Missing, "judged in the base only"))
}

/// Returns whether a row judges buffers that were timed on a GPU, or a single case there.
fn is_timed(kind: &Kind) -> bool {
    match kind {
        Kind::Latency(_) | Kind::Pair { .. } | Kind::Case(BackendKind::Cuda, _) => true,
        Kind::Declared(_)
        | Kind::Compiled { .. }
        | Kind::Checked(_)
        | Kind::Case(BackendKind::Emulated, _)
        | Kind::Counters(_)
        | Kind::RandomTime(_)
        | Kind::Regret
        | Kind::PeerSession
        | Kind::PeerTime(_)
        | Kind::PeerPair { .. }
        | Kind::CandidateCase(_)
        | Kind::Profile(_)
        | Kind::Sanitized
        | Kind::Fault(_)
        | Kind::Site(_)
        | Kind::Timer(_)
        | Kind::Claim(_)
        | Kind::GivenOutput(_) => false,
    }
}

/// Returns how a verdict changed; `None` if that says nothing.
pub(super) fn turned(was: Option<Verdict>, is: Verdict) -> Option<Change> {
    use Verdict::{Ambiguous, Fail, NoData, Pass};
    if was == Some(is) {
        return Some(Change::Unchanged);
    }
    match is {
        Fail => Some(Change::Worse),
        Pass if was == Some(Fail) => Some(Change::Better),
        Ambiguous if was == Some(Pass) => Some(Change::Undecided),
        NoData if was == Some(Pass) || was == Some(Fail) => Some(Change::Missing),
        Pass | Ambiguous | NoData => None,
    }
}
