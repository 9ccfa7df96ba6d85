//! What a candidate reached: its gates over all cases, and its times against ours and the peers.

use super::Known;
use super::list::distinct;
use super::peers::{Outcome, arms, fastest, outcome};
use super::state::{NEEDED, rank};
use super::verdict::Exit;
use crate::table::{Judged, On, Row, Table};
use common::metric::Metric;
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

/// Judges `cases`, of which `summary` is the row over all, and what was timed, both on `device`.
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

/// FAIL or AMBIGUOUS if any gate is; else PASS if all that are needed are, else NO DATA.
fn verdict(gates: &BTreeMap<GateId, Judged>) -> Verdict {
    let verdicts = gates.values().map(|judged| judged.verdict);
    let passes = |gate| matches!(gates.get(gate), Some(of) if of.verdict == Verdict::Pass);
    match verdicts.min_by_key(|verdict| rank(*verdict)) {
        Some(worst @ (Verdict::Fail | Verdict::Ambiguous)) => worst,
        _ if NEEDED.iter().all(passes) => Verdict::Pass,
        _ => Verdict::NoData,
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
    pub fn outcomes(&self) -> Vec<Outcome> {
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
    use crate::table::Source;
    use common::problem::Dtype;
    use common::verdict::GateResult;

    const NAME: &str = "mine.py:attention";

    fn summary(gates: &[(GateId, bool)]) -> Row {
        let row = Row::new(NAME, On::All, Source::Peers).figure(Metric::Cases, 14.0);
        gates.iter().fold(row, |row, &(gate, passes)| {
            row.verdict(&GateResult::judge(gate, passes, "off"))
        })
    }

    fn of(gates: &[(GateId, bool)]) -> Candidate {
        timed(gates, &[])
    }

    fn timed(gates: &[(GateId, bool)], rows: &[Row]) -> Candidate {
        judge("NVIDIA H200", &summary(gates), &[], rows)
    }

    fn arm(subject: &str, us: f64) -> Row {
        let row = Row::new(subject, On::claims(Dtype::F16), Source::Peers);
        row.figure(Metric::P50, us).figure(Metric::HostP50, 20.0)
    }

    fn pair(rival: &str, ratio: (f64, f64, f64)) -> Row {
        let row = Row::new(NAME, On::claims(Dtype::F16), Source::Peers);
        row.against(rival).figure(Metric::SpeedupP50, ratio)
    }

    #[test]
    fn every_needed_gate_must_pass_and_none_may_fail() {
        let all = NEEDED.map(|gate| (gate, true));
        assert_eq!(of(&all).exit(), Exit::Pass);
        assert_eq!(
            of(&all[1..]).exit(),
            Exit::Inconclusive,
            "C1 was not judged"
        );
        assert_eq!(of(&[]).exit(), Exit::Inconclusive);
        let failed = of(&[&all[..], &[(GateId::C4, false)]].concat());
        assert_eq!(failed.exit(), Exit::Fail);
        let failures: Vec<String> = failed.failures().collect();
        assert_eq!(failures, ["FAIL C4 of mine.py:attention: off"]);
        let interrupted = Candidate {
            is_interrupted: true,
            ..of(&all)
        };
        assert_eq!(interrupted.exit(), Exit::Interrupted);
    }

    #[test]
    fn a_wrong_or_impossible_timed_output_fails_it() {
        let all = NEEDED.map(|gate| (gate, true));
        for gate in [GateId::C2, GateId::L1] {
            let wrong = arm(NAME, 20.0).verdict(&GateResult::judge(gate, false, "off"));
            let judged = timed(&all, &[wrong]);
            assert_eq!(judged.exit(), Exit::Fail, "{gate}");
            let reason = &judged.gates[&gate].reason;
            assert_eq!(reason, "mission f16 full as timed: off");
        }
        let rival = arm("torch-flash", 20.0).verdict(&GateResult::judge(GateId::C2, false, "off"));
        let judged = timed(&all, &[arm(NAME, 20.0), rival]);
        assert_eq!(
            judged.exit(),
            Exit::Pass,
            "a wrong rival is not the candidate's"
        );
    }

    #[test]
    fn ratios_are_over_the_fastest_right_rival_of_each_kind() {
        let (ours, flash, wrong) = ("stage1-cpasync/cpasync-32x64", "torch-flash", "torch-cudnn");
        let rows = [
            arm(NAME, 20.0),
            arm(ours, 40.0),
            arm(flash, 25.0),
            arm(wrong, 5.0),
            pair(ours, (2.0, 1.9, 2.1)),
            pair(flash, (1.25, 0.9, 1.3)),
            Row::new("torch-math", On::All, Source::Peers).note("not installed"),
        ];
        let judged = timed(&[], &rows);
        let table = judged.table();
        let known = Known::committed(&[], &table);
        let own = judged.own(&known).next().unwrap();
        let over = |is_ours: bool| {
            let (rival, _) = fastest(&known, own, |of| of.name().is_empty() != is_ours).unwrap();
            rival.subject.as_str()
        };
        assert_eq!((over(true), over(false)), (ours, flash));
        assert_eq!(judged.outcomes(), [Outcome::Inconclusive]);
        assert_eq!(judged.not_timed, ["torch-math: not installed"]);
    }
}
