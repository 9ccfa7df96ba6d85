//! What committed candidates reached: a line for each, and how it compares with ours and the peers on a few problems.

use super::{commit, first_lines, ladder, missing, of, or_missing, some, state, text, times};
use crate::judge::list::grouped;
use crate::judge::peers::{self, Beside};
use crate::judge::state::summary;
use crate::judge::verdict::report;
use crate::judge::{Known, Named, place};
use crate::page::{Block, Cell, Table, TableRow, Text, row};
use crate::record::meta::Came;
use crate::record::{Record, Row, Source, Subject};
use common::metric::Metric;

/// The most candidates that are shown, and the most problems of each.
const MOST: usize = 3;
const MOST_PROBLEMS: usize = 4;

/// The newest record of each callable and GPU, newest first.
pub fn blocks(committed: &[Named]) -> Vec<Block> {
    let by_subject = committed.iter().rev().filter_map(|named| {
        let subject = named.1.variants().next()?;
        Some(((subject, place(&named.1)), named))
    });
    let newest: Vec<(Subject, &Named)> = grouped(by_subject)
        .into_iter()
        .map(|((subject, _), records)| (subject, records[0]))
        .collect();
    let lines = newest
        .iter()
        .map(|(subject, (name, record))| line(subject, name, record));
    let lines = first_lines(lines, MOST, "compare show --record RECORD");
    let shown = newest.iter().take(MOST);
    let table = Table::of(shown.flat_map(|(_, (name, record))| problems(name, record)));
    let about = (!table.rows.is_empty()).then(|| {
        Block::paragraph(
            "Ratios are the other's p50 / the candidate's, interleaved (A B B A). The host call is the time until a call returns to \
             Python. `compare show --record RECORD peers` shows all problems.",
        )
    });
    [lines, some(table), about.into_iter().collect()].concat()
}

/// `mine.py:attention`: GREEN over 14 cases of tier T2 on NVIDIA H200, in record …; how often it is faster.
fn line(subject: &Subject, name: &str, record: &Record) -> Text {
    let known = Known::alone(name, record);
    let report = report(known);
    let verdict = report.states.iter().find(|(other, _)| other == subject);
    let verdict = or_missing(verdict.map(|(_, of)| state(of)), "not declared");
    let line = Text::from(format!(
        "`{}`: {} over {} cases of tier {} on {}; record `{name}`, {}. ",
        subject.name(),
        verdict.shown(),
        of(summary(record, subject), Metric::Cases).shown(),
        record.meta.tier,
        place(record),
        commit(&record.meta.git)
    ));
    let line = match ladder::score(&known) {
        Some(score) => line.text(score),
        None => line.plain("It was not timed."),
    };
    match record.meta.peers {
        Some(Came { to, planned }) => line.plain(format!(
            " Timing was interrupted after {to} of {planned} problems."
        )),
        None => line,
    }
}

/// The first problems: of the first element type, full mask, small ones first.
fn problems(name: &str, record: &Record) -> Vec<TableRow> {
    let Some(Beside { mut problems, .. }) = peers::beside(&Known::alone(name, record)) else {
        return Vec::new();
    };
    problems.sort_by_key(|problem| (problem.place.dtype, problem.place.mask));
    let shown = problems.iter().take(MOST_PROBLEMS);
    shown
        .map(|problem| on_problem(record, problem.ours))
        .collect()
}

fn on_problem(record: &Record, candidate: &Row) -> TableRow {
    let over = |is_ours: bool| -> Cell {
        let is_other = |other: &Subject| other.name().is_empty() != is_ours;
        let Some((other, over)) = peers::fastest(record, candidate, is_other) else {
            return missing("none was timed and right");
        };
        let name = format!("{} {}", other.subject, of(Some(other), Metric::P50).shown());
        let ratio = over.value(Metric::SpeedupP50);
        or_missing(ratio.map(|ratio| times(ratio).noted(name)), "no pair")
    };
    let default = record.row(&peers::DEFAULT.into(), &candidate.on, Source::Peers);
    row! {
        "candidate" => candidate.subject.name(),
        "problem" => text(&candidate.on),
        "p50" => of(Some(candidate), Metric::P50),
        "over our fastest" => over(true),
        "over the fastest peer" => over(false),
        "host call" => of(Some(candidate), Metric::HostP50),
        "torch's host call" => of(default, Metric::HostP50),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::markdown;
    use crate::testing::{CPASYNC, GPU, MINE, candidate};
    use common::verdict::GateId;

    fn shown(records: &[Named]) -> String {
        markdown::blocks(&blocks(records))
    }

    #[test]
    fn a_candidate_stands_beside_our_fastest_and_the_fastest_peer() {
        let rivals = [
            (CPASYNC, 40.0, true),
            ("torch-default", 30.0, true),
            ("torch-flash", 25.0, true),
            // There is no ratio over what is wrong.
            ("torch-cudnn", 5.0, false),
        ];
        let record = candidate()
            .beside(MINE, "long", 20.0, &rivals)
            .changed(|meta| meta.peers = Some(Came { to: 2, planned: 7 }));
        let mut cpu = candidate().without(|row| row.by == Source::Peers);
        cpu.meta.backend = common::device::BackendKind::Cpu;
        cpu.meta.stages[0].variants[0].name = "other.py:f".into();
        (cpu.rows[0].subject, cpu.rows[0].by) = ("candidate/other.py:f".into(), Source::Cpu);
        let records = [
            ("1".to_string(), candidate().failing(MINE, GateId::C2)),
            ("2".to_string(), cpu),
            ("3".to_string(), record),
        ];
        insta::assert_snapshot!(shown(&records), @r"
        - `mine.py:attention`: GREEN over 14 cases of tier T2 on NVIDIA H200; record `3`, commit 0123456789ab. **The candidate is faster than the fastest of ours and the peers on 1 of 2 problems and slower on 1**: from 0.80x (mission f16 full) to 1.25x (long f16 full). Timing was interrupted after 2 of 7 problems.
        - `other.py:f`: GREEN over 14 cases of tier T2 on the processor; record `2`, commit 0123456789ab. It was not timed.

        | candidate | problem | p50 | over our fastest | over the fastest peer | host call | torch's host call |
        |---|---|---:|---|---|---:|---:|
        | mine.py:attention | mission f16 full | 10.01 µs | 0.80x (stage1-cpasync/cpasync-32x64 8.008 µs) | 1.60x (torch-default 16.02 µs) | 20.02 µs | 20.02 µs |
        | mine.py:attention | long f16 full | 20.02 µs | 2.00x (stage1-cpasync/cpasync-32x64 40.04 µs) | 1.25x (torch-flash 25.02 µs) | 20.02 µs | 20.02 µs |

        Ratios are the other's p50 / the candidate's, interleaved (A B B A). The host call is the time until a call returns to Python. `compare show --record RECORD peers` shows all problems.
        ");
        assert_eq!(shown(&[]), "");
        // Of another GPU it is another.
        let two = [
            ("1".to_string(), candidate()),
            ("2".to_string(), candidate().on_gpu("NVIDIA L4")),
        ];
        let two = shown(&two);
        assert!(two.contains("NVIDIA L4") && two.contains(GPU), "{two}");
    }
}
