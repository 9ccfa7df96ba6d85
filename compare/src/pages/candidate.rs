//! What `candidate` prints: its gates, its ratios on each problem, and the verdict.

use super::{list, noted, of, or_dash, sections, some, text, times};
use crate::document::{Block, Table, TableRow, row};
use crate::judge::candidate::Candidate;
use crate::judge::peers::{DEFAULT, fastest, score};
use crate::table::{self, Judged, Row};
use common::metric::Metric;
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
    let timed = &candidate.timed;
    let timings = Table::of(candidate.own().map(|own| timing(timed, own)));
    let about = "Ratios are the other's p50 / the candidate's, interleaved (A B B A). The host call is the time until a call returns \
                 to Python.";
    let about = (!timings.rows.is_empty()).then(|| Block::paragraph(about));
    let parts = [
        ("Not timed", list(candidate.not_timed())),
        ("Unsupported", list(candidate.unsupported())),
    ];
    [
        list(candidate.failures()),
        some(Table::of(candidate.summary.verdicts.iter().map(gate))),
        some(timings),
        about.into_iter().collect(),
        sections(Block::subsection, parts),
        vec![Block::strong(conclusion(candidate))],
    ]
    .concat()
}

/// `own`: the candidate on a problem.
fn timing(timed: &table::Table, own: &Row) -> TableRow {
    let over = |is_ours: bool| {
        let fastest = fastest(timed, own, |rival| rival.name().is_empty() != is_ours);
        or_dash(fastest.map(|rival| {
            let us = Metric::P50.show(rival.time.estimate(Metric::P50).value);
            let ratio = times(rival.over.estimate(Metric::SpeedupP50).value, 2);
            ratio.noted(format!("{} {us}", rival.time.subject))
        }))
    };
    let default = timed.row(&DEFAULT.into(), own.kind.clone());
    row! {
        "problem" => text(own.place()),
        "p50" => noted(of(Some(own), Metric::P50), own.note.as_deref()),
        "over our fastest" => over(true),
        "over the fastest peer" => over(false),
        "host call" => of(Some(own), Metric::HostP50),
        "torch's host call" => of(default, Metric::HostP50),
    }
}

/// `PASS: mine.py:attention passes every gate in 14 cases on NVIDIA H200; against the fastest of ours and the peers on 1 problem: 1 faster`
fn conclusion(candidate: &Candidate) -> String {
    let Candidate {
        device, summary, ..
    } = candidate;
    let name = &summary.subject;
    let cases = summary.value(Metric::Cases).unwrap_or(0.0) as usize;
    let cases = super::count(cases, "case", "cases");
    let mut words = match candidate.verdict() {
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
    let ratios = candidate.ratios();
    if !ratios.is_empty() {
        let score = score(&ratios);
        words += &format!("; against the fastest of ours and the peers on {score}");
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
    use crate::testing::scenario::{candidate, row};

    /// What is fastest and wrong has no pair, and is no rival.
    #[test]
    fn gates_and_ratios_are_shown_with_their_rivals() {
        let of = Candidate {
            cases: vec![row(
                "mine.py:attention | long bf16 causal normal:0 | peers | note NotImplementedError: no bf16",
            )],
            ..candidate(
                "cases 14 | C1 pass | C2 pass | C3 pass | C5 pass | C6 pass; \
                 mine.py:attention | mission f16 full | peers | p50 10 | host_p50 20; \
                 cpasync | mission f16 full | peers | p50 8; \
                 torch-default | mission f16 full | peers | p50 16 | host_p50 20; \
                 torch-cudnn | mission f16 full | peers | p50 5; \
                 mine.py:attention | mission f16 full | peers cpasync | speedup_p50 0.8 0.79 0.81; \
                 mine.py:attention | mission f16 full | peers torch-default | speedup_p50 1.6 1.59 1.61; \
                 flash-attn | all | peers | note not installed",
            )
        };
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

        **PASS: mine.py:attention passes every gate in 14 cases on NVIDIA H200; against the fastest of ours and the peers on 1 problem: 1 slower**
        ");
        let of = candidate("C1 pass | C2 fail max error 3e-1 > 4e-4 | C3 pass | C5 pass | C6 pass");
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
