//! What `run` prints to the terminal: failures, else a line per stage; then what is missing, what to do, and the verdict.

use super::{
    figure, ladder, line, list, or_missing, report::verdict, some, state, text, us, variants,
};
use crate::document::{Block, Document, Table, Text, row};
use crate::judge::Known;
use crate::judge::best::{self, Latency};
use crate::judge::list::joined;
use crate::judge::state::{State, summary};
use crate::judge::verdict::{Exit, Report};
use crate::record::meta::first_place;
use crate::record::{StageMeta, Subject};
use common::metric::Metric;

/// The most lines of what is not green, and of what is missing.
const MOST: usize = 12;

pub fn document(report: &Report<'_>) -> Document {
    let is_open = |(_, of): &&(Subject, State)| {
        matches!(of, State::Ambiguous(_) | State::NoData(_) | State::Stale)
    };
    let open: Vec<_> = report.states.iter().filter(is_open).collect();
    let row = |(subject, of): &&(Subject, State)| {
        row! { "not green" => text(subject), "verdict" => state(of) }
    };
    let shown = some(Table::of(open.iter().take(MOST).map(row)));
    let required: Vec<_> = report.required().collect();
    let missing = required.iter().take(MOST);
    let missing = missing.map(|missing| line(format!("missing: {missing}"), 180));
    let hidden = required.len().saturating_sub(MOST) + open.len().saturating_sub(MOST);
    let hidden =
        (hidden > 0).then(|| format!("{hidden} more: `compare show gates missing`").into());
    let refused = refused(report);
    let missing = list(missing.chain(hidden).chain(refused));
    let end = vec![
        Block::bullets(report.overall.actions.clone()),
        verdict_line(report),
    ];
    Document::of([failures(report), shown, stages(report), missing, end].concat())
}

/// How many variants the device cannot run: not at all, and not for every element type and head size.
fn refused(report: &Report<'_>) -> Option<Text> {
    let (mut whole, mut partial) = (0, 0);
    for stage in report.known.stages {
        for refusal in &stage.refused {
            match stage.variant(&refusal.variant) {
                None => whole += 1,
                Some(_) => partial += 1,
            }
        }
    }
    let whole = (whole > 0).then(|| format!("{} that the device cannot run", variants(whole)));
    let partial = (partial > 0).then(|| {
        let of = variants(partial);
        format!("{of} that it runs, but not for every element type and head size")
    });
    let lines = joined(whole.into_iter().chain(partial), "; ");
    (!lines.is_empty()).then(|| lines.into())
}

/// With `--quiet`: why the exit code is not 0, if so.
pub fn reproach(report: &Report<'_>) -> Option<Document> {
    let blocks = || [vec![verdict_line(report)], failures(report)].concat();
    (report.overall.exit != Exit::Pass).then(|| Document::of(blocks()))
}

fn verdict_line(report: &Report<'_>) -> Block {
    Block::Paragraph(Text::default().strong(verdict(report).to_string()))
}

fn failures(report: &Report<'_>) -> Vec<Block> {
    let failures = report.failures.iter();
    list(failures.map(|of| format!("FAIL {} of {}: {}", of.gate, of.subject, of.reason)))
}

/// A row for each stage of the run.
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
    use crate::pages::testing::{OTHER, record, row};
    use crate::record::meta::Refusal;
    use crate::record::{On, Record, Source};
    use common::verdict::{GateId, GateResult};

    fn page(run: &Record) -> String {
        terminal::terminal(
            &document(&verdict::report(Known::alone(run))),
            terminal::WIDTH,
        )
    }

    #[test]
    fn green_is_a_line_a_stage_and_red_comes_first() {
        insta::assert_snapshot!(page(&record()), @r##"
| stage         | best variant | p50 µs | error / bound | green  |
|---------------|--------------|--------|---------------|--------|
| stage0-scalar | scalar-32x64 |  10.00 |        40.0 % | 1 of 1 |
| stage1-mma    | mma-32x64    |  5.000 |        40.0 % | 2 of 2 |

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
        quick.table.retain(|row| row.subject.as_str() != OTHER);
        let page = page(&quick);
        assert!(
            !page.contains("mma-64x64") && page.contains("1 of 1"),
            "{page}"
        );
    }

    #[test]
    fn what_the_device_refuses_is_told_apart_from_what_it_runs_in_part() {
        let refuse = |record: &mut Record, variant: &str| {
            record.meta.stages[1].refused.push(Refusal {
                variant: variant.into(),
                reason: "f16 d128 needs 164 KB; the device has 99 KB".into(),
            });
        };
        let mut limited = record();
        refuse(&mut limited, "mma-64x64");
        let expected = "- 1 variant that it runs, but not for every element type and head size";
        assert!(page(&limited).contains(expected), "{}", page(&limited));
        refuse(&mut limited, "mma-128x64");
        refuse(&mut limited, "mma-256x64");
        let page = page(&limited)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let expected = "- 2 variants that the device cannot run; 1 variant that it runs, but not for every element type and head \
                        size";
        assert!(page.contains(expected), "{page}");
    }
}
