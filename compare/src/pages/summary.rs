//! What `run` prints to the terminal: failures, a line per stage; then what is missing, what to do, and the verdict.

use super::{figure, ladder, or_missing, report, some, us};
use crate::document::{Block, Document, Table, Text, row};
use crate::judge::Known;
use crate::judge::best::{self, Latency};
use crate::judge::state::{State, summary};
use crate::judge::verdict::{Exit, Report};
use crate::table::session::first_place;
use crate::table::{StageMeta, Subject};
use common::metric::Metric;

pub fn document(report: &Report<'_>) -> Document {
    let end = vec![
        Block::Bullets(report::summary(report)),
        Block::bullets(report.overall.actions.clone()),
        verdict_line(report),
    ];
    let missing = report::missing(report, true);
    Document::of([report::failures(report), stages(report), missing, end].concat())
}

/// With `--quiet`: why the exit code is not 0, if so.
pub fn reproach(report: &Report<'_>) -> Option<Document> {
    let blocks = || [vec![verdict_line(report)], report::failures(report)].concat();
    (report.overall.exit != Exit::Pass).then(|| Document::of(blocks()))
}

fn verdict_line(report: &Report<'_>) -> Block {
    Block::Paragraph(Text::default().strong(report::verdict(report).to_string()))
}

fn stages(report: &Report<'_>) -> Vec<Block> {
    let row = |stage: &StageMeta| {
        let (green, ran) = ladder::green(report, &stage.id);
        let best = shown(&report.known, report, stage);
        let subject = stage.subject(best);
        let known = &report.known;
        let time = match best::latency(known, &subject, &first_place(Some(stage))) {
            Latency::Measured(row) if known.is_of_run(row) => Some(us(best::p50(row))),
            _ => None,
        };
        let row = summary(known, &subject, known.backend());
        let error = row.and_then(|row| row.value(Metric::ErrorOfBound));
        let error = error.map(|error| figure(Metric::ErrorOfBound, error));
        (ran > 0).then(|| {
            row! {
                "stage" => &stage.id,
                "best variant" => best,
                "p50 µs" => or_missing(time, "not timed in this run"),
                "error / bound" => or_missing(error, "not checked"),
                "green" => format!("{green} of {ran}"),
            }
        })
    };
    some(Table::of(report.known.stages.iter().filter_map(row)))
}

/// The best variant; if the run left it out, the first that it included.
fn shown<'a>(known: &Known<'_>, report: &'a Report<'_>, stage: &'a StageMeta) -> &'a str {
    let best = best::variant(known, stage);
    let ran = |(subject, state): &&(Subject, State)| {
        subject.stage() == stage.id && !matches!(state, State::NotRun(_))
    };
    let ran = report.states.iter().filter(ran);
    let ran: Vec<&str> = ran.map(|(subject, _)| subject.name()).collect();
    match ran.first() {
        Some(first) if !ran.contains(&best) => first,
        _ => best,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::terminal;
    use crate::judge::verdict;
    use crate::pages::testing::{OTHER, row, run};
    use crate::table::{On, Run, Source};
    use common::verdict::{GateId, GateResult};

    fn page(run: &Run) -> String {
        terminal::terminal(
            &document(&verdict::report(Known::alone(run))),
            terminal::WIDTH,
        )
    }

    #[test]
    fn green_is_a_line_a_stage_and_red_comes_first() {
        insta::assert_snapshot!(page(&run()), @r##"
| stage         | best variant | p50 µs | error / bound | green  |
|---------------|--------------|--------|---------------|--------|
| stage0-scalar | scalar-32x64 |  10.00 |        40.0 % | 1 of 1 |
| stage1-mma    | mma-32x64    |  5.000 |        40.0 % | 2 of 2 |

- gates: 3 of 3 variants green
- claims: 1 kept

- No action needed.

PASS: 3 variants are green
"##);
        let mut failed = run();
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
        let mut quick = run();
        quick.session.tier = crate::table::session::Tier::T0;
        quick.table.retain(|row| row.subject.as_str() != OTHER);
        let page = page(&quick);
        assert!(
            !page.contains("mma-64x64") && page.contains("1 of 1"),
            "{page}"
        );
    }
}
