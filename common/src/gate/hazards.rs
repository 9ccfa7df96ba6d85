//! H1: no hazard.

use crate::verdict::{GateId, GateResult};
use emulator::trace::Hazard;
use emulator::{Place, TraceReport};

/// A launch of the traced build.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// The launch's name: "f16 113x203 causal, Reversed".
    pub label: &'a str,
    pub report: &'a TraceReport,
}

/// The most hazards that are quoted.
const QUOTED: usize = 3;

/// Returns the lines of both sides, in one order whichever came first.
fn places(hazard: &Hazard) -> Vec<&[Place]> {
    let sides = [&hazard.first, &hazard.second].into_iter().flatten();
    let mut lines: Vec<&[Place]> = sides.map(|side| &*side.places).collect();
    lines.sort();
    lines
}

/// Returns whether two hazards are of one kind at the same lines.
fn is_same(hazard: &Hazard, other: &Hazard) -> bool {
    hazard.kind == other.kind && places(hazard) == places(other)
}

/// Judges H1, by happens-before. A trace that saw less than `output_bytes` stored is no evidence,
/// and fails, too.
pub fn h1(launches: &[Traced<'_>], output_bytes: u64) -> GateResult {
    if launches.is_empty() {
        return GateResult::no_data(GateId::H1, "no traced launch");
    }
    let mut quoted: Vec<(&str, &Hazard)> = Vec::new();
    let mut count = 0;
    for Traced { label, report } in launches {
        count += report.hazards.len() + report.more_hazards;
        for hazard in &report.hazards {
            // Most hazards show in every schedule.
            let is_known = quoted.iter().any(|(_, known)| is_same(known, hazard));
            if quoted.len() < QUOTED && !is_known {
                quoted.push((label, hazard));
            }
        }
    }
    if count > 0 {
        let more = count - quoted.len();
        let mut reasons = Vec::new();
        for (label, hazard) in &quoted {
            reasons.push(format!("{label}: {hazard}"));
        }
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        return GateResult::fail(GateId::H1, reasons.join("; "));
    }
    // The build was not instrumented, or the trace was off.
    let unseen = launches
        .iter()
        .find(|launch| launch.report.counted.sum.global_write.bytes < output_bytes);
    if let Some(Traced { label, report }) = unseen {
        let seen = report.counted.sum.global_write.bytes;
        let reason = format!(
            "{label}: the trace saw {seen} bytes written to global memory, and the output has \
             {output_bytes}: not all of the kernel is traced"
        );
        return GateResult::fail(GateId::H1, reason);
    }
    let blocks: u64 = launches
        .iter()
        .map(|launch| launch.report.counted.traced_blocks)
        .sum();
    let reason = format!(
        "no hazard in {} traced launches ({blocks} blocks)",
        launches.len()
    );
    GateResult::judge(GateId::H1, true, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;
    use emulator::trace::{Counted, Counters, GlobalTraffic, HazardKind};

    const OUTPUT_BYTES: u64 = 64;

    fn report(hazards: usize) -> TraceReport {
        use HazardKind::{Deadlock, Misaligned, OutOfBounds, Race, Stopped, UninitialisedShared};
        let kinds = [
            Race,
            Deadlock,
            Misaligned,
            OutOfBounds,
            Stopped,
            UninitialisedShared,
        ];
        let hazard = |kind| Hazard {
            kind,
            block: [0; 3],
            memory: "byte 4 of shared memory".into(),
            first: None,
            second: None,
            missing: "A barrier is missing".into(),
            times: 1,
        };
        TraceReport {
            observations: Default::default(),
            deeds: vec![],
            hazards: kinds[..hazards].iter().copied().map(hazard).collect(),
            more_hazards: 0,
            is_cut_short: false,
            counted: Counted {
                traced_blocks: 2,
                sum: Counters {
                    global_write: GlobalTraffic {
                        bytes: OUTPUT_BYTES,
                        ..GlobalTraffic::default()
                    },
                    ..Counters::default()
                },
                ..Counted::default()
            },
            sync_sites: Vec::new(),
        }
    }

    fn h1_of(reports: &[&TraceReport], output_bytes: u64) -> GateResult {
        let mut launches = Vec::new();
        for report in reports {
            launches.push(Traced {
                label: "small",
                report,
            });
        }
        h1(&launches, output_bytes)
    }

    /// Returns a report of a trace that saw no store.
    fn without_stores(hazards: usize) -> TraceReport {
        TraceReport {
            counted: Counted::default(),
            ..report(hazards)
        }
    }

    const RACE: &str =
        "small: race in block [0, 0, 0], byte 4 of shared memory: A barrier is missing";

    #[test]
    fn without_a_launch_there_is_no_evidence() {
        assert_eq!(h1_of(&[], OUTPUT_BYTES).verdict, Verdict::NoData);
    }

    #[test]
    fn launches_without_a_hazard_pass() {
        let result = h1_of(&[&report(0), &report(0)], OUTPUT_BYTES);
        assert_eq!(result.verdict, Verdict::Pass);
        assert_eq!(result.reason, "no hazard in 2 traced launches (4 blocks)");
    }

    #[test]
    fn any_hazard_fails() {
        let result = h1_of(&[&report(0), &report(1)], OUTPUT_BYTES);
        assert_eq!(result.verdict, Verdict::Fail);
        assert_eq!(result.reason, RACE);
    }

    #[test]
    fn three_hazards_are_quoted_and_the_others_counted() {
        let result = h1_of(&[&report(6)], OUTPUT_BYTES);
        assert!(result.reason.ends_with("; and 3 more"));
        let kept_in_part = TraceReport {
            more_hazards: 4,
            ..report(1)
        };
        let counted = h1_of(&[&kept_in_part], OUTPUT_BYTES);
        assert!(counted.reason.ends_with("; and 4 more"));
    }

    #[test]
    fn the_same_hazard_of_several_launches_is_quoted_once() {
        let result = h1_of(&[&report(1), &report(1), &report(1)], OUTPUT_BYTES);
        assert_eq!(result.reason, format!("{RACE}; and 2 more"));
    }

    #[test]
    fn a_trace_that_missed_stores_is_no_evidence() {
        let result = h1_of(&[&report(0)], OUTPUT_BYTES + 1);
        assert_eq!(result.verdict, Verdict::Fail);
        assert!(
            result.reason.starts_with(
                "small: the trace saw 64 bytes written to global memory, and the output has 65"
            ),
            "{}",
            result.reason
        );
    }

    #[test]
    fn one_trace_without_stores_fails_beside_a_complete_one() {
        let result = h1_of(&[&report(0), &without_stores(0)], OUTPUT_BYTES);
        assert_eq!(result.verdict, Verdict::Fail);
    }

    #[test]
    fn a_deadlock_is_reported_before_the_stores_that_it_prevents() {
        let result = h1_of(&[&without_stores(1)], OUTPUT_BYTES);
        assert!(result.reason.contains("A barrier is missing"));
    }
}
