//! What `run` says where it was started: what fails, else a line per stage; then what is missing, what to do, the verdict.

use super::{
    figure, ladder, line, list, or_missing, report::verdict, some, state, text, us, words,
};
use crate::judge::best::{self, Latency};
use crate::judge::state::{Failure, State, summary};
use crate::judge::verdict::{Exit, Report};
use crate::judge::{Known, Origin};
use crate::page::{Block, Document, Table, Text, row};
use crate::record::meta::first_place;
use crate::record::{StageMeta, Subject};
use common::metric::Metric;

/// Lines of what is missing, and of a failure's kind.
const MOST: usize = 12;

pub fn document(report: &Report<'_>) -> Document {
    let mut blocks = failures(report);
    let is_open = |of: &State| matches!(of, State::Ambiguous(_) | State::NoData(_) | State::Stale);
    let open = report.states.iter().filter(|(_, of)| is_open(of));
    let undecided = open.clone().count();
    let rows = open
        .take(MOST)
        .map(|(subject, of)| row![text(subject), state(of)]);
    blocks.extend(some(Table::of(["not green", "verdict"], rows)));
    blocks.extend(stages(report));
    let lines: Vec<Text> = report
        .required()
        .map(|missing| line(format!("missing: {missing}"), 180))
        .collect();
    let hidden = lines.len().saturating_sub(MOST) + undecided.saturating_sub(MOST);
    let more = (hidden > 0).then(|| words(&format!("{hidden} more: `compare show gates missing`")));
    let refused = report
        .known
        .stages
        .iter()
        .flat_map(|stage| &stage.refused)
        .count();
    let refused = (refused > 0).then(|| {
        Text::from(format!(
            "{} that the device cannot run",
            super::variants(refused)
        ))
    });
    blocks.extend(list(
        lines.into_iter().take(MOST).chain(more).chain(refused),
    ));
    blocks.push(Block::bullets(
        report.overall.actions.iter().map(|action| words(action)),
    ));
    blocks.push(Block::Paragraph(
        Text::default().strong(verdict(report).to_string()),
    ));
    Document::of(blocks)
}

/// For those who asked for quiet: why the exit code is not 0, if it is not.
pub fn reproach(report: &Report<'_>) -> Option<Document> {
    let mut blocks = vec![Block::Paragraph(
        Text::default().strong(verdict(report).to_string()),
    )];
    blocks.extend(failures(report));
    (report.overall.exit != Exit::Pass).then(|| Document::of(blocks))
}

fn failures(report: &Report<'_>) -> Vec<Block> {
    let line = |failure: &Failure| {
        words(&format!(
            "FAIL {} of {}: {}",
            failure.gate, failure.subject, failure.reason
        ))
    };
    list(report.failures.iter().map(line))
}

/// A line for each stage of the run.
fn stages(report: &Report<'_>) -> Vec<Block> {
    let row = |stage: &StageMeta| {
        let (green, ran) = ladder::green(report, &stage.id);
        let best = shown(&report.known, report, stage);
        let subject = stage.subject(best);
        let time = match best::latency(&report.known, &subject, &first_place(Some(stage))) {
            Latency::Measured {
                row,
                origin: Origin::Run,
                ..
            } => Some(us(best::p50(row))),
            _ => None,
        };
        let row = report.known.run.and_then(|(_, run)| summary(run, &subject));
        let error = row.and_then(|row| row.value(Metric::ErrorOfBound));
        let error = error.map(|error| figure(Metric::ErrorOfBound, error));
        let time = or_missing(time, "not timed in this run");
        (ran > 0).then(|| {
            row![
                &stage.id,
                best,
                time,
                or_missing(error, "not checked"),
                format!("{green} of {ran}")
            ]
        })
    };
    let columns = [
        "stage",
        "best variant",
        "p50 µs",
        "error of its bound",
        "green",
    ];
    some(Table::of(
        columns,
        report.known.stages.iter().filter_map(row),
    ))
}

/// The best variant, or where the run left it out its first.
fn shown<'a>(known: &Known<'a>, report: &'a Report<'_>, stage: &'a StageMeta) -> &'a str {
    let best = best::variant(known, stage);
    let ran = |(subject, state): &&(Subject, State)| {
        subject.stage() == stage.id && !matches!(state, State::NotRun(_))
    };
    let mut of_stage = report
        .states
        .iter()
        .filter(ran)
        .map(|(subject, _)| subject.name());
    let first = of_stage.clone().next().unwrap_or(best);
    if of_stage.any(|name| name == best) {
        best
    } else {
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::verdict;
    use crate::page::terminal;
    use crate::pages::testing::{OTHER, record, row};
    use crate::record::{On, Record, Source};
    use common::verdict::{GateId, GateResult};

    fn page(run: &Record) -> String {
        let known = Known {
            stages: &run.meta.stages,
            run: Some(("run", run)),
            committed: &[],
        };
        terminal::terminal(&document(&verdict::report(known)), terminal::WIDTH)
    }

    #[test]
    fn green_is_a_line_a_stage_and_red_comes_first() {
        insta::assert_snapshot!(page(&record()), @r##"
| stage         | best variant | p50 µs | error of its bound | green  |
|---------------|--------------|--------|--------------------|--------|
| stage0-scalar | scalar-32x64 |  10.00 |             40.0 % | 1 of 1 |
| stage1-mma    | mma-32x64    |  5.000 |             40.0 % | 2 of 2 |

- No action needed.

PASS: 3 variants are green
"##);
        let mut failed = record();
        let fails = GateResult::judge(GateId::C2, false, "max error 3e-1 > 4e-4");
        let worst = row(&mut failed, OTHER, &On::All, Source::Gpu);
        worst.judge(GateId::C2, (&fails).into());
        let page = page(&failed);
        assert!(
            page.starts_with("- FAIL C2 of stage1-mma/mma-64x64: max error 3e-1 > 4e-4"),
            "{page}"
        );
        assert!(
            page.trim_end()
                .ends_with("FAIL: 1 gate fails, first C2 of stage1-mma/mma-64x64"),
            "{page}"
        );
    }

    #[test]
    fn what_a_quick_run_leaves_out_takes_no_line() {
        let mut quick = record();
        quick.meta.tier = crate::record::meta::Tier::T0;
        quick.rows.retain(|row| row.subject.as_str() != OTHER);
        let page = page(&quick);
        assert!(
            !page.contains("mma-64x64") && page.contains("1 of 1"),
            "{page}"
        );
    }
}
