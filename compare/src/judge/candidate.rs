//! What a candidate reached: its gates over all cases, and its times against ours and the peers.

use super::list::distinct;
use super::peers::{arms, fastest};
use super::state::NEEDED;
use super::verdict::Exit;
use crate::table::{Figure, Judged, Place, Row, Table};
use common::metric::Metric;
use common::verdict::Verdict;

pub struct Candidate {
    pub device: String,
    /// Its row over all cases and what was timed.
    pub summary: Row,
    pub cases: Vec<Row>,
    /// The candidate, ours and the peers on each problem, and its pair with each of them.
    pub timed: Table,
    pub is_interrupted: bool,
}

impl Candidate {
    /// Adds what was timed; a gate that fails there fails.
    pub fn add(&mut self, row: Row) {
        if row.subject == self.summary.subject {
            for (gate, judged) in row.failed() {
                let reason = format!("{} as timed: {}", row.place, judged.reason);
                let judged = judged.clone();
                self.summary.judge(gate, Judged { reason, ..judged });
            }
        }
        self.timed.append(row);
    }

    /// FAIL if any gate is; else PASS if all that are needed are, else NO DATA.
    pub fn verdict(&self) -> Verdict {
        let passes = |gate| self.summary.says(gate) == Some(Verdict::Pass);
        match self.summary.failure() {
            Some(_) => Verdict::Fail,
            None if NEEDED.into_iter().all(passes) => Verdict::Pass,
            None => Verdict::NoData,
        }
    }

    pub fn exit(&self) -> Exit {
        let verdict = self.verdict();
        match self.is_interrupted {
            true => Exit::Interrupted,
            false => Exit::of(verdict == Verdict::Fail, verdict != Verdict::Pass),
        }
    }

    /// `FAIL C2 of mine.py:attention: …` for each gate that fails.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        let Row { subject, .. } = &self.summary;
        let failed = self.summary.failed();
        failed.map(move |(gate, judged)| format!("FAIL {gate} of {subject}: {}", judged.reason))
    }

    pub fn unsupported(&self) -> Vec<String> {
        let unsupported = self
            .cases
            .iter()
            .filter_map(|row| match (&row.place, &row.note) {
                (Place::Case(place, _), Some(note)) => Some(format!("{place}: {note}")),
                _ => None,
            });
        distinct(unsupported)
    }

    pub fn not_timed(&self) -> Vec<String> {
        let is_absent = |row: &&Row| !row.has(Metric::P50);
        let absent = self.timed.rows().filter(is_absent).filter_map(|row| {
            let note = row.note.as_ref()?;
            Some(match &row.place {
                Place::All => format!("{}: {note}", row.subject),
                place => format!("{} on {place}: {note}", row.subject),
            })
        });
        distinct(absent)
    }

    pub fn own(&self) -> impl Iterator<Item = &Row> {
        let is_own = |row: &&Row| row.subject == self.summary.subject && row.has(Metric::P50);
        arms(&self.timed).filter(is_own)
    }

    /// Of the fastest rival of all over it, on each problem with one that is right.
    pub fn ratios(&self) -> Vec<Figure> {
        let pairs = (self.own()).filter_map(|row| fastest(&self.timed, row, |_| true));
        let ratios = pairs.map(|(_, pair)| pair.estimate(Metric::SpeedupP50));
        ratios.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario::{candidate, each};

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
                let found = candidate(line);
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
            ..candidate("C1 pass")
        };
        assert_eq!(interrupted.exit(), Exit::Interrupted);
    }
}
