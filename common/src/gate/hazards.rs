//! H1: no hazard.

use crate::verdict::{GateId, GateResult};
use emulator::TraceReport;

/// One traced launch.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// What distinguishes it: "f16 113x203 causal, Reversed".
    pub label: &'a str,
    /// What the trace found.
    pub report: &'a TraceReport,
}

/// Hazards that a reason quotes; the record holds them all.
const QUOTED: usize = 3;

/// H1: no race, no read of an in-flight copy or of uninitialised shared memory, nothing out of bounds or misaligned, no
/// divergent barrier and no deadlock in any of the traced launches. Judged by what is ordered, not by the order that
/// was run.
pub fn h1(launches: &[Traced<'_>]) -> GateResult {
    if launches.is_empty() {
        return GateResult::no_data(
            GateId::H1,
            "no traced launch: the C++ compiler has no traced build",
        );
    }
    let mut reasons = Vec::new();
    let mut count = 0;
    for Traced { label, report } in launches {
        count += report.hazards.len() + report.more_hazards;
        reasons.extend(
            report
                .hazards
                .iter()
                .map(|hazard| format!("{label}: {hazard}")),
        );
    }
    if count > 0 {
        let more = count - reasons.len().min(QUOTED);
        reasons.truncate(QUOTED);
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        return GateResult::judge(GateId::H1, false, reasons.join("; "));
    }
    // A trace that was switched off finds nothing either.
    let is_untraced = |launch: &&Traced<'_>| launch.report.counted.traced_blocks == 0;
    if let Some(untraced) = launches.iter().find(is_untraced) {
        return GateResult::no_data(
            GateId::H1,
            format!("{}: no block was traced", untraced.label),
        );
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
    use emulator::trace::{Counted, Hazard, HazardKind};

    fn report(hazards: usize) -> TraceReport {
        let hazard = Hazard {
            kind: HazardKind::Race,
            block: [0; 3],
            memory: "byte 4 of shared memory".into(),
            first: None,
            second: None,
            missing: "A barrier is missing".into(),
            times: 1,
        };
        TraceReport {
            observations: Default::default(),
            hazards: vec![hazard; hazards],
            more_hazards: 0,
            counted: Counted {
                traced_blocks: 2,
                ..Counted::default()
            },
            unwaited_copies: 0,
            sync_sites: Vec::new(),
            accesses: Vec::new(),
        }
    }

    #[test]
    fn any_hazard_fails_and_none_is_evidence() {
        let (clean, dirty, worse) = (report(0), report(1), report(6));
        let of = |reports: &[&TraceReport]| {
            h1(&reports
                .iter()
                .map(|report| Traced {
                    label: "small",
                    report,
                })
                .collect::<Vec<_>>())
        };
        assert_eq!(of(&[]).verdict, Verdict::NoData);
        let pass = of(&[&clean, &clean]);
        assert_eq!(
            (pass.verdict, pass.reason.as_str()),
            (Verdict::Pass, "no hazard in 2 traced launches (4 blocks)")
        );
        let fail = of(&[&clean, &dirty]);
        assert_eq!(fail.verdict, Verdict::Fail);
        assert_eq!(
            fail.reason,
            "small: race in block [0, 0, 0], byte 4 of shared memory: A barrier is missing"
        );
        assert!(of(&[&worse]).reason.ends_with("; and 3 more"));
        let kept_in_part = TraceReport {
            more_hazards: 4,
            ..report(1)
        };
        assert!(of(&[&kept_in_part]).reason.ends_with("; and 4 more"));
    }

    #[test]
    fn a_launch_of_which_no_block_was_traced_is_no_evidence() {
        let untraced = TraceReport {
            counted: Counted::default(),
            ..report(0)
        };
        let launches = [report(0), untraced];
        let launches = launches.each_ref().map(|report| Traced {
            label: "small",
            report,
        });
        let judged = h1(&launches);
        assert_eq!(
            (judged.verdict, judged.reason.as_str()),
            (Verdict::NoData, "small: no block was traced")
        );
        let deadlocked = TraceReport {
            counted: Counted::default(),
            ..report(1)
        };
        let launch = Traced {
            label: "small",
            report: &deadlocked,
        };
        assert_eq!(h1(&[launch]).verdict, Verdict::Fail);
    }
}
