//! What a candidate reached: its gates over all cases, and its times against ours and the peers.

use super::list::distinct;
use super::peers::{Outcome, outcome};
use super::verdict::Exit;
use crate::record::{Figure, Judged, On, Place, Row, Subject};
use common::metric::Metric;
use common::verdict::{GateId, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;

/// The gates that a candidate must pass; C4 does not apply to every problem.
const NEEDED: [GateId; 5] = [GateId::C1, GateId::C2, GateId::C3, GateId::C5, GateId::C6];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// `mine.py:attention`
    pub name: String,
    /// The GPU, or why there is none.
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
    pub timings: Vec<Timing>,
    /// What was not timed, and why.
    pub not_timed: Vec<String>,
}

/// A problem on which the candidate was timed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timing {
    pub problem: Place,
    pub p50_us: Figure,
    pub host_us: Option<Figure>,
    /// Why it was timed without a graph, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub rivals: Vec<Rival>,
}

/// One of our variants, or a peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rival {
    pub subject: Subject,
    pub p50_us: Figure,
    pub host_us: Option<Figure>,
    /// Its time over the candidate's; `None` if either output is wrong.
    pub speedup: Option<Figure>,
}

impl Rival {
    /// Whether it is one of our variants.
    pub fn is_ours(&self) -> bool {
        !self.subject.name().is_empty()
    }
}

impl Timing {
    /// The fastest right rival of those that `is_wanted` accepts.
    pub fn fastest(&self, is_wanted: impl Fn(&Rival) -> bool) -> Option<&Rival> {
        let right = self.rivals.iter().filter(|rival| rival.speedup.is_some());
        right
            .filter(|rival| is_wanted(rival))
            .min_by(|a, b| a.p50_us.value.total_cmp(&b.p50_us.value))
    }

    /// Against the fastest rival of all.
    pub fn outcome(&self) -> Option<Outcome> {
        Some(outcome(self.fastest(|_| true)?.speedup?))
    }
}

impl Candidate {
    pub fn exit(&self) -> Exit {
        match self.verdict {
            _ if self.is_interrupted => Exit::Interrupted,
            Verdict::Fail => Exit::Fail,
            Verdict::Pass => Exit::Pass,
            Verdict::Ambiguous | Verdict::NoData => Exit::Inconclusive,
        }
    }

    /// `FAIL C2 of mine.py:attention: …` for each gate that fails.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        let failed = self.gates.iter();
        let failed = failed.filter(|(_, judged)| judged.verdict == Verdict::Fail);
        failed.map(|(gate, judged)| format!("FAIL {gate} of {}: {}", self.name, judged.reason))
    }

    /// Adds what was timed: the candidate's rows, those of its rivals, and those of the pairs.
    pub fn timed(mut self, subject: &Subject, rows: &[Row]) -> Self {
        let own = |row: &&Row| row.subject == *subject;
        for row in rows.iter().filter(own) {
            for (&gate, judged) in &row.verdicts {
                let reason = format!("{} as timed: {}", row.on, judged.reason);
                if judged.verdict == Verdict::Fail {
                    let judged = Judged {
                        reason,
                        ..judged.clone()
                    };
                    let known = self.gates.entry(gate).or_insert_with(|| judged.clone());
                    if known.verdict != Verdict::Fail {
                        *known = judged;
                    }
                }
            }
        }
        self.verdict = verdict(&self.gates);
        let arms = |on: &On| {
            let is_arm = |row: &&Row| row.against.is_none() && row.has(Metric::P50);
            let on = on.clone();
            rows.iter().filter(is_arm).filter(move |row| row.on == on)
        };
        let figure = |row: &Row, metric: Metric| row.figures.get(&metric).copied();
        for candidate in rows.iter().filter(own).filter(|row| row.against.is_none()) {
            let (Some(problem), Some(p50_us)) =
                (candidate.on.problem(), figure(candidate, Metric::P50))
            else {
                continue;
            };
            let rivals = arms(&candidate.on).filter(|row| row.subject != *subject);
            let rivals = rivals.map(|rival| {
                let is_pair = |row: &&Row| {
                    own(row) && row.on == rival.on && row.against.as_ref() == Some(&rival.subject)
                };
                let pair = rows.iter().find(is_pair);
                Rival {
                    subject: rival.subject.clone(),
                    p50_us: rival.estimate(Metric::P50),
                    host_us: figure(rival, Metric::HostP50),
                    speedup: pair.and_then(|pair| figure(pair, Metric::SpeedupP50)),
                }
            });
            self.timings.push(Timing {
                problem: problem.clone(),
                p50_us,
                host_us: figure(candidate, Metric::HostP50),
                note: candidate.note.clone(),
                rivals: rivals.collect(),
            });
        }
        let absent = |row: &Row| {
            let note = row.note.as_ref().filter(|_| !row.has(Metric::P50))?;
            Some(match &row.on {
                On::All => format!("{}: {note}", row.subject),
                on => format!("{} on {on}: {note}", row.subject),
            })
        };
        self.not_timed
            .extend(distinct(rows.iter().filter_map(absent)));
        self
    }
}

