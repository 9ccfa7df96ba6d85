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
    use crate::testing::{candidate, row};

    const GREEN: &str = "C1 pass | C2 pass | C3 pass | C5 pass | C6 pass";

    /// Returns a candidate that passes all gates over its cases, with a time that says this of its
    /// output.
    fn with_time(verdict: &str) -> Candidate {
        let time = format!("mine.py:attention | mission f16 full | peers | p50 20 | {verdict}");
        let mut timed = candidate(GREEN);
        timed.add(row(&time));
        timed
    }

    #[track_caller]
    fn assert_exit(candidate: &Candidate, exit: Exit, failures: &[&str]) {
        assert_eq!(candidate.exit(), exit);
        assert_eq!(Vec::from_iter(candidate.failures()), failures);
    }

    #[test]
    fn a_candidate_that_passes_all_gates_passes() {
        assert_exit(&candidate(GREEN), Exit::Pass, &[]);
    }

    #[test]
    fn a_candidate_without_one_needed_gate_is_undecided() {
        let without_c1 = candidate("C2 pass | C3 pass | C5 pass | C6 pass");
        assert_exit(&without_c1, Exit::Inconclusive, &[]);
    }

    #[test]
    fn a_candidate_without_gates_is_undecided() {
        assert_exit(&candidate("note none"), Exit::Inconclusive, &[]);
    }

    #[test]
    fn a_gate_that_is_not_needed_fails_a_candidate() {
        let failed = candidate(&format!("{GREEN} | C4 fail off"));
        let expected = "FAIL C4 of mine.py:attention: off";
        assert_exit(&failed, Exit::Fail, &[expected]);
    }

    #[test]
    fn a_timed_output_that_is_wrong_fails_a_candidate() {
        let expected = "FAIL C2 of mine.py:attention: mission f16 full as timed: off";
        assert_exit(&with_time("C2 fail off"), Exit::Fail, &[expected]);
    }

    #[test]
    fn a_gate_that_a_case_and_the_timed_output_fail_is_said_once() {
        let mut failed = candidate("C1 pass | C2 fail first | C3 pass | C5 pass | C6 pass");
        failed.add(row(
            "mine.py:attention | mission f16 full | peers | p50 20 | C2 fail off",
        ));
        let expected = "FAIL C2 of mine.py:attention: first";
        assert_exit(&failed, Exit::Fail, &[expected]);
    }

    #[test]
    fn a_time_below_the_speed_of_light_fails_a_candidate() {
        let expected = "FAIL L1 of mine.py:attention: mission f16 full as timed: off";
        assert_exit(&with_time("L1 fail off"), Exit::Fail, &[expected]);
    }

    #[test]
    fn a_rival_that_is_wrong_leaves_a_candidate() {
        let mut timed = with_time("note right");
        timed.add(row(
            "torch-flash | mission f16 full | peers | p50 20 | C2 fail off",
        ));
        assert_exit(&timed, Exit::Pass, &[]);
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
