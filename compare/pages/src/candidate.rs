//! The page of `candidate`: its gates, its ratios on each problem, and the verdict.

use super::blocks::{Titled, bullets, sections, table_block};
use super::cells::{figure_cell, noted, or_dash, ratio_cell, text};
use common::metric::Metric;
use common::verdict::Verdict;
use document::{Block, Cell, Table, TableRow, row};
use results::judge::candidate::Candidate;
use results::judge::list::count;
use results::judge::peers::{DEFAULT, fastest, score};
use results::table::{self, Row};

/// Returns the page about a candidate: its gates, times and ratios, and the verdict.
pub fn document(candidate: &Candidate) -> Vec<Block> {
    let mut blocks = bullets(candidate.failures());
    blocks.extend(table_block(gates_table(candidate)));
    let mut timings = Vec::new();
    for row in candidate.own() {
        timings.push(timing_row(&candidate.timed, row));
    }
    if !timings.is_empty() {
        blocks.push(Block::Table(Table::from_rows(timings)));
        blocks.push(Block::paragraph(
            "Ratios are the other's p50 / the candidate's, interleaved (A B B A). \
             The host call is the time until a call returns to Python.",
        ));
    }
    blocks.extend(sections(
        Block::subsection,
        [
            Titled::new("Not timed", bullets(candidate.not_timed())),
            Titled::new("Unsupported", bullets(candidate.unsupported())),
        ],
    ));
    blocks.push(Block::strong(conclusion(candidate)));
    blocks
}

fn gates_table(candidate: &Candidate) -> Table {
    let mut rows = Vec::new();
    for (gate, judged) in &candidate.summary.verdicts {
        let counts = match (judged.passed, judged.of) {
            (Some(passed), Some(all)) => Some(format!("{passed} of {all}")),
            _ => None,
        };
        rows.push(row! {
            "gate" => text(gate),
            "verdict" => text(judged.verdict),
            "cases passed" => or_dash(counts),
        });
    }
    Table::from_rows(rows)
}

/// Returns the row of a problem, on which `own` is the candidate's time.
fn timing_row(timed: &table::Table, own: &Row) -> TableRow {
    let default = timed.row(&DEFAULT.into(), own.kind.clone());
    row! {
        "problem" => text(own.place()),
        "p50" => noted(figure_cell(Some(own), Metric::P50), own.note.as_deref()),
        "over our fastest" => over_fastest(timed, own, true),
        "over the fastest peer" => over_fastest(timed, own, false),
        "host call" => figure_cell(Some(own), Metric::HostP50),
        "torch's host call" => figure_cell(default, Metric::HostP50),
    }
}

/// Returns the ratio over the fastest of ours or of the peers, with its name and time.
fn over_fastest(timed: &table::Table, own: &Row, is_ours: bool) -> Cell {
    let Some(rival) = fastest(timed, own, |subject| subject.name().is_empty() != is_ours) else {
        return Cell::Missing;
    };
    let us = Metric::P50.show(rival.time.estimate(Metric::P50).value);
    let ratio = ratio_cell(rival.over.estimate(Metric::SpeedupP50).value, 2);
    ratio.noted(format!("{} {us}", rival.time.subject))
}

/// Returns `PASS: mine.py:attention passes every gate in 14 cases on NVIDIA H200; against the
/// fastest of ours and the peers on 1 problem: 1 faster`.
fn conclusion(candidate: &Candidate) -> String {
    let Candidate {
        device, summary, ..
    } = candidate;
    let name = &summary.subject;
    let number = summary.value(Metric::Cases).unwrap_or(0.0) as usize;
    let cases = count(number, "case", "cases");
    let mut line = match candidate.verdict() {
        Verdict::Pass => format!("PASS: {name} passes every gate in {cases} on {device}"),
        Verdict::Fail => {
            let gates = count(candidate.failures().count(), "gate", "gates");
            format!("FAIL: {name} fails {gates} on {device}")
        }
        other => format!("{other}: {name} was judged in {cases} on {device}"),
    };
    let ratios = candidate.ratios();
    if !ratios.is_empty() {
        let score = score(&ratios);
        line += &format!("; against the fastest of ours and the peers on {score}");
    }
    if candidate.is_interrupted {
        line += "; interrupted";
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use document::markdown;
    use results::testing::{candidate, row};

    /// The fastest peer is wrong: it has no pair, and is no rival.
    #[test]
    fn gates_and_ratios_are_shown_with_their_rivals() {
        let mut timed = candidate("cases 14 | C1 pass | C2 pass | C3 pass | C5 pass | C6 pass");
        for time in [
            "mine.py:attention | mission f16 full | peers | p50 10 | host_p50 20",
            "cpasync | mission f16 full | peers | p50 8",
            "torch-default | mission f16 full | peers | p50 16 | host_p50 20",
            "torch-cudnn | mission f16 full | peers | p50 5",
            "mine.py:attention | mission f16 full | peers cpasync | speedup_p50 0.8 0.79 0.81",
            "mine.py:attention | mission f16 full | peers torch-default | speedup_p50 1.6 1.59 1.61",
            "flash-attn | all | peers | note not installed",
        ] {
            timed.add(row(time));
        }
        timed.cases = vec![row(
            "mine.py:attention | long bf16 causal normal:0 | peers | \
             note NotImplementedError: no bf16",
        )];
        insta::assert_snapshot!(markdown::markdown(&document(&timed)), @r"
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
    }

    #[test]
    fn a_gate_that_fails_stands_first_and_last() {
        let failed =
            candidate("C1 pass | C2 fail max error 3e-1 > 4e-4 | C3 pass | C5 pass | C6 pass");
        insta::assert_snapshot!(markdown::markdown(&document(&failed)), @"
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
