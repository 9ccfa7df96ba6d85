//! What `candidate` prints: its gates, its ratios on each problem, and the verdict.

use super::{list, noted, of, or_dash, sections, some, text, times};
use crate::document::{Block, Table, TableRow, row};
use crate::judge::Known;
use crate::judge::candidate::Candidate;
use crate::judge::peers::{DEFAULT, fastest};
use crate::table::{Judged, Row, Source};
use common::metric::Metric;
use common::timing::Change;
use common::verdict::{GateId, Verdict};

pub fn document(candidate: &Candidate) -> Vec<Block> {
    let gate = |(gate, judged): (&GateId, &Judged)| {
        let counts = judged.passed.zip(judged.of);
        row! {
            "gate" => text(gate),
            "verdict" => text(judged.verdict),
            "cases passed" => or_dash(counts.map(|(passed, of)| format!("{passed} of {of}"))),
        }
    };
    let table = candidate.table();
    let known = Known::committed(&[], &table);
    let timings = candidate.own(&known).map(|own| timing(&known, own));
    let about = "Ratios are the other's p50 / the candidate's, interleaved (A B B A). The host call is the time until a call returns \
                 to Python.";
    let about = (!candidate.timings.is_empty()).then(|| Block::paragraph(about));
    let parts = [
        ("Not timed", list(candidate.not_timed.clone())),
        ("Unsupported", list(candidate.unsupported.clone())),
    ];
    [
        list(candidate.failures()),
        some(Table::of(candidate.gates.iter().map(gate))),
        some(Table::of(timings)),
        about.into_iter().collect(),
        sections(Block::subsection, parts),
        vec![Block::strong(conclusion(candidate))],
    ]
    .concat()
}

/// `own`: the candidate on a problem.
fn timing(known: &Known<'_>, own: &Row) -> TableRow {
    let over = |is_ours: bool| {
        let fastest = fastest(known, own, |rival| rival.name().is_empty() != is_ours);
        or_dash(fastest.map(|(rival, pair)| {
            let us = Metric::P50.show(rival.estimate(Metric::P50).value);
            let ratio = times(pair.estimate(Metric::SpeedupP50).value, 2);
            ratio.noted(format!("{} {us}", rival.subject))
        }))
    };
    let default = known.table.row(&DEFAULT.into(), &own.on, Source::Peers);
    row! {
        "problem" => text(&own.on),
        "p50" => noted(of(Some(own), Metric::P50), own.note.as_deref()),
        "over our fastest" => over(true),
        "over the fastest peer" => over(false),
        "host call" => of(Some(own), Metric::HostP50),
        "torch's host call" => of(default, Metric::HostP50),
    }
}

/// `PASS: mine.py:attention passes every gate in 14 cases on NVIDIA H200; faster than the fastest of ours and the peers on 1 of 2 problems`
fn conclusion(candidate: &Candidate) -> String {
    let Candidate { name, device, .. } = candidate;
    let cases = super::count(candidate.cases, "case", "cases");
    let mut words = match candidate.verdict {
        Verdict::Pass => format!("PASS: {name} passes every gate in {cases} on {device}"),
        Verdict::Fail => {
            let failed = candidate.failures().count();
            format!(
                "FAIL: {name} fails {} on {device}",
                super::count(failed, "gate", "gates")
            )
        }
        other => format!("{other}: {name} was judged in {cases} on {device}"),
    };
    let outcomes = candidate.outcomes();
    if !outcomes.is_empty() {
        let on = |of: Change| outcomes.iter().filter(|outcome| **outcome == of).count();
        let (faster, slower) = (on(Change::Faster), on(Change::Slower));
        let all = outcomes.len();
        words += &format!(
            "; against the fastest of ours and the peers it is faster on {faster} of {all} problems, slower on {slower} and inconclusive on {}",
            all - faster - slower
        );
    }
    if candidate.is_interrupted {
        words += "; interrupted";
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::markdown;
    use crate::judge::candidate::judge;
    use crate::table::{On, Place};
    use common::problem::{Dtype, Mask};
    use common::verdict::GateResult;

    #[test]
    fn gates_and_ratios_are_shown_with_their_rivals() {
        let name = "mine.py:attention";
        let judged = |gate, passes| GateResult::judge(gate, passes, "max error 3e-1 > 4e-4");
        let summary = [GateId::C1, GateId::C2, GateId::C3, GateId::C5, GateId::C6]
            .map(|gate| judged(gate, true))
            .iter()
            .fold(Row::new(name, On::All, Source::Peers), Row::verdict)
            .figure(Metric::Cases, 14.0);
        let place = Place::claims(Dtype::F16);
        let unsupported = Place::new("long", Dtype::Bf16, Mask::Causal);
        let cases = [Row::new(
            name,
            On::Case(unsupported, "normal:0".into()),
            Source::Peers,
        )
        .note("NotImplementedError: no bf16")];
        let arm = |subject: &str, us: f64| {
            Row::new(subject, On::Problem(place.clone()), Source::Peers)
                .figure(Metric::P50, us)
                .figure(Metric::HostP50, 20.0)
        };
        let pair = |rival: &str, ratio: f64| {
            Row::new(name, On::Problem(place.clone()), Source::Peers)
                .against(rival)
                .figure(Metric::SpeedupP50, (ratio, ratio - 0.01, ratio + 0.01))
        };
        let ours = "stage1-cpasync/cpasync-32x64";
        let rows = [
            arm(name, 10.0),
            arm(ours, 8.0),
            arm(DEFAULT, 16.0),
            pair(ours, 0.8),
            pair(DEFAULT, 1.6),
            Row::new("flash-attn", On::All, Source::Peers).note("not installed"),
        ];
        let of = judge("NVIDIA H200", &summary, &cases, &rows);
        insta::assert_snapshot!(markdown::markdown(&document(&of)), @r"
        | gate | verdict | cases passed |
        |---|---|---|
        | C1 | PASS | – |
        | C2 | PASS | – |
        | C3 | PASS | – |
        | C5 | PASS | – |
        | C6 | PASS | – |

        | problem | p50 | over our fastest | over the fastest peer | host call | torch's host call |
        |---|---:|---|---|---:|---:|
        | mission f16 full | 10.00 µs | 0.80x (stage1-cpasync/cpasync-32x64 8.000 µs) | 1.60x (torch-default 16.00 µs) | 20.00 µs | 20.00 µs |

        Ratios are the other's p50 / the candidate's, interleaved (A B B A). The host call is the time until a call returns to Python.

        ### Not timed

        - flash-attn: not installed

        ### Unsupported

        - long bf16 causal: NotImplementedError: no bf16

        **PASS: mine.py:attention passes every gate in 14 cases on NVIDIA H200; against the fastest of ours and the peers it is faster on 0 of 1 problems, slower on 1 and inconclusive on 0**
        ");
        let mut wrong = summary;
        wrong.judge(GateId::C2, (&judged(GateId::C2, false)).into());
        let of = judge("NVIDIA H200", &wrong, &[], &[]);
        insta::assert_snapshot!(markdown::markdown(&document(&of)), @"
    - FAIL C2 of mine.py:attention: max error 3e-1 > 4e-4

    | gate | verdict | cases passed |
    |---|---|---|
    | C1 | PASS | – |
    | C2 | FAIL | – |
    | C3 | PASS | – |
    | C5 | PASS | – |
    | C6 | PASS | – |

    **FAIL: mine.py:attention fails 1 gate on NVIDIA H200**
    ");
    }
}
