//! What a candidate reached: its gates over all cases, and its times against ours and the peers.

use super::Known;
use super::list::distinct;
use super::peers::{arms, fastest, outcome};
use super::state::NEEDED;
use super::verdict::Exit;
use crate::table::{Judged, On, Row, Table};
use common::metric::Metric;
use common::timing::Change;
use common::verdict::{GateId, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// `mine.py:attention`
    pub name: String,
    pub device: String,
    pub software: Vec<String>,
    pub is_interrupted: bool,
    pub verdict: Verdict,
    pub gates: BTreeMap<GateId, Judged>,
    pub cases: usize,
    /// The largest error as a share of the bound of C2.
    pub error_of_bound: Option<f64>,
    /// Problems that the candidate does not support, and why.
    pub unsupported: Vec<String>,
    /// The candidate, ours and the peers on each problem that was timed, and its pair with each of them.
    pub timings: Vec<Row>,
    pub not_timed: Vec<String>,
}

/// `summary` is the row over all `cases`.
pub fn judge(device: &str, summary: &Row, cases: &[Row], timed: &[Row]) -> Candidate {
    let unsupported = cases.iter().filter_map(|row| match (&row.on, &row.note) {
        (On::Case(place, _), Some(note)) if row.verdicts.is_empty() => {
            Some(format!("{place}: {note}"))
        }
        _ => None,
    });
    let mut gates = summary.verdicts.clone();
    for row in timed.iter().filter(|row| row.subject == summary.subject) {
        for (gate, judged) in row.failed() {
            let known = gates.get(&gate);
            if known.is_none_or(|known| known.verdict != Verdict::Fail) {
                let reason = format!("{} as timed: {}", row.on, judged.reason);
                gates.insert(
                    gate,
                    Judged {
                        reason,
                        ..judged.clone()
                    },
                );
            }
        }
    }
    let is_timed = |row: &&Row| row.against.is_some() || row.has(Metric::P50);
    let (timings, absent): (Vec<&Row>, Vec<&Row>) = timed.iter().partition(is_timed);
    let not_timed = absent.iter().filter_map(|row| {
        let note = row.note.as_ref()?;
        Some(match &row.on {
            On::All => format!("{}: {note}", row.subject),
            on => format!("{} on {on}: {note}", row.subject),
        })
    });
    Candidate {
        name: summary.subject.to_string(),
        device: device.to_string(),
        software: vec![],
        is_interrupted: false,
        verdict: verdict(&gates),
        gates,
        cases: summary.value(Metric::Cases).unwrap_or(0.0) as usize,
        error_of_bound: summary.value(Metric::ErrorOfBound),
        unsupported: distinct(unsupported),
        not_timed: distinct(not_timed),
        timings: timings.into_iter().cloned().collect(),
    }
}

/// FAIL if any gate is; else PASS if all that are needed are, else NO DATA.
fn verdict(gates: &BTreeMap<GateId, Judged>) -> Verdict {
    let says = |gate, verdict| matches!(gates.get(gate), Some(of) if of.verdict == verdict);
    match gates.keys().any(|gate| says(gate, Verdict::Fail)) {
        true => Verdict::Fail,
        false if NEEDED.iter().all(|gate| says(gate, Verdict::Pass)) => Verdict::Pass,
        false => Verdict::NoData,
    }
}

impl Candidate {
    pub fn exit(&self) -> Exit {
        match self.is_interrupted {
            true => Exit::Interrupted,
            false => Exit::of(self.verdict == Verdict::Fail, self.verdict != Verdict::Pass),
        }
    }

