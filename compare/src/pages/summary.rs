//! What `run` prints to the terminal: failures, a line per stage; then what is missing, what to do, and the verdict.

use super::{figure, ladder, or_dash, report, some, us};
use crate::document::{Block, Document, Table, Text, row};
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
    Block::Paragraph(Text::default().strong(report::verdict(report)))
}

fn stages(report: &Report<'_>) -> Vec<Block> {
    let row = |stage: &StageMeta| {
        let (green, ran) = ladder::green(report, &stage.id);
        let best = shown(report, stage);
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
                "p50 µs" => or_dash(time),
                "error / bound" => or_dash(error),
                "green" => format!("{green} of {ran}"),
            }
        })
    };
    some(Table::of(report.known.stages.iter().filter_map(row)))
}

/// The best variant; if the run left it out, the first that it included.
fn shown<'a>(report: &'a Report<'_>, stage: &'a StageMeta) -> &'a str {
    let best = best::variant(&report.known, stage);
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
    use crate::judge::{Known, verdict};
    use crate::table::{On, Run, Source};
    use crate::testing::{US, WMMA, timed};
    use common::verdict::{GateId, GateResult};

    fn page(run: &Run) -> String {
        terminal::terminal(&document(&verdict::report(Known::alone(run))))
    }

    #[test]
    fn green_is_a_line_a_stage_and_red_comes_first() {
        insta::assert_snapshot!(page(&timed(US)), @r##"
| stage          | best variant  | p50 µs | error / bound | green  |
|----------------|---------------|--------|---------------|--------|
| stage0-scalar  | wmma-qk-32x64 |  20.02 |        17.0 % | 2 of 2 |
| stage1-cpasync | cpasync-32x64 |  15.01 |        17.0 % | 1 of 1 |

- variants: 3 GREEN
- claims: 4 PASS

- Complete this run with gate C7 before it is accepted: compare sanitize.

PASS: 3 variants are green
"##);
        let mut failed = timed(US);
        let fails = GateResult::judge(GateId::C2, false, "max error 3e-1 > 4e-4");
        let worst = failed.row_mut(WMMA, &On::All, Source::Gpu);
        worst.judge(GateId::C2, (&fails).into());
        let page = page(&failed);
        assert!(
            page.starts_with("- FAIL C2 of stage0-scalar/wmma-qk-32x64: max error 3e-1 > 4e-4"),
            "{page}"
        );
        assert!(
            page.trim_end()
                .ends_with("FAIL: 1 gate fails, first C2 of stage0-scalar/wmma-qk-32x64"),
            "{page}"
        );
    }

    #[test]
    fn what_a_quick_run_leaves_out_takes_no_line() {
        let mut quick = timed(US).changed(|session| {
            session
                .stages
                .iter_mut()
                .for_each(|stage| stage.claims.clear())
        });
        quick.session.tier = crate::table::session::Tier::T0;
        quick.table.retain(|row| row.subject.as_str() != WMMA);
        let page = page(&quick);
        assert!(
            !page.contains("wmma-qk-32x64") && page.contains("1 of 1"),
            "{page}"
        );
    }
}
