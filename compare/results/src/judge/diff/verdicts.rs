//! Verdicts on both sides.

use super::{Change, Difference, Join, Judgement, What};
use crate::table::{Kind, Row};
use common::device::BackendKind;
use common::verdict::{GateId, Verdict};
use std::collections::BTreeSet;

impl Join<'_> {
    pub(super) fn verdicts(&self, old: Option<&Row>, new: &Row) -> Vec<Difference> {
        let rows = old.into_iter().chain([new]);
        let gates: BTreeSet<GateId> = rows.flat_map(|row| row.verdicts.keys().copied()).collect();
        gates
            .into_iter()
            .filter_map(|gate| self.verdict(gate, old, new))
            .collect()
    }

    fn verdict(&self, gate: GateId, old: Option<&Row>, new: &Row) -> Option<Difference> {
        let was = old.and_then(|row| row.says(gate));
        let is = new.says(gate);
        let reason = new.verdicts.get(&gate).map_or("", |judged| &judged.reason);
        let judgement = match (was, is) {
            (None | Some(Verdict::NoData), None) => return None,
            // Timed buffers have verdicts only if they are wrong.
            (Some(_), None) if is_timed(&new.kind) => return None,
            (Some(_), None) => Judgement::new(Change::Missing, "judged in the base only"),
            (_, Some(Verdict::Fail)) if was != is && new.refutation().is_some() => {
                let why = format!("recorded as refuted: {reason}");
                Judgement::new(Change::Informational, why)
            }
            (_, Some(verdict)) => Judgement::new(turned(was, verdict)?, reason),
        };
        let mut difference = self.difference(new, What::Gate(gate), judgement);
        difference.required &= gate != GateId::R1;
        difference.base = was.map(|verdict| verdict.to_string());
        difference.new = is.map(|verdict| verdict.to_string());
        Some(difference)
    }
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
    match (was, is) {
        (Some(Verdict::Fail), Verdict::Fail) => Some(Change::Unchanged),
        (_, Verdict::Fail) => Some(Change::Worse),
        (Some(Verdict::Fail), Verdict::Pass) => Some(Change::Better),
        (Some(Verdict::Pass), Verdict::Ambiguous) => Some(Change::Inconclusive),
        (Some(Verdict::Pass | Verdict::Fail), Verdict::NoData) => Some(Change::Missing),
        _ if was == Some(is) => Some(Change::Unchanged),
        _ => None,
    }
}