/// A candidate that was checked and not timed. `summary` is the row over its `cases`.
pub fn checked(name: &str, device: String, summary: &Row, cases: &[Row]) -> Candidate {
    let unsupported = cases.iter().filter_map(|row| match (&row.on, &row.note) {
        (On::Case(place, _), Some(note)) if row.verdicts.is_empty() => {
            Some(format!("{place}: {note}"))
        }
        _ => None,
    });
    Candidate {
        name: name.to_string(),
        device,
        software: vec![],
        is_interrupted: false,
        verdict: verdict(&summary.verdicts),
        gates: summary.verdicts.clone(),
        cases: summary.value(Metric::Cases).unwrap_or(0.0) as usize,
        error_of_bound: summary.value(Metric::ErrorOfBound),
        unsupported: distinct(unsupported),
        timings: vec![],
        not_timed: vec![],
    }
}

/// FAIL or AMBIGUOUS if any gate is; else PASS if all that are needed are, else NO DATA.
fn verdict(gates: &BTreeMap<GateId, Judged>) -> Verdict {
    let has = |verdict| gates.values().any(|judged| judged.verdict == verdict);
    let passes = |gate| {
        gates
            .get(&gate)
            .is_some_and(|of| of.verdict == Verdict::Pass)
    };
    match [Verdict::Fail, Verdict::Ambiguous]
        .into_iter()
        .find(|of| has(*of))
    {
        Some(worst) => worst,
        None if NEEDED.into_iter().all(passes) => Verdict::Pass,
        None => Verdict::NoData,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Source;
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
        checked(NAME, "NVIDIA H200".into(), &summary(gates), &[])
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
            let judged = of(&all).timed(&NAME.into(), &[wrong]);
            assert_eq!(judged.exit(), Exit::Fail, "{gate}");
            let reason = &judged.gates[&gate].reason;
            assert_eq!(reason, "mission f16 full as timed: off");
        }
        let rival = arm("torch-flash", 20.0).verdict(&GateResult::judge(GateId::C2, false, "off"));
        let judged = of(&all).timed(&NAME.into(), &[arm(NAME, 20.0), rival]);
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
        let judged = of(&[]).timed(&NAME.into(), &rows);
        let timing = &judged.timings[0];
        let over = |is_ours: bool| timing.fastest(|rival| rival.is_ours() == is_ours).unwrap();
        assert_eq!(over(true).subject.as_str(), ours);
        assert_eq!(over(false).subject.as_str(), flash);
        assert_eq!(timing.outcome(), Some(Outcome::Inconclusive));
        assert_eq!(judged.not_timed, ["torch-math: not installed"]);
    }
}
