//! What committed candidates reached: a line for each, and on a few problems how it stands against ours and the peers.

use super::{
    commit, first_lines, ladder, missing, of, or_missing, some, state, text, times, words,
};
use crate::judge::list::grouped;
use crate::judge::peers::{self, Beside};
use crate::judge::state::summary;
use crate::judge::verdict::report;
use crate::judge::{Known, Named, place};
use crate::page::{Block, Cell, Table, Text, row};
use crate::record::meta::Came;
use crate::record::{Record, Row, Source, Subject};
use common::metric::Metric;

/// So many candidates are shown, and so many problems of each.
const MOST: usize = 3;
const MOST_PROBLEMS: usize = 4;

/// The newest record of each callable and GPU, newest first; nothing where there is none.
pub fn blocks(committed: &[Named]) -> Vec<Block> {
    let subject = |record: &Record| record.variants().next();
    let by_subject = committed.iter().rev().filter_map(|(name, record)| {
        let key = (subject(record)?, place(record));
        Some((key, (name, record)))
    });
    let newest: Vec<(Subject, &str, &Record)> = grouped(by_subject)
        .into_iter()
        .map(|((subject, _), records)| (subject, records[0].0.as_str(), records[0].1))
        .collect();
    let lines = newest
        .iter()
        .map(|(subject, name, record)| line(subject, name, record));
    let mut blocks = first_lines(lines, MOST, "compare show --record RECORD");
    let columns = [
        "candidate",
        "problem",
        "p50",
        "over our fastest",
        "over the fastest peer",
        "host call",
        "torch's host call",
    ];
    let rows = newest
        .iter()
        .take(MOST)
        .flat_map(|(_, name, record)| problems(name, record));
    let table = some(Table::of(columns, rows));
    if !table.is_empty() {
        blocks.extend(table);
        blocks.push(Block::paragraph(words(
            "Ratios are the other's p50 over the candidate's, timed in turns (A B B A); a host call is what Python waits for until a \
             call returns. `compare show --record RECORD peers` has all problems.",
        )));
    }
    blocks
}

/// `mine.py:attention`: GREEN over 14 cases of tier T2 on NVIDIA H200, in record …; how often it is ahead.
fn line(subject: &Subject, name: &str, record: &Record) -> Text {
    let known = Known::alone(name, record);
    let report = report(known);
    let verdict = report.states.iter().find(|(other, _)| other == subject);
    let verdict = or_missing(verdict.map(|(_, of)| state(of)), "not declared");
    let line = Text::default()
        .code(subject.name())
        .plain(": ")
        .text(verdict.shown())
        .plain(" over ")
        .text(of(summary(record, subject), Metric::Cases).shown())
        .plain(format!(
            " cases of tier {} on {}; record ",
            record.meta.tier,
            place(record)
        ))
        .code(name)
        .plain(format!(", {}. ", commit(&record.meta.git)));
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

/// Its first problems: of the first element type, under the full mask, small ones first.
fn problems(name: &str, record: &Record) -> Vec<Vec<Cell>> {
    let Some(Beside { mut problems, .. }) = peers::beside(&Known::alone(name, record)) else {
        return Vec::new();
    };
    problems.sort_by_key(|problem| (problem.place.dtype, problem.place.mask));
    let timed = problems.iter().map(|problem| problem.ours);
    timed
        .take(MOST_PROBLEMS)
        .map(|candidate| on_problem(record, candidate))
        .collect()
}

fn on_problem(record: &Record, candidate: &Row) -> Vec<Cell> {
    let over = |is_ours: bool| {
        let is_rival = |rival: &Subject| rival.name().is_empty() != is_ours;
        let Some((rival, over)) = peers::fastest(record, candidate, is_rival) else {
            return missing("none was timed, or right");
        };
        let rival = format!("{} {}", rival.subject, of(Some(rival), Metric::P50).shown());
        let ratio = over.value(Metric::SpeedupP50);
        or_missing(ratio.map(|ratio| times(ratio).noted(rival)), "no pair")
    };
    let default = record.row(&peers::DEFAULT.into(), &candidate.on, Source::Peers);
    row![
        candidate.subject.name(),
        text(&candidate.on),
        of(Some(candidate), Metric::P50),
        over(true),
        over(false),
        of(Some(candidate), Metric::HostP50),
        of(default, Metric::HostP50),
    ]
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
        - `mine.py:attention`: GREEN over 14 cases of tier T2 on NVIDIA H200; record `3`, commit 0123456789ab. **The candidate is ahead of the fastest rival on 1 of 2 problems and behind on 1**: from 0.80x (mission f16 full) to 1.25x (long f16 full). Timing was interrupted after 2 of 7 problems.
        - `other.py:f`: GREEN over 14 cases of tier T2 on the processor; record `2`, commit 0123456789ab. It was not timed.

        | candidate | problem | p50 | over our fastest | over the fastest peer | host call | torch's host call |
        |---|---|---:|---|---|---:|---:|
        | mine.py:attention | mission f16 full | 10.01 µs | 0.80x (stage1-cpasync/cpasync-32x64 8.008 µs) | 1.60x (torch-default 16.02 µs) | 20.02 µs | 20.02 µs |
        | mine.py:attention | long f16 full | 20.02 µs | 2.00x (stage1-cpasync/cpasync-32x64 40.04 µs) | 1.25x (torch-flash 25.02 µs) | 20.02 µs | 20.02 µs |

        Ratios are the other's p50 over the candidate's, timed in turns (A B B A); a host call is what Python waits for until a call returns. `compare show --record RECORD peers` has all problems.
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
