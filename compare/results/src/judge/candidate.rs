//! What a candidate reached: its gates over all cases, and its times against ours and the peers.

use super::list::distinct;
use super::peers::fastest;
use super::state::NEEDED;
use super::verdict::Exit;
use crate::table::{Figure, Judged, Kind, Place, Row, Table};
use common::metric::Metric;
use common::verdict::Verdict;

/// The evidence about a kernel from outside of the ladder.
pub struct Candidate {
    pub device: String,
    /// The row over all cases and what was timed.
    pub summary: Row,
    pub cases: Vec<Row>,
    /// The times of the candidate, ours and the peers on each problem, and its pair with each of
    /// them.
    pub timed: Table,
    pub is_interrupted: bool,
}

impl Candidate {
    /// Adds what was timed; a gate that fails there fails.
    pub fn add(&mut self, row: Row) {
        if row.subject == self.summary.subject {
            for (gate, judged) in row.failed() {
                let reason = format!("{} as timed: {}", row.place(), judged.reason);
                let as_timed = Judged {
                    reason,
                    ..judged.clone()
                };
                self.summary.judge(gate, as_timed);
            }
        }
        self.timed.append(row);
    }

    /// Returns FAIL if any gate fails; else PASS if all that are needed pass, else NO DATA.
    pub fn verdict(&self) -> Verdict {
        if self.summary.failure().is_some() {
            return Verdict::Fail;
        }
        let mut verdicts = NEEDED.iter().map(|gate| self.summary.says(*gate));
        if verdicts.all(|verdict| verdict == Some(Verdict::Pass)) {
            Verdict::Pass
        } else {
            Verdict::NoData
        }
    }

    /// Returns the outcome of `compare candidate`.
    pub fn exit(&self) -> Exit {
        if self.is_interrupted {
            return Exit::Interrupted;
        }
        let verdict = self.verdict();
        Exit::of(verdict == Verdict::Fail, verdict != Verdict::Pass)
    }

    /// Returns `FAIL C2 of mine.py:attention: …` for each gate that fails.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        let subject = &self.summary.subject;
        let failed = self.summary.failed();
        failed.map(move |(gate, judged)| format!("FAIL {gate} of {subject}: {}", judged.reason))
    }

    /// Returns the problems that it does not support, with its reasons.
    pub fn unsupported(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for row in &self.cases {
            if let (Kind::CandidateCase(case), Some(note)) = (&row.kind, &row.note) {
                reasons.push(format!("{}: {note}", case.problem));
            }
        }
        distinct(reasons)
    }

    /// Returns what has no time, with the reasons.
    pub fn not_timed(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for row in self.timed.rows().filter(|row| !row.has(Metric::P50)) {
            let Some(note) = &row.note else { continue };
            let subject = &row.subject;
            reasons.push(match row.place() {
                Place::All => format!("{subject}: {note}"),
                place => format!("{subject} on {place}: {note}"),
            });
        }
        distinct(reasons)
    }

    /// Returns its own times.
    pub fn own(&self) -> impl Iterator<Item = &Row> {
        self.timed
            .peer_times()
            .filter(|row| row.subject == self.summary.subject && row.has(Metric::P50))
    }

    /// Returns the time of the fastest rival over its own, on each problem with a rival that is
    /// right.
    pub fn ratios(&self) -> Vec<Figure> {
        let mut ratios = Vec::new();
        for row in self.own() {
            if let Some(rival) = fastest(&self.timed, row, |_| true) {
                ratios.push(rival.over.estimate(Metric::SpeedupP50));
            }
        }
        ratios
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario::{candidate, each_case, row};

    const GREEN: &str = "C1 pass | C2 pass | C3 pass | C5 pass | C6 pass";

    fn with_times(gates: &str, times: &[String]) -> Candidate {
        let mut timed = candidate(gates);
        for time in times {
            timed.add(row(time));
        }
        timed
    }

    /// Outputs that were timed count, too; those of a wrong rival do not.
    #[test]
    fn every_needed_gate_must_pass_and_none_may_fail() {
        let own = "mine.py:attention | mission f16 full | peers | p50 20";
        let rival = "torch-flash | mission f16 full | peers | p50 20";
        let without_c1 = "C2 pass | C3 pass | C5 pass | C6 pass";
        let fails_c2 = "C1 pass | C2 fail first | C3 pass | C5 pass | C6 pass";
        let cases = [
            ("all gates that are needed pass", candidate(GREEN)),
            ("C1 has no verdict", candidate(without_c1)),
            ("no gate has a verdict", candidate("note none")),
            (
                "a gate that is not needed fails",
                candidate(&format!("{GREEN} | C4 fail off")),
            ),
            (
                "the timed output fails C2",
                with_times(GREEN, &[format!("{own} | C2 fail off")]),
            ),
            (
                "both a case and the timed output fail C2",
                with_times(fails_c2, &[format!("{own} | C2 fail off")]),
            ),
            (
                "the time is below the speed of light",
                with_times(GREEN, &[format!("{own} | L1 fail off")]),
            ),
            (
                "the timed output of a rival fails C2",
                with_times(GREEN, &[own.to_string(), format!("{rival} | C2 fail off")]),
            ),
        ];
        let answers = each_case(cases, |candidate| {
            let failures: Vec<String> = candidate.failures().collect();
            format!("{:?}\n{}", candidate.exit(), failures.join("\n"))
        });
        insta::assert_snapshot!(answers, @"
    all gates that are needed pass
        Pass
    C1 has no verdict
        Inconclusive
    no gate has a verdict
        Inconclusive
    a gate that is not needed fails
        Fail
        FAIL C4 of mine.py:attention: off
    the timed output fails C2
        Fail
        FAIL C2 of mine.py:attention: mission f16 full as timed: off
    both a case and the timed output fail C2
        Fail
        FAIL C2 of mine.py:attention: first
    the time is below the speed of light
        Fail
        FAIL L1 of mine.py:attention: mission f16 full as timed: off
    the timed output of a rival fails C2
        Pass
    ");
    }

    #[test]
    fn an_interrupted_comparison_has_the_exit_of_an_interrupt() {
        let interrupted = Candidate {
            is_interrupted: true,
            ..candidate("C1 pass")
        };
        assert_eq!(interrupted.exit(), Exit::Interrupted);
    }
}
