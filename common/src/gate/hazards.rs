//! H1: no hazard.

use crate::verdict::{GateId, GateResult};
use emulator::trace::Hazard;
use emulator::{Place, TraceReport};

#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// What distinguishes it: "f16 113x203 causal, Reversed".
    pub label: &'a str,
    pub report: &'a TraceReport,
}

/// Hazards that are quoted.
const QUOTED: usize = 3;

/// The lines of both sides, in either order.
fn places(hazard: &Hazard) -> Vec<&[Place]> {
    let sides = [&hazard.first, &hazard.second].into_iter().flatten();
    let mut places: Vec<&[Place]> = sides.map(|side| &*side.places).collect();
    places.sort();
    places
}

/// H1, judged by happens-before. A trace that saw less than `output_bytes` stored is no evidence, and fails too.
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
            let is_known = |(_, other): &(&str, &Hazard)| {
                (other.kind, places(other)) == (hazard.kind, places(hazard))
            };
            if quoted.len() < QUOTED && !quoted.iter().any(is_known) {
                quoted.push((label, hazard));
            }
        }
    }
    if count > 0 {
        let more = count - quoted.len();
        let reasons = quoted
            .iter()
            .map(|(label, hazard)| format!("{label}: {hazard}"));
        let mut reasons: Vec<String> = reasons.collect();
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
            "{label}: the trace saw {seen} bytes written to global memory, and the output has {output_bytes}: not all of \
             the kernel is traced"
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
            hazards: kinds[..hazards].iter().copied().map(hazard).collect(),
            more_hazards: 0,
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

    #[test]
    fn any_hazard_fails_and_none_is_evidence() {
        let (clean, dirty, worse) = (report(0), report(1), report(6));
        let of = |reports: &[&TraceReport]| {
            let launches = reports.iter().map(|report| Traced {
                label: "small",
                report,
            });
            h1(&launches.collect::<Vec<_>>(), OUTPUT_BYTES)
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
        let again = of(&[&dirty, &dirty, &dirty]).reason;
        assert_eq!(again, format!("{}; and 2 more", fail.reason), "quoted once");
        let kept_in_part = TraceReport {
            more_hazards: 4,
            ..report(1)
        };
        assert!(of(&[&kept_in_part]).reason.ends_with("; and 4 more"));
    }

    #[test]
    fn a_trace_that_missed_stores_is_no_evidence() {
        let of = |report: &TraceReport, output_bytes| {
            let label = "small";
            h1(&[Traced { label, report }], output_bytes)
        };
        let judged = of(&report(0), OUTPUT_BYTES + 1);
        assert_eq!(judged.verdict, Verdict::Fail);
        assert!(
            judged.reason.starts_with(
                "small: the trace saw 64 bytes written to global memory, and the output has 65"
            ),
            "{}",
            judged.reason
        );
        let (seen, nothing) = (
            report(0),
            TraceReport {
                counted: Counted::default(),
                ..report(0)
            },
        );
        let both = [&seen, &nothing].map(|report| Traced {
            label: "small",
            report,
        });
        assert_eq!(h1(&both, OUTPUT_BYTES).verdict, Verdict::Fail);
        let deadlocked = TraceReport {
            counted: Counted::default(),
            ..report(1)
        };
        assert!(
            of(&deadlocked, OUTPUT_BYTES)
                .reason
                .contains("A barrier is missing")
        );
    }
}