    /// `FAIL C2 of mine.py:attention: …` for each gate that fails.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        let failed = self.gates.iter();
        let failed = failed.filter(|(_, judged)| judged.verdict == Verdict::Fail);
        failed.map(|(gate, judged)| format!("FAIL {gate} of {}: {}", self.name, judged.reason))
    }

    pub fn table(&self) -> Table {
        let mut table = Table::default();
        table.extend(self.timings.iter().cloned());
        table
    }

    /// Its own rows in its `table`, one a problem.
    pub fn own<'a>(&self, known: &'a Known<'_>) -> impl Iterator<Item = &'a Row> {
        arms(known).filter(|row| row.subject.as_str() == self.name)
    }

    /// Against the fastest rival of all, on each problem with one that is right.
    pub fn outcomes(&self) -> Vec<Change> {
        let table = self.table();
        let known = Known::committed(&[], &table);
        let pairs = self
            .own(&known)
            .filter_map(|row| fastest(&known, row, |_| true));
        pairs
            .map(|(_, pair)| outcome(pair.estimate(Metric::SpeedupP50)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario::{each, row};

    /// Of `GATES; TIMED; …`: the gates of all cases, and rows of what was timed.
    fn judged(line: &str) -> Candidate {
        let mut parts = line.split("; ");
        let gates = parts.next().unwrap();
        let summary = row(&format!(
            "mine.py:attention | all | peers | cases 14 | {gates}"
        ));
        let timed: Vec<Row> = parts.map(row).collect();
        judge("NVIDIA H200", &summary, &[], &timed)
    }

    /// Outputs that were timed count, too; those of a wrong rival do not.
    #[test]
    fn every_needed_gate_must_pass_and_none_may_fail() {
        let found = each(
            "C1 pass | C2 pass | C3 pass | C5 pass | C6 pass
            C2 pass | C3 pass | C5 pass | C6 pass
            note none
            C1 pass | C2 pass | C3 pass | C5 pass | C6 pass | C4 fail off
            C1 pass | C2 pass | C3 pass | C5 pass | C6 pass; mine.py:attention | mission f16 full | peers | p50 20 | C2 fail off
            C1 pass | C2 fail first | C3 pass | C5 pass | C6 pass; mine.py:attention | mission f16 full | peers | p50 20 | C2 fail off
            C1 pass | C2 pass | C3 pass | C5 pass | C6 pass; mine.py:attention | mission f16 full | peers | p50 20 | L1 fail off
            C1 pass | C2 pass | C3 pass | C5 pass | C6 pass; mine.py:attention | mission f16 full | peers | p50 20; torch-flash | mission f16 full | peers | p50 20 | C2 fail off",
            |line| {
                let found = judged(line);
                let failures: Vec<String> = found.failures().collect();
                format!("{:?}\n{}", found.exit(), failures.join("\n"))
            },
        );
        insta::assert_snapshot!(found, @"
    C1 pass | C2 pass | C3 pass | C5 pass | C6 pass
        Pass
    C2 pass | C3 pass | C5 pass | C6 pass
        Inconclusive
    note none
        Inconclusive
    C1 pass | C2 pass | C3 pass | C5 pass | C6 pass | C4 fail off
        Fail
        FAIL C4 of mine.py:attention: off
    C1 pass | C2 pass | C3 pass | C5 pass | C6 pass; mine.py:attention | mission f16 full | peers | p50 20 | C2 fail off
        Fail
        FAIL C2 of mine.py:attention: mission f16 full as timed: off
    C1 pass | C2 fail first | C3 pass | C5 pass | C6 pass; mine.py:attention | mission f16 full | peers | p50 20 | C2 fail off
        Fail
        FAIL C2 of mine.py:attention: first
    C1 pass | C2 pass | C3 pass | C5 pass | C6 pass; mine.py:attention | mission f16 full | peers | p50 20 | L1 fail off
        Fail
        FAIL L1 of mine.py:attention: mission f16 full as timed: off
    C1 pass | C2 pass | C3 pass | C5 pass | C6 pass; mine.py:attention | mission f16 full | peers | p50 20; torch-flash | mission f16 full | peers | p50 20 | C2 fail off
        Pass
    ");
        let interrupted = Candidate {
            is_interrupted: true,
            ..judged("C1 pass")
        };
        assert_eq!(interrupted.exit(), Exit::Interrupted);
    }

    #[test]
    fn ratios_are_over_the_fastest_right_rival_of_each_kind() {
        let judged = judged(
            "note none; mine.py:attention | mission f16 full | peers | p50 20; stage1-cpasync/cpasync-32x64 | mission f16 full | peers | p50 40; torch-flash | mission f16 full | peers | p50 25; torch-cudnn | mission f16 full | peers | p50 5; mine.py:attention | mission f16 full | peers stage1-cpasync/cpasync-32x64 | speedup_p50 2 1.9 2.1; mine.py:attention | mission f16 full | peers torch-flash | speedup_p50 1.25 0.9 1.3; torch-math | all | peers | note not installed",
        );
        let table = judged.table();
        let known = Known::committed(&[], &table);
        let own = judged.own(&known).next().unwrap();
        let over = |is_ours: bool| {
            let (rival, _) = fastest(&known, own, |of| of.name().is_empty() != is_ours).unwrap();
            rival.subject.as_str()
        };
        assert_eq!(
            (over(true), over(false)),
            ("stage1-cpasync/cpasync-32x64", "torch-flash")
        );
        assert_eq!(judged.outcomes(), [Change::Ambiguous]);
        assert_eq!(judged.not_timed, ["torch-math: not installed"]);
    }
}
